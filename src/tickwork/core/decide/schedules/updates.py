"""Updates: who listens to one, and what becomes of the runs that it asks for.

An update that completes a group of a schedule's trigger makes an occurrence, like a time that has come. Its overlap
policy, its pause and its limits decide about it in the same way, and every update has a fate.
"""

from collections.abc import Iterator

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.values import INLINE_BYTES_MAX, Value, decode, too_large
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.decide.runs.run_end import replace_run
from tickwork.core.decide.tick_context import TickContext, check_key, tenant_of
from tickwork.core.definition.cel import EVENT_VARIABLES, Condition
from tickwork.core.definition.model import Definition
from tickwork.core.evolve.schedules import is_held, must_pause, updates_ready, waits_for_past
from tickwork.core.evolve.versions import plan_of_run, version_of_run
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import AssetUpdated, RunEndHeard, RunScheduled, UpdateHeard, UpdatesSettled
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.run_ids import occurrence_id
from tickwork.core.state.schedule import Fate
from tickwork.core.state.state import Schedule, State, Tenant
from tickwork.core.state.updates import CAUSED_INPUTS, HEARD_MAX, UPDATE, Firing, Update

ASSETS_MAX = 10_000  # of one tenant
RUNS_PER_LOOK = 100
Heard = tuple[tuple[int, int], ...]


# ---- who listens


def hear_event(turn: TickContext, position: int, ingest: inp.Ingest, *, command: int = -1) -> int:
    """Give an event to the schedules that listen to it, and return how many these are."""
    tenant = turn.state.tenants[ingest.tenant]
    if ("event", ingest.event) not in tenant.listeners:
        return 0
    heard = tuple(_listening(turn, tenant, ingest))
    if heard:
        turn.emit(UpdateHeard(position, heard, command))
        _tend(turn, heard)
    return len(heard)


def update_asset(turn: TickContext, position: int, request: inp.UpdateAsset, *, command: int = -1) -> int:
    """Note that an asset has new data, and return how many schedules count it."""
    state = turn.state
    tenant = state.tenants[request.tenant]
    heard = tuple(
        (number, listeners[number][0])
        for listeners in [tenant.listeners.get(("asset", request.asset), {})]
        for number in sorted(listeners)
    )
    known = tenant.assets.get(request.asset)
    turn.emit(AssetUpdated(position, state.next_number if known is None else known.number, heard, command))
    _tend(turn, heard)
    return len(heard)


def check_asset(state: State, request: inp.UpdateAsset) -> None:
    """Raises `Refused` for what cannot be an update."""
    tenant = tenant_of(state, request.tenant)
    check_name(request.asset, path="asset", kind="asset")
    check_key(request.partition, "partition")
    check_key(request.id, "id")
    if not (request.details is None or isinstance(request.details, bytes)) or too_large(request.details):
        message = f"the details of an update have at most {INLINE_BYTES_MAX} bytes; put the data elsewhere"
        raise Refused("value_too_large", message, path="details")
    if request.asset not in tenant.assets and len(tenant.assets) >= ASSETS_MAX:
        raise Refused("too_many_assets", f"at most {ASSETS_MAX} assets", path="asset")


def _listening(turn: TickContext, tenant: Tenant, ingest: inp.Ingest) -> Iterator[tuple[int, int]]:
    """By number of the schedule. An event counts once for a schedule, however many of its sources fit."""
    listeners = tenant.listeners["event", ingest.event]
    for number in sorted(listeners):
        schedule = turn.state.schedules[number]
        if ingest.payload is not None and not isinstance(ingest.payload, bytes):
            source = next((source for name, source, _ in ingest.starts if name == schedule.name), -1)
            source = source if source in listeners[number] else -1
        else:
            source = _first_source(turn, schedule, listeners[number], ingest)
        if source >= 0:
            yield number, source


def _first_source(turn: TickContext, schedule: Schedule, sources: tuple[int, ...], ingest: inp.Ingest) -> int:
    plain = decode(ingest.payload, what="payload")
    try:
        return source_of_event(schedule.when, sources, ingest.key, plain)
    except Refused as refused:
        detail = f"the filter for the event {ingest.event} cannot be decided: {refused}"
        turn.effects.append(Alert("filter_failed", schedule.tenant.id, schedule.name, detail))
        return -1


