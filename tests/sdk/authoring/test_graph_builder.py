"""What workflow functions describe, run on the real machine."""
# ruff: noqa: E501 - a small program reads best on one line of its table

import json

import pytest

from sdk.authoring.machine_fixture import Engine
from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.definition.document import accept


def nodes(app, name):
    return {node["id"]: node for node in json.loads(app.workflows[name].document())["nodes"]}


DAILY = '''
from datetime import datetime

@tw.task(retries=3, timeout="5m")
def fetch(day: datetime) -> list[str]:
    return [f"{day:%d}a", f"{day:%d}b"]

@tw.task(queue="default", labels={})
def score(path: str) -> float:
    return float(len(path))

@tw.task
def best(scores: list[float]) -> float:
    return max(scores)

@tw.workflow(schedule=tw.cron("0 9 * * 1-5", tz="America/New_York"))
def daily(scheduled_time: datetime) -> float:
    """Every working day."""
    return best(score.map(fetch(scheduled_time)))
'''


def test_the_first_example_becomes_a_document_and_runs(app):
    found = app(DAILY)
    document = json.loads(found.workflows["daily"].document())

    assert document == {
        "name": "daily",
        "description": "Every working day.",
        "inputs": {"scheduled_time": {"type": "datetime"}},
        "nodes": [
            {"kind": "task", "id": "fetch", "handler": "app.fetch", "retry": {"attempts": 4},
             "timeout": {"running_ms": 300_000}, "args": {"day": {"from": "inputs.scheduled_time"}}},
            {"kind": "map", "id": "score", "needs": ["fetch"], "over": "nodes.fetch",
             "body": {"kind": "task", "handler": "app.score", "queue": "default", "args": {"path": {"from": "item"}}}},
            {"kind": "task", "id": "best", "handler": "app.best", "needs": ["score"],
             "args": {"scores": {"from": "nodes.score"}}},
        ],
        "output": "nodes.best",
    }  # fmt: skip
    engine = Engine(found)
    run = engine.start("daily", scheduled_time="2026-01-02T00:00:00Z")
    assert engine.state(run) == "COMPLETED"
    assert engine.output(run) == 3.0


def test_what_must_not_run_twice_says_so_in_the_document(app):
    found = nodes(app("""
@tw.task(on_worker_loss="fail")
def pay() -> None: ...

@tw.workflow
def flow():
    pay()
    pay.using(id="again", on_worker_loss="retry")()
    pay.using(id="kept", retries=2)()
    tw.shell(["true"], on_worker_loss="fail")
"""), "flow")  # fmt: skip

    assert {name: node.get("on_worker_loss") for name, node in found.items()} == {
        "pay": "fail", "again": None, "kept": "fail", "shell": "fail",
    }  # fmt: skip


def test_schedules_are_part_of_the_catalog(app):
    catalog = app(DAILY).catalog()

    assert [(one.name, one.wanted.workflow, one.wanted.cron, one.wanted.timezone) for one in catalog.schedules] == [
        ("daily", "daily", "0 9 * * 1-5", "America/New_York")
    ]
    assert "app.fetch" in catalog.handlers


SMALL = """
@tw.task
def one(x: int = 1) -> int: return x
@tw.task
def add(a: int, b: int) -> int: return a + b
@tw.task
def total(xs: list[int]) -> int: return sum(xs)
@tw.task
def pair(x: int) -> dict[str, int]: return {"left": x, "right": -x}
@tw.task
def show(row: dict[str, object], extra: str = "e") -> str: return f"{sorted(row.items())}{extra}"
@tw.task
def none() -> None: ...
@tw.task
def text(x: object) -> str: return repr(x)
"""


