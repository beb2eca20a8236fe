"""The one immutable snapshot that conditions, policies and arguments read.

It holds the run's inputs, the results and outcomes of its nodes, the events that were ingested
before this tick, and the logical clock. Nothing else exists for a rule. Only what an expression
names is built.
"""

from typing import Any

import msgspec

from tickwork.core import references
from tickwork.core.conditions import Condition
from tickwork.core.definition import Argument, TaskNode, WorkNode
from tickwork.core.errors import Refused
from tickwork.core.inputfields import with_defaults
from tickwork.core.lifecycle import ENDED, Phase
from tickwork.core.model import Run, State
from tickwork.core.references import Reference
from tickwork.core.stablehash import stable_digest
from tickwork.core.values import INLINE_BYTES_MAX, Ref, Sealed, Value, pack, unpack


def snapshot(state: State, run: Run, condition: Condition, **more: Any) -> dict[str, Any]:
    """What this condition may see of this run at this tick."""
    return {name: more[name] if name in more else _part(state, run, name, condition) for name in condition.names}


def _part(state: State, run: Run, name: str, condition: Condition) -> Any:
    match name:
        case "inputs":
            return inputs_of(run)
        case "results":
            return {
                run.plan.steps[index].id: unpack(value, what="a result") for index, value in _results(run, condition)
            }
        case "outcome":
            return {step.id: Phase(run.phases[step.index]).name.lower() for step in run.plan.steps}
        case "events":
            return [
                {
                    "name": heard.name,
                    "key": heard.key,
                    "payload": unpack(heard.payload, what="an event"),
                    "at_ms": at_ms,
                }
                for heard in run.signals or ()
                if heard.tick < state.tick
                for at_ms in (state.settings.clock.ms_of(heard.tick),)
            ]
        case "run":
            clock = state.settings.clock
            return {
                "id": run.id,
                "workflow": run.plan.name,
                "submitted_ms": clock.ms_of(run.submitted),
                "started_ms": clock.ms_of(run.started),
                "priority": run.priority,
            }
        case "clock":
            return {"now_ms": state.now_ms, "tick": state.tick}
    raise Refused("bad_condition", f"{name} does not exist here")


def _results(run: Run, condition: Condition) -> list[tuple[int, Value]]:
    """A node that ended without a result has the result None; one that has not ended has none at all."""
    results, phases = run.results or {}, run.phases
    if condition.nodes is None:
        named = list(range(len(phases)))
    else:
        named = [index for node in condition.nodes if (index := run.plan.index.get(node)) is not None]
    return [(index, results.get(index)) for index in named if index in results or phases[index] in ENDED]


def inputs_of(run: Run) -> dict[str, Any]:
    plain = unpack(run.inputs, what="the run's inputs")
    return with_defaults(run.plan.definition, plain or {})


# ---- references

_WORDS = ("item", "index", "iteration", "previous")
_ELSEWHERE = object()


def reference(run: Run, source: str) -> Reference:
    definition = run.plan.definition
    return references.resolve(source, path=source, inputs=definition.inputs, nodes=run.plan.index, words=_WORDS)


def stored_value(run: Run, ref: Reference) -> Value:
    """The value that a reference starts from, as it is stored."""
    if ref.root == "inputs":
        return run.inputs
    return (run.results or {}).get(run.plan.index[ref.name])


def resolve(run: Run, source: str) -> Any:
    """The plain value of a reference, for a rule that must look at it."""
    ref = reference(run, source)
    if ref.root == "inputs":
        value: Any = inputs_of(run)
        walk = (ref.name, *ref.walk) if ref.name else ref.walk
    else:
        value, walk = unpack(stored_value(run, ref), what=source), ref.walk
    return _walk(value, walk, source)


def _walk(value: Any, steps: tuple[str, ...], source: str) -> Any:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise Refused("bad_reference", f"{source}: there is no {step}")
    return value


def child_inputs(run: Run, args: dict[str, Argument], own: dict[str, Any], *, place: str) -> Value:
    """The inputs of a child run: inline where they are small, else a reference to the parent's arguments."""
    try:
        plain = {name: _argument(run, argument, own) for name, argument in args.items()}
    except Refused as refused:
        if refused.code != "value_not_inline":
            raise
        return Ref(place, 0, None, "arguments")
    packed = pack(plain)
    return packed if len(packed) <= INLINE_BYTES_MAX else Ref(place, len(packed), None, "arguments")


def _argument(run: Run, argument: Argument, own: dict[str, Any]) -> Any:
    if argument.source is None:
        return argument.value
    ref = reference(run, argument.source)
    if ref.root not in own:
        return resolve(run, argument.source)
    if own[ref.root] is _ELSEWHERE:
        raise Refused("value_not_inline", f"{argument.source} is not here")
    return _walk(own[ref.root], ref.walk, argument.source)


def own_names(run: Run, over: str | None, index: int, previous: Value) -> dict[str, Any]:
    """What a body may name beside inputs and nodes: `item` and `index`, or `iteration` and `previous`."""
    if over is None:
        here = previous is None or isinstance(previous, bytes)
        return {"iteration": index, "previous": unpack(previous, what="previous") if here else _ELSEWHERE}
    if isinstance(stored_value(run, reference(run, over)), Ref | Sealed):
        return {"index": index, "item": _ELSEWHERE}
    return {"index": index, "item": resolve(run, over)[index]}


def items_over(run: Run, over: str) -> int:
    """How many children a map over this reference has."""
    ref = reference(run, over)
    stored = stored_value(run, ref)
    if ref.root == "nodes" and not ref.walk and isinstance(stored, Ref) and stored.items is not None:
        return stored.items
    value = resolve(run, over)
    if not isinstance(value, list):
        raise Refused("not_a_list", f"{over} is not a list, so a map cannot fan out over it")
    return len(value)


def cache_key(run: Run, node: WorkNode, version: str) -> str:
    """Equal exactly when tenant, what is called, version and every argument are: inline bytes, or the digest of
    what is elsewhere."""
    called = node.handler if isinstance(node, TaskNode) else msgspec.json.encode(node, order="sorted")
    parts: list[str | bytes] = [run.tenant.id, called, version]
    for name, argument in sorted(node.args.items()):
        parts.append(name)
        if argument.source is None:
            parts.append(pack(argument.value))
            continue
        ref = reference(run, argument.source)
        stored = stored_value(run, ref)
        if isinstance(stored, Ref | Sealed):
            parts.append(".".join((ref.name, *ref.walk)))
            parts.append(stored.digest if isinstance(stored, Ref) else stored.data)
        else:
            parts.append(pack(resolve(run, argument.source)))
    return stable_digest(*parts)
