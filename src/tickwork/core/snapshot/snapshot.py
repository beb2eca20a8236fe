"""The whole state of a partition in pieces, and back.

A header, the documents, and one row for each schedule, live run and live task: a store rewrites only the
rows that changed (`dirty_rows`) and the header with them. `capture` and `restore` are inverse: a restored machine
decides every later tick as the original would, byte for byte. Pieces hold what is state; heaps, indexes
and timers are found again from it. `digest` is the one number by which two states are compared.
"""

from collections.abc import Generator, Iterable, Iterator
from hashlib import blake2b
from itertools import filterfalse, islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.definition.plan import plan_of
from tickwork.core.evolve.indexes import held_at, label_gauge, make_lane, set_timer, workflow_gauge
from tickwork.core.evolve.versions import know_newest
from tickwork.core.evolve.worker_pools import code_of, join_stations, station_of
from tickwork.core.snapshot.mailbox_rows import (
    add_assets,
    add_event_ids,
    add_mailboxes,
    add_messages,
    encode_asset,
    encode_event_id,
    encode_message,
    is_asset,
    is_event_id,
    is_message,
    mailbox_rows,
    order_fates,
)
from tickwork.core.snapshot.run_rows import DeferredLinks, add_runs, add_tasks, encode_run, encode_task, settle
from tickwork.core.snapshot.schedule_rows import (
    LiveBackfill,
    add_backfill,
    add_schedules,
    backfill_row,
    encode_schedule,
)
from tickwork.core.state.bulk import BulkOperation
from tickwork.core.state.ready_queues import Limiter, LoadShedder
from tickwork.core.state.retry import RetryBudget
from tickwork.core.state.run_rates import RateKey
from tickwork.core.state.schedule import CatchUpChoice
from tickwork.core.state.state import (
    AppVersion,
    ConcurrencyGate,
    Group,
    MissingHandlers,
    Policy,
    Queue,
    QueuedCommand,
    Settings,
    State,
    Task,
    Tenant,
    Timer,
    Worker,
)

Row = dict[str, Any]
ROWS_A_STEP = 1_000

_SCALARS = (
    "tick", "now_ms", "stamp", "next_number", "next_order", "fair_floor", "owed_max", "live_runs", "stale", "refused",
)  # fmt: skip
_OUTBOX = ("outbox", "sent", "received")
_TENANT = (
    "id", "weight", "max_live_runs", "share_unit", "fair_time", "charged_ms", "slots", "more", "usage",
    "accepted", "completed", "failed", "cancelled", "active", "redrive_ms",
)  # fmt: skip
_GAUGE = (
    "scope", "name", "running", "limit", "paused", "pause_reason", "rate_starts", "rate_ms", "burst", "tokens",
    "refilled_ms", "number", "due", "stirred",
)  # fmt: skip
_WORKER = ("number", "id", "queues", "labels", "capacity", "credit", "slots", "more")
_LANE = ("number", "key", "held", "held_by", "held_since")

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Header(msgspec.Struct, frozen=True):
    """Everything that is neither run nor task nor schedule nor document."""

    settings: Settings
    partition: Row
    tenants: list[Row]
    queues: list[Row]
    labels: list[Row]
    policies: list[Policy]
    workers: list[Row]
    backfills: list[LiveBackfill]
    lanes: list[Row]
    stations: list[tuple[str, tuple[tuple[str, str], ...], int, bool]]


class Snapshot(NamedTuple):
    """The pieces that `restore` takes, in its order."""

    header: bytes
    documents: Iterable[tuple[str, bytes]]  # by hash
    runs: Iterable[bytes]  # by number
    tasks: Iterable[bytes]  # by number
    schedules: Iterable[bytes] = ()  # messages of mailboxes, ids of events and assets, by number


_decode_header = msgspec.msgpack.Decoder(Header).decode


def digest(state: State) -> str:
    return blake2b(_encode(capture(state)), digest_size=16).hexdigest()


# ---- capture


def capture(state: State) -> Snapshot:
    return Snapshot(
        header=encode_header(state),
        documents=_sorted(state.documents),
        runs=[encode_run(run) for run in state.runs.values()],
        tasks=[encode_task(task) for task in state.tasks.values()],
        schedules=_tenant_rows(state),
    )


def _tenant_rows(state: State) -> list[bytes]:
    """Schedules, messages of mailboxes, ids of events and assets, by number."""
    rows = [(schedule.number, encode_schedule(schedule)) for schedule in state.schedules.values()]
    rows += [(message.number, encode_message(message)) for message in state.messages.values()]
    rows += [(kept.number, encode_event_id(kept)) for kept in state.event_ids.values()]
    rows += [(asset.number, encode_asset(asset)) for asset in state.assets.values()]
    return [row for _, row in sorted(rows)]