@pytest.mark.parametrize(
    ("body", "inputs", "output"),
    [
        ("return add(one(3), 4)", {}, 7),
        ("return add(b=one(3), a=n)", {"n": 4}, 7),
        ("return add(pair(5)['left'], pair(6).right)", {}, -1),
        ("return total([one(1), one(2), 3, n])", {"n": 4}, 10),
        ("return total([one(x) for x in range(4)])", {}, 6),
        ("return show({'a': one(1), 'b': [one(2), 5], 'c': {'d': n}})", {"n": 3}, "[('a', 1), ('b', [2, 5]), ('c', {'d': 3})]e"),
        ("return [one(1), {'x': one(2)}]", {}, [1, {"x": 2}]),
        ("return one(1), 'text'", {}, [1, "text"]),
        ("return pair(4)['right']", {}, -4),
        ("return one.map([1, 2, 3])", {}, [1, 2, 3]),
        ("return add.map([1, 2], b=one(5))", {}, [6, 7]),
        ("return add.map([1, 2], a=10)", {}, [11, 12]),
        ("return add.map([pair(1), pair(2)], a=tw.item['left'], b=tw.index)", {}, [1, 3]),
        ("return total(add.map([one(1), one(2)], b=1))", {}, 5),
        ("return add.map(tw.zip([1, 2], [n, 3]))", {"n": 5}, [6, 5]),
        ("return add.map(tw.product(b=[1, 2], a=[n, 20]))", {"n": 10}, [11, 21, 12, 22]),
        ("return add.map(tw.zip([1, 2], [3, 4]), a=tw.item[1], b=tw.index)", {}, [3, 5]),
        ("return tw.branch(one(5) > 3, lambda: one(10), lambda: one(20))", {}, 10),
        ("return tw.branch(one(2) > 3, lambda: one(10), lambda: one(20))", {}, 20),
        ("return add(tw.branch(one(2) > 3, lambda: one(10), lambda: one(20)), 1)", {}, 21),
        ("return text(tw.branch(one(2) > 3, lambda: one(10)))", {}, "None"),
        ("return text(tw.branch((n > 3) & (n < 5) | (n == 9), lambda: pair(1)['left'], lambda: 'const'))", {"n": 4}, "1"),
        ("return text(tw.branch((n > 3) & (n < 5) | (n == 9), lambda: pair(1)['left'], lambda: 'const'))", {"n": 5}, "'const'"),
        ("return tw.branch('inputs.n > 3', lambda: one(1), lambda: one(2))", {"n": 5}, 1),
        ("x = tw.branch(n > 3, lambda: pair(1), lambda: pair(2))\n return x['left']", {"n": 1}, 2),
        ("x = tw.branch(n > 3, lambda: one(1), lambda: one(2))\n return tw.branch(x == 2, lambda: one(7), lambda: one(8))", {"n": 1}, 7),
        ("return tw.branch(tw.cel('xs.left > n && \"xs\" != \"n\"', xs=pair(4), n=3), one, none)", {}, 1),
        ("return tw.branch(n > 3, lambda: tw.branch(n > 5, lambda: one(1), lambda: one(2)), lambda: one(3))", {"n": 4}, 2),
        ("return text(tw.branch(n > 3, lambda: tw.branch(n > 5, lambda: add(one(1), n)), lambda: one(3)))", {"n": 1}, "3"),
        ("return one(2) if True else none()", {}, 2),
        ("return tw.repeat(lambda: add(tw.iteration, 0), until=lambda last: last >= 2, max_iterations=9)", {}, 2),
    ],
)  # fmt: skip
def test_what_is_written_is_what_runs(app, body, inputs, output):
    parameter = "n: int" if inputs else ""
    found = app(f"{SMALL}\n@tw.workflow\ndef flow({parameter}):\n {body}\n")
    engine = Engine(found)
    run = engine.start("flow", **inputs)

    assert engine.state(run) == "COMPLETED", engine.driver.phases(run)
    assert engine.output(run) == output
    accept(found.workflows["flow"].document())


def test_nothing_of_the_other_side_runs_even_with_values_from_outside(app):
    found = app(f"{SMALL}\n@tw.workflow\ndef flow(n: int):\n a = one(7)\n"
                " tw.branch(n > 3, lambda: add(one(1), a), lambda: text(a))\n")  # fmt: skip
    engine = Engine(found)
    run = engine.start("flow", n=1)

    assert engine.state(run) == "COMPLETED"
    assert engine.order == ["one", "text"]


def test_what_stands_below_a_wait_comes_after_it(app):
    found = app(f"{SMALL}\n@tw.workflow\ndef flow():\n a = one(1)\n tw.branch(a > 5, lambda: one(6))\n"
                " tw.wait('3d')\n b = one(2)\n return add(a, b)\n")  # fmt: skip
    engine = Engine(found)
    run = engine.start("flow")
    assert engine.state(run) == "WAITING"
    engine.driver.advance(3 * 86_400_000)
    engine.work()

    assert engine.state(run) == "COMPLETED"
    assert engine.output(run) == 3


def test_a_wait_can_name_what_it_comes_after_in_one_line(app):
    found = app(f"{SMALL}\n@tw.workflow\ndef flow():\n one(0)\n tw.approval('go')\n"
                " tw.wait('1h').after(one(one(1)))\n return one(2)\n")  # fmt: skip
    made = nodes(found, "flow")

    assert made["wait"]["needs"] == ["one_3", "go"]
    assert made["one_3"]["needs"] == ["one_2", "go"]
    assert made["one_4"]["needs"] == ["wait"]


