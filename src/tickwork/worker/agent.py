"""The agent: exchanges work for results with the server, and hands work to executors.

It never runs user code, so nothing that user code does can stop its beats. How it calls is in `exchange`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.ports.artifacts import digest_of
from tickwork.ports.executor import Executor, lacking
from tickwork.ports.ids import Ids
from tickwork.ports.system import Clock
from tickwork.protocol.log_lines import PIECE
from tickwork.protocol.worker_messages import (
    LAST_REPORTS,
    AttemptJob,
    Call,
    Catalog,
    Checkpointed,
    Failed,
    HandedBack,
    Link,
    LogPiece,
    NodeSpec,
    Reading,
    ReadRequest,
    Reply,
    Report,
    Started,
    StepsRecorded,
    Succeeded,
    Suspended,
    Taken,
    WorkerProfile,
)
from tickwork.worker.credit import AHEAD_MS, Credit
from tickwork.worker.exchange import BACKOFF_S, BACKOFF_S_MAX, BEAT_MS, ExchangeClient, Key
from tickwork.worker.log_shipper import LogShipper

LONG_MS = 1_000  # an attempt that is reported as begun has taken so long
HOARD_S = 1.0
ENDED_MAX = 10_000  # tasks whose end is remembered, and as many before them
FAREWELL_S = 5.0  # how long a worker that ends tries to reach a server that is away
T = TypeVar("T")
_key_of: Callable[[Report], Key] = attrgetter("task", "attempt")
_task_of: Callable[[Report], int] = attrgetter("task")


class HeldAttempt(msgspec.Struct, frozen=True, gc=False):
    work: AttemptJob
    spec: NodeSpec
    executor: Executor


class QueueProbe(NamedTuple):
    """An attempt whose wait for its turn is measured. There is one at a time."""

    key: Key
    came_ms: int
    behind: int  # attempts that came before it


class BrokerClaim(NamedTuple):
    """`work` is None where it was too large for the lane: then it comes with the exchange."""

    work: AttemptJob | None
    spec: NodeSpec | None
    settled: asyncio.Future[bool]


class Agent:
    """`run` ends after `drain`, or raises `Refused` where the server does not serve this worker."""

    def __init__(
        self,
        link: Link,
        executors: Sequence[Executor],
        *,
        clock: Clock,
        ids: Ids,
        name: str,
        profile: WorkerProfile | None = None,
        beat_ms: int = BEAT_MS,
        version: str = "",
        ahead_ms: int = AHEAD_MS,
    ) -> None:
        """`version` replaces the version that the application itself has."""
        self._given_version = version
        self.application = self.version = ""
        self.latest = ""  # version of the application, as the server knows it
        self.name, self.session = name, ids.new()
        self._exchange: ExchangeClient[HeldAttempt] = ExchangeClient(
            self, name=name, session=self.session, profile=profile or WorkerProfile(), beat_ms=beat_ms
        )
        self.reached = self._exchange.reached
        self._held, self._specs = self._exchange.held, self._exchange.specs
        self._link, self._clock = link, clock
        self._executors = list(executors)
        self._by_kind: dict[str, Executor] = {}
        self._credit = Credit(ahead_ms=ahead_ms)
        self._probe: QueueProbe | None = None
        self.logs = LogShipper(self._send_log)
        self._hoard_handle: asyncio.Handle | None = None
        self._taking: dict[Key, BrokerClaim] = {}  # received from a broker; the server has not said yet whose they are
        # Tasks with the attempt whose end is durable: a late reply may bring it once more. Numbers of attempts rise.
        self._ended: dict[int, int] = {}
        self._ended_before: dict[int, int] = {}
        self._newest = 0  # the highest number of a task that came
        self._left: dict[Key, str] = {}  # attempts from before it met another store, and whose they were
        self._announced = 0  # credit in the last call
        self._entering: asyncio.Task[None] | None = None  # its executors start, and the server hears what it has
        self._missing = False  # the server did not answer the last time
        self.on_missing: Callable[[str], None] = lambda _text: None  # that it does not, and that it does again
        self.freed = asyncio.Event()  # something that was held is over

    @property
    def store_id(self) -> str:
        return self._exchange.store_id

    @property
    def holds(self) -> int:
        """Number of attempts."""
        return len(self._held)

    @property
    def fenced(self) -> int:
        """Number of reports that came too late."""
        return self._exchange.fenced

    @property
    def slots(self) -> int:
        return sum(executor.slots for executor in self._executors)

    @property
    def labels(self) -> dict[str, str]:
        return self._exchange.profile.labels

    @property
    def draining(self) -> bool:
        return self._exchange.draining

    @property
    def room(self) -> int:
        """How many attempts it would hold more, by its own account."""
        most = max(self._announced, self.slots)
        return 0 if self.draining or self._exchange.introducing else most - len(self._held) - len(self._taking)

    # ---- life

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        over = self._exchange.start()
        self._entering = loop.create_task(self._enter())
        try:
            await asyncio.wait((self._entering, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                self._entering.result()
                self._exchange.pump()
                self._look_at_hoard()
            await over
        finally:
            self._entering.cancel()
            await asyncio.wait([self._entering])
            await self._close()

    async def _enter(self) -> None:
        await self._publish(await self._start(self._executors))

    async def _start(self, executors: Iterable[Executor]) -> Catalog:
        catalogs = []
        for executor in executors:
            catalogs.append(await executor.start(self))
            self._by_kind.update(dict.fromkeys(executor.kinds, executor))
        return Catalog(
            tuple(document for catalog in catalogs for document in catalog.documents),
            tuple(schedule for catalog in catalogs for schedule in catalog.schedules),
            tuple(handler for catalog in catalogs for handler in catalog.handlers),
            next((catalog.application for catalog in catalogs if catalog.application), ""),
            next((catalog.version for catalog in catalogs if catalog.version), ""),
            tuple(mailbox for catalog in catalogs for mailbox in catalog.mailboxes),
        )

    async def _publish(self, catalog: Catalog) -> None:
        """What the application declares, and from then on which version of it this worker has."""
        catalog = msgspec.structs.replace(catalog, version=self._given_version or catalog.version)
        latest = ""

        async def publish() -> None:
            nonlocal latest
            latest = await self._noticed(self._link.publish(catalog))

        await self._until_reached(publish)
        self.application, self.version, self.latest = catalog.application, catalog.version, latest
        if catalog.application and catalog.version:
            labels = self.labels | {PIN_LABEL: f"{catalog.application}@{catalog.version}"}
            self._exchange.introduce(msgspec.structs.replace(self._exchange.profile, labels=labels))

    async def replace(self, old: Executor, new: Executor) -> None:
        """New code for old: what has not begun goes to `new`, what runs ends where it is. Where `new` does not
        start, its error is raised and `old` goes on."""
        await self._publish(await new.start(self))
        self._executors[self._executors.index(old)] = new
        self._by_kind.update(dict.fromkeys(new.kinds, new))
        for key in old.recall():
            held = self._held.get(key)
            if held is not None:
                self._held[key] = HeldAttempt(held.work, held.spec, new)
                new.run(held.work, held.spec)
        await old.close(grace_s=60.0)

    async def drain(self, *, grace_s: float) -> None:
        """No new work; hand back what has not begun, let the rest end within the time given; say goodbye.
        Called a second time, it goes on with the shorter of the two times. Where the application still loads, or the
        server has not been reached yet, there is nothing to hand back."""
        if self._entering is not None and not self._entering.done():
            self._exchange.end()
            return
        if self.draining:
            await asyncio.gather(*(executor.close(grace_s=grace_s) for executor in self._executors))
            return
        self._exchange.draining = True
        for executor in self._executors:
            for key in executor.recall():
                self.report(HandedBack(*key))
        self._exchange.pump()
        await asyncio.gather(*(executor.close(grace_s=grace_s) for executor in self._executors))
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._say_farewell()
        except (TimeoutError, Unavailable):
            pass  # the server notices by itself
        self._exchange.end()

    async def _say_farewell(self) -> None:
        await self._exchange.deliver_all()
        await self.logs.flush()
        await self._link.call(self._exchange.call(goodbye=True))

    async def _close(self) -> None:
        if self._hoard_handle is not None:
            self._hoard_handle.cancel()
        await self._exchange.end_calls()
        for taking in self._taking.values():
            taking.settled.cancel()
        await self.logs.close()
        if not self.draining:
            for executor in self._executors:  # at once, and in turn: a loop that ends now leaves no task unbegun
                await executor.close(grace_s=0)

    def _look_at_hoard(self) -> None:
        """Where tasks turn out slower than those before, others may have what has not begun here."""
        loop = asyncio.get_running_loop()
        self._hoard_handle = loop.call_later(HOARD_S, self._look_at_hoard)
        credit = self._credit.now(slots=self.slots)
        if self.draining or len(self._held) <= 2 * credit:
            return
        spare = len(self._held) - credit
        for executor in self._executors:
            for key in executor.recall():
                held = self._held.get(key)
                if held is None:
                    continue
                if spare > 0:
                    spare -= 1
                    self.report(HandedBack(*key))
                else:
                    executor.run(held.work, held.spec)

    # ---- what executors say

    def report(self, report: Report) -> None:
        if (report.task, report.attempt) not in self._held:
            return  # stopped meanwhile
        kind = type(report)
        if kind is Succeeded or kind is Failed or kind is Suspended:
            self._credit.ran(report.ended_ms - report.started_ms)  # type: ignore[union-attr]
            self._measure_wait((report,))  # type: ignore[arg-type]
        elif kind is Started:
            self._credit.ran(LONG_MS)
        self._exchange.report(report)

    def done(self, reports: Sequence[Succeeded]) -> None:
        held = self._held
        ours = [report for report in reports if (report.task, report.attempt) in held]  # others were stopped meanwhile
        self._credit.ran(sum([our.ended_ms - our.started_ms for our in ours]), attempts=len(ours))
        self._measure_wait(ours)
        if ours:
            self._exchange.report_all(ours)

    def _measure_wait(self, ended: Sequence[Succeeded | Failed | Suspended]) -> None:
        probe = self._probe
        if probe is None:
            return
        tasks = list(map(_task_of, ended))
        if probe.key[0] in tasks:
            self._probe = None
            started_ms = ended[tasks.index(probe.key[0])].started_ms
            self._credit.waited(started_ms - probe.came_ms, behind=probe.behind)

    def _measure_next(self, key: Key) -> None:
        """Measure how long this attempt waits for its turn, unless another one is being measured."""
        held = self._held
        if key in held and (self._probe is None or self._probe.key not in held):
            self._probe = QueueProbe(key, self._clock.wall_ms(), len(held) - 1)

    # ---- what comes by a lane

    def take(self, key: Key, work: AttemptJob | None, spec: NodeSpec | None) -> "asyncio.Future[bool]":
        """Ask the server for it. The answer is durable: True, and it runs here; False, and it is not for us."""
        if key in self._taking:
            return self._taking[key].settled
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if key in self._held:
            settled.set_result(True)  # another copy of it came before
            return settled
        self._taking[key] = BrokerClaim(work, spec, settled)
        self._exchange.report(Taken(*key))
        return settled

    def _settle_taking(self, key: Key, *, mine: bool) -> None:
        """Its work begins only now: that it was taken is durable."""
        taking = self._taking.pop(key)
        if mine and taking.work is not None and taking.spec is not None:
            self._specs[taking.spec.id] = taking.spec
            self.begin(taking.work)
            self._measure_next(key)
        elif mine:
            self._exchange.list_held()  # it is assigned and not held, so it is offered
        if not taking.settled.done():
            taking.settled.set_result(mine)

    # ---- on their behalf

    def log(self, task: int, attempt: int, stream: str, text: str, at_ms: int) -> None:
        key = (task, attempt)
        if key not in self._left:  # another store has a task of this number, too
            held = self._held.get(key)
            self.logs.add(task, attempt, stream, text, at_ms, run=held.work.run_id if held is not None else "")

    def piece(self, task: int, attempt: int, number: int, text: str, at_ms: int) -> None:
        key = (task, attempt)
        if key not in self._left:
            held = self._held.get(key)
            run = held.work.run_id if held is not None else ""
            self.logs.add(task, attempt, PIECE, text, at_ms, run=run, number=number)

    async def fetch(self, digest: str) -> bytes:
        data = await self._until_reached(lambda: self._link.fetch(digest))
        if digest_of(data) != digest:
            raise Corrupt(f"the artifact {digest} has other bytes than its digest says; it was not used")
        return data

    async def store(self, data: bytes) -> str:
        return await self._until_reached(lambda: self._link.store(data))

    async def read(self, request: ReadRequest) -> Reading:
        return await self._link.read(request)

    async def _send_log(self, piece: LogPiece) -> None:
        """The server takes it from the session that holds the attempt, or held it until it ended."""
        ours = msgspec.structs.replace(piece, worker=self.name, session=self.session, store=self.store_id)
        await self._until_reached(lambda: self._link.log(ours))

    async def _until_reached(self, ask: Callable[[], Awaitable[T]]) -> T:
        delay_s = BACKOFF_S
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S_MAX)

    # ---- called by the exchange

    async def send(self, call: Call) -> Reply:
        return await self._noticed(self._link.call(call))

    async def _noticed(self, asking: Awaitable[T]) -> T:
        """Report when the server stops and starts to respond, so that an idle worker shows what it waits for."""
        try:
            answer = await asking
        except Unavailable as error:
            if not self._missing:
                self._missing = True
                self.on_missing(f"{error}; calls are repeated until it responds, and running tasks continue")
            raise
        if self._missing:
            self._missing = False
            self.on_missing("the server responds again")
        return answer

    def credit(self) -> int:
        self._announced = self._credit.now(slots=self.slots)
        return self._announced

    def settle(self, reports: tuple[Report, ...], durable: tuple[Report, ...], reply: Reply) -> None:
        self._settle_durable(durable)
        if self._taking and not reply.refused:
            for report in reports:
                key = (report.task, report.attempt)
                if type(report) is Taken and key in self._taking and key not in reply.later:
                    self._settle_taking(key, mine=key not in reply.fenced)

    def _settle_durable(self, reports: tuple[Report, ...]) -> None:
        held, logged = self._held, self.logs.open
        if not LAST_REPORTS.issuperset(map(type, reports)):
            self._saved([report for report in reports if type(report) in (Checkpointed, StepsRecorded)])
            reports = tuple([report for report in reports if type(report) in LAST_REPORTS])
        if len(self._ended) > ENDED_MAX:
            self._ended_before, self._ended = self._ended, {}
        keys: list[Key] = list(map(_key_of, reports))
        self._ended.update(keys)
        for key in keys:
            held.pop(key, None)
            if key in logged:
                self.logs.ended(key)
        self.freed.set()

    def _saved(self, reports: Sequence[Report]) -> None:
        """Attempts that wait until these are durable go on."""
        for report in reports:
            held = self._held.get((report.task, report.attempt))
            if held is not None:
                held.executor.saved(report.task, report.attempt)

    def _is_known(self, job: AttemptJob) -> bool:
        """Whether this attempt was offered again, was called off before it came, or comes with a late reply."""
        key = (job.task, job.attempt)
        ended = self._ended.get(job.task) or self._ended_before.get(job.task, 0)
        return key in self._held or key in self._exchange.stopped or job.attempt <= ended

    def stop(self, key: Key) -> None:
        held = self._held.pop(key, None)
        self.freed.set()
        if held is None:
            self._exchange.stopped[key] = None
            return
        held.executor.stop(*key)
        self._exchange.withdraw(key)

    def leave_store(self, store: str, held: Mapping[Key, HeldAttempt], reports: Sequence[Report]) -> None:
        """Stop what runs for the store before, and never again report under its numbers."""
        results = {(report.task, report.attempt) for report in reports if type(report) in LAST_REPORTS}
        self._ended, self._ended_before = {}, {}
        self._left.update(dict.fromkeys([*held, *results], self.store_id))
        self.logs.forget()
        for key, attempt in held.items():
            attempt.executor.stop(*key)
        for key in list(self._taking):
            self._settle_taking(key, mine=False)
        self.freed.set()
        self.on_missing(
            f"the server has another store now ({store[:12]}, before it was {self.store_id[:12]}): it was restored, "
            f"created again, or is another project. {len(held)} attempts of the store before are dropped here, "
            f"{len(results)} of them with a result. This worker registers again; restart it to publish its workflows"
        )

    def replied(self, reply: Reply) -> None:
        if reply.work:  # its last attempt waits for everything that came with it
            self._measure_next((reply.work[-1].task, reply.work[-1].attempt))

    def begin(self, job: AttemptJob) -> None:
        task = job.task
        key = (task, job.attempt)
        exchange = self._exchange
        if task > self._newest and not exchange.stopped:  # nearly always: nothing can be known of it
            self._newest = task
        elif self._is_known(job):
            return
        elif key in self._left:
            # An attempt of the store before had these numbers, and may still report. It comes again under another one.
            exchange.report(HandedBack(*key, begun=self._left[key] == self.store_id))
            return
        spec = self._specs.get(job.spec)
        if spec is None:
            exchange.list_held()  # not held, so it is offered again
            exchange.introduce()  # the reply brings the specs again
            return
        executor = self._by_kind.get(spec.kind)
        if executor is None:
            self._held[key] = HeldAttempt(job, spec, self._executors[0])
            known = ", ".join(sorted(self._by_kind)) or "none"
            message = f"this worker runs no {spec.kind} nodes, only {known}"
            self.report(lacking(job, message))
            return
        self._held[key] = HeldAttempt(job, spec, executor)
        if exchange.draining:
            self.report(HandedBack(*key))
            return
        executor.run(job, spec)