def encode_header(state: State) -> bytes:
    shed = state.shed
    return _encode(
        Header(
            settings=state.settings,
            partition=_row(state, _SCALARS)
            | {"capacity": state.capacity, "shed": [shed.on, shed.lag_ms, shed.stirred]}
            | ({"gauge": _row(state.gauge, _GAUGE)} if state.gauge.paused or state.gauge.stirred else {})
            | ({} if state.choice is None else {"choice": state.choice})
            | ({"timers_held": True} if state.timers_held else {})
            | ({} if state.created_with is None else {"created_with": state.created_with})
            | {name: _sorted(getattr(state, name)) for name in _OUTBOX if getattr(state, name)}
            | ({"rate_keys_due": state.rate_keys_due} if state.rate_keys_due else {})
            | ({"zones_version": state.zones_version} if state.zones_version else {}),
            tenants=[_tenant_row(tenant) for _, tenant in _sorted(state.tenants)],
            queues=[_queue_row(queue) for _, queue in _sorted(state.queues)],
            labels=[{"label": label, **_row(gauge, _GAUGE)} for label, gauge in _sorted(state.label_gauges)],
            policies=[policy for _, policy in _sorted(state.policies)],
            workers=[_worker_row(worker) for _, worker in _sorted(state.workers)],
            backfills=[backfill_row(backfill) for _, backfill in _sorted(state.backfills)],
            lanes=[_row(lane, _LANE) for _, lane in _sorted(state.lane_numbers)],
            stations=[(*key, station.cursor, station.stirred) for key, station in _sorted(state.stations)],
        )
    )


def _queue_row(queue: Queue) -> Row:
    return _gauge_row(queue.gauge) | ({"removed": True} if queue.removed else {})


def _gauge_row(gauge: Limiter) -> Row:
    """Of a gauge that can have a rate."""
    return _row(gauge, _GAUGE) | ({"starts": list(gauge.starts)} if gauge.sliding else {})


def _row(thing: object, names: tuple[str, ...]) -> Row:
    return {name: getattr(thing, name) for name in names}


