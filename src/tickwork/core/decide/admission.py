"""Admission: which ready tasks start now, and on which worker.

Again and again, the first lane in order that nothing holds gives its first task to the next free
worker. Order is (fair time of the tenant, tenant, age of the lane's first task), where a level of
priority counts as `ageing_ms` of age. Where everything that is ready can start at once, order decides nothing,
and lanes are emptied one after the other. What holds a lane is recorded with the lane, once, when it
begins or changes; a held lane is looked at again only when its blocker stirs.

Bounds. With all tenants backlogged, a tenant of weight w starts before any other tenant's fair time
passes its own by more than one start, so between two of its starts every other tenant of weight v has
at most v/w + 1. A tenant that its own limits held back is owed at most `OWED_MS_MAX` of all workers, however
long that was. Within a tenant nothing that became ready more than PRIORITY_MAX * ageing_ms later goes first.
A map stands in line once, for all of its children: after `CHILDREN_IN_TURN` of them it goes to the end of the
line, so whatever comes beside a wide map waits for one portion of it, not for the map.
"""

from heapq import heapify, heappop, heappush

from tickwork.core.decide.tick_context import TickContext
from tickwork.core.evolve.indexes import end_admission, held_at
from tickwork.core.evolve.tasks.attempts import dispatch_together, on_dispatched, plain_first
from tickwork.core.state.effects import Alert, Dispatch
from tickwork.core.state.events import ChildDispatched, LoadShed, QueueHeld, TaskDispatched, VersionAbsent
from tickwork.core.state.ready_queues import Blocker, Limiter, LoadShedder, OrderKey, ReadyQueue, WorkerPool
from tickwork.core.state.state import State, Worker

Candidate = tuple[OrderKey, ReadyQueue, Blocker | None]


def admit(turn: TickContext) -> None:
    state = turn.state
    now_ms, events = state.now_ms, turn.events
    line = _candidates(state)
    plenty = len(line) > 1 and _plenty(state, line)
    still: list[ReadyQueue] = []
    while line and len(events) < turn.changes_max:
        key, lane, source = heappop(line)
        if source is not None:
            _refill(line, source, now_ms)
        if plenty or lane.tenant.fair_time_at(now_ms) == key[0]:
            _serve(turn, lane, [] if plenty else line, still)
        else:
            heappush(line, (lane.order_key(now_ms), lane, None))  # its tenant has started something since
    for lane in (*still, *(candidate[1] for candidate in line)):
        if lane.held:
            held_at(state, lane).park(lane, now_ms)
    end_admission(state, full=turn.full)


def _candidates(state: State) -> list[Candidate]:
    """Lanes that nothing holds yet, and the first lane of every blocker that has room again."""
    now_ms = state.now_ms
    line: list[Candidate] = [(lane.order_key(now_ms), lane, None) for lane in state.open if lane.live and not lane.held]
    heapify(line)
    for blocker in state.stirred:
        _refill(line, blocker, now_ms)
    return line


def _plenty(state: State, line: list[Candidate]) -> bool:
    """Whether every ready task of these lanes can start now, so that no task can delay another."""
    demand = 0
    live_by_gauge: dict[Limiter, int] = {}
    for _, lane, source in line:
        if source is not None or not lane.plain or lane.tasks[0].fan is not None:
            return False
        demand += lane.live
        for gauge in lane.gauges:
            live_by_gauge[gauge] = live_by_gauge.get(gauge, 0) + lane.live
    return all(gauge.room(state.now_ms) >= live for gauge, live in live_by_gauge.items()) and all(
        _credit_reaches(state, lane.station, demand) for _, lane, _ in line
    )


def _credit_reaches(state: State, station: WorkerPool, demand: int) -> bool:
    bits = station.free
    while bits and demand > 0:
        worker = state.workers[(bits & -bits).bit_length() - 1]
        bits &= bits - 1
        demand -= min(worker.credit - len(worker.tasks), worker.capacity[0] - worker.slots)
    return demand <= 0


def _refill(line: list[Candidate], blocker: Blocker, now_ms: int) -> None:
    """While a blocker has room, the first of its lanes is among the candidates."""
    if blocker.parked and has_room(blocker, now_ms):
        lane = blocker.pull(now_ms)
        if lane is not None:
            heappush(line, (lane.order_key(now_ms), lane, blocker))


def has_room(blocker: Blocker, now_ms: int) -> bool:
    match blocker:
        case Limiter():
            return blocker.room(now_ms) > 0
        case WorkerPool():
            return blocker.free != 0
        case LoadShedder():
            return not blocker.on
        case _:
            raise AssertionError("a blocker is a gauge, a station or the shed")


