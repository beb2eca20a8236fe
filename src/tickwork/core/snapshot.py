"""The whole state of a partition as plain rows, and back.

`capture` and `restore` are inverse: a restored machine decides every later tick as the original
would, byte for byte. Rows hold what is state; heaps, indexes and timers are found again from it.
`digest` is the one number by which two states are compared.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from tickwork.core.calendar import Cron, Interval
from tickwork.core.evolve.setup import join_stations
from tickwork.core.evolve.upkeep import (
    DUE_KIND,
    held_at,
    label_gauge,
    make_lane,
    set_timer,
    station_of,
    workflow_gauge,
)
from tickwork.core.lanes import Gauge, Shed
from tickwork.core.lifecycle import Phase
from tickwork.core.model import (
    Budget,
    Fan,
    Gate,
    Heard,
    Policy,
    Queue,
    Run,
    Schedule,
    Settings,
    State,
    Task,
    Tenant,
    Timer,
    Worker,
)
from tickwork.core.plan import Kind, plan_of
from tickwork.core.values import Value

Row = dict[str, Any]

_SCALARS = (
    "tick", "now_ms", "stamp", "next_number", "next_order", "fair_floor", "owed_max", "live_runs", "stale", "refused",
)  # fmt: skip
_TENANT = (
    "id", "weight", "max_live_runs", "share_unit", "fair_time", "charged_ms", "slots", "more", "usage",
    "accepted", "completed", "failed", "cancelled", "active", "redrive_ms",
)  # fmt: skip
_GAUGE = (
    "scope", "name", "running", "limit", "paused", "pause_reason", "rate_starts", "rate_ms", "burst", "tokens",
    "refilled_ms", "number", "due", "stirred",
)  # fmt: skip
_WORKER = ("number", "id", "queues", "labels", "capacity", "credit", "slots", "more")
_SCHEDULE = (
    "number", "name", "workflow", "expression", "inputs", "by", "next_ms", "due", "paused", "fired", "last_fired_ms",
)  # fmt: skip
_RUN = (
    "number", "id", "inputs", "by", "source", "submitted", "unfinished", "state", "started", "wanted", "priority",
    "busy", "waiting", "failures", "key", "body", "start_at", "debounce", "gated", "parent", "child", "deadline",
    "resume_at", "pause_reason", "scheduled_ms", "schedule", "sla_at", "sla_next",
)  # fmt: skip
_TASK = (
    "number", "phase", "attempt", "order", "queued", "started", "ready_ms", "due", "silent_at", "heard", "losses",
    "returns", "checkpoint", "parent", "child", "cache_key", "dispatched",
)  # fmt: skip
_LANE = ("number", "key", "held", "held_by", "held_since")
_FAN = ("total", "begun", "running", "succeeded", "failed", "rested", "last")

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Snapshot(msgspec.Struct, frozen=True):
    settings: Settings
    partition: Row
    documents: list[tuple[str, bytes]]
    tenants: list[Row]
    queues: list[Row]
    labels: list[Row]
    policies: list[Policy]
    workers: list[Row]
    schedules: list[Row]
    lanes: list[Row]
    stations: list[tuple[str, tuple[tuple[str, str], ...], int, bool]]
    runs: list[Row]
    tasks: list[Row]


def digest(state: State) -> str:
    return blake2b(encode(capture(state)), digest_size=16).hexdigest()


def encode(snapshot: Snapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    return msgspec.msgpack.decode(data, type=Snapshot)


# ---- capture


def capture(state: State) -> Snapshot:
    shed = state.shed
    return Snapshot(
        settings=state.settings,
        partition=_row(state, _SCALARS) | {"capacity": state.capacity, "shed": [shed.on, shed.lag_ms, shed.stirred]},
        documents=_sorted(state.documents),
        tenants=[_tenant_row(tenant) for _, tenant in _sorted(state.tenants)],
        queues=[_row(queue.gauge, _GAUGE) for _, queue in _sorted(state.queues)],
        labels=[{"label": label, **_row(gauge, _GAUGE)} for label, gauge in _sorted(state.label_gauges)],
        policies=[policy for _, policy in _sorted(state.policies)],
        workers=[_row(worker, _WORKER) for _, worker in _sorted(state.workers)],
        schedules=[_schedule_row(schedule) for _, schedule in _sorted(state.schedules)],
        lanes=[_row(lane, _LANE) for _, lane in _sorted(state.lane_numbers)],
        stations=[(*place, station.cursor, station.stirred) for place, station in _sorted(state.stations)],
        runs=[_run_row(run) for run in state.runs.values()],
        tasks=[_task_row(task) for task in state.tasks.values()],
    )


def _row(thing: object, names: tuple[str, ...]) -> Row:
    return {name: getattr(thing, name) for name in names}


def _sorted(things: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(things.items(), key=lambda pair: pair[0])


def _tenant_row(tenant: Tenant) -> Row:
    return _row(tenant, _TENANT) | {
        "gauge": _row(tenant.gauge, _GAUGE),
        "workflows": [_row(gauge, _GAUGE) for _, gauge in _sorted(tenant.workflow_gauges)],
        "plans": [(name, plan.hash) for name, plan in _sorted(tenant.plans)],
        "versions": sorted(tenant.versions),
        "gates": [
            (key, gate.limit, gate.holding, [run.number for run in gate.line if run.gated])
            for key, gate in _sorted(tenant.gates)
        ],
        "budgets": [(name, budget.booked_ms) for name, budget in _sorted(tenant.budgets)],
    }


def _schedule_row(schedule: Schedule) -> Row:
    every = schedule.every
    anchor = (every.every_ms, every.anchor_ms) if isinstance(every, Interval) else None
    return _row(schedule, _SCHEDULE) | {"tenant": schedule.tenant.id, "interval": anchor}


def _run_row(run: Run) -> Row:
    return _row(run, _RUN) | {
        "tenant": run.tenant.id,
        "plan": run.plan.hash,
        "phases": bytes(run.phases),
        "counts": None if run.counts is None else list(run.counts),
        "results": _sorted(run.results or {}),
        "signals": [msgspec.structs.astuple(heard) for heard in run.signals or ()],
        "gate": next((key for key, gate in _sorted(run.tenant.gates) if gate is run.gate), None),
        "keyed": run.tenant.keys.get(run.key) is run,
        "debounced": run.tenant.debounced.get((run.plan.name, run.debounce)) is run,
    }


def _task_row(task: Task) -> Row:
    fan = task.fan
    return _row(task, _TASK) | {
        "run": task.run.number,
        "step": task.step.index,
        "lane": task.lane.number if task.lane is not None else 0,
        "worker": task.worker.number if task.worker is not None else -1,
        "wait_key": task.wait_key,
        "fan": None if fan is None else _row(fan, _FAN) | {"live": _sorted(fan.live)},
    }


# ---- restore


def restore(snapshot: Snapshot) -> State:
    state = State(settings=snapshot.settings)
    _set(state, snapshot.partition, _SCALARS)
    state.capacity = _tuple(snapshot.partition["capacity"])
    state.shed = Shed()
    state.shed.on, state.shed.lag_ms, state.shed.stirred = snapshot.partition["shed"]
    for name, document in snapshot.documents:
        state.documents[name] = document
        state.plans[name] = plan_of(document)
    for row in snapshot.queues:
        state.queues[row["name"]] = Queue(row["name"], _rated(state, row))
    for row in snapshot.labels:
        label, value = row["label"]
        _set(label_gauge(state, label, value), row, _GAUGE)
    state.policies = {policy.name: policy for policy in snapshot.policies}
    for row in snapshot.tenants:
        _restore_tenant(state, row)
    _restore_all(state, snapshot)
    return state


def _restore_all(state: State, snapshot: Snapshot) -> None:
    """In the order in which things refer to each other; lanes and workers meet last."""
    for queue, labels, cursor, _ in snapshot.stations:
        station_of(state, queue, _pairs(labels)).cursor = cursor
    for row in snapshot.lanes:
        _restore_lane(state, row)
    for row in snapshot.workers:
        _restore_worker(state, row)
    for row in snapshot.schedules:
        _restore_schedule(state, row)
    for row in snapshot.runs:
        _restore_run(state, row)
    for row in snapshot.tasks:
        _restore_task(state, row)
    for tenant_row in snapshot.tenants:
        _restore_gates(state, tenant_row)
    _fill_lanes(state)
    for worker in state.workers.values():
        join_stations(state, worker)
    _stir_again(state, snapshot)


def _set(thing: object, row: Row, names: Iterable[str]) -> None:
    for name in names:
        setattr(thing, name, row[name])


def _tuple(value: Any) -> Any:
    return tuple(value)


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, held) for name, held in value)


def _rated(state: State, row: Row) -> Gauge:
    gauge = state.rated[row["number"]] = Gauge(**{name: row[name] for name in _GAUGE})
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
    tenant.budgets = {name: Budget(booked_ms) for name, booked_ms in row["budgets"]}
    tenant.gates = {_tuple(key): Gate(key[1], limit, holding) for key, limit, holding, _ in row["gates"]}
    state.tenants[tenant.id] = tenant


def _restore_gates(state: State, row: Row) -> None:
    for key, _, _, line in row["gates"]:
        state.tenants[row["id"]].gates[_tuple(key)].line.extend(state.runs[number] for number in line)


def _restore_worker(state: State, row: Row) -> None:
    worker = Worker(row["number"], row["id"], _tuple(row["queues"]), row["labels"], _tuple(row["capacity"]))
    worker.credit, worker.slots = row["credit"], row["slots"]
    worker.more = _tuple(row["more"])
    state.workers[worker.number] = worker
    state.worker_numbers[worker.id] = worker.number
    state.worker_bits |= 1 << worker.number


def _restore_schedule(state: State, row: Row) -> None:
    tenant = state.tenants[row["tenant"]]
    every: Cron | Interval
    if row["interval"] is None:
        every = Cron.parse(row["expression"], path="cron")
    else:
        every = Interval(every_ms=row["interval"][0], anchor_ms=row["interval"][1])
    values = _value(row["inputs"])
    schedule = Schedule(
        row["number"], tenant, row["name"], row["workflow"], every, row["expression"], values, row["by"]
    )
    _set(schedule, row, ("next_ms", "due", "paused", "fired", "last_fired_ms"))
    tenant.schedules[schedule.name] = state.schedules[schedule.number] = schedule
    if schedule.due:
        set_timer(state, Timer.SCHEDULE, schedule.number, schedule.due)


def _restore_lane(state: State, row: Row) -> None:
    tenant, workflow, queue, priority, labels, resources, dependency = row["key"]
    key = (tenant, workflow, queue, priority, _pairs(labels), _tuple(resources), dependency)
    lane = make_lane(state, key, row["number"])
    _set(lane, row, ("held", "held_by", "held_since"))


def _restore_run(state: State, row: Row) -> None:
    tenant, plan = state.tenants[row["tenant"]], state.plans[row["plan"]]
    phases, counts = bytearray(row["phases"]), row["counts"]
    if counts is not None and isinstance(plan.parent_counts, bytes):
        counts = bytearray(counts)
    run = Run(
        row["number"], row["id"], tenant, plan, _value(row["inputs"]), row["by"], row["source"], row["submitted"],
        phases, counts, row["unfinished"],
    )  # fmt: skip
    _set(run, row, (name for name in _RUN if name != "inputs"))
    run.results = {index: _value(value) for index, value in row["results"]} or None
    run.signals = [
        Heard(name, key, _value(payload), tick, used) for name, key, payload, tick, used in row["signals"]
    ] or None
    run.todo = [
        index for index, phase in enumerate(phases) if phase == Phase.PENDING and (counts is None or not counts[index])
    ]
    state.runs.add(run.number, run)
    run.shelf = tenant.runs.of(run.id)
    run.shelf[run.id] = run
    if row["keyed"]:
        tenant.keys.add(run.key, run)
    if row["debounced"]:
        tenant.debounced[run.plan.name, run.debounce] = run
    if row["gate"] is not None:
        run.gate = tenant.gates[_tuple(row["gate"])]
    if run.wanted:
        state.fresh.append(run)
    for kind, tick in _run_timers(run):
        if tick:
            set_timer(state, kind, run.number, tick)


def _run_timers(run: Run) -> tuple[tuple[Timer, int], ...]:
    return (
        (Timer.RUN_START, run.start_at),
        (Timer.RUN_TIMEOUT, run.deadline),
        (Timer.RUN_RESUME, run.resume_at),
        (Timer.SLA, run.sla_at),
    )


def _restore_task(state: State, row: Row) -> None:
    run = state.runs[row["run"]]
    step = run.plan.steps[row["step"]]
    if row["parent"]:
        assert step.body is not None
        step = step.body
    task = Task(row["number"], run, step, row["phase"])
    _set(task, row, (name for name in _TASK if name != "checkpoint"))
    task.checkpoint = _value(row["checkpoint"])
    task.lane = state.lane_numbers[row["lane"]] if row["lane"] else None
    state.tasks.add(task.number, task)
    if row["worker"] >= 0:
        task.worker = state.workers[row["worker"]]
        task.worker.tasks[task.number] = task
    if row["wait_key"] is not None:
        task.wait_key = _tuple(row["wait_key"])
        run.tenant.waits.setdefault(task.wait_key, {})[task.number] = task
    if row["fan"] is not None:
        _restore_fan(task, row["fan"])
    if task.due:
        set_timer(state, DUE_KIND[Phase(task.phase)], task.number, task.due)
    if task.silent_at:
        set_timer(state, Timer.SILENT, task.number, task.silent_at)


def _restore_fan(task: Task, row: Row) -> None:
    fan = task.fan = Fan(row["total"])
    _set(fan, row, (name for name in _FAN if name != "last"))
    fan.last = _value(row["last"])
    fan.live = dict(row["live"])
    if task.step.kind >= Kind.WORKFLOW and task.phase == Phase.WAITING:
        task.run.fanning = {**(task.run.fanning or {}), task.step.index: task}


def _fill_lanes(state: State) -> None:
    """Ready tasks back in line, in the order in which they stood; held lanes back to what holds them."""
    queued = sorted((task for task in state.tasks.values() if task.queued), key=lambda task: task.order)
    for task in queued:
        lane = task.lane
        assert lane is not None
        lane.tasks.append(task)
        lane.orders.append(task.order)
        lane.live += 1
        lane.tenant.queued += 1
        state.protected += lane.protected
    for lane in state.lanes.values():
        if lane.held:
            blocker = held_at(state, lane)
            blocker.park(lane, state.now_ms)
            if isinstance(blocker, Gauge):
                blocker.waiting += 1
        elif lane.live:
            lane.opened = True
            state.open.append(lane)


def _stir_again(state: State, snapshot: Snapshot) -> None:
    """Exactly what was stirred and not looked at yet, after a tick that was full. Restoring itself stirs nothing."""
    stations = [state.stations[queue, _pairs(labels)] for queue, labels, *_ in snapshot.stations]
    for station, (*_, stirred) in zip(stations, snapshot.stations, strict=True):
        station.stirred = stirred
    workflows = [gauge for tenant in state.tenants.values() for gauge in tenant.workflow_gauges.values()]
    blockers = [state.shed, *stations, *state.rated.values(), *state.label_gauges.values(), *workflows]
    state.stirred = [blocker for blocker in blockers if blocker.stirred]


def _value(raw: Any) -> Value:
    value: Value = msgspec.convert(raw, Value)
    return value