def _sorted(things: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(things.items(), key=lambda pair: pair[0])


def _tenant_row(tenant: Tenant) -> Row:
    return (
        _row(tenant, _TENANT)
        | {
            "gauge": _gauge_row(tenant.gauge),
            "workflows": [_row(gauge, _GAUGE) for _, gauge in _sorted(tenant.workflow_gauges)],
            "plans": [(name, plan.hash) for name, plan in _sorted(tenant.plans)],
            "versions": sorted(tenant.versions),
            "gates": [
                (key, gate.limit, gate.holding, [run.number for run in gate.line if run.gated])
                for key, gate in _sorted(tenant.gates)
            ],
            "budgets": [(name, budget.booked_ms) for name, budget in _sorted(tenant.budgets)],
            "groups": [(name, group.reason) for name, group in _sorted(tenant.groups) if group.paused],
            "holidays": [(name, sorted(dates)) for name, dates in _sorted(tenant.holidays)],
            "applications": [_application_row(*pair) for pair in _sorted(tenant.applications)],
        }
        | ({"mailboxes": mailbox_rows(tenant)} if tenant.mailboxes else {})
        | ({"rates": _rate_rows(tenant)} if tenant.rates else {})
        | ({"holders": holders} if (holders := _holders(tenant)) else {})
        | ({"bulks": [msgspec.structs.astuple(job) for job in tenant.bulks.values()]} if tenant.bulks else {})
    )


def _rate_rows(tenant: Tenant) -> list[Any]:
    """In the order in which they are looked at."""
    return [
        (workflow, [(key, bucket.full_us, bucket.waiting) for key, bucket in keys.items()])
        for workflow, keys in tenant.rates.items()
    ]


def _holders(tenant: Tenant) -> list[Any]:
    """Of the keys whose holder a later run may replace."""
    return [(key, gate.holder) for key, gate in _sorted(tenant.gates) if gate.holder]


def _worker_row(worker: Worker) -> Row:
    more = {name: getattr(worker, name) for name in ("lacks", "start", "process") if getattr(worker, name)}
    return _row(worker, _WORKER) | more


def _application_row(name: str, versions: dict[str, AppVersion]) -> Row:
    """Write each distinct declaration once, even if several versions share it."""
    declared = sorted({version.declared for version in versions.values() if version.declared is not None})
    index = {data: number for number, data in enumerate(declared)}
    return {
        "name": name,
        "declared": declared,
        "versions": [
            (
                entry.number, entry.name, entry.timestamp_ms, entry.created_ms, entry.workflows,
                -1 if entry.declared is None else index[entry.declared], entry.carried,
            )
            for _, entry in _sorted(versions)
        ],
    }  # fmt: skip


# ---- restore


def restore(
    header: bytes,
    documents: Iterable[tuple[str, bytes]],
    runs: Iterable[bytes],
    tasks: Iterable[bytes],
    schedules: Iterable[bytes] = (),
    *,
    zones: Zones = UTC_ONLY,
) -> State:
    """Raises `Corrupt` where the pieces are not of one moment."""
    steps = restoring(header, documents, runs, tasks, schedules, zones=zones)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            state: State = done.value
            return state


def restoring(
    header: bytes,
    documents: Iterable[tuple[str, bytes]],
    runs: Iterable[bytes],
    tasks: Iterable[bytes],
    schedules: Iterable[bytes] = (),
    *,
    zones: Zones = UTC_ONLY,
) -> Generator[None, None, State]:
    """The same in steps: a million rows take seconds, and the caller may do other work between two steps."""
    try:
        return (yield from _restore(_decode_header(header), Snapshot(header, documents, runs, tasks, schedules), zones))
    except (KeyError, msgspec.DecodeError) as error:
        raise Corrupt(f"the rows do not fit together ({error!r}): rebuild them from the journal") from error


def _restore(header: Header, pieces: Snapshot, zones: Zones) -> Generator[None, None, State]:
    """In the order in which things refer to each other; lanes and workers meet last."""
    state, links = State(settings=header.settings, zones=zones), DeferredLinks()
    _restore_partition(state, header, pieces.documents)
    for tenant in header.tenants:
        _restore_tenant(state, tenant)
    for queue, labels, cursor, _ in header.stations:
        station_of(state, queue, labels).cursor = cursor
    for lane in header.lanes:
        _restore_lane(state, lane)
    for worker in header.workers:
        _restore_worker(state, worker)
    for rows in _portions(pieces.schedules):
        add_schedules(state, filterfalse(_is_of_another_kind, rows), links.timers)
        add_messages(state, filter(is_message, rows), links.timers)
        add_event_ids(state, filter(is_event_id, rows))
        add_assets(state, filter(is_asset, rows))
        yield
    order_fates(state)
    for backfill in header.backfills:
        add_backfill(state, backfill)
    for rows in _portions(pieces.runs):
        add_runs(state, rows, links)
        yield
    for rows in _portions(pieces.tasks):
        add_tasks(state, rows, links)
        yield
    settle(state, links)
    yield
    if len(state.runs) != state.live_runs:
        raise Corrupt(f"{len(state.runs)} runs for a header of {state.live_runs}: rebuild the rows from the journal")
    for tenant in header.tenants:
        _restore_gates(state, tenant)
    _fill_lanes(state, links.queued)
    for known in state.workers.values():
        join_stations(state, known)
    _stir_again(state, header)
    return state


def _is_of_another_kind(row: bytes) -> bool:
    return is_message(row) or is_event_id(row) or is_asset(row)


def _portions(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    left = iter(rows)
    while some := list(islice(left, ROWS_A_STEP)):
        yield some


def _restore_partition(state: State, header: Header, documents: Iterable[tuple[str, bytes]]) -> None:
    _set(state, header.partition, _SCALARS)
    state.capacity = _tuple(header.partition["capacity"])
    state.timers_held = header.partition.get("timers_held", False)
    state.zones_version = header.partition.get("zones_version", "")
    state.rate_keys_due = header.partition.get("rate_keys_due", 0)
    if state.rate_keys_due:
        set_timer(state, Timer.RATE_KEYS, 0, state.rate_keys_due)
    state.sent, state.received = (dict(header.partition.get(name, ())) for name in ("sent", "received"))
    state.outbox = dict(msgspec.convert(header.partition.get("outbox", []), list[tuple[int, list[QueuedCommand]]]))
    state.shed = LoadShedder()
    state.shed.on, state.shed.lag_ms, state.shed.stirred = header.partition["shed"]
    _set(state.gauge, header.partition.get("gauge", {}), header.partition.get("gauge", {}))
    state.choice = msgspec.convert(header.partition.get("choice"), CatchUpChoice | None)
    state.created_with = msgspec.convert(header.partition.get("created_with"), Settings | None)
    for name, document in documents:
        state.documents[name] = document
        state.plans[name] = plan_of(document)
    for row in header.queues:
        state.queues[row["name"]] = Queue(row["name"], _rated(state, row), row.get("removed", False))
    for row in header.labels:
        label, value = row["label"]
        _set(label_gauge(state, label, value), row, _GAUGE)
    state.policies = {policy.name: policy for policy in header.policies}


def _set(thing: object, row: Row, names: Iterable[str]) -> None:
    for name in names:
        setattr(thing, name, row[name])


def _tuple(value: Any) -> Any:
    return tuple(value)


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, held) for name, held in value)


