"""The one immutable snapshot that conditions, policies and arguments read.

It holds the run's inputs, the results and outcomes of its nodes, the events that were ingested
before this tick, and the logical clock. Nothing else exists for a rule. Only what an expression
names is built.
"""

from typing import Any, NamedTuple

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.base.values import INLINE_BYTES_MAX, EncryptedValue, Ref, Value, pack, unpack
from tickwork.core.definition import references
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.cel_extracts import Need, length_at, read_extract, whole_at
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.model import Argument, TaskNode, WorkNode
from tickwork.core.definition.plan import EVENTS, INPUTS, RESULTS, note_needs
from tickwork.core.definition.references import Reference
from tickwork.core.state.lifecycle import ENDED, Phase
from tickwork.core.state.state import Run, State

# ---- values that are not inline
#
# A rule reads them by an extract, which the shell takes out of the whole and journals. An extract has a source (the
# index of a node, `INPUTS`, or `EVENTS` less the place of an event) and a key, which says for whom it was taken out.

OF_PLAN = ""  # what all conditions of the definition read
OF_POLICY = "policy "  # with the text of its condition
OF_LAST = "last "  # with the turn of a repeat
OF_REFERENCE = "ref "  # with the reference
OF_LENGTH = "len "
OF_CHECK = "check"  # of a child run's inputs: nothing is taken out; a code says what is wrong with them


class ExtractMissing(Exception):
    """A rule must wait for these extracts: sources with their keys."""

    def __init__(self, places: list[tuple[int, str]]) -> None:
        super().__init__(places)
        self.places = places


def look_into(run: Run, source: int, value: Value, key: str, *, what: str) -> Any:
    """A value as a rule sees it: whole where it is inline, else what was taken out of it."""
    if not isinstance(value, Ref):
        return unpack(value, what=what)
    if value.items is not None and need_of(run, source, key).light:
        return [None] * value.items
    extract = (run.extracts or {}).get((source, key))
    if extract is None:
        raise ExtractMissing([(source, key)])
    if extract.code:
        raise Refused(extract.code, extract.message)
    assert extract.value is not None, "without a code there is a value"
    return read_extract(extract.value)


def need_of(run: Run, source: int, key: str) -> Need:
    """The parts of the value that an extract holds."""
    plan = run.plan
    if key.startswith((OF_REFERENCE, OF_LENGTH)):
        ref = reference(run, key[len(OF_REFERENCE) :])
        walk = (ref.name, *ref.walk) if ref.root == "inputs" and ref.name else ref.walk
        return whole_at(walk) if key.startswith(OF_REFERENCE) else length_at(walk)
    if key.startswith(OF_LAST):
        until = plan.steps[source].until
        return until.needs["last"] if until is not None and "last" in until.needs else Need()
    needs = plan.needs
    if key.startswith(OF_POLICY):
        needs = {}
        note_needs(needs, Condition.compile(key[len(OF_POLICY) :]), plan.index)
    need = Need()
    for origin in (source, RESULTS) if source >= 0 else (INPUTS,) if source == INPUTS else (EVENTS,):
        if origin in needs:
            need.join(needs[origin])
    return need


def value_at(run: Run, source: int, key: str) -> Value:
    """The value that an extract comes from."""
    if source == INPUTS:
        return run.inputs
    if source <= EVENTS:
        signals = run.signals or []
        index = EVENTS - source
        return signals[index].payload if index < len(signals) else None
    if key.startswith(OF_LAST):
        task = (run.fanning or {}).get(source)
        return task.fan.last if task is not None and task.fan is not None else None
    return (run.results or {}).get(source)


def source_words(run: Run, source: int) -> str:
    if source == INPUTS:
        return "the run's inputs"
    return f"the result of {run.plan.steps[source].id}" if source >= 0 else "the payload of an event"


def snapshot(state: State, run: Run, condition: Condition, *, policy: bool = False, **more: Any) -> dict[str, Any]:
    """What this condition may see of this run at this tick. Raises `ExtractMissing`."""
    key = f"{OF_POLICY}{condition.text}" if policy else OF_PLAN
    seen: dict[str, Any] = {}
    missing: list[tuple[int, str]] = []
    for name in condition.names:
        try:
            seen[name] = more[name] if name in more else _part(state, run, name, condition, key)
        except ExtractMissing as error:
            missing += error.places
    if missing:
        raise ExtractMissing(missing)
    return seen


