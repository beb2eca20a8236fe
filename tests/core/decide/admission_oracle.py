"""Admission done slowly: every lane is found, sorted and asked anew before each single start.

It reads values only (tasks, limits, workers), never the heaps, bitmaps and flags by which the
machine finds the same answer quickly.
"""

from typing import Any

import tickwork.core.machine as machine_module
from driver import Driver
from tickwork.core.decide.admission import admit
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.events import QueueHeld
from tickwork.core.state.ready_queues import OWED_MS_MAX, SHARE_SCALE, START_CHARGE_MS
from tickwork.core.state.state import State


class Oracle:
    def __init__(self, state: State, *, now_ms: int | None = None) -> None:
        self.state = state
        self.now_ms = state.now_ms if now_ms is None else now_ms
        self.fair = {name: tenant.fair_time_at(self.now_ms) for name, tenant in state.tenants.items()}
        self.floor = state.fair_floor
        self.held = {number: len(worker.tasks) for number, worker in state.workers.items()}
        self.used = {number: list(used_by(worker)) for number, worker in state.workers.items()}
        self.gauges = {gauge: [gauge.running, self.tokens(gauge)] for gauge in all_gauges(state)}
        self.lanes: dict[Any, list[Any]] = {}
        for task in sorted((task for task in state.tasks.values() if task.queued), key=lambda task: task.order):
            self.lanes.setdefault(lane_key(task), []).append(task)

    def tokens(self, gauge: Any) -> int:
        if gauge.sliding:
            inside = [at for at in gauge.starts if self.now_ms - gauge.rate_ms < at <= self.now_ms]
            return (gauge.rate_starts - len(inside)) * gauge.rate_ms
        earned = (self.now_ms - gauge.refilled_ms) * gauge.rate_starts
        return min(gauge.burst * gauge.rate_ms, gauge.tokens + earned)

    def order(self, key: Any) -> Any:
        tenant, priority, first = key[0], key[3], self.lanes[key][0]
        return self.fair[tenant], tenant, first.ready_ms - priority * self.state.settings.ageing_ms, first.order

    def first(self) -> Any:
        """The first lane in order that may start a task, and the workers that may have it."""
        for key in sorted((key for key, tasks in self.lanes.items() if tasks), key=self.order):
            if self.hold(key) is None:
                return key
        return None

    def all_start(self) -> bool:
        """Whether everything that is ready starts now, so that no order keeps anybody waiting."""
        while (key := self.first()) is not None:
            worker = next(n for n in self.state.workers if self.serves(n, key) and self.fits(n, key))
            self.start(key, worker)
        return not any(self.lanes.values())

    def hold(self, key: Any) -> str | None:
        for gauge in gauges_of(self.state, key):
            running, tokens = self.gauges[gauge]
            if gauge.paused:
                return "paused"
            if running >= gauge.limit:
                return "limit"
            if gauge.rate_ms and tokens < gauge.rate_ms:
                return "rate"
        if self.state.shed.on and key[3] < self.state.settings.shed_below:
            return "load"
        free = [number for number in self.state.workers if self.serves(number, key)]
        if not free:
            return "credit"
        return None if any(self.fits(number, key) for number in free) else "resources"

    def serves(self, number: int, key: Any) -> bool:
        worker = self.state.workers[number]
        labels = set(key[4]) <= set(worker.labels.items())
        room = self.held[number] < worker.credit and self.used[number][0] < worker.capacity[0]
        return key[2] in worker.queues and labels and room

    def fits(self, number: int, key: Any) -> bool:
        capacity = self.state.workers[number].capacity
        return all(not w or u + w <= c for u, w, c in zip(self.used[number], key[5], capacity, strict=True))

    def start(self, key: Any, worker: int) -> None:
        assert self.serves(worker, key) and self.fits(worker, key), "this worker cannot have it"
        self.lanes[key].pop(0)
        self.held[worker] += 1
        self.used[worker] = [used + wanted for used, wanted in zip(self.used[worker], key[5], strict=True)]
        for gauge in gauges_of(self.state, key):
            self.gauges[gauge][0] += 1
            if gauge.rate_ms:
                self.gauges[gauge][1] -= gauge.rate_ms
        self.charge(key)

    def charge(self, key: Any) -> None:
        tenant, capacity = self.state.tenants[key[0]], self.state.capacity
        self.floor = max(self.floor, self.fair[key[0]])
        owed_max = OWED_MS_MAX * SHARE_SCALE * max(capacity[0], 1)
        self.fair[key[0]] = max(self.fair[key[0]], self.floor - owed_max)
        units = max(
            -(-wanted * (capacity[0] if place else 1) // (have if place else 1)) if have else 0
            for place, (wanted, have) in enumerate(zip(key[5], capacity, strict=True))
        )
        self.fair[key[0]] += units * START_CHARGE_MS * (SHARE_SCALE // tenant.weight)


def used_by(worker: Any) -> tuple[int, ...]:
    wanted = [task.step.requirement[3] for task in worker.tasks.values()]
    return tuple(sum(column) for column in zip((0, 0, 0, 0), *wanted, strict=True))


def all_gauges(state: State) -> list[Any]:
    tenants = [tenant.gauge for tenant in state.tenants.values()]
    workflows = [gauge for tenant in state.tenants.values() for gauge in tenant.workflow_gauges.values()]
    queues = [queue.gauge for queue in state.queues.values()]
    return [state.gauge, *tenants, *workflows, *queues, *state.label_gauges.values()]


def gauges_of(state: State, key: Any) -> list[Any]:
    tenant, workflow, queue, _, labels = key[:5]
    owner = state.tenants[tenant]
    found = [state.gauge, owner.gauge, owner.workflow_gauges[workflow], state.queues[queue].gauge]
    return found + [state.label_gauges[label] for label in labels]


def lane_key(task: Any) -> Any:
    queue, priority, labels, resources, dependency = task.step.requirement
    own = task.run.priority if task.run.priority >= 0 else priority
    return (task.run.tenant.id, task.run.plan.name, queue, own, labels, resources, dependency)


class Watched(Driver):
    """A driver whose every admission is compared with the oracle's."""

    def _apply(self, tick: int, asked: list[Any]) -> Any:
        before, machine_module.admit = machine_module.admit, self._admit
        try:
            outcome = super()._apply(tick, asked)
        finally:
            machine_module.admit = before
        self.check_idle()
        return outcome

    def _admit(self, turn: TickContext) -> None:
        if self.state.wheel.first(self.state.tick) is not None:
            admit(turn)  # some timers did not fit into this tick: what they set free is not known yet
            return
        state, oracle = self.state, Oracle(self.state)
        keys = {task.number: lane_key(task) for task in state.tasks.values() if task.queued}
        began, recorded = len(turn.effects), len(turn.events)
        reasons = {lane.number: (lane.held, lane.held_by) for lane in state.lanes.values()}
        plenty = Oracle(state).all_start()
        admit(turn)
        for effect in turn.effects[began:]:
            if isinstance(effect, Dispatch):
                expected = keys[effect.task] if plenty else oracle.first()
                assert keys[effect.task] == expected, "another lane comes first"
                assert oracle.lanes[expected][0].number == effect.task, "another task of the lane comes first"
                oracle.start(expected, effect.worker)
        if not turn.full:
            assert oracle.first() is None, "something could have started"
            self._check_reasons(turn.events[recorded:], reasons, oracle)

    def _check_reasons(self, events: list[Any], before: dict[int, Any], oracle: Oracle) -> None:
        for event in events:
            if isinstance(event, QueueHeld):
                now = (event.reason, event.by)
                assert now != before.get(event.lane), "nothing has changed, so there is nothing to record"
                before[event.lane] = now
        for lane in self.state.lanes.values():
            assert bool(lane.held) == bool(lane.live), "whoever waits has a reason, and nobody else"
            assert not lane.live or oracle.hold(lane.key) is not None

    def check_idle(self) -> None:
        """Between now and the next tick that it asks for, time alone lets nothing start."""
        due = self.machine.next_tick()
        if due == self.tick + 1:
            return
        until = self.tick + 86_400_000 if due is None else due - 1
        oracle = Oracle(self.state, now_ms=self.settings.clock.ms_of(until))

        assert oracle.first() is None, f"nobody wakes it before tick {due}"