def _rated(state: State, row: Row) -> Limiter:
    gauge = state.rated[row["number"]] = Limiter(**{name: row[name] for name in _GAUGE})
    gauge.sliding, gauge.starts = "starts" in row, list(row.get("starts", ()))
    if gauge.due:
        set_timer(state, Timer.RATE, gauge.number, gauge.due)
    return gauge


def _restore_tenant(state: State, row: Row) -> None:
    tenant = Tenant(row["id"], _rated(state, row["gauge"]))
    _set(tenant, row, _TENANT)
    tenant.more = _tuple(row["more"])
    for gauge in row["workflows"]:
        _set(workflow_gauge(tenant, gauge["name"]), gauge, _GAUGE)
    tenant.plans = {name: state.plans[plan] for name, plan in row["plans"]}
    tenant.versions = {plan: state.plans[plan] for plan in row["versions"]}
    tenant.budgets = {name: RetryBudget(booked_ms) for name, booked_ms in row["budgets"]}
    tenant.gates = {_tuple(key): ConcurrencyGate(key[1], limit, holding) for key, limit, holding, _ in row["gates"]}
    for key, holder in row.get("holders", ()):
        tenant.gates[_tuple(key)].holder = holder
    tenant.groups = {name: Group(name, paused=True, reason=reason) for name, reason in row["groups"]}
    tenant.holidays = {name: frozenset(dates) for name, dates in row["holidays"]}
    for application in row.get("applications", ()):
        declared = application["declared"]
        tenant.applications[application["name"]] = {
            name: AppVersion(number, name, at_ms, made_ms, workflows, None if index < 0 else declared[index], *carried)
            for number, name, at_ms, made_ms, workflows, index, *carried in application["versions"]
        }
    know_newest(tenant)
    tenant.rates = {
        workflow: {key: RateKey(full_us, waiting) for key, full_us, waiting in keys}
        for workflow, keys in row.get("rates", ())
    }
    add_mailboxes(tenant, row.get("mailboxes", ()))
    tenant.bulks = {job.id: job for job in msgspec.convert(row.get("bulks", []), list[BulkOperation])}
    state.tenants[tenant.id] = tenant


def _restore_gates(state: State, row: Row) -> None:
    for key, _, _, line in row["gates"]:
        state.tenants[row["id"]].gates[_tuple(key)].line.extend(state.runs[number] for number in line)


def _restore_worker(state: State, row: Row) -> None:
    worker = Worker(row["number"], row["id"], _tuple(row["queues"]), row["labels"], _tuple(row["capacity"]))
    worker.credit, worker.slots = row["credit"], row["slots"]
    worker.more = _tuple(row["more"])
    worker.lacks = _tuple(row.get("lacks", ()))
    worker.start, worker.process = row.get("start", ""), row.get("process", "")
    if worker.lacks:
        state.lacking.setdefault(code_of(worker), MissingHandlers(worker.lacks, 0)).workers += 1
    state.workers[worker.number] = worker
    state.worker_numbers[worker.id] = worker.number
    state.worker_bits |= 1 << worker.number


def _restore_lane(state: State, row: Row) -> None:
    tenant, workflow, queue, priority, labels, resources, dependency = row["key"]
    key = (tenant, workflow, queue, priority, _pairs(labels), _tuple(resources), dependency)
    lane = make_lane(state, key, row["number"])
    _set(lane, row, ("held", "held_by", "held_since"))


def _fill_lanes(state: State, queued: list[Task]) -> None:
    """Ready tasks back in line, in the order in which they stood; held lanes back to what holds them."""
    for task in sorted(queued, key=attrgetter("order")):
        lane = task.lane
        assert lane is not None
        lane.tasks.append(task)
        lane.orders.append(task.order)
        lane.live += 1
        lane.tenant.queued += 1
        state.protected += lane.protected
    for lane in state.lanes.values():
        if lane.pools is not None and any(lane.pools[0].serves(worker) for worker in state.workers.values()):
            lane.station = lane.pools[0]
        if lane.held:
            blocker = held_at(state, lane)
            blocker.park(lane, state.now_ms)
            if isinstance(blocker, Limiter):
                blocker.waiting += 1
        elif lane.live:
            lane.opened = True
            state.open.append(lane)


def _stir_again(state: State, header: Header) -> None:
    """Exactly what was stirred and not looked at yet, after a tick that was full. Restoring itself stirs nothing."""
    stations = [state.stations[queue, labels] for queue, labels, *_ in header.stations]
    for station, (*_, stirred) in zip(stations, header.stations, strict=True):
        station.stirred = stirred
    workflows = [gauge for tenant in state.tenants.values() for gauge in tenant.workflow_gauges.values()]
    blockers = [state.shed, state.gauge, *stations, *state.rated.values(), *state.label_gauges.values(), *workflows]
    state.stirred = [blocker for blocker in blockers if blocker.stirred]