def _serve(turn: TickContext, lane: ReadyQueue, line: list[Candidate], still: list[ReadyQueue]) -> None:
    """Start tasks of this lane until another lane comes first, it is empty, or something holds it."""
    state = turn.state
    now_ms, events, station = state.now_ms, turn.events, lane.station
    effects, changes_max, elsewhere = turn.effects, turn.changes_max, lane.elsewhere
    turns = 0  # workers that have not had their share in this round
    while lane.live:
        room = _room(state, lane)
        if not room:
            held = what_holds(state, lane)
            assert held is not None, "what has no room is held by something"
            _hold(turn, lane, held, still)
            return
        turns = turns or station.free.bit_count()
        worker, share = _next_worker(state, lane, room, turns)
        turns -= 1
        if worker is None:
            _hold(turn, lane, ("resources", f"queue:{station.queue}", 0), still)
            return
        assert share > 0, "a free worker has credit, and a lane that nothing holds has room"
        together = [] if line else plain_first(lane, min(share, changes_max - len(events)))
        if together:
            number = worker.number
            events += [TaskDispatched(task.number, number) for task in together]
            if elsewhere:
                events += [VersionAbsent(task.number) for task in together]
            effects += [Dispatch(number, task.number, task.attempt + 1) for task in together]
            dispatch_together(state, lane, together, worker)
            if not lane.live:
                return
        for _ in range(share - len(together)):
            if len(events) >= changes_max:
                still.append(lane)
                return
            task = lane.tasks[0]
            if not task.queued or task.order != lane.orders[0]:
                task = lane.head()  # some that left the line stand before it
            if task.fan is None:
                number, attempt = task.number, task.attempt + 1
                event = TaskDispatched(number, worker.number)
                events.append(event)
                on_dispatched(state, event)
            else:
                number, attempt = state.next_number, 1
                turn.emit(ChildDispatched(task.number, number, worker.number))
            if elsewhere:
                events.append(VersionAbsent(number))
            effects.append(Dispatch(worker.number, number, attempt))
            if not lane.live:
                return
            if line:
                key = lane.order_key(now_ms)
                if line[0][0] < key:
                    heappush(line, (key, lane, None))
                    return


def _room(state: State, lane: ReadyQueue) -> int:
    """How many of its tasks could start now; 0 where `what_holds` knows a reason."""
    if not lane.station.free or (state.shed.on and not lane.protected):
        return 0
    room = lane.live
    for gauge in lane.gauges:
        left = 0 if gauge.paused else gauge.limit - gauge.running
        if left < room:
            room = left
        if gauge.rate_ms:
            left = gauge.tokens_at(state.now_ms) // gauge.rate_ms
            if left < room:
                room = left
    return max(room, 0)


def _next_worker(state: State, lane: ReadyQueue, room: int, turns: int) -> tuple[Worker | None, int]:
    """The next free worker in turn that has the resources, and an even share of what may start."""
    station = lane.station
    if lane.plain:
        worker = state.workers[station.next_free()]
        even = -(-room // turns)
        return worker, min(even, worker.credit - len(worker.tasks), worker.capacity[0] - worker.slots, room)
    free, first = station.free, station.next_free()
    order = (free >> first) << first
    for bits in (order, free ^ order):
        while bits:
            number = (bits & -bits).bit_length() - 1
            bits &= bits - 1
            if fits(state.workers[number], lane.resources):
                return state.workers[number], 1
    return None, 0


def fits(worker: Worker, resources: tuple[int, int, int, int]) -> bool:
    """A resource that the task does not need never blocks it, even if a changed offer left the worker overdrawn."""
    used = (worker.slots, *worker.more)
    amounts = zip(worker.capacity, used, resources, strict=True)
    return all(not needed or have >= taken + needed for have, taken, needed in amounts)


Hold = tuple[str, str, int]
"""Why a lane does not move, what holds it, and the tick at which that ends by itself (0: not by time)."""


def what_holds(state: State, lane: ReadyQueue) -> Hold | None:
    """The first thing in a fixed order that holds this lane; None where its first task may start."""
    now_ms = state.now_ms
    for gauge in lane.gauges:
        if gauge.paused or gauge.running >= gauge.limit:
            reason = "paused" if gauge.paused else "limit"
            return (reason, gauge.label, 0)
        if gauge.rate_ms and gauge.tokens_at(now_ms) < gauge.rate_ms:
            until = max(state.settings.clock.tick_at(gauge.next_token_ms(now_ms)), state.tick + 1)
            return ("rate", gauge.label, until)
    if state.shed.on and not lane.protected:
        return ("load", "load", 0)
    if not lane.station.free:
        return ("credit", f"queue:{lane.station.queue}", 0)
    return None


def _hold(turn: TickContext, lane: ReadyQueue, held: Hold, still: list[ReadyQueue]) -> None:
    """Record what holds it, if that is new. Else it is parked after this admission, which cannot free it any more."""
    reason, by, until = held
    if (lane.held, lane.held_by) == (reason, by):
        still.append(lane)
    else:
        turn.emit(QueueHeld(lane.number, reason, by, until))


def shed_load(turn: TickContext) -> None:
    """Above a set lag of important work, lanes of low priority are held until it is halved."""
    state = turn.state
    limit_ms = state.settings.shed_lag_ms
    if not limit_ms:
        if state.shed.on:  # the limit was taken away meanwhile
            turn.emit(LoadShed(False, 0))
        return
    lag_ms = _lag_ms(turn)
    if not state.shed.on and lag_ms > limit_ms:
        turn.emit(LoadShed(True, lag_ms))
        turn.effects.append(Alert("load_shed", "", "partition", f"important work lags by {lag_ms} ms"))
    elif state.shed.on and lag_ms <= limit_ms // 2:
        turn.emit(LoadShed(False, lag_ms))


def _lag_ms(turn: TickContext) -> int:
    """The longest that important work has waited: what started in this tick, and what only waits for a worker.

    What its own limits hold, or what no worker serves, is no sign of load.
    """
    state = turn.state
    now_ms = state.now_ms
    ready = [
        task.ready_ms
        for event in turn.events
        if isinstance(event, TaskDispatched)
        and (task := state.tasks.get(event.task)) is not None
        and task.lane is not None
        and task.lane.protected
    ]
    if state.protected:
        ready += [
            lane.head().ready_ms
            for lane in state.lanes.values()
            if lane.live and lane.protected and lane.held in ("", "credit") and lane.station.workers
        ]
    return now_ms - min(ready, default=now_ms)