def test_a_dataclass_may_hold_results(app):
    text = """
from dataclasses import dataclass
@dataclass
class Row:
    x: int
    tag: str = "t"
@tw.task
def shown(row: Row) -> str: return f"{row.x}{row.tag}"
@tw.workflow
def flow(): return shown(Row(one(4)))
"""
    engine = Engine(app(SMALL + text))

    assert engine.output(engine.start("flow")) == "4t"


def test_decorators_partials_and_callable_objects_can_be_tasks(app):
    text = """
import functools
def loud(f):
    @functools.wraps(f)
    def inner(*a, **k): return f(*a, **k) + 100
    return inner
@tw.task
@loud
def below(x: "int") -> int: return x
class Adder:
    def __call__(self, x: int) -> int: return x + 1
adder = tw.task(Adder(), name="adder")
half = tw.task(functools.partial(lambda a, b: a + b, 5), name="half")
@tw.workflow
def flow(): return [below(1), adder(2), half(3)]
"""
    found = app(SMALL + text)
    engine = Engine(found)

    assert engine.output(engine.start("flow")) == [101, 3, 8]
    assert list(nodes(found, "flow")) == ["below", "adder", "half", "value"]


def test_a_wait_that_is_no_barrier_holds_only_what_needs_it(app):
    found = app(f"{SMALL}\n@tw.workflow\ndef flow():\n w = tw.wait('1h', barrier=False)\n one(1)\n"
                " return tw.node(one(2)).after(w)\n")  # fmt: skip
    engine = Engine(found)
    engine.start("flow")

    assert engine.order == ["one"]


def test_events_and_approvals_give_what_they_heard(app):
    text = """
@tw.workflow
def flow(order: str):
    payment = tw.event("paid", key=order, timeout="2d")
    tw.approval("release", approvers=["bob"], timeout="1d")
    return text(payment)
"""
    found = app(SMALL + text)
    assert nodes(found, "flow")["paid"] == {
        "kind": "event", "id": "paid", "event": "paid", "key": "inputs.order", "timeout_ms": 172_800_000
    }  # fmt: skip
    assert nodes(found, "flow")["release"]["needs"] == ["paid"]
    assert nodes(found, "flow")["text"]["needs"] == ["paid", "release"]


def test_a_child_workflow_is_called_like_a_function(app):
    text = """
@tw.workflow
def inner(n: int) -> int: return add(n, 1)
@tw.workflow
def outer(n: int):
    return total([inner(n), inner(n=one(5))])
@tw.workflow
def many(): return inner.map([1, 2], max_parallel=1, tolerate=1)
@tw.workflow
def again(n: int): return tw.branch(n > 0, lambda: again(n), lambda: one(0))
"""
    found = app(SMALL + text)
    engine = Engine(found)
    run = engine.start("outer", n=1)

    assert engine.state(run) == "COMPLETED"
    assert engine.output(run) == 8
    assert sorted(found.workflows) == ["again", "inner", "many", "outer"]
    assert nodes(found, "many")["inner"]["body"] == {
        "kind": "workflow", "workflow": "inner", "args": {"n": {"from": "item"}}
    }  # fmt: skip


def test_ids_are_distinct_and_can_be_chosen(app):
    text = """
@tw.task
def run() -> int: return 1
@tw.workflow
def flow():
    a, b, c = one(1), one(2), one.using(id="third", retries=7, after=[one(3)])(4)
    tw.node(b).named("second").after(a).when(a == 1).on("all_done")
    run()
"""
    found = nodes(app(SMALL + text), "flow")

    assert list(found) == ["one", "second", "one_2", "third", "run_2"]
    assert found["second"]["needs"] == ["one"]
    assert found["second"]["when"] == 'results["one"] == 1'
    assert found["second"]["trigger"] == "all_done"
    assert found["third"]["retry"] == {"attempts": 8} and found["third"]["needs"] == ["one_2"]


