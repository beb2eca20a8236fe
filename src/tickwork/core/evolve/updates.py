"""The part of `evolve` by which schedules hear updates, and updates become firings.

An update waits in `heard` until a group of its schedule's trigger is complete. Then the updates of that group are a
firing, which waits for its run or its fate like an occurrence of the clock.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tickwork.core.base.values import Value
from tickwork.core.calendar.trigger_spec import TriggerSpec
from tickwork.core.evolve.run_creation import source_of_request
from tickwork.core.evolve.schedules import arm, record
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import request_in
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.run_ids import SUBMITTED, occurrence_id
from tickwork.core.state.state import EventId, Schedule, State
from tickwork.core.state.updates import (
    JOINED_BYTES_MAX,
    JOINED_MAX,
    LATEST_MAX,
    PARTITIONS_MAX,
    Asset,
    AssetUpdate,
    Firing,
    Update,
)

EVENT_IDS_MAX = 100_000  # of one tenant


def _on_heard(state: State, event: ev.UpdateHeard) -> None:
    ingest: Any = request_in(state.inputs[event.input], event.command)
    starts = {name: inputs for name, _, inputs in ingest.starts}
    for number, source in event.heard:
        schedule = state.schedules[number]
        inputs = starts.get(schedule.name)
        update = Update(
            source, _free_ms(state, schedule), "event", ingest.event, ingest.key, ingest.id, ingest.by, "",
            ingest.payload, inputs,
        )  # fmt: skip
        _hear(state, schedule, update)


def _on_end_heard(state: State, event: ev.RunEndHeard) -> None:
    run = next(run for run in reversed(state.closed) if run.number == event.run)
    for number, source in event.heard:
        schedule = state.schedules[number]
        update = Update(
            source,
            _free_ms(state, schedule),
            "run",
            run.plan.name,
            "",
            run.id,
            run.by,
            RunState(run.state).name.lower(),
        )
        _hear(state, schedule, update)


def _on_asset_updated(state: State, event: ev.AssetUpdated) -> None:
    item = state.inputs[event.input]
    request: Any = request_in(item, event.command)
    tenant, source = state.tenants[request.tenant], _source_task(state, item)
    asset = tenant.assets.get(request.asset)
    if asset is None:
        asset = Asset(event.asset, tenant.id, request.asset)
        tenant.assets[asset.name] = asset
        state.assets.add(asset.number, asset)
        state.next_number = max(state.next_number, event.asset + 1)
    update = AssetUpdate(state.now_ms, request.by, source, request.partition, request.details, request.id)
    asset.count += 1
    asset.latest = (*asset.latest, update)[-LATEST_MAX:]
    if request.partition:
        others = tuple(pair for pair in asset.partitions if pair[0] != request.partition)
        asset.partitions = (*others, (request.partition, state.now_ms))[-PARTITIONS_MAX:]
    for number, index in event.heard:
        schedule = state.schedules[number]
        heard = Update(
            index, _free_ms(state, schedule), "asset", asset.name, request.partition, request.id, request.by, "",
            request.details, None, source,
        )  # fmt: skip
        _hear(state, schedule, heard)


def _source_task(state: State, item: Any) -> str:
    """The task that made the data, here or in another partition; "": a person or program said so."""
    source = source_of_request(state, item)
    return source if source != SUBMITTED else ""


def _free_ms(state: State, schedule: Schedule) -> int:
    """The time of an update of this schedule. Several in one millisecond are one apart, so that each time, and the id
    of its run, stands for one of them."""
    updates = schedule.updates
    assert updates is not None
    at_ms = max(state.now_ms, updates.last_ms + 1)
    while at_ms == schedule.next_ms or schedule.tenant.runs.get(occurrence_id(schedule.name, at_ms)) is not None:
        at_ms += 1
    return at_ms


def _hear(state: State, schedule: Schedule, update: Update) -> None:
    updates, on = schedule.updates, schedule.when.on
    assert updates is not None and on is not None
    updates.last_ms = update.at_ms
    updates.count += 1
    others = _complete(on, updates.heard, update)
    if others is None:
        updates.heard = (*updates.heard, update)
        return
    firing = Firing(update.at_ms, (*others, update))
    updates.heard = tuple(other for other in updates.heard if other not in others)
    last = updates.waiting[-1] if updates.waiting else None
    if on.coalesce and last is not None and _fit(last.updates, firing.updates):
        firing = Firing(firing.due_ms, (*last.updates, *firing.updates))
        updates.waiting = (*updates.waiting[:-1], firing)
    else:
        updates.waiting = (*updates.waiting, firing)
    arm(state, schedule)


def _of_partition(heard: tuple[Update, ...], group: tuple[int, ...], update: Update) -> tuple[Update, ...] | None:
    """The updates by which this one completes the group: all of one partition, or of none. None: one is missing."""
    found = [other for other in heard if other.source in group]
    partition = update.partition or next((other.partition for other in found if other.partition), "")
    fitting = tuple(other for other in found if other.partition in ("", partition))
    sources = {update.source, *(other.source for other in fitting)}
    return fitting if sources.issuperset(group) else None


def _complete(on: TriggerSpec, heard: tuple[Update, ...], update: Update) -> tuple[Update, ...] | None:
    """What fires with this update: the other updates of the first group that it completes."""
    for group in on.groups:
        if update.source in group:
            fitting = _of_partition(heard, group, update)
            if fitting is not None:
                return fitting
    return None


def _fit(first: tuple[Update, ...], more: tuple[Update, ...]) -> bool:
    """Whether both may be in one run. Payloads that are not inline cannot be joined."""
    joined = (*first, *more)
    if len({update.partition for update in joined if update.partition}) > 1:
        return False  # a run is of one partition
    if len(joined) > JOINED_MAX or any(update.inputs is not None for update in joined):
        return False
    return sum(_size(update.payload) for update in joined) <= JOINED_BYTES_MAX


def _size(payload: Value) -> int:
    return len(payload) if isinstance(payload, bytes) else 0


def _on_settled(state: State, event: ev.UpdatesSettled) -> None:
    schedule = state.schedules[event.schedule]
    updates = schedule.updates
    assert updates is not None
    record(state, schedule, event.fate, event.cause, event.from_ms, event.to_ms, event.count)
    if not event.due_ms:
        updates.heard = tuple(update for update in updates.heard if not event.from_ms <= update.at_ms <= event.to_ms)
    else:
        updates.waiting = _without(updates.waiting, event.due_ms, event.count)
    arm(state, schedule, looked=True)


def _without(waiting: tuple[Firing, ...], due_ms: int, count: int) -> tuple[Firing, ...]:
    """If all updates of the firing are settled, it has gone. Otherwise its run begins next."""
    return tuple(firing for firing in waiting if firing.due_ms != due_ms or len(firing.updates) > count)


def _on_id_kept(state: State, event: ev.EventIdKept) -> None:
    ingest: Any = request_in(state.inputs[event.input], -1)
    state.next_number = event.number + 1
    kept = EventId(event.number, ingest.tenant, ingest.id, state.tick)
    known = state.tenants[ingest.tenant].event_ids
    if ingest.id in known:  # it came so long ago that it may come again
        _forget(state, [known.pop(ingest.id)])
    known[ingest.id] = kept
    state.event_ids.add(event.number, kept)
    before = state.tick - state.settings.clock.ticks(state.settings.dedupe_window_ms)
    gone: list[EventId] = []
    for other in known.values():
        if other.came > before and len(known) - len(gone) <= EVENT_IDS_MAX:
            break
        gone.append(other)
    for other in gone:
        del known[other.id]
    _forget(state, gone)


def _forget(state: State, gone: Iterable[EventId]) -> None:
    for kept in gone:
        state.event_ids.remove(kept.number)
        state.changed_messages.append(kept.number)


UPDATE_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.UpdateHeard: _on_heard,
    ev.RunEndHeard: _on_end_heard,
    ev.AssetUpdated: _on_asset_updated,
    ev.UpdatesSettled: _on_settled,
    ev.EventIdKept: _on_id_kept,
}
