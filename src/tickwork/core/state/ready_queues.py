"""Lanes: where ready tasks stand in line, and what may hold a line up.

A lane holds the ready tasks for which admission gives one and the same answer (tenant, workflow,
queue, priority, labels, resources, dependency), so its first task speaks for all of them.
A lane that cannot move is parked at the one `Blocker` that holds it and costs nothing until
that blocker is stirred.

Order is fixed by values alone: fair time of the tenant, tenant, age of the first task. The heaps
here only find that order quickly; none of them decides it. Keys only ever grow, so a heap entry
may be out of date but is never too late: it is corrected when it reaches the top.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tickwork.core.state.state import Task, Tenant, Worker

UNLIMITED = 1 << 62
SHARE_SCALE = 10_000  # fair time of one slot-millisecond at weight 1
OWED_MS_MAX = 10_000  # of the whole capacity: the most that a tenant which was held back may be owed
# What a start costs its tenant at once, so that starts of one instant alternate too. Its duration is added as it
# runs and nothing is given back, so this must stay small beside the shortest tasks.
START_CHARGE_MS = 1

Labels = tuple[tuple[str, str], ...]
ReadyQueueKey = tuple[str, str, str, int, Labels, tuple[int, int, int, int], str]
"""Tenant, workflow, queue, priority, labels, resources, dependency."""

PLAIN_RESOURCES = (1, 0, 0, 0)
BROKER_WORKER_PREFIX = "lane:"  # how the name of a worker begins that only carries attempts to others, by a broker
PIN_LABEL = "tickwork.version"  # of workers: what a run asks for that is pinned to a version
VERSION_LABEL = ":version"  # what a lane asks for while a worker of the version that its runs carry is there
PREFERRED = "~"  # begins the pin of a run whose version comes first; without a worker of it, others may have its tasks
HANDLER_LABEL = ":handler"  # what a lane asks for whose handler some workers lack; no name of a user's has a colon


OrderKey = tuple[int, str, int, int]
"""Fair time of the tenant, tenant, age of the first task, its place in line."""


@dataclass(slots=True, eq=False, kw_only=True)
class Blocker:
    """Something that can hold lanes up. `parked` is a heap of (order key, stamp, lane)."""

    parked: "list[tuple[OrderKey, int, ReadyQueue]]" = field(default_factory=list)
    stirred: bool = False  # it may have room again and waits to be looked at

    def park(self, lane: "ReadyQueue", now_ms: int) -> None:
        lane.stamp += 1
        heappush(self.parked, (lane.order_key(now_ms), lane.stamp, lane))

    def pull(self, now_ms: int) -> "ReadyQueue | None":
        """The parked lane that is first in order now, taken out; None where none has work."""
        heap = self.parked
        while heap:
            key, stamp, lane = heap[0]
            if lane.stamp != stamp or not lane.live:
                heappop(heap)
                continue
            current = lane.order_key(now_ms)
            if current == key:
                heappop(heap)
                return lane
            heapreplace(heap, (current, stamp, lane))
        return None


@dataclass(slots=True, eq=False, kw_only=True)
class Limiter(Blocker):
    """A limit that is counted: of a tenant, a workflow, a queue or a label.

    The rate is a token bucket in integers: `rate_starts` per `rate_ms`. One start costs
    `rate_ms` tokens and each millisecond earns `rate_starts`, so refilling is exact. While lanes are
    parked here and the bucket is empty, one timer waits for the next token, for all of them.

    A sliding window counts starts instead: those of the last `rate_ms` are never more than `rate_starts`. Their times
    are kept in order, at most twice as many as may lie in a window; what has left it is dropped in bulk.
    """

    scope: str
    name: str
    running: int = 0
    limit: int = UNLIMITED
    paused: bool = False
    pause_reason: str = ""
    rate_starts: int = 0
    rate_ms: int = 0  # 0: no rate
    burst: int = 0
    tokens: int = 0
    refilled_ms: int = 0
    number: int = 0  # names its timer, where it can have one
    due: int = 0  # tick of that timer
    waiting: int = 0  # lanes that it holds
    sliding: bool = False  # the rate is a sliding window, not a bucket
    starts: list[int] = field(default_factory=list)  # of a sliding window: when it let something start

    @property
    def label(self) -> str:
        """Why a ready queue is held, and until when."""
        return f"{self.scope}:{self.name}"

    def tokens_at(self, now_ms: int) -> int:
        if self.sliding:
            inside = len(self.starts) - bisect_right(self.starts, now_ms - self.rate_ms)
            return (self.rate_starts - inside) * self.rate_ms
        earned = (now_ms - self.refilled_ms) * self.rate_starts
        return min(self.burst * self.rate_ms, self.tokens + earned)

    def room(self, now_ms: int) -> int:
        if self.paused:
            return 0
        room = self.limit - self.running
        if self.rate_ms:
            room = min(room, self.tokens_at(now_ms) // self.rate_ms)
        return room

    def spend(self, now_ms: int, count: int = 1) -> None:
        """What so many starts at this moment cost, one after the other."""
        if self.sliding:
            for _ in range(count):
                if len(self.starts) >= 2 * self.rate_starts:
                    del self.starts[: bisect_right(self.starts, now_ms - self.rate_ms)]
                self.starts.append(now_ms)
            return
        if self.refilled_ms != now_ms:
            self.tokens = self.tokens_at(now_ms)
            self.refilled_ms = now_ms
        self.tokens -= count * self.rate_ms

    def next_token_ms(self, now_ms: int) -> int:
        """When the bucket will hold one start again, or a window that ends then has room for one."""
        if self.sliding:
            if self.tokens_at(now_ms) > 0:
                return now_ms
            return self.starts[-self.rate_starts] + self.rate_ms
        missing = self.rate_ms - self.tokens_at(now_ms)
        return now_ms + max(0, -(-missing // self.rate_starts))

    def set_window(self, starts: int, per_ms: int, *, now_ms: int) -> None:
        """A new window knows of no start; a changed one keeps those that it knows. What a bucket lacks counts as
        started now, so that edits earn nothing."""
        if self.rate_ms and not self.sliding:
            lacking = -(-(self.burst * self.rate_ms - self.tokens_at(now_ms)) // self.rate_ms)
            self.starts = [now_ms] * min(lacking, starts)
        self.rate_starts, self.rate_ms, self.burst, self.tokens, self.sliding = starts, per_ms, starts, 0, True

    def clear_rate(self) -> None:
        self.rate_starts = self.rate_ms = self.burst = self.tokens = 0
        self.sliding, self.starts = False, []

    def set_rate(self, starts: int, per_ms: int, burst: int, *, now_ms: int) -> None:
        """A new bucket starts full; a changed one keeps what it had, so that edits earn and cost nothing."""
        held = max(self.tokens_at(now_ms), 0) * per_ms // self.rate_ms if self.rate_ms else burst * per_ms
        self.sliding, self.starts = False, []
        self.rate_starts, self.rate_ms, self.burst = starts, per_ms, burst
        self.tokens = min(held, burst * per_ms)
        self.refilled_ms = now_ms


@dataclass(slots=True, eq=False, kw_only=True)
class WorkerPool(Blocker):
    """One queue with one set of required labels: the workers that may serve it.

    `free` is a bitmap of worker numbers with credit left; `cursor` makes turns among them.
    """

    queue: str
    labels: Labels
    free: int = 0
    cursor: int = 0
    workers: int = 0  # how many may serve it, busy or not
    lanes: "list[ReadyQueue]" = field(default_factory=list)  # those whose runs carry the version of its workers

    def serves(self, worker: "Worker") -> bool:
        if is_broker_worker(worker.id):  # the worker that takes it from the broker has the labels
            return self.queue in worker.queues and all(name != VERSION_LABEL for name, _ in self.labels)
        return self.queue in worker.queues and all(_meets(worker, name, value) for name, value in self.labels)

    def next_free(self) -> int:
        """The next worker in turn with credit left. Ask only while `free` is not 0."""
        ahead = self.free >> self.cursor
        if ahead:
            return self.cursor + (ahead & -ahead).bit_length() - 1
        return (self.free & -self.free).bit_length() - 1


def _meets(worker: "Worker", name: str, value: str) -> bool:
    if name == HANDLER_LABEL:
        return value not in worker.lacks
    return worker.labels.get(PIN_LABEL if name == VERSION_LABEL else name) == value


def announced(labels: Labels) -> Labels:
    """Those of them that workers announce, and that a task requires."""
    return tuple(label for label in labels if label[0] not in (HANDLER_LABEL, VERSION_LABEL))


def run_version(pin: str) -> str:
    """The `application@version` of a pin, whether it is required of workers or comes first."""
    return pin.removeprefix(PREFERRED)


def pool_labels(labels: Labels) -> tuple[Labels, Labels | None]:
    """The labels of all workers that may serve a lane, and of those that come first: they have the version that the
    runs of the lane carry. None: no worker comes first."""
    every = tuple(label for label in labels if label[0] != VERSION_LABEL)
    return every, (None if len(every) == len(labels) else tuple(label for label in labels if label[0] != HANDLER_LABEL))


def is_broker_worker(worker: str) -> bool:
    """Whether this worker is a lane over a broker: it holds attempts until others take them, and runs none."""
    return worker.startswith(BROKER_WORKER_PREFIX)


@dataclass(slots=True, eq=False, kw_only=True)
class LoadShedder(Blocker):
    """Holds lanes of low priority while important work lags."""

    on: bool = False
    lag_ms: int = 0


@dataclass(slots=True, eq=False)
class ReadyQueue:
    key: ReadyQueueKey
    tenant: "Tenant"
    station: WorkerPool
    gauges: tuple[Limiter, ...]  # whatever may hold it, in the order of the checks
    counted: tuple[Limiter, ...]  # those of them that count attempts; a workflow can only be paused
    priority: int
    lead_ms: int  # how much earlier its priority makes a task look; ageing, without ever sorting again
    protected: bool  # important enough not to be held when load is shed
    resources: tuple[int, int, int, int]
    plain: bool  # one slot and nothing else
    tasks: "deque[Task]" = field(default_factory=deque)
    orders: deque[int] = field(default_factory=deque)
    live: int = 0
    held: str = ""  # why it does not move, "" where it does
    held_by: str = ""
    held_since: int = 0  # tick
    number: int = 0  # names its timer
    stamp: int = 0
    opened: bool = False  # waits to be looked at
    pools: tuple[WorkerPool, WorkerPool] | None = None  # workers of the version that its runs carry, and all workers

    @property
    def elsewhere(self) -> bool:
        """Whether no worker of the version that its runs carry is there, so that others get its tasks."""
        return self.pools is not None and self.station is self.pools[1]

    def head(self) -> "Task":
        """The first task in line. Entries of tasks that left the line are dropped on the way."""
        tasks, orders = self.tasks, self.orders
        task = tasks[0]
        while not task.queued or task.order != orders[0]:
            tasks.popleft()
            orders.popleft()
            task = tasks[0]
        return task

    def order_key(self, now_ms: int) -> OrderKey:
        task = self.head()
        tenant = self.tenant
        return (tenant.fair_time_at(now_ms), tenant.id, task.ready_ms - self.lead_ms, task.order)