def test_every_option_finds_its_place(app):
    text = """
from datetime import timedelta
@tw.task(retries=2, retry_delay="2s", retry_factor=3, retry_max=timedelta(minutes=1), timeout="1h30m", queued_timeout="PT5M",
         silent_timeout="10s", queue="gpu", labels={"gpu": True, "zone": "a"}, priority=8, cache="1d", slots=2, cpu=1.5,
         memory="2GB", gpu=1, dependency="bank", version="v2", executor="thread")
def big(): ...
@tw.workflow(name="flow", retries=1, task_timeout="1m", queue="q", priority=3, labels={"a": 1}, timeout="1d", sla=("1h", "2h"),
             concurrency=(5, "who"), overlap="forbid", policy=["hours"], schedule=[tw.every("5m"), tw.cron("@daily")])
def other(who: str = "me"): big()
"""
    found = app(text)
    document = json.loads(found.workflows["flow"].document())
    node = document.pop("nodes")[0]

    assert node == {
        "kind": "task", "id": "big", "handler": "app.big", "handler_version": "v2", "queue": "gpu", "priority": 8,
        "labels": {"gpu": "true", "zone": "a"}, "dependency": "bank", "cache": {"ttl_ms": 86_400_000},
        "retry": {"attempts": 3, "delay_ms": 2_000, "factor": 3, "delay_ms_max": 60_000},
        "timeout": {"running_ms": 5_400_000, "queued_ms": 300_000, "silent_ms": 10_000},
        "resources": {"slots": 2, "cpu_milli": 1500, "memory_mb": 2048, "gpu": 1},
    }  # fmt: skip
    assert document == {
        "name": "flow", "inputs": {"who": {"type": "string", "required": False, "default": "me"}},
        "defaults": {"queue": "q", "priority": 3, "labels": {"a": "1"}, "retry": {"attempts": 2},
                     "timeout": {"running_ms": 60_000}},
        "output": "none", "timeout_ms": 86_400_000, "sla": {"warn_ms": 3_600_000, "breach_ms": 7_200_000}, "overlap": "Forbid",
        "concurrency": {"limit": 5, "key": 'inputs["who"]'}, "policy": ["hours"],
    }  # fmt: skip
    assert [(one.name, one.wanted.every, one.wanted.cron) for one in found.catalog().schedules] == [
        ("flow", "5m", ""), ("flow-2", "", "@daily")
    ]  # fmt: skip
    assert found.handlers["app.big"].executor == "thread"


def test_parameters_become_inputs(app):
    text = """
import enum, uuid
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, Optional
class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"
@dataclass
class Row:
    x: int
@tw.workflow
def flow(a: int, b: float, c: str, d: bool, e: list[int], f: dict[str, int], g: datetime, h: Path, i: Mode, j: Row, k: Any,
         l, m: int | None, n: Literal[1, 2], o: date = date(2026, 1, 2), p: Optional[int] = None, *, q: Mode = Mode.FAST):
    done()
@tw.task
def done(): ...
"""
    file = "from __future__ import annotations\nimport tickwork as tw\n" + text
    found = json.loads(app("", "flows.py", flows=file).workflows["flow"].document())["inputs"]

    assert {name: field.get("type", "any") for name, field in found.items()} == {
        "a": "integer", "b": "number", "c": "string", "d": "boolean", "e": "array", "f": "object", "g": "datetime",
        "h": "string", "i": "string", "j": "object", "k": "any", "l": "any", "m": "any", "n": "integer", "o": "string",
        "p": "any", "q": "string",
    }  # fmt: skip
    assert found["i"]["enum"] == ["fast", "slow"] and found["n"]["enum"] == [1, 2]
    assert found["o"]["default"] == "2026-01-02" and found["q"]["default"] == "fast"


