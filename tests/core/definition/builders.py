"""Small documents for the tests of the definition."""

from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.definition.document import parse, validate


def task(name="a", **fields):
    return {"kind": "task", "id": name, "handler": "work", **fields}


def flow(*nodes, **fields):
    return {"name": "flow", "nodes": list(nodes or [task()]), **fields}


def found(document, **arguments):
    """(path, code) of every problem, of form or of meaning."""
    try:
        problems = validate(parse(document), **arguments)
    except InvalidDefinition as error:
        problems = error.problems
    return [(problem.path, problem.code) for problem in problems]


def branch(name="b", to=("yes",), default=("no",), **fields):
    return {
        "kind": "branch",
        "id": name,
        "cases": [{"when": "inputs.x", "to": list(to)}],
        "default": list(default),
        **fields,
    }


def body(**args):
    return {"kind": "task", "handler": "x", "args": {name: {"from": source} for name, source in args.items()}}


def each(inner, **fields):
    return {"kind": "map", "over": "inputs.x", "body": inner, **fields}


def until_done(inner, **fields):
    return {"kind": "repeat", "until": "last.done", "max_iterations": 3, "body": inner, **fields}


FULL = flow(
    {"kind": "http", "id": "fetch", "url": "https://example.org/x", "headers": {"Accept": "text/plain"}, "retry": 3},
    branch("check", to=["big"], default=["small"], needs=["fetch"]),
    task("big", needs=["check"], args={"data": {"from": "nodes.fetch.body"}, "n": {"value": None}}, timeout="5m"),
    {"kind": "shell", "id": "small", "argv": ["true"], "needs": ["check"], "timeout": {"queued": "1h", "silent": "5s"}},
    {
        "kind": "map",
        "id": "each",
        "needs": ["fetch"],
        "over": "nodes.fetch.items",
        "max_parallel": 5,
        "body": {"kind": "task", "handler": "one", "args": {"x": {"from": "item.id"}, "i": {"from": "index"}}},
    },
    {
        "kind": "repeat",
        "id": "poll",
        "until": "last.done",
        "max_iterations": 9,
        "delay": "2s",
        "body": {"kind": "workflow", "workflow": "child", "args": {"p": {"from": "previous"}}},
    },
    {"kind": "wait", "id": "pause", "duration": "3d"},
    {"kind": "wait", "id": "later", "until": "inputs.start"},
    {"kind": "wait", "id": "fixed", "until": "2030-01-01T00:00:00Z"},
    {
        "kind": "event",
        "id": "paid",
        "event": "order.paid",
        "key": "inputs.order",
        "timeout": "1d",
        "on_timeout": "continue",
    },
    {"kind": "approval", "id": "ok", "approvers": ["ann@example.org"], "four_eyes": True, "timeout": "2d"},
    {
        "kind": "send",
        "id": "tell",
        "needs": ["big", "small"],
        "trigger": "all_done",
        "channel": "email",
        "action": {"to": "x"},
    },
    inputs={
        "x": {"type": "boolean", "default": False},
        "order": {"type": "string", "max_length": 10},
        "start": {"type": "datetime", "required": False},
        "key": {"type": "string", "secret": True, "default": "secret:api"},
    },
    defaults={"queue": "batch", "retry": {"attempts": 2, "delay": "10s", "delay_max": "1h"}, "timeout": "10m"},
    exits=[{"when": "inputs.x", "outcome": "cancelled"}],
    concurrency={"limit": 1, "key": "inputs.order"},
    timeout="1h",
    sla={"warn": "30m", "breach": "50m"},
    output="nodes.tell",
)
