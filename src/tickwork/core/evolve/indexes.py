"""Keeping lanes, timers and counters in step with runs and tasks.

Helpers of `evolve` only: each one changes several values that must change
together. They decide nothing; their callers apply an event that says what happened.
"""

from collections.abc import Iterable
from operator import attrgetter

from tickwork.core.definition.plan import Step
from tickwork.core.evolve.worker_pools import (
    free_worker,
    handler_label,
    handler_of,
    has_credit,
    station_of,
    stir,
    version_label,
)
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.ready_queues import (
    PIN_LABEL,
    PLAIN_RESOURCES,
    PREFERRED,
    START_CHARGE_MS,
    Blocker,
    Limiter,
    ReadyQueue,
    ReadyQueueKey,
    WorkerPool,
    announced,
    is_broker_worker,
    pool_labels,
)
from tickwork.core.state.state import NOTHING, Run, State, Task, Tenant, Timer, Worker
from tickwork.core.state.tables import with_entry, without_entry

RUNNING = int(Phase.RUNNING)
DEFAULT_QUEUE = "default"
DUE_KIND = {
    Phase.READY: Timer.QUEUED,
    Phase.RUNNING: Timer.RUNNING,
    Phase.BACKOFF: Timer.RETRY,
    Phase.WAITING: Timer.WAIT,
}


# ---- visits


def want(state: State, run: Run) -> None:
    """The run is to be looked at: in this tick if its visits are still to come, else in the next."""
    if not run.wanted:
        run.wanted = state.stamp
        state.fresh.append(run)


def merge_fresh(state: State) -> None:
    """Line up the runs that want a visit by now, by (tick, run id); those of earlier ticks stand before them."""
    fresh = state.fresh
    if not fresh:
        return
    now = [run for run in fresh if 0 < run.wanted <= state.tick]
    state.fresh = [run for run in fresh if run.wanted > state.tick] if len(now) < len(fresh) else []
    if len(now) > 1:
        now.sort(key=visit_order)
    state.line.extend(now)


visit_order = attrgetter("wanted", "id", "tenant.id")


def leave_line(state: State, runs: list[int]) -> None:
    """These are visited now. Entries of runs that ended meanwhile are dropped on the way."""
    line = state.line
    for number in runs:
        run = line.popleft()
        while run.number != number or not run.wanted:
            run = line.popleft()
        run.visited, run.wanted = run.wanted, 0


# ---- timers


def set_timer(state: State, kind: Timer, number: int, tick: int) -> int:
    state.wheel.insert(tick, number << 5 | kind)
    return tick


def clear_timer(state: State, kind: Timer, number: int, tick: int) -> None:
    state.wheel.cancel(tick, number << 5 | kind)


def move_timer(state: State, kind: Timer, number: int, tick: int, later: int) -> int:
    state.wheel.move(tick, later, number << 5 | kind)
    return later


def arm_sla(state: State, run: Run) -> None:
    """Set the timer of a run to the next point in time of its service level."""
    points = run.plan.sla_points
    run.sla_at = 0
    if run.sla_next < len(points):
        clock = state.settings.clock
        base_ms = run.scheduled_ms or clock.ms_of(run.submitted)
        tick = max(clock.tick_at(base_ms + points[run.sla_next][0]), state.tick)
        run.sla_at = set_timer(state, Timer.SLA, run.number, tick)


def set_due(state: State, task: Task, tick: int) -> None:
    """The timer of a task's phase; call it after the phase is set."""
    task.due = set_timer(state, DUE_KIND[Phase(task.phase)], task.number, tick)


def wait_for(tenant: Tenant, key: tuple[str, str], task: Task) -> None:
    """From here on the task hears of events of this name and key."""
    tenant.waits[key] = with_entry(tenant.waits.get(key), task.number, task)


def wait_no_more(tenant: Tenant, key: tuple[str, str], task: Task) -> None:
    left = without_entry(tenant.waits[key], task.number)
    if left is None:
        del tenant.waits[key]
    else:
        tenant.waits[key] = left


def clear_due(state: State, task: Task) -> None:
    """Call it before the phase changes."""
    if task.due:
        clear_timer(state, DUE_KIND[Phase(task.phase)], task.number, task.due)
        task.due = 0
    if task.silent_at:
        clear_timer(state, Timer.SILENT, task.number, task.silent_at)
        task.silent_at = 0


# ---- lanes


