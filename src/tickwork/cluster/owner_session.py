"""Session of one worker with the owner of one partition, kept by the gateway that speaks for it or by the worker.

What the owner sends goes on to the worker; what the worker reports for this partition goes to the owner, and the
worker learns when it is durable there. The owner may be this node itself, and may change: the session finds the new
one and lists what is held.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tickwork.core.base.errors import TickworkError
from tickwork.protocol.worker_messages import (
    LAST_REPORTS,
    AttemptJob,
    Call,
    NodeSpec,
    Reply,
    Report,
    Taken,
    WorkerProfile,
)
from tickwork.runtime.workers.sessions import VIA_WAIT_MS_MAX
from tickwork.worker.exchange import BEAT_MS, ExchangeClient, Key

FAREWELL_S = 5.0
ExchangeRoute = Callable[[int, Call], Awaitable[Reply]]


class OwnerSessionHost(Protocol):
    """The worker that an owner session speaks for."""

    def offer(self, job: AttemptJob, spec: NodeSpec) -> None: ...

    def cancel(self, key: Key) -> None: ...

    def owner_session_ended(self, error: BaseException) -> None: ...

    def owner_replied(self, owner: "OwnerSession") -> None: ...


class ReportBatch:
    """Reports of one call for one partition: `done` when all are durable. One that is on its way for an earlier call
    counts for both."""

    def __init__(self, owner: "OwnerSession") -> None:
        self.reports: dict[int, Report] = {}  # by identity
        self.left = 0
        self.fenced: list[Key] = []
        self.done = asyncio.Event()
        self._owner = owner

    def waiting(self) -> list[Report]:
        return [report for name, report in self.reports.items() if self._owner.owes(name, self)]

    def settle(self) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


class OwnerSession:
    """Session of a worker with the owner of one partition, which gives the worker a share of its credit."""

    def __init__(
        self,
        worker: OwnerSessionHost,
        partition: int,
        *,
        route: ExchangeRoute,
        name: str,
        session: str,
        profile: WorkerProfile,
        via: str,
        store: str = "",
    ) -> None:
        """`via` is the node that speaks for the worker and sends its heartbeats; "": the worker does so itself."""
        beat_ms = VIA_WAIT_MS_MAX if via else BEAT_MS
        self._exchange: ExchangeClient[None] = ExchangeClient(
            self, name=name, session=session, profile=profile, via=via, share=not via, beat_ms=beat_ms, store=store
        )
        self._held = self._exchange.held
        self.partition = partition
        self.share = 0  # of the worker's credit
        self.believed_share = 0  # the largest share that the owner may still count on
        self._believed_seq = 0  # number of the latest call that the owner has answered
        self.waiting_tasks = 0
        self._worker = worker
        self._route = route
        self._batches: dict[int, tuple[ReportBatch, ...]] = {}  # by report
        self._terminal: dict[Key, Report] = {}  # last reports on their way

    @property
    def away(self) -> bool:
        """Its owner did not answer last time."""
        return self._exchange.unreachable

    @property
    def holds(self) -> int:
        """Number of attempts that the worker holds of this partition."""
        return len(self._held)

    # ---- from the worker

    def start(self, held: Iterable[Key]) -> None:
        self._held.update(dict.fromkeys(held))
        self._exchange.start().add_done_callback(self._ended)
        self._exchange.pump()

    def _ended(self, over: "asyncio.Future[None]") -> None:
        error = None if over.cancelled() else over.exception()
        if error is not None:
            self._worker.owner_session_ended(error)

    def retry_now(self) -> None:
        """Do not wait before the next try: the owner has changed."""
        self._exchange.retry_now()

    def holds_only(self, held: Iterable[Key]) -> None:
        """The worker holds only these attempts; others that were on their way are offered again."""
        keys = [*held, *self._terminal]
        self._held.clear()
        self._held.update(dict.fromkeys(keys))
        self._exchange.list_held()
        self._exchange.call_now()

    def introduce(self, profile: WorkerProfile) -> None:
        self._exchange.introduce(profile)

    def deliver(self, reports: Sequence[Report]) -> ReportBatch:
        """A last report that is on its way already is not sent twice: the worker repeated it because it took long."""
        batch = ReportBatch(self)
        alone, owed, terminal = (batch,), self._batches, self._terminal
        new: list[Report] = []
        for report in reports:
            key = (report.task, report.attempt)
            last = type(report) in LAST_REPORTS
            known = terminal.get(key) if last else None
            if known is None:
                known = report
                if type(report) is not Taken:
                    self._held.setdefault(key)
                new.append(report)
                if last:
                    terminal[key] = report
            name = id(known)
            if name not in batch.reports:
                batch.reports[name] = known
                owed[name] = owed[name] + alone if name in owed else alone
        batch.left = len(batch.reports)
        if not batch.left:
            batch.done.set()
        self._exchange.report_all(new)
        return batch

    def set_share(self, share: int) -> None:
        if share != self.share:
            self.share = share
            self._exchange.call_now()

    async def end(self, *, lost: bool) -> None:
        """The worker is gone, with or without goodbye. The owner learns it, unless it cannot be reached."""
        self._exchange.draining = True
        await self.hang_up()
        call = self._exchange.call(goodbye=not lost)
        if lost:
            call = Call(call.worker, call.session, call.seq, via=call.via, lost=True)
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._route(self.partition, call)
        except (TimeoutError, TickworkError):
            pass  # it notices by itself

    async def hang_up(self) -> None:
        """End without a message to the owner: the worker goes on elsewhere."""
        self._exchange.end()
        await self._exchange.end_calls()

    # ---- called by the exchange

    async def send(self, call: Call) -> Reply:
        self.believed_share = max(self.believed_share, call.credit)
        reply = await self._route(self.partition, call)
        if not reply.resync and not reply.refused and call.seq > self._believed_seq:  # one that waited says what was
            self.believed_share, self._believed_seq = call.credit, call.seq
        return reply

    def credit(self) -> int:
        return self.share

    def settle(self, reports: tuple[Report, ...], durable: tuple[Report, ...], reply: Reply) -> None:
        """Of each one the worker hears whether it came too late; what it took from a lane it holds from here on."""
        if reply.fenced or any(type(report) is Taken for report in reports):
            self._note(reports, reply)
        for report in durable:
            if type(report) in LAST_REPORTS:
                key = (report.task, report.attempt)
                self._held.pop(key, None)
                self._terminal.pop(key, None)
            self._settle_one(report)

    def _note(self, reports: tuple[Report, ...], reply: Reply) -> None:
        fenced, later = frozenset(reply.fenced), frozenset(reply.later)
        for report in reports:
            key = (report.task, report.attempt)
            if key in fenced:
                for batch in self._batches.get(id(report), ()):
                    batch.fenced.append(key)
            elif type(report) is Taken and key not in later and not reply.refused:
                self._held[key] = None

    def _settle_one(self, report: Report) -> None:
        for batch in self._batches.pop(id(report), ()):
            batch.settle()

    def owes(self, name: int, batch: ReportBatch) -> bool:
        """Whether a report, by identity, is not durable yet as far as this batch asks for it."""
        return batch in self._batches.get(name, ())

    def stop(self, key: Key) -> None:
        self._held.pop(key, None)
        self._terminal.pop(key, None)
        for report in self._exchange.withdraw(key):
            for batch in self._batches.get(id(report), ()):
                batch.fenced.append(key)
            self._settle_one(report)
        self._worker.cancel(key)

    def begin(self, job: AttemptJob) -> None:
        key = (job.task, job.attempt)
        if key in self._held or key in self._exchange.stopped:
            return
        spec = self._exchange.specs.get(job.spec)
        if spec is None:
            self._exchange.list_held()
            self._exchange.introduce()
            return
        self._held[key] = None
        self._worker.offer(job, spec)

    def leave_store(self, store: str, held: Mapping[Key, None], reports: Sequence[Report]) -> None:
        """The attempts of the store before are forgotten; the worker learns from its server that it has another one."""

    def replied(self, reply: Reply) -> None:
        self.waiting_tasks = reply.waiting_tasks
        self._worker.owner_replied(self)