def source_of_event(when: ScheduleSpec, sources: tuple[int, ...], key: str, payload: object) -> int:
    """The first of these sources that the event is an update of; -1: none. Raises `Refused` where a filter fails."""
    assert when.on is not None
    for index in sources:
        source = when.on.sources[index]
        if source.key and source.key != key:
            continue
        if not source.where or _filter(source.where, "").holds({"event": payload, "key": key}):
            return index
    return -1


def hear_ends(turn: TickContext) -> None:
    """Tell the schedules that listen to them of the runs that ended in this tick. What a schedule replaces then ends
    as well, and is heard in turn."""
    for run in turn.state.closed:  # grows while it is walked
        listeners = run.tenant.listeners.get(("run", run.plan.name))
        if not listeners or run.parent or run.source == "test":
            continue
        state = RunState(run.state).name.lower()
        heard = tuple(
            (number, source)
            for number in sorted(listeners)
            if (source := _source_of_end(turn.state.schedules[number], listeners[number], state)) >= 0
        )
        if heard:
            turn.emit(RunEndHeard(run.number, heard))
            _tend(turn, heard)


def _source_of_end(schedule: Schedule, sources: tuple[int, ...], state: str) -> int:
    on = schedule.when.on
    assert on is not None
    return next((index for index in sources if on.sources[index].state in (state, "any")), -1)


def _tend(turn: TickContext, heard: Heard) -> None:
    """What can be decided now needs no look of its own. Updates that are joined wait for the next tick."""
    for number, source in heard:
        schedule = turn.state.schedules[number]
        on, updates = schedule.when.on, schedule.updates
        assert on is not None and updates is not None
        _limit(turn, schedule, [update for update in updates.heard if update.source == source])
        if not on.coalesce and not 0 < schedule.due <= turn.state.tick:  # then it is looked at in this tick anyway
            take_firings(turn, schedule)


def _limit(turn: TickContext, schedule: Schedule, heard: list[Update]) -> None:
    if len(heard) > HEARD_MAX:
        at_ms, cause = heard[0].at_ms, f"{HEARD_MAX} later ones wait as well"
        turn.emit(UpdatesSettled(schedule.number, 0, at_ms, at_ms, 1, Fate.COALESCED, cause))


# ---- what becomes of it


def take_firings(turn: TickContext, schedule: Schedule) -> None:
    if schedule.terms.pause_after and must_pause(schedule):
        return
    for _ in range(RUNS_PER_LOOK):
        if not take_firing(turn, schedule):
            break


def take_firing(turn: TickContext, schedule: Schedule) -> bool:
    """Decide about one occurrence by updates. False: nothing is to be decided."""
    updates, terms = schedule.updates, schedule.terms
    if updates is None or not updates_ready(schedule):
        return False
    firing = updates.waiting[0]
    if is_held(schedule):
        cause = f"paused, at most {terms.catch_up_cap}" if terms.automatic_backfill else "paused"
        _settle(turn, schedule, firing, Fate.SKIPPED, cause)
        return True
    if (schedule.active or waits_for_past(schedule)) and terms.overlap in ("buffer_one", "buffer_all"):
        cause = "overlap buffer_one" if terms.overlap == "buffer_one" else "overlap buffer_all, buffer full"
        _settle(turn, schedule, updates.waiting[-1], Fate.SKIPPED, cause)
        return True
    fate, cause = _obstacle(turn.state, schedule)
    if cause:
        _settle(turn, schedule, firing, fate, cause)
        if fate == Fate.MISSED:
            turn.effects.append(Alert("occurrence_missed", schedule.tenant.id, schedule.name, cause))
        return True
    _run(turn, schedule, firing)
    return True