def find_lane(state: State, run: Run, step: Step) -> ReadyQueue:
    queue, priority, labels, resources, dependency = step.requirement
    if run.queue and queue == DEFAULT_QUEUE:
        queue = run.queue
    if step.chooses:
        assert run.chosen is not None, "it was chosen before the node began"
        chosen_queue, more = run.chosen[step.index]
        queue, labels = chosen_queue or queue, tuple(sorted((dict(labels) | dict(more)).items()))
    if run.priority >= 0:
        priority = run.priority
    handler = handler_of(step)
    first = version_label(state, run.pin, handler)
    if run.pin and not run.pin.startswith(PREFERRED):
        labels = tuple(sorted((*labels, (PIN_LABEL, run.pin))))
    labels = handler_label(state, queue, labels, handler) + first + labels
    key = (run.tenant.id, run.plan.name, queue, priority, labels, resources, dependency)
    lane = state.lanes.get(key)
    if lane is None:
        number = state.next_number
        state.next_number = number + 1
        lane = make_lane(state, key, number)
    if run.priority < 0 and not run.queue and not step.chooses:  # it follows from the definition, and from the pin
        if run.pin:
            run.tenant.pinned_lanes[run.pin, step] = lane
        else:
            run.tenant.lanes[step] = lane
    return lane


def make_lane(state: State, key: ReadyQueueKey, number: int) -> ReadyQueue:
    tenant_id, workflow, queue, priority, labels, resources, _ = key
    tenant = state.tenants[tenant_id]
    counted = (tenant.gauge, state.queues[queue].gauge, *(label_gauge(state, *label) for label in announced(labels)))
    every, first = pool_labels(labels)
    station, pools = station_of(state, queue, every), None
    if first is not None:
        pools = (station_of(state, queue, first), station)
        station = pools[0] if pools[0].workers else station
    lane = ReadyQueue(
        key=key,
        tenant=tenant,
        station=station,
        gauges=(state.gauge, tenant.gauge, workflow_gauge(tenant, workflow), *counted[1:]),
        counted=counted,
        priority=priority,
        lead_ms=priority * state.settings.ageing_ms,
        protected=priority >= state.settings.shed_below,
        resources=resources,
        plain=resources == PLAIN_RESOURCES,
        number=number,
        pools=pools,
    )
    state.lanes[key] = lane
    state.lane_numbers[number] = lane
    if pools is not None:
        pools[0].lanes.append(lane)
    return lane


def choose_pools(state: State, stations: Iterable[WorkerPool]) -> None:
    """Workers came to these pools or left them: where the last one of a version has gone, its lanes are served by any
    worker, and again by those of the version once there is one. A lane that waits is looked at again."""
    for station in stations:
        for lane in station.lanes:
            assert lane.pools is not None, "it is in the list of a version's workers"
            chosen = lane.pools[not station.workers]
            if lane.station is chosen:
                continue
            if lane.held in ("credit", "resources"):
                release_lane(state, lane)
                state.released.append(lane)
            lane.station = chosen
            if lane.live and not lane.held and not lane.opened:
                lane.opened = True
                state.open.append(lane)


def workflow_gauge(tenant: Tenant, workflow: str) -> Limiter:
    gauge = tenant.workflow_gauges.get(workflow)
    if gauge is None:
        gauge = tenant.workflow_gauges[workflow] = Limiter(scope="workflow", name=workflow)
    return gauge


def label_gauge(state: State, label: str, value: str) -> Limiter:
    gauge = state.label_gauges.get((label, value))
    if gauge is None:
        gauge = state.label_gauges[label, value] = Limiter(scope="label", name=f"{label}={value}")
    return gauge


def enqueue(state: State, task: Task) -> None:
    """Put a task at the end of its lane, or a map that has children to give."""
    run = task.run
    tenant = run.tenant
    lane = task.lane
    if lane is None:
        # `tenant.lanes` has plain steps only, so the step itself needs no check.
        if run.priority < 0 and not run.queue:
            lane = tenant.pinned_lanes.get((run.pin, task.step)) if run.pin else tenant.lanes.get(task.step)
        if lane is None:
            lane = find_lane(state, run, task.step)
        task.lane = lane
    task.order = order = state.next_order
    state.next_order = order + 1
    task.ready_ms = state.now_ms
    task.queued = True
    lane.tasks.append(task)
    lane.orders.append(order)
    lane.live += 1
    if not tenant.queued:
        # A newcomer begins where the others are: idle time earns no claim.
        tenant.settle(state.now_ms)
        tenant.fair_time = max(tenant.fair_time, state.fair_floor)
    tenant.queued += 1
    if lane.protected:
        state.protected += 1
    if not lane.held and not lane.opened:
        lane.opened = True
        state.open.append(lane)