def _part(state: State, run: Run, name: str, condition: Condition, key: str) -> Any:
    match name:
        case "inputs":
            return inputs_of(run, key)
        case "results":
            steps = run.plan.steps
            return _together([(steps[index].id, index, value) for index, value in _results(run, condition)], run, key)
        case "outcome":
            return {step.id: Phase(run.phases[step.index]).name.lower() for step in run.plan.steps}
        case "events":
            return [
                {
                    "name": heard.name,
                    "key": heard.key,
                    "payload": look_into(run, EVENTS - index, heard.payload, key, what=f"the event {heard.name}"),
                    "at_ms": state.settings.clock.ms_of(heard.tick),
                }
                for index, heard in enumerate(run.signals or ())
                if heard.tick < state.tick
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


def _together(results: list[tuple[str, int, Value]], run: Run, key: str) -> dict[str, Any]:
    """Collects every missing extract before it raises, so that one request asks for all of them."""
    seen: dict[str, Any] = {}
    missing: list[tuple[int, str]] = []
    for node, index, value in results:
        try:
            seen[node] = look_into(run, index, value, key, what=f"the result of {node}")
        except ExtractMissing as error:
            missing += error.places
    if missing:
        raise ExtractMissing(missing)
    return seen


def inputs_of(run: Run, key: str | None = None) -> dict[str, Any]:
    """With a key, as that extract has them where they are not inline."""
    what = "the run's inputs"
    plain = unpack(run.inputs, what=what) if key is None else look_into(run, INPUTS, run.inputs, key, what=what)
    return with_defaults(run.plan.definition, plain or {})


# ---- references

_WORDS = ("item", "index", "iteration", "previous")
ELSEWHERE = object()  # stands for an item or a previous result that is not inline


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
    return follow(value, walk, source)


def resolve_anywhere(run: Run, source: str) -> Any:
    """As `resolve`, also where the value is not inline. Raises `ExtractMissing`."""
    return resolved_by(run, source, f"{OF_REFERENCE}{source}")


def output_value(run: Run) -> Any:
    """The output that a definition names by a reference into a value. A node that was not taken has none. Raises
    `Refused` where the part is missing, and `ExtractMissing`."""
    source = run.plan.definition.output
    assert source is not None, "without one, the result of the last node is the output"
    ref = reference(run, source)
    if ref.root == "nodes":
        index = run.plan.index[ref.name]
        if run.phases[index] != Phase.SUCCEEDED and index not in (run.results or {}):
            return None
    return resolve_anywhere(run, source)


def resolved_by(run: Run, source: str, key: str) -> Any:
    """The value of a reference, or the extract of it under this key."""
    ref = reference(run, source)
    if not isinstance(stored_value(run, ref), Ref):
        return resolve(run, source)
    if ref.root == "inputs":
        return follow(inputs_of(run, key), (ref.name, *ref.walk) if ref.name else ref.walk, source)
    index = run.plan.index[ref.name]
    return follow(look_into(run, index, stored_value(run, ref), key, what=source), ref.walk, source)


def follow(value: Any, steps: tuple[str, ...], source: str) -> Any:
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise Refused("bad_reference", f"{source}: there is no {step}")
    return value


class ChildInputs(NamedTuple):
    """Inputs of a child run: as they are stored, and what is known of them here."""

    stored: Value  # inline where they are small, else a reference to the parent's arguments
    plain: dict[str, Any]
    apart: dict[str, Ref | None]  # not inline; None: a part of something, of which nothing is known here


def child_inputs(run: Run, args: dict[str, Argument], own: dict[str, Any], *, place: str) -> ChildInputs:
    plain: dict[str, Any] = {}
    apart: dict[str, Ref | None] = {}
    for name, argument in args.items():
        try:
            plain[name] = _argument(run, argument, own)
        except Refused as refused:
            if refused.code != "value_not_inline":
                raise
            apart[name] = _whole_reference(run, argument, own)
    if apart:
        return ChildInputs(Ref(place, 0, None, "arguments"), plain, apart)
    packed = pack(plain)
    small = len(packed) <= INLINE_BYTES_MAX
    return ChildInputs(packed if small else Ref(place, len(packed), None, "arguments"), plain, apart)


def _whole_reference(run: Run, argument: Argument, own: dict[str, Any]) -> Ref | None:
    assert argument.source is not None, "a constant is inline"
    ref = reference(run, argument.source)
    if ref.root != "nodes" or ref.root in own or ref.walk:
        return None
    stored = stored_value(run, ref)
    return stored if isinstance(stored, Ref) else None


def _argument(run: Run, argument: Argument, own: dict[str, Any]) -> Any:
    if argument.source is None:
        return argument.value
    ref = reference(run, argument.source)
    if ref.root not in own:
        return resolve(run, argument.source)
    if own[ref.root] is ELSEWHERE:
        raise Refused("value_not_inline", f"{argument.source} is not here")
    return follow(own[ref.root], ref.walk, argument.source)


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
        if isinstance(stored, Ref | EncryptedValue):
            parts.append(".".join((ref.name, *ref.walk)))
            parts.append(stored.digest if isinstance(stored, Ref) else stored.data)
        else:
            parts.append(pack(resolve(run, argument.source)))
    return stable_digest(*parts)