def _obstacle(state: State, schedule: Schedule) -> tuple[int, str]:
    terms, tenant = schedule.terms, schedule.tenant
    if plan_of_run(tenant, schedule) is None:
        return Fate.MISSED, "unknown_workflow"
    held = waits_for_past(schedule)
    if terms.overlap == "forbid" and (schedule.active or held):
        return Fate.SKIPPED, "the run before it failed" if held else "overlap forbid"
    if terms.runs_max and schedule.fired >= terms.runs_max:
        return Fate.SKIPPED, f"max_runs {terms.runs_max}"
    if state.live_runs >= state.settings.max_live_runs or tenant.active >= tenant.max_live_runs:
        return Fate.MISSED, "overloaded"
    return 0, ""


def _run(turn: TickContext, schedule: Schedule, firing: Firing) -> None:
    state, number, run_id = turn.state, schedule.number, occurrence_id(schedule.name, firing.due_ms)
    if schedule.active and schedule.terms.overlap == "replace":
        for active in schedule.active:
            replace_run(turn, state.runs[active], f"replaced by {run_id}")
    others = firing.updates[:-1]
    if others:
        first_ms, last_ms = others[0].at_ms, others[-1].at_ms
        cause = f"into {run_id}"
        turn.emit(UpdatesSettled(number, firing.due_ms, first_ms, last_ms, len(others), Fate.COALESCED, cause))
    version = version_of_run(schedule.tenant, schedule)
    turn.emit(RunScheduled(state.next_number, number, firing.due_ms, way=UPDATE, version=version))


def _settle(turn: TickContext, schedule: Schedule, firing: Firing, fate: int, cause: str) -> None:
    first_ms, last_ms, count = firing.updates[0].at_ms, firing.updates[-1].at_ms, len(firing.updates)
    turn.emit(UpdatesSettled(schedule.number, firing.due_ms, first_ms, last_ms, count, fate, cause))


def cancel_updates(turn: TickContext, schedule: Schedule, cause: str) -> None:
    """The schedule is removed, or listens to something else from now on."""
    updates = schedule.updates
    if updates is None:
        return
    for firing in updates.waiting:
        _settle(turn, schedule, firing, Fate.CANCELLED, cause)
    if heard := updates.heard:
        first_ms, last_ms = heard[0].at_ms, heard[-1].at_ms
        turn.emit(UpdatesSettled(schedule.number, 0, first_ms, last_ms, len(heard), Fate.CANCELLED, cause))


# ---- what is wrong with a trigger


def check_trigger_of(request: inp.PutSchedule, definition: Definition) -> None:
    """Raises `Refused` for a trigger that this workflow or these terms cannot have."""
    on, terms = request.when.on, request.terms
    if on is None:
        return
    if request.governing is not None:
        raise Refused("bad_trigger", "an endpoint is run at times that follow from its results", path="when.on")
    if terms.runs_max and request.when.has_time:
        message = "a schedule with times and updates cannot count its runs; make two schedules"
        raise Refused("bad_trigger", message, path="runs_max")
    if not (request.inputs is None or isinstance(request.inputs, bytes)):
        raise Refused("value_not_inline", "these inputs are too large for the updates to join them", path="inputs")
    for index, source in enumerate(on.sources):
        if source.where:
            _filter(source.where, f"when.on[{index}].where")
        if source.ended == request.workflow:
            message = f"each end of {source.ended} would start it again, without end"
            raise Refused("bad_trigger", message, path=f"when.on[{index}].ended")
    if request.when.has_time:
        for name in CAUSED_INPUTS:
            field = definition.inputs.get(name)
            if field is not None and field.required:
                message = f"a run at a time of the schedule has no {name}; give that input a default"
                raise Refused("missing_input", message, path=f"inputs.{name}")


def _filter(text: str, path: str) -> Condition:
    return Condition.compile(text, path=path, allowed=EVENT_VARIABLES)


def inputs_apart(definition: Definition, given: Value) -> Definition:
    """The workflow as the schedule itself has to fill it: the other inputs come with the updates."""
    plain = decode(given, what="inputs") if isinstance(given, bytes) else {}
    own = plain if isinstance(plain, dict) else {}
    left = {name: field for name, field in definition.inputs.items() if name not in CAUSED_INPUTS or name in own}
    return msgspec.structs.replace(definition, inputs=left)
