"""One side of the exchange: calls out, replies in, and nothing forgotten between.

Whoever holds attempts of a server speaks to it through this: a worker's agent, and a node that stands for a worker at
the owner of a partition. A report is forgotten only when a reply says that it is durable; until then it is sent
again. One call waits at the server for work; when there is something to report meanwhile, the next call goes at
once. At most one call with reports is under way, so under load reports gather by themselves; where much work comes at
once, a call waits for more of it beside them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

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


class ExchangeClient(Generic[H]):
    """`_held` has what was taken on, by task and attempt. Those who inherit say what happens with it."""

    def __init__(
        self,
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
        self._via, self._share = via, share
        self._profile = profile
        self._beat_ms = beat_ms
        self._seq = 0
        self._held: dict[Key, H] = {}
        self._specs: dict[int, NodeSpec] = {}
        self._pending: list[Report] = []
        self._stopped: dict[Key, None] = {}  # stops that came before their work
        self._post: asyncio.Task[None] | None = None  # the call with reports
        self._poll: asyncio.Task[None] | None = None  # the call that waits for work
        self._pump_handle: asyncio.Handle | None = None
        self._poll_handle: asyncio.Handle | None = None
        self._carried = 0  # reports in the last call
        self._credit_told = 0
        self._introduce = True  # the server must hear profile and everything held
        self._doubt = False  # a reply may be lost: say what is held
        self._told_all = 0  # number of the last call that said what is held
        self._failures = 0
        self._back = asyncio.Event()  # the server may be reached again
        self._draining = False
        self._over: asyncio.Future[None] | None = None
        self.fenced = 0  # reports that came too late
        self.reached = asyncio.Event()  # the server has served it at least once

    @property
    def holds(self) -> int:
        """How many attempts."""
        return len(self._held)

    # ---- of those who inherit

    async def _ask(self, call: Call) -> Reply:
        """The way to the server. Raises `Unavailable` where it cannot be reached."""
        raise NotImplementedError

    def _room(self) -> int:
        """How many attempts may be held in all."""
        raise NotImplementedError

    def _taken(self, reports: tuple[Report, ...]) -> None:
        """These are durable."""
        raise NotImplementedError

    def _stop(self, key: Key) -> None:
        """Its result no longer counts."""
        raise NotImplementedError

    def _begin(self, work: AttemptJob) -> None:
        raise NotImplementedError

    def _leave_store(self, store: str, reports: tuple[Report, ...]) -> None:  # noqa: ARG002 - for those who tell
        """Another store answers. What is held, and `reports` that it did not take, belong to the one before, and go."""
        self._held.clear()
        self._specs.clear()
        self._pending.clear()
        self._stopped.clear()

    def _heard(self, reply: Reply) -> None:
        """Whatever else a reply says."""

    # ---- calls

    def _pump_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._carried >= MANY:
            self._pump_handle = loop.call_later(GATHER_S, self._pump)
        else:
            self._pump_handle = loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Start the call that is due, if one is."""
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._poll_handle is not None:
            self._poll_handle.cancel()
            self._poll_handle = None
        if self._post is not None or self._over is None or self._over.done():
            return
        if self._pending:
            self._post = self._begin_call(self._deliver, self._call(self._batch()))
        elif self._poll is None and not self._draining:
            self._stopped.clear()
            wait_ms = 0 if self._introduce else self._beat_ms
            self._poll = self._begin_call(self._wait_for_work, self._call(wait_ms=wait_ms))

    def _poll_beside_reports(self) -> None:
        """More of a burst comes before the server has taken what was reported. It says nothing new, so that it waits
        for nothing but work."""
        if self._poll is None and not (self._draining or self._introduce or self._doubt):
            call = self._call(wait_ms=self._beat_ms, credit=self._credit_told)
            self._poll = self._begin_call(self._wait_for_work, call)

    def _begin_call(self, send: Callable[[Call], Coroutine[Any, Any, None]], call: Call) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(send(call))
        task.add_done_callback(lambda ended: self._call_ended(ended, call))
        return task

    def _call_ended(self, task: "asyncio.Task[None]", call: Call) -> None:
        """Each call that ends begins the next one. Where one ends without, only the end of this side may be the cause:
        a side on which nothing is under way never hears of work again."""
        over = self._over is None or self._over.done()
        if task.cancelled():
            self._post = None if self._post is task else self._post
            self._poll = None if self._poll is task else self._poll
            self._pending[:0] = call.reports  # nothing says that they are durable
            if not over:
                self._doubt = True
                self._pump()
        elif (error := task.exception()) is not None and not over:
            self._end(error)

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

    def _call(
        self,
        reports: tuple[Report, ...] = (),
        *,
        wait_ms: int = 0,
        goodbye: bool = False,
        credit: int | None = None,
    ) -> Call:
        self._seq += 1
        if credit is None:
            credit = self._credit_told = 0 if self._draining else self._room()
        tell_all = self._introduce or self._doubt
        self._doubt = False
        if tell_all:
            self._told_all = self._seq
        return Call(
            self.name,
            self.session,
            self._seq,
            credit,
            wait_ms,
            reports,
            tuple(self._held) if tell_all else None,
            self._profile if self._introduce else None,
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
            self._end(error)
            return
        finally:
            self._post = None
        if call.store and call.store != self.store_id:
            self._introduce = True
            self._pump()
            return  # its reports were about another store, and went with it
        if reply.resync:
            self._pending[:0] = call.reports  # a server that does not know us has taken nothing
        else:
            self._settle(call.reports, reply)
        self._carried = len(call.reports)
        self._follow(call, reply)

    def _settle(self, reports: tuple[Report, ...], reply: Reply) -> None:
        """Queue again the reports that the server could not bring to their owner."""
        if reply.later:
            later = frozenset(reply.later)
            self._pending[:0] = [report for report in reports if (report.task, report.attempt) in later]
            reports = tuple(report for report in reports if (report.task, report.attempt) not in later)
        self._taken(reports)

    async def _wait_for_work(self, call: Call) -> None:
        """A call without reports. Where it is lost, the next says what is held, and the server offers the rest anew."""
        try:
            reply = await self._reply_to(call)
        except Exception as error:
            self._end(error)
            return
        finally:
            self._poll = None
        if reply is not None:
            self._follow(call, reply)
        else:
            self._pump()

    async def _reply_to(self, call: Call) -> Reply | None:
        """Send the call and return the reply, or None if the server was not reached and some time has passed."""
        try:
            reply = await self._ask(call)
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

    def again(self) -> None:
        """There is reason to believe that the server can be reached: nobody waits longer."""
        if self._failures:
            self._failures = 0
            self._back.set()
            self._back = asyncio.Event()

    def _follow(self, call: Call, reply: Reply) -> None:
        if reply.refused:
            self._end(Refused("worker_refused", f"the server does not serve this worker: {reply.refused}"))
            return
        if call.store and call.store != self.store_id:  # what it brings is of the store before
            self._introduce = True
            self._pump()
            return
        self._introduce = reply.resync or (self._introduce and call.profile is None)
        self.fenced += len(reply.fenced)
        for spec in reply.specs:
            self._specs[spec.id] = spec
        for key in reply.stop:
            self._stop(key)
        # What an older reply brings was offered again after the call that said what is held, and may be over by now.
        if call.seq >= self._told_all:
            for work in reply.work:
                self._begin(work)
        self._heard(reply)
        if reply.later:
            self._pump_handle = asyncio.get_running_loop().call_later(LATER_S, self._pump)
        elif 0 < len(reply.work) < MANY and not self._pending and self._poll is None:
            self._poll_handle = asyncio.get_running_loop().call_later(START_S, self._pump)
        elif self._post is not None and len(reply.work) >= MANY:
            self._poll_beside_reports()
        else:  # after much work as well: more of it may be on its way
            self._pump()

    def _end(self, error: BaseException | None = None) -> None:
        assert self._over is not None
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    async def _end_calls(self) -> None:
        for handle in (self._pump_handle, self._poll_handle):
            if handle is not None:
                handle.cancel()
        calls = [task for task in (self._post, self._poll) if task is not None]
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls)


def _size(value: object) -> int:
    return len(value) if type(value) is bytes else 0