def stand_behind(state: State, task: Task) -> None:
    """The first in a line goes to its end, as if it had come now: whatever came before goes first, in any lane."""
    lane = task.lane
    assert lane is not None and lane.head() is task, "a lane is served in order"
    lane.tasks.popleft()
    lane.orders.popleft()
    task.order = order = state.next_order
    state.next_order = order + 1
    task.ready_ms = state.now_ms
    lane.tasks.append(task)
    lane.orders.append(order)


def dequeue(state: State, task: Task) -> None:
    """Take a task out of line wherever it stands; its entry is dropped when it comes to the front."""
    lane = task.lane
    assert lane is not None and task.queued
    task.queued = False
    left_line(state, lane)


def left_line(state: State, lane: ReadyQueue, count: int = 1) -> None:
    """So many tasks fewer stand in this line."""
    lane.live -= count
    lane.tenant.queued -= count
    if lane.protected:
        state.protected -= count
    if not lane.live:
        lane.tasks.clear()
        lane.orders.clear()
        if lane.held:
            release_lane(state, lane)
            state.released.append(lane)


def release_lane(state: State, lane: ReadyQueue) -> None:
    blocker = held_at(state, lane)
    if isinstance(blocker, Limiter):
        blocker.waiting -= 1
    lane.held = lane.held_by = ""
    lane.stamp += 1  # whatever blocker it was parked at forgets it


def start_later(state: State, run: Run, tick: int) -> None:
    if run.start_at:
        clear_timer(state, Timer.RUN_START, run.number, run.start_at)
    run.start_at = set_timer(state, Timer.RUN_START, run.number, tick)


def await_token(state: State, gauge: Limiter) -> None:
    """While lanes wait at an empty bucket, its one timer is set."""
    now_ms = state.now_ms
    if gauge.rate_ms and gauge.waiting and not gauge.due and gauge.tokens_at(now_ms) < gauge.rate_ms:
        tick = state.settings.clock.tick_at(gauge.next_token_ms(now_ms))
        gauge.due = set_timer(state, Timer.RATE, gauge.number, max(tick, state.tick + 1))


def forget_token(state: State, gauge: Limiter) -> None:
    if gauge.due:
        clear_timer(state, Timer.RATE, gauge.number, gauge.due)
        gauge.due = 0


def new_rated_gauge(state: State, scope: str, name: str) -> Limiter:
    gauge = state.rated[state.next_number] = Limiter(scope=scope, name=name, number=state.next_number)
    state.next_number += 1
    return gauge


def end_admission(state: State, *, full: bool) -> None:
    """Everything that was opened or stirred has been looked at. After a full tick it is all looked at again."""
    if full:
        return
    for lane in state.open:
        lane.opened = False
    for blocker in state.stirred:
        blocker.stirred = False
    state.open, state.stirred = [], []


def held_at(state: State, lane: ReadyQueue) -> Blocker:
    """Where a held lane is parked; found again from the words of its hold."""
    if lane.held in ("credit", "resources"):
        return lane.station
    if lane.held == "load":
        return state.shed
    return next(gauge for gauge in lane.gauges if gauge.label == lane.held_by)


# ---- attempts


def begin_attempt(state: State, task: Task, worker: Worker, lane: ReadyQueue) -> None:
    """Count the attempt against every limit, its tenant's share and its worker's credit."""
    now_ms = state.now_ms
    for gauge in lane.counted:
        gauge.running += 1
        if gauge.rate_ms:
            gauge.spend(now_ms)
            if gauge.waiting and not gauge.due:
                await_token(state, gauge)
    tenant = lane.tenant
    if tenant.charged_ms != now_ms:
        tenant.settle(now_ms)
    if tenant.fair_time > state.fair_floor:
        state.fair_floor = tenant.fair_time
    else:
        least = state.fair_floor - state.owed_max
        if tenant.fair_time < least:
            tenant.fair_time = least
    if lane.plain and tenant.more == NOTHING:
        tenant.slots += 1
        tenant.usage = tenant.slots
        tenant.fair_time += START_CHARGE_MS * tenant.share_unit
        worker.slots += 1
    else:
        use(state, tenant, worker, lane.resources, 1)
        units = _dominant_units(lane.resources[0], lane.resources[1:], state.capacity)
        tenant.fair_time += units * START_CHARGE_MS * tenant.share_unit
    task.phase = RUNNING
    task.attempt += 1
    task.worker = worker
    task.started = False
    task.dispatched = task.heard = state.tick
    tasks = worker.tasks
    tasks[task.number] = task
    lane.station.cursor = worker.number + 1
    if len(tasks) >= worker.credit or worker.slots >= worker.capacity[0]:
        for station in worker.stations:
            station.free &= ~(1 << worker.number)
    if task.step.timed and not is_broker_worker(worker.id):  # on a lane it does not run yet
        _set_attempt_timers(state, task)


