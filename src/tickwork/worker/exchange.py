"""One side of the exchange: calls out, replies in, and nothing forgotten between.

A worker's agent speaks to its server through this, and a node that stands for a worker to the owner of a partition.
A report is forgotten only when a reply says that it is durable; until then it is sent
again. One call waits at the server for work; when there is something to report meanwhile, the next call goes at
once. At most one call with reports is under way, so under load reports gather by themselves; where much work comes at
once, a call waits for more of it beside them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tickwork.core.base.errors import Refused, Unavailable
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Checkpointed,
    NodeSpec,
    Reply,
    Report,
    Succeeded,
    WorkerProfile,
)

BEAT_MS = 10_000  # how long a call may wait for work; the next one follows at once
GATHER_S = 0.001  # after a call that carried many reports, the next waits so long for more
MANY = 16
REPORTS_MAX, REPORT_BYTES_MAX = 2_000, 4 * 1024 * 1024
START_S = 0.001  # after a reply with some work, the next call without reports waits so long: the work goes first
BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0
LATER_S = 0.1  # what could not be delivered is tried again after so long
Key = tuple[int, int]
H = TypeVar("H")
C = TypeVar("C", contravariant=True)


class ExchangeHandler(Protocol[C]):
    """The holder of attempts: sends the calls of its `ExchangeClient`, and acts on the replies."""

    async def send(self, call: Call) -> Reply:
        """Send a call to the server. Raises `Unavailable` where it cannot be reached."""

    def credit(self) -> int:
        """Number of attempts that may be held in total."""

    def settle(self, reports: tuple[Report, ...], durable: tuple[Report, ...], reply: Reply) -> None:
        """The server has answered a call with `reports`. Those that are `durable` now are forgotten."""

    def stop(self, key: Key) -> None:
        """The result of this attempt no longer counts."""

    def begin(self, job: AttemptJob) -> None:
        """The server offers this attempt, perhaps once more."""

    def leave_store(self, store: str, held: Mapping[Key, C], reports: Sequence[Report]) -> None:
        """Another store answers. What was held, and `reports` that are not durable, belonged to the one before."""

    def replied(self, reply: Reply) -> None:
        """The rest of a reply, after all else in it."""


class ExchangeClient(Generic[H]):
    """Calls of one holder of attempts to one server. `held` has the attempts that were taken on, by task and attempt;
    the handler adds and removes them."""

    def __init__(
        self,
        handler: ExchangeHandler[H],
        *,
        name: str,
        session: str,
        profile: WorkerProfile,
        beat_ms: int = BEAT_MS,
        via: str = "",
        share: bool = False,
        store: str = "",
    ) -> None:
        self.name, self.session, self.store_id = name, session, store
        self.profile = profile
        self.held: dict[Key, H] = {}
        self.specs: dict[int, NodeSpec] = {}
        self.stopped: dict[Key, None] = {}  # stops that came before their work
        self.draining = False
        self.fenced = 0  # reports that came too late
        self.reached = asyncio.Event()  # the server has served it at least once
        self._handler = handler
        self._via, self._share = via, share
        self._beat_ms = beat_ms
        self._seq = 0
        self._pending: list[Report] = []
        self._post: asyncio.Task[None] | None = None  # the call with reports
        self._poll: asyncio.Task[None] | None = None  # the call that waits for work
        self._pump_handle: asyncio.Handle | None = None
        self._poll_handle: asyncio.Handle | None = None
        self._carried = 0  # reports in the last call
        self._credit_sent = 0
        self._introduce = True  # the server must hear profile and everything held
        self._doubt = False  # a reply may be lost: list what is held
        self._held_sent = 0  # number of the last call that listed what is held
        self._failures = 0
        self._back = asyncio.Event()  # the server may be reached again
        self._over: asyncio.Future[None] | None = None

    @property
    def running(self) -> bool:
        return self._over is not None and not self._over.done()

    @property
    def introducing(self) -> bool:
        """The server does not know this session yet, or no longer."""
        return self._introduce

    @property
    def unreachable(self) -> bool:
        """The server did not answer the last call."""
        return self._failures > 0

    # ---- for the holder

    def start(self) -> "asyncio.Future[None]":
        """Return a future that is done when the exchange ends. Calls begin with the first `pump`."""
        self._over = asyncio.get_running_loop().create_future()
        return self._over

    def end(self, error: BaseException | None = None) -> None:
        if self._over is None or self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    async def end_calls(self) -> None:
        for handle in (self._pump_handle, self._poll_handle):
            if handle is not None:
                handle.cancel()
        calls = [task for task in (self._post, self._poll) if task is not None]
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls)

    def report(self, report: Report) -> None:
        self._pending.append(report)
        if self._post is None and self._pump_handle is None:
            self._pump_soon()

    def report_all(self, reports: Sequence[Report]) -> None:
        self._pending += reports
        if self._post is None and self._pump_handle is None:
            self._pump_soon()

    def withdraw(self, key: Key) -> list[Report]:
        """Forget the reports of an attempt that are in no call yet, and return them."""
        withdrawn = [report for report in self._pending if (report.task, report.attempt) == key]
        if withdrawn:
            self._pending = [report for report in self._pending if (report.task, report.attempt) != key]
        return withdrawn

    async def deliver_all(self) -> None:
        """Return when all reports are durable."""
        while self._pending or self._post is not None:
            if self._post is not None:
                await asyncio.wait([self._post])
            elif self._pump_handle is not None:
                await asyncio.sleep(GATHER_S)  # what could not be delivered is tried again in a moment, not at once
            else:
                self.pump()

    def introduce(self, profile: WorkerProfile | None = None) -> None:
        """The next call says who this is, and what is held; the reply brings the specs again."""
        self.profile = profile or self.profile
        self._introduce = True

    def list_held(self) -> None:
        """The next call says what is held, and the server offers the rest again."""
        self._doubt = True

    def call_now(self) -> None:
        """Send a call beside the one that waits, which says what was true before."""
        if self._post is None and self.running and self.reached.is_set():
            self._post = self._begin_call(self._deliver, self.call())

    def retry_now(self) -> None:
        """Do not wait before the next try: the server can probably be reached."""
        if self._failures:
            self._failures = 0
            self._back.set()
            self._back = asyncio.Event()

    # ---- calls

    def _pump_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._carried >= MANY:
            self._pump_handle = loop.call_later(GATHER_S, self.pump)
        else:
            self._pump_handle = loop.call_soon(self.pump)

    def pump(self) -> None:
        """Start the call that is due, if one is."""
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._poll_handle is not None:
            self._poll_handle.cancel()
            self._poll_handle = None
        if self._post is not None or not self.running:
            return
        if self._pending:
            self._post = self._begin_call(self._deliver, self.call(self._batch()))
        elif self._poll is None and not self.draining:
            self.stopped.clear()
            wait_ms = 0 if self._introduce else self._beat_ms
            self._poll = self._begin_call(self._wait_for_work, self.call(wait_ms=wait_ms))

    def _poll_beside_reports(self) -> None:
        """More of a burst comes before the server has taken what was reported. It says nothing new, so that it waits
        for nothing but work."""
        if self._poll is None and not (self.draining or self._introduce or self._doubt):
            call = self.call(wait_ms=self._beat_ms, credit=self._credit_sent)
            self._poll = self._begin_call(self._wait_for_work, call)

    def _begin_call(self, send: Callable[[Call], Coroutine[Any, Any, None]], call: Call) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(send(call))
        task.add_done_callback(lambda ended: self._call_ended(ended, call))
        return task

    def _call_ended(self, task: "asyncio.Task[None]", call: Call) -> None:
        """Each call that ends begins the next one. Where one ends without, only the end of this side may be the cause:
        a side on which nothing is under way never hears of work again."""
        if task.cancelled():
            self._post = None if self._post is task else self._post
            self._poll = None if self._poll is task else self._poll
            self._pending[:0] = call.reports  # nothing says that they are durable
            if self.running:
                self._doubt = True
                self.pump()
        elif (error := task.exception()) is not None:
            self.end(error)

    def _batch(self) -> tuple[Report, ...]:
        size = 0
        for count, report in enumerate(self._pending[:REPORTS_MAX]):
            if type(report) is Succeeded:
                if report.value is None and report.commands is None:
                    continue
                size += _size(report.value) + _size(report.commands)
            elif type(report) is Checkpointed:
                size += _size(report.value)
            if size > REPORT_BYTES_MAX and count:
                return self._take(count)
        return self._take(REPORTS_MAX)

    def _take(self, count: int) -> tuple[Report, ...]:
        taken, self._pending = self._pending[:count], self._pending[count:]
        return tuple(taken)

    def call(
        self,
        reports: tuple[Report, ...] = (),
        *,
        wait_ms: int = 0,
        goodbye: bool = False,
        credit: int | None = None,
    ) -> Call:
        self._seq += 1
        if credit is None:
            credit = self._credit_sent = 0 if self.draining else self._handler.credit()
        list_held = self._introduce or self._doubt
        self._doubt = False
        if list_held:
            self._held_sent = self._seq
        return Call(
            self.name,
            self.session,
            self._seq,
            credit,
            wait_ms,
            reports,
            tuple(self.held) if list_held else None,
            self.profile if self._introduce else None,
            goodbye,
            self._via,
            share=self._share,
            store=self.store_id,
        )

    async def _deliver(self, call: Call) -> None:
        """Send a call with reports until the server answers it."""
        try:
            reply = await self._reply_to(call)
            while reply is None:
                reply = await self._reply_to(call)
        except Exception as error:
            self.end(error)
            return
        finally:
            self._post = None
        if call.store and call.store != self.store_id:
            self._introduce = True
            self.pump()
            return  # its reports were about another store, and went with it
        if reply.resync:
            self._pending[:0] = call.reports  # a server that does not know us has taken nothing
        else:
            self._settle(call.reports, reply)
        self._carried = len(call.reports)
        self._follow(call, reply)

    def _settle(self, reports: tuple[Report, ...], reply: Reply) -> None:
        """Queue again the reports that the server could not bring to their owner."""
        durable = reports
        if reply.later:
            later = frozenset(reply.later)
            self._pending[:0] = [report for report in reports if (report.task, report.attempt) in later]
            durable = tuple(report for report in reports if (report.task, report.attempt) not in later)
        self._handler.settle(reports, durable, reply)

    async def _wait_for_work(self, call: Call) -> None:
        """A call without reports. Where it is lost, the next lists what is held, and the server offers the rest."""
        try:
            reply = await self._reply_to(call)
        except Exception as error:
            self.end(error)
            return
        finally:
            self._poll = None
        if reply is not None:
            self._follow(call, reply)
        else:
            self.pump()

    async def _reply_to(self, call: Call) -> Reply | None:
        """Send the call and return the reply, or None if the server was not reached and some time has passed."""
        try:
            reply = await self._handler.send(call)
        except (Unavailable, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # otherwise something that the call waited for was cancelled: it is lost, and sent again
            self._doubt = True
            self._failures += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(BACKOFF_S * 2 ** min(self._failures - 1, 10), BACKOFF_S_MAX)):
                    await self._back.wait()
            return None
        self._failures = 0
        if not reply.refused:
            self.reached.set()
        if reply.store and reply.store != self.store_id:
            if self.store_id:
                self._leave_store(reply.store, call.reports)
            self.store_id = reply.store
        return reply

    def _leave_store(self, store: str, reports: tuple[Report, ...]) -> None:
        """Forget what is held, and all reports: results for another store would be taken for those of its own tasks
        with the same numbers."""
        held, reports = dict(self.held), (*reports, *self._pending)
        self.held.clear()
        self.specs.clear()
        self.stopped.clear()
        self._pending.clear()
        self._handler.leave_store(store, held, reports)

    def _follow(self, call: Call, reply: Reply) -> None:
        if reply.refused:
            self.end(Refused("worker_refused", f"the server does not serve this worker: {reply.refused}"))
            return
        if call.store and call.store != self.store_id:  # what it brings is of the store before
            self._introduce = True
            self.pump()
            return
        self._introduce = reply.resync or (self._introduce and call.profile is None)
        self.fenced += len(reply.fenced)
        for spec in reply.specs:
            self.specs[spec.id] = spec
        for key in reply.stop:
            self._handler.stop(key)
        # What an older reply brings was offered again after the call that listed what is held, and may be over by now.
        if call.seq >= self._held_sent:
            for job in reply.work:
                self._handler.begin(job)
        self._handler.replied(reply)
        if reply.later:
            self._pump_handle = asyncio.get_running_loop().call_later(LATER_S, self.pump)
        elif 0 < len(reply.work) < MANY and not self._pending and self._poll is None:
            self._poll_handle = asyncio.get_running_loop().call_later(START_S, self.pump)
        elif self._post is not None and len(reply.work) >= MANY:
            self._poll_beside_reports()
        else:  # after much work as well: more of it may be on its way
            self.pump()


def _size(value: object) -> int:
    return len(value) if type(value) is bytes else 0