FLOW = SMALL + "@tw.workflow\ndef flow(n: int = 1):\n "


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("one(", "not valid Python"),
        ("one(1, 2)", "takes 1 argument, 2 were given"),
        ("add(1)", "no value for b"),
        ("add(1, c=2)", "has no parameter 'c'"),
        ("one('x')", "x is declared as int, but a str is not an int"),
        ("one(object())", "an object cannot travel"),
        ("if n > 3: one()", r"use tw\.branch\(\.\.\.\) for if"),
        ("one(1) if one(2) else one(3)", r"use tw\.branch"),
        ("[one(x) for x in one()]", r"use some_task\.map"),
        ("one(n + 1)", "compute in a task"),
        ("text(f'{n}')", "has no text yet"),
        ("len(one())", "has no length yet"),
        ("one(); 1 in one()", "cannot be searched"),
        ("one(n > 3)", "a condition, which the server asks .* compare in a task"),
        ("total([one(1), n > 3])", "a condition, which the server asks"),
        ("one(n and 3)", r"the input n cannot be tested here.*& for and"),
        ("a, b = pair(1)", r"take its parts one by one \(values\[0\]\)"),
        ("x = pair(1); x['left'] = 3", "the result of pair cannot be changed here"),
        ("one(round(n, 2))", "cannot be computed with here"),
        ("import json; one(json.dumps(one()))", "not JSON serializable"),
        ("one.map(5)", "a map goes over a list, not over an int"),
        ("one.map({'a': 1})", "not over a dict"),
        ("one.map('abc')", "not over a str"),
        ("one.map({'a': 1})", r"tw\.entries\(\.\.\.\) gives keys and values"),
        ("add.map(tw.zip([1, 2], [3]))", "lists of one length, and these have 2 and 1 items; tw.product"),
        ("add.map(tw.zip([1, 2]))", "takes 2 to 16 lists, not 1; map one list itself"),
        ("add.map(tw.zip([1], b=[2]))", "by position or by the names of parameters, not both"),
        ("add.map(tw.zip([1], 5))", "tw.zip takes lists, not 5"),
        ("add.map(tw.product(a=[1], b=[2]), a=3)", "the parameter a is given twice, as a list and by itself"),
        ("add.map(tw.product(a=[1], c=[2]))", "no parameter 'c'"),
        ("add.map(tw.zip([1], ['x']))", "b is declared as int, but a str is not an int"),
        ("one.map(tw.zip([1], [2]))", "no parameter left"),
        ("one.map(tw.entries([1]))", "tw.entries takes a dict"),
        ("one.map([1, 'x'])", "x is declared as int, but a str is not an int"),
        ("one.using(priority=n)(1)", "one: priority is fixed when the workflow is built, and the input n comes later; write"),
        ("one.using(retries=one(1))(1)", "one: retries is fixed .* the result of one comes later"),
        ("one.using(timeout=n)(1)", "one: timeout is fixed when the workflow is built"),
        ("one.using(gpu=n > 3)(1)", "one: gpu is fixed .* a condition comes later"),
        ("one.using(queue=n > 3)(1)", "one: queue is fixed .* a condition comes later"),
        ("one.using(labels={'a': n > 3})(1)", "one: the label a is fixed .* a condition comes later"),
        ("one.using(labels=n)(1)", "labels are names with values"),
        ("one.map([1], tolerate=n)", "tolerate is fixed when the workflow is built"),
        ("one.map([1], max_parallel=n > 3)", "a condition is evaluated by the server and is not a value"),
        ("tw.repeat(lambda: one(1), until='true', max_iterations=n)", "max_iterations is fixed when the workflow is built"),
        ("tw.event('x', timeout=n > 3)", "a condition is evaluated by the server and is not a value"),
        ("tw.switch(3, {1: one})", "the value of a switch comes later, and 3 is known now"),
        ("tw.switch(n, {})", "the cases of a switch are a dict"),
        ("tw.switch(n, {(1, 2): one})", "a case is a text, a number"),
        ("tw.switch(n, {1: 5})", "a side of a branch is a function or a node"),
        ("tw.first(one(1))", "takes at least two"),
        ("tw.first(one(1), n)", "takes whole results of nodes"),
        ("x = one(1); tw.first(x, x)", "takes each node once"),
        ("tw.text('{a}')", r"has \{a\}; the values given are: none"),
        ("tw.text('{a:>9}', a=n)", "fills in names"),
        ("tw.text('{}', a=n)", "fills in names"),
        ("tw.text('{', a=n)", "cannot be read"),
        ("tw.text('none', a=n)", "does not mention a"),
        ("text(tw.text('{a}', a=n))", "is shown to people, as the message of an approval"),
        ("tw.repeat(lambda: one(1), until=lambda last: last and 1, max_iterations=3)", "the last result cannot be tested"),
        ("tw.wait()", "exactly one of them"),
        ("tw.wait('3 days')", "is not a duration"),
        ("tw.wait(5)", "has no unit"),
        ("tw.wait(until='tomorrow')", "is not an instant"),
        ("tw.event('x', key='constant')", "not the constant 'constant'"),
        ("tw.approval('x', approvers='bob')", "approvers is a list"),
        ("tw.branch(3, one)", "a condition is a comparison"),
        ("tw.branch(n > 3, 5)", "a function or a node"),
        ("tw.branch('1 +', one)", "the condition '1 \\+'"),
        ("tw.branch('unknown > 1', one)", "unknown"),
        ("tw.shell('ls -l')", "list of words"),
        ("tw.http('ftp://x')", "starts with http"),
        ("tw.http('http://x/', body={'a': n})", "cannot hold a value to come"),
        ("tw.repeat(one(1), until='true', max_iterations=3)", "is a function"),
        ("tw.repeat(lambda: add(one(1), 2), until='true', max_iterations=3)", "the body is one"),
        ("tw.repeat(lambda: one(1), until='true', max_iterations=0)", "out of range"),
        ("pass", "has no nodes"),
        ("tw.node(one()).named('a b')", "contains ' '"),
        ("tw.node(one()).named('a'); tw.node(one()).named('a')", "two nodes are named 'a'"),
        ("one.using(retires=1)()", "no option 'retires'"),
        ("one.using(on_worker_loss='again')()", "on_worker_loss is 'fail' or 'retry', not 'again'"),
        ("total([one(1), object()])", "cannot travel"),
        ("show({'a b': one(1)})", "must be a plain name"),
        ("one(tw.item)", "only inside the body of a map"),
        ("one()[-1:]", "named by a text or a position"),
        ("one().named = 3", "attribute"),
        ("add.map([1], a=1, b=2)", "no parameter left"),
        ("add.map([1], zz=2)", "no parameter 'zz'"),
        ("tw.wait('1h').after(3)", "takes results of nodes"),
    ],
)  # fmt: skip
def test_a_mistake_shows_the_users_line(app, body, words):
    with pytest.raises(Refused, match=words) as caught:
        app(FLOW + body).catalog()

    assert "app.py:" in str(caught.value)
    line = len(FLOW.splitlines()) + 1
    if "no nodes" not in words and "not valid" not in words:
        assert f"app.py:{line}" in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@tw.workflow\nasync def flow(): ...", "cannot be asynchronous"),
        ("@tw.workflow\ndef flow():\n yield one()", "yields"),
        ("@tw.task\ndef flow():\n yield 1", "yields.*return a list"),
        ("@tw.workflow\ndef flow(ctx: tw.Context): one()", "takes a Context"),
        ("@tw.workflow\ndef flow(): return one(), object()", "an object cannot travel"),
        ("@tw.workflow\ndef flow(x):\n  assert isinstance(x, int)", "AssertionError"),
        ("@tw.workflow\ndef flow(): return one(1) > 3", "a condition is evaluated by the server"),
        ("@tw.workflow(schedule='daily')\ndef flow(): ...", "made by tw.cron.*, not 'daily'"),
        ("@tw.workflow(schedule='0 9 * * *')\ndef flow(): ...", r"write tw\.cron\('0 9 \* \* \*'\)"),
        ("@tw.workflow(schedule=5)\ndef flow(): ...", "made by tw.cron.*, not 5"),
        ("@tw.task(labels=['gpu'])\ndef f(): ...", "labels are names with values"),
        ("@tw.workflow(schedule=tw.cron('61 * * * *'))\ndef flow(): ...", "minute"),
        ("@tw.workflow(schedule=tw.cron('* * * * *', tz='Mars/Base'))\ndef flow(): ...", "'Mars/Base' is no time zone"),
        ("@tw.workflow(schedule=tw.every('1ms'))\ndef flow(): ...", "shorter than 1s"),
        ("@tw.workflow(retry=3)\ndef flow(): ...", "no option 'retry'"),
        ("@tw.workflow(overlap='maybe')\ndef flow(): ...", "allow, forbid or replace"),
        ("@tw.workflow(name='a b')\ndef flow(): ...", "contains ' '"),
        ("@tw.workflow\ndef flow(*xs): ...", r"takes \*xs"),
        ("tw.workflow(lambda: one())", "no name of its own"),
        ("@tw.workflow\n@tw.task\ndef flow(): ...", "for functions"),
        ("@tw.task\n@tw.task\ndef flow(): ...", "a task already"),
        ("@tw.task(timeout=5)\ndef f(): ...", "has no unit"),
        ("@tw.task(retries=-1)\ndef f(): ...", "whole number"),
        ("@tw.task(executor='fiber')\ndef f(): ...", "'process' or 'thread'"),
        ("tw.wait('1h')", "only for the function of a @tw.workflow"),
        ("@tw.workflow(schedule=tw.every('1m'))\ndef flow(x: int): one()", "no value for x; give it a default"),
        ("@tw.workflow\ndef flow(): one()\nflow(3)", "when it is submitted"),
        ("@tw.workflow\ndef a(): one()\n@tw.workflow(name='a')\ndef b(): one()", "two workflows are named 'a'"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_shows_the_users_line(app, text, words):
    with pytest.raises(Refused, match=words) as caught:
        app(SMALL + text).catalog()

    assert str(caught.value).count("app.py:") == (2 if "two workflows" in words else 1)


def test_all_problems_of_a_definition_are_listed(app):
    with pytest.raises(InvalidDefinition) as caught:
        app(FLOW + "one.using(priority=77)(); one.using(queue='a b')()").catalog()

    assert [problem.path for problem in caught.value.problems] == ["nodes[0].priority", "nodes[1].queue"]


METHODS = """
class Loader:
    def __init__(self, base): self.base = base
    @tw.task
    def add(self, n: int) -> int: return self.base + n
    @tw.task
    @classmethod
    def made(cls, n: int) -> str: return f"{cls.__name__}{n}"
    @classmethod
    @tw.task
    def upside(cls, n: int) -> str: return f"{cls.__name__}{n}"
    @staticmethod
    @tw.task
    def still(n: int) -> int: return n
    @tw.workflow
    def flow(self, n: int): return [self.add(n), self.made(n), self.upside(n), self.still(n), self.add.map([1, 2])]
    @tw.workflow
    @classmethod
    def whole(cls, n: int): return cls.made(n)
    @tw.workflow
    @staticmethod
    def plain(n: int): return Loader.still(n)
class Sub(Loader): ...
first = tw.instance("first", Loader(10))
second = tw.instance("second", Sub(20))
@tw.workflow
def outer(n: int): return [first.flow(n), Sub.made(n), Sub.whole(n)]
"""


ABOVE = """
class Loader:
    @classmethod
    @tw.task
    def made(cls, n: int) -> str: return f"{cls.__name__}{n}"
    @classmethod
    @tw.workflow
    def whole(cls, n: int): return cls.made(n)
    @classmethod
    @tw.workflow(name="named")
    def other(klass, n: int): return klass.made(n)
    @staticmethod
    @tw.workflow
    def still(n: int): return Loader.made(n)
    class Inner:
        @classmethod
        @tw.workflow
        def deep(cls, n: int): return Loader.made(n)
"""


def test_classmethod_and_staticmethod_may_stand_above_the_workflow(app):
    found = app(ABOVE)
    engine = Engine(found)

    assert sorted(found.workflows) == ["Loader.Inner.deep", "Loader.still", "Loader.whole", "named"]
    for workflow in found.workflows.values():
        assert list(workflow.build().inputs) == ["n"]
    assert [engine.output(engine.start(name, n=1)) for name in ("Loader.whole", "named")] == ["Loader1", "Loader1"]


UNCHAINED = """
import builtins, types
class classmethod(builtins.classmethod):
    def __get__(self, instance, owner=None): return types.MethodType(self.__func__, owner or type(instance))
"""
"""As class methods are since Python 3.13: they bind what they wrap without asking it."""


@pytest.mark.parametrize("before", ["", UNCHAINED], ids=["this Python", "since 3.13"])
def test_classmethod_may_stand_above_in_every_version_of_python(app, before):
    text = """
    @tw.workflow
    def flow(self, n: int): return [self.made(n), self.made.map([1, 2]), Sub.made(n), Sub.whole(n)]
class Sub(Loader): ...
first = tw.instance("first", Loader())
"""
    found = app(before + ABOVE + text)
    engine = Engine(found)

    assert engine.output(engine.start("Loader.whole", n=1)) == "Loader1"
    assert engine.output(engine.start("Loader.flow.first", n=3)) == ["Loader3", ["Loader1", "Loader2"], "Sub3", "Sub3"]
    assert found.module.Loader.made(5) == "Loader5" and found.module.Sub().made(6) == "Sub6"


@pytest.mark.parametrize("before", ["", UNCHAINED], ids=["this Python", "since 3.13"])
def test_a_class_method_is_called_while_its_application_loads(app, before):
    found = app(before + ABOVE + "early = Loader.made(1)\nclass Sub(Loader): ...\nothers = Sub.made(2)\n")

    assert (found.module.early, found.module.others) == ("Loader1", "Sub2")


def test_a_class_method_that_does_not_know_its_class_yet_is_not_mapped(app):
    with pytest.raises(Refused, match=r"write @tw\.task above @classmethod"):
        app(UNCHAINED + ABOVE + "early = Loader.made.map([1])\n")


def test_a_class_method_whose_class_nobody_finds_is_refused_with_its_line(app):
    text = """
def make():
    class Hidden:
        @classmethod
        @tw.workflow
        def whole(cls, n: int): return n
make()
"""
    with pytest.raises(Refused) as caught:
        app(text).catalog()

    assert caught.value.code == "bad_workflow"
    assert "its class cannot be looked up by name" in str(caught.value) and "app.py:" in str(caught.value)


def test_methods_can_be_tasks_and_workflows(app):
    found = app(METHODS)
    engine = Engine(found)

    assert sorted(found.workflows) == [
        "Loader.flow.first", "Loader.flow.second", "Loader.plain", "Loader.whole", "Sub.whole", "outer"
    ]  # fmt: skip
    run = engine.start("Loader.flow.second", n=1)
    assert engine.output(run) == [21, "Sub1", "Sub1", 1, [21, 22]]
    assert engine.output(engine.start("Loader.whole", n=2)) == "Loader2"
    assert engine.output(engine.start("Loader.plain", n=2)) == 2
    assert engine.output(engine.start("outer", n=3)) == [[13, "Loader3", "Loader3", 3, [11, 12]], "Sub3", "Sub3"]


def test_a_method_of_an_object_that_nobody_registered_is_refused(app):
    with pytest.raises(Refused, match=r"register it once: tw\.instance"):
        app(METHODS + "\n@tw.workflow\ndef bad(): Loader(1).add(2)\n")


def test_values_stand_where_constants_may_and_are_references_in_the_document(app):
    found = app("""
@tw.task
def host() -> str:
    return "left"

@tw.task
def scan(x: int) -> int:
    return x

@tw.workflow
def flow(grace: str, window: int, zone: str = "a"):
    tw.wait(grace)
    paid = tw.event("paid", timeout=grace, on_timeout="continue")
    here = host()
    one = scan.using(queue=here, labels={"zone": zone, "disk": "ssd"})(1)
    many = scan.using(queue=here).map([1, 2], max_parallel=window)
    tw.approval("ok", timeout=grace, message=tw.text("{{{n}}} rows of {name}", n=one, name=zone))
""")
    made = nodes(found, "flow")

    assert made["wait"]["duration_from"] == "inputs.grace"
    assert made["paid"]["timeout_from"] == made["ok"]["timeout_from"] == "inputs.grace"
    assert made["scan"]["queue_from"] == "nodes.host" and "host" in made["scan"]["needs"]
    assert (made["scan"]["labels"], made["scan"]["labels_from"]) == ({"disk": "ssd"}, {"zone": "inputs.zone"})
    assert made["scan_2"]["body"]["queue_from"] == "nodes.host" and "host" in made["scan_2"]["needs"]
    assert made["scan_2"]["max_parallel_from"] == "inputs.window"
    assert made["ok"]["message"] == "{${nodes.scan}} rows of ${inputs.zone}"


SWITCH = (
    SMALL
    + """
class Kind(Enum):
    GIFT = "gift"
    BULK = "bulk"

@tw.workflow
def flow(kind: Any) -> str:
    return tw.switch(kind, {Kind.GIFT: lambda: word("wrapped"), Kind.BULK: lambda: word("packed"), 3: lambda: word("three"),
                            None: lambda: word("nothing")}, otherwise=lambda: word("shipped"))

@tw.task
def word(text: str) -> str:
    return text
"""
)


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("gift", "wrapped"),
        ("bulk", "packed"),
        (3, "three"),
        (None, "nothing"),
        ("other", "shipped"),
        (["gift"], "shipped"),
    ],
)
def test_a_switch_takes_the_case_that_equals_the_value(app, kind, output):
    engine = Engine(app("from enum import Enum\nfrom typing import Any\n" + SWITCH))
    run = engine.start("flow", kind=kind)

    assert (engine.state(run), engine.output(run)) == ("COMPLETED", output)
    assert len(engine.order) == 2  # one side, and the node that joins them


RACE = (
    SMALL
    + """
@tw.workflow
def flow() -> object:
    ready = one(1)
    paid = tw.first(tw.event("paid"), tw.wait("3d"), one(tw.event("other")["n"]))
    return one.using(id="after")(2)
"""
)


def test_waits_of_a_race_stand_beside_each_other_and_what_follows_waits_for_the_race(app):
    made = nodes(app(RACE), "flow")

    assert made["paid"]["needs"] == made["wait"]["needs"] == made["other"]["needs"] == ["one"]
    assert made["one_2"]["needs"] == ["other"]
    assert (made["first"]["of"], made["first"]["needs"]) == (["paid", "wait", "one_2"],) * 2
    assert made["after"]["needs"] == ["first"]


def test_a_rule_about_any_parent_does_not_count_the_wait_that_stands_above(app):
    made = nodes(
        app(
            SMALL
            + """
@tw.workflow
def flow():
    tw.wait("1h")
    a, b = one(1), one(2)
    one.using(after=[a, b], on="any_succeeded", id="early")(3)
"""
        ),
        "flow",
    )

    assert made["early"]["needs"] == ["one", "one_2"]