def count_begun(state: State, lane: ReadyQueue, worker: Worker, count: int) -> None:
    """What `begin_attempt` counts of so many plain attempts of one lane, one after the other.

    No more than a rate has room for: then only the last of them can empty a bucket, and the timer is the same.
    """
    tenant, slot, now_ms = lane.tenant, START_CHARGE_MS * lane.tenant.share_unit, state.now_ms
    for gauge in lane.counted:
        gauge.running += count
        if gauge.rate_ms:
            gauge.spend(now_ms, count)
            if gauge.waiting and not gauge.due:
                await_token(state, gauge)
    if tenant.charged_ms != now_ms:
        tenant.settle(now_ms)
    first = max(tenant.fair_time, state.fair_floor - state.owed_max)
    last = first + (count - 1) * slot  # how it stood when the last of them started
    state.fair_floor = max(state.fair_floor, last)
    tenant.fair_time = last + slot
    tenant.slots += count
    tenant.usage = tenant.slots
    worker.slots += count
    lane.station.cursor = worker.number + 1
    if not has_credit(worker):
        for station in worker.stations:
            station.free &= ~(1 << worker.number)


def change_worker(state: State, task: Task, worker: Worker) -> None:
    """The attempt goes on, with another worker. That one may hold more than its credit by it."""
    before, lane = task.worker, task.lane
    assert before is not None and lane is not None and before is not worker
    slots, cpu, memory, gpu = lane.resources
    for holder, sign in ((before, -1), (worker, 1)):
        holder.slots += sign * slots
        more = holder.more
        holder.more = (more[0] + sign * cpu, more[1] + sign * memory, more[2] + sign * gpu)
    del before.tasks[task.number]
    worker.tasks[task.number] = task
    task.worker = worker
    task.dispatched = task.heard = state.tick
    if not has_credit(worker):
        for station in worker.stations:
            station.free &= ~(1 << worker.number)
    if has_credit(before):
        free_worker(state, before)
    if task.step.timed:
        _set_attempt_timers(state, task)


def _set_attempt_timers(state: State, task: Task) -> None:
    timeout, clock = task.step.timeout, state.settings.clock
    if timeout.running_ms is not None:
        set_due(state, task, state.tick + clock.ticks(timeout.running_ms))
    if timeout.silent_ms is not None:
        task.silent_at = state.tick + clock.ticks(timeout.silent_ms)
        set_timer(state, Timer.SILENT, task.number, task.silent_at)


def end_attempt(state: State, task: Task) -> None:
    """The opposite of `begin_attempt`; call it while the task is still RUNNING."""
    worker, lane = task.worker, task.lane
    assert worker is not None and lane is not None
    if task.due or task.silent_at:
        clear_due(state, task)
    for gauge in lane.counted:
        gauge.running -= 1
        if not gauge.stirred:
            stir(state, gauge)
    tenant = lane.tenant
    if tenant.charged_ms != state.now_ms:
        tenant.settle(state.now_ms)
    if lane.plain and tenant.more == NOTHING:
        tenant.slots -= 1
        tenant.usage = tenant.slots
        worker.slots -= 1
    else:
        use(state, tenant, worker, lane.resources, -1)
    task.worker = None
    tasks = worker.tasks
    del tasks[task.number]
    if len(tasks) < worker.credit and worker.slots < worker.capacity[0]:
        number = worker.number
        for station in worker.stations:
            if not station.stirred or not station.free >> number & 1:
                free_worker(state, worker)
                break


def use(state: State, tenant: Tenant, worker: Worker, resources: tuple[int, int, int, int], sign: int) -> None:
    slots, cpu, memory, gpu = (sign * amount for amount in resources)
    for holder in (tenant, worker):
        holder.slots += slots
        holder.more = (holder.more[0] + cpu, holder.more[1] + memory, holder.more[2] + gpu)
    tenant.usage = _dominant_units(tenant.slots, tenant.more, state.capacity)


def _dominant_units(slots: int, more: tuple[int, int, int], capacity: tuple[int, int, int, int]) -> int:
    """Return what these resources are worth in slots, by the scarcest of them."""
    if more == NOTHING:
        return slots
    have_slots = max(capacity[0], 1)
    others = (-(-used * have_slots // have) if have else 0 for used, have in zip(more, capacity[1:], strict=True))
    return max(slots, *others)
