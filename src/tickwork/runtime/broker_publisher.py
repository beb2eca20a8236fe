"""Publishes attempts to a broker. To the engine it is the worker `lane:NAME`.

An attempt stays assigned to the publisher until a worker takes it, so the store is the buffer: while the broker is
unreachable, nothing is lost, and at most the credit is assigned. When the broker is back, or seems to have lost
messages, all attempts that no worker has taken are published again, at a bounded rate. An attempt that no worker takes
in time is handed back and dispatched under a new attempt number; a worker that still receives the old one is fenced.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tickwork.core.base.errors import TickworkError, Unavailable
from tickwork.core.base.names import check_name
from tickwork.core.base.stable_hash import stable_digest, stable_hash
from tickwork.core.state.ready_queues import BROKER_WORKER_PREFIX, announced
from tickwork.core.state.state import retry_of, tries_of
from tickwork.ports.broker import MESSAGE_BYTES_MAX, Broker, DispatchBody, Envelope, QueueDepth
from tickwork.ports.ids import Ids
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import AttemptJob, Call, HandedBack, NodeSpec, Reply, Report, WorkerProfile

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine

CREDIT = 1_000
DRAIN_PER_S = 2_000
UNTAKEN_MS = 300_000
WAIT_MS = 10_000
LOOK_S = 2.0  # how often the broker's state is read
TOGETHER_MAX = 500
BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0

Pair = tuple[int, int]


class _PublishedAttempt(msgspec.Struct, eq=False):
    envelope: Envelope
    published: float = 0.0  # loop time of the last confirmation; 0: not on the lane


class BrokerPublisher:
    """One for each engine and lane. `on_trouble` hears once when the broker goes away, and once when it is back."""

    def __init__(
        self,
        engine: "Engine",
        lane: Broker,
        *,
        queues: Sequence[str],
        clock: Clock,
        ids: Ids,
        name: str = "main",
        credit: int = CREDIT,
        drain_per_s: int = DRAIN_PER_S,
        untaken_ms: int = UNTAKEN_MS,
        on_trouble: Callable[[str, str], None] = lambda _kind, _text: None,
    ) -> None:
        check_name(name, path="lane", kind="lane")
        self.worker = f"{BROKER_WORKER_PREFIX}{name}"
        self._engine, self._lane, self._clock, self._ids = engine, lane, clock, ids
        self._profile = WorkerProfile(tuple(queues))
        self._credit, self._drain_per_s, self._untaken_s = credit, max(drain_per_s, 1), untaken_ms / 1000
        self._on_trouble = on_trouble
        self._session, self._seq, self._introduce = ids.new(), 0, True
        self._specs: dict[int, NodeSpec] = {}
        self._carried: dict[Pair, _PublishedAttempt] = {}  # assigned to this lane, and not taken
        self._due: dict[Pair, None] = {}  # of these: those to be published
        self._news = asyncio.Event()
        self._away = False
        self._draining = False  # publishing what waited for the broker
        self._identity: str | None = None  # of the broker, from before the first publication
        self._jobs: list[asyncio.Task[None]] = []
        self.depth: QueueDepth | None = None  # as last seen
        self.published = self.returned = 0

    @property
    def untaken(self) -> int:
        return len(self._carried)

    def start(self) -> None:
        """The broker is open, and its opener closes it: publishers may share one."""
        loop = asyncio.get_running_loop()
        self._jobs = [loop.create_task(job) for job in (self._listen(), self._publish(), self._look())]

    async def close(self) -> None:
        """Stop without signing off: messages stay at the broker, and the next publisher of this name takes over."""
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ---- from the engine

    async def _listen(self) -> None:
        delay_s = BACKOFF_S
        while True:
            try:
                if not await self._exchange(wait_ms=0 if self._introduce else WAIT_MS):
                    await asyncio.sleep(BACKOFF_S)  # a stopping engine ends long waits
                delay_s = BACKOFF_S
            except TickworkError:  # the engine is starting, stopping, or fenced; its owner decides
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S_MAX)

    async def _exchange(self, reports: tuple[Report, ...] = (), *, wait_ms: int = 0) -> bool:
        """Whether it brought something."""
        self._seq += 1
        introduce, self._introduce = self._introduce, False
        held = tuple(self._carried) if introduce else None
        profile = self._profile if introduce else None
        call = Call(self.worker, self._session, self._seq, self._credit, wait_ms, reports, held, profile)
        try:
            reply = await self._engine.workers.exchange(call, self.worker)
        except BaseException:
            self._introduce = True  # the work of the lost reply is offered again
            raise
        if reply.resync or reply.refused:
            self._introduce = True
            if reply.refused:
                raise Unavailable(f"the broker's worker slot is taken: {reply.refused}", retry_after_ms=1_000)
        self._follow(reply)
        return bool(reply.work or reply.stop)

    def _follow(self, reply: Reply) -> None:
        self._specs.update((spec.id, spec) for spec in reply.specs)
        for work in reply.work:
            envelope = self._envelope(work)
            if envelope is not None:
                self._carried[work.task, work.attempt] = _PublishedAttempt(envelope)
                self._due[work.task, work.attempt] = None
        for pair in reply.stop:
            self._carried.pop(pair, None)
            self._due.pop(pair, None)
        if self._due:
            self._news.set()

    def _envelope(self, work: AttemptJob) -> Envelope | None:
        """None: it ended while it was on its way here."""
        task, spec = self._engine.context.state.tasks.get(work.task), self._specs.get(work.spec)
        if spec is None:
            self._introduce = True
            return None
        if task is None or task.attempt != work.attempt or task.lane is None:
            return None
        _, _, queue, priority, labels, _, _ = task.lane.key
        tried = tries_of(task)
        body = msgspec.msgpack.encode(DispatchBody(work, spec))
        return Envelope(
            work.tenant,
            queue,
            announced(labels),
            priority,
            work.task,
            work.attempt,
            f"{work.task}-{work.attempt}",
            max(retry_of(task).attempts - tried, 0),
            trace_of(work),
            self._clock.wall_ms(),
            body if len(body) <= MESSAGE_BYTES_MAX else b"",  # the worker that takes it gets it in its exchange
            self._engine.context.store_id,
        )

    # ---- to the broker

    async def _publish(self) -> None:
        delay_s = BACKOFF_S
        while True:
            if not self._due:
                self._draining = False
                self._news.clear()
                await self._news.wait()
            room = max(self._drain_per_s // 10, 1) if self._draining else TOGETHER_MAX
            loop = asyncio.get_running_loop()
            began = loop.time()
            try:
                if self._identity is None:
                    self._identity = (await self._lane.depth()).identity
                some = [pair for pair, _ in zip(self._due, range(room), strict=False)]
                await self._lane.publish([self._carried[pair].envelope for pair in some])
            except Unavailable as error:
                self._gone(str(error))
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S_MAX)
                continue
            delay_s = BACKOFF_S
            self.published += len(some)
            self._confirmed(some, loop.time())
            self._back()
            if self._draining:
                await asyncio.sleep(max(len(some) / self._drain_per_s - (loop.time() - began), 0))

    def _confirmed(self, pairs: list[Pair], now: float) -> None:
        for pair in pairs:
            self._due.pop(pair, None)
            carried = self._carried.get(pair)
            if carried is not None:
                carried.published = now

    def _gone(self, why: str) -> None:
        self._draining = True
        if not self._away:
            self._away = True
            self._on_trouble("lane_away", f"{self.worker}: {why}")

    def _back(self) -> None:
        """Publish all untaken attempts again: the broker may have lost confirmed messages, and copies are harmless."""
        if self._away:
            self._away = False
            self._on_trouble("lane_back", f"{self.worker}: {len(self._carried)} dispatches are published again")
            self._publish_all()

    def _publish_all(self) -> None:
        self._draining = True
        self._due = dict.fromkeys(self._carried)
        self._news.set()

    # ---- how it goes

    async def _look(self) -> None:
        pause_s = min(LOOK_S, self._untaken_s / 4)
        while True:
            await asyncio.sleep(pause_s)
            try:
                self.depth = await self._lane.depth()
            except Unavailable as error:
                self._gone(str(error))
                continue
            self._back()
            if self._identity is not None and self.depth.identity != self._identity:
                self._identity = self.depth.identity
                self._publish_all()
            with contextlib.suppress(TickworkError):
                await self._hand_back()

    async def _hand_back(self) -> None:
        """Hand back attempts that no worker took in time: lost messages, or queues without a worker."""
        oldest = asyncio.get_running_loop().time() - self._untaken_s
        late = [pair for pair, carried in self._carried.items() if carried.published and carried.published <= oldest]
        for first in range(0, len(late), TOGETHER_MAX):
            some = late[first : first + TOGETHER_MAX]
            await self._exchange(tuple(HandedBack(*pair) for pair in some))
            for pair in some:
                self._carried.pop(pair, None)
                self._due.pop(pair, None)
            self.returned += len(some)


def trace_of(work: AttemptJob) -> str:
    """Return the W3C `traceparent`: the run is the trace, the attempt its span. It is derived from ids."""
    trace = stable_digest("trace", work.tenant, work.run_id)[:32]
    return f"00-{trace}-{stable_hash('span', work.task, work.attempt) or 1:016x}-01"
