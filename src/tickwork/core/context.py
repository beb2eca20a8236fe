"""The one immutable snapshot that conditions, policies and arguments read.

It holds the run's inputs, the results and outcomes of its nodes, the events that were ingested
before this tick, and the logical clock. Nothing else exists for a rule. Only what an expression
names is built.
"""

from typing import Any

from tickwork.core.conditions import Condition
from tickwork.core.definition import Argument
from tickwork.core.errors import Refused
from tickwork.core.inputfields import with_defaults
from tickwork.core.lifecycle import Phase
from tickwork.core.model import Run, State
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
    results = run.results or {}
    if condition.nodes is None:
        return sorted(results.items(), key=lambda pair: pair[0])
    wanted = (run.plan.index.get(node) for node in condition.nodes)
    return [(index, results[index]) for index in wanted if index is not None and index in results]


def inputs_of(run: Run) -> dict[str, Any]:
    plain = unpack(run.inputs, what="the run's inputs")
    return with_defaults(run.plan.definition, plain or {})


# ---- references


def source_value(run: Run, source: str) -> tuple[Value, list[str]]:
    """The value that a reference starts from, and the steps still to walk inside it."""
    root, *path = source.split(".")
    if root == "inputs":
        return run.inputs, path
    if root == "nodes":
        return (run.results or {}).get(run.plan.index[path[0]]), path[1:]
    raise Refused("bad_reference", f"{source} can only be read inside a body")


def resolve(run: Run, source: str) -> Any:
    """The plain value of a reference, for a rule that must look at it."""
    if source == "inputs" or source.startswith("inputs."):
        value: Any = inputs_of(run)
        path = source.split(".")[1:]
    else:
        packed, path = source_value(run, source)
        value = unpack(packed, what=source)
    for name in path:
        if not isinstance(value, dict) or name not in value:
            raise Refused("bad_reference", f"{source}: there is no {name}")
        value = value[name]
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
    root, *path = argument.source.split(".")
    if root not in own:
        return resolve(run, argument.source)
    value = own[root]
    if value is _ELSEWHERE:
        raise Refused("value_not_inline", f"{argument.source} is not here")
    for name in path:
        value = value[name]
    return value


_ELSEWHERE = object()


def own_names(run: Run, over: str | None, index: int, previous: Value) -> dict[str, Any]:
    """What a body may name beside inputs and nodes: `item` and `index`, or `iteration` and `previous`."""
    if over is None:
        known = previous is None or isinstance(previous, bytes)
        return {"iteration": index, "previous": unpack(previous, what="previous") if known else _ELSEWHERE}
    packed, path = source_value(run, over)
    if isinstance(packed, Ref | Sealed) and not path:
        return {"index": index, "item": _ELSEWHERE}
    return {"index": index, "item": resolve(run, over)[index]}


def cache_key(run: Run, handler: str, version: str, args: dict[str, Argument]) -> str:
    """Equal exactly when handler, version and every argument are: inline bytes, or the digest of what is elsewhere."""
    parts: list[str | bytes] = [handler, version]
    for name, argument in sorted(args.items()):
        parts.append(name)
        if argument.source is None:
            parts.append(pack(argument.value))
            continue
        value, path = source_value(run, argument.source)
        if isinstance(value, Ref | Sealed):
            parts.append(".".join(path))
            parts.append(value.digest if isinstance(value, Ref) else value.data)
        else:
            parts.append(pack(resolve(run, argument.source)))
    return stable_digest(*parts)
