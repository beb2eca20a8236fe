"""One worker's side of the exchange, as a server keeps it.

A repeated call gets the same reply. The owner of a partition (`sessions`) and the gateway of a node
(`cluster.worker_gateway`) hold sessions and handle their calls; they differ in where reports go and where work comes
from.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Any

from tickwork.core.base.errors import Unavailable
from tickwork.protocol.worker_messages import AttemptJob, Call, NodeSpec, Reply
from tickwork.runtime.workers.session_attempts import AttemptKey

REPLY_BYTES_MAX = 16 * 1024 * 1024  # of attempts in one reply; a worker reads at most 64 MiB
RETRY_MS = 50
GIVEN_UP = "the call that this one repeats was cancelled; send it again"
_args_of: Callable[[AttemptJob], bytes] = attrgetter("args")
_checkpoint_of: Callable[[AttemptJob], Any] = attrgetter("checkpoint")

ReplyFuture = asyncio.Future[Reply]
Handler = Callable[[Call, ReplyFuture | None], Awaitable[Reply]]
"""Handles a call. The second argument is the reply to the previous call, which may be open; None: there was none."""


class WorkerSession:
    """One worker's session: call sequence, the reply kept for a repeated call, and what waits to be sent."""

    def __init__(self, worker: str, session_id: str, heard_ms: int, *, process: str = "") -> None:
        self.worker, self.id = worker, session_id  # the id is "" until the worker calls
        self.heard_ms = heard_ms
        self.closed_ms = 0  # when its connection closed; 0: it has not, or the worker came back
        self.peer = ""  # connection of the latest call
        self.calls: dict[str, int] = {}  # calls without a reply yet, by connection
        self.process = process  # operating system process of a worker that has not called since this node started
        self.seq = 0  # of the latest call
        self.pending: list[tuple[AttemptJob, NodeSpec]] = []
        self.cancelled: list[AttemptKey] = []
        self.reporting = 0  # calls whose reports are not durable yet
        self.waiting: ReplyFuture | None = None  # the reply to the call that waits for work
        self._reply: ReplyFuture | None = None  # to the latest call
        self._specs: dict[int, None] = {}  # that were sent in this session
        self._wakeup: asyncio.Future[None] | None = None

    async def exchange(self, call: Call, handle: Handler, *, peer: str, now_ms: int) -> Reply:
        """Return the kept reply for a repeated call; otherwise end an older waiting call and handle this one.

        A call that comes after a later one (`is_late`) is handled too, but its reply is not kept."""
        self.heard_ms, self.closed_ms, self.peer = now_ms, 0, peer
        calls = self.calls
        calls[peer] = calls.get(peer, 0) + 1
        try:
            previous = self._reply
            if call.seq < self.seq:
                return await handle(call, previous)
            if call.seq == self.seq and previous is not None and not _failed(previous):
                return await asyncio.shield(previous)
            if not call.reports or call.held is not None:
                self.wake()  # an older call that still waits ends now; beside reports it goes on waiting
            self.seq = call.seq
            kept = self._reply = asyncio.get_running_loop().create_future()
            try:
                # In the caller's own task: a waiting worker gets its work before the submitter gets its response.
                reply = await handle(call, previous)
            except BaseException as error:
                self.wake()  # what this reply would have carried goes out with another
                if not kept.done():
                    given_up = isinstance(error, asyncio.CancelledError)  # a repeated call has not been given up
                    kept.set_exception(Unavailable(GIVEN_UP, retry_after_ms=RETRY_MS) if given_up else error)
                    _failed(kept)  # retrieves the exception: there may be no repeated call that does
                raise
            if not kept.done():
                kept.set_result(reply)
            return reply
        finally:
            calls[peer] -= 1
            if not calls[peer]:
                del calls[peer]

    def is_late(self, call: Call) -> bool:
        """Whether a later call of the session came first, on another connection."""
        return call.seq < self.seq

    def offer(self, jobs: Iterable[tuple[AttemptJob, NodeSpec]], *, beside_reports: bool = False) -> None:
        """Send these attempts with the next reply. While reports become durable that is their reply, unless
        `beside_reports`; then a call that waits for work carries them."""
        self.pending += jobs
        if beside_reports or not self.reporting:
            self.wake()

    def withdraw(self, attempt: AttemptKey) -> bool:
        """Take an attempt back that was offered and not sent. False: there is none."""
        before = len(self.pending)
        self.pending = [(job, spec) for job, spec in self.pending if (job.task, job.attempt) != attempt]
        return len(self.pending) < before

    def cancel(self, attempt: AttemptKey) -> None:
        """Tell the worker to end an attempt that it may hold."""
        self.cancelled.append(attempt)
        self.wake()

    def forget_specs(self) -> None:
        """The worker may have none: each is sent again with the next attempt of its node."""
        self._specs.clear()

    def reply(
        self,
        call: Call,
        *,
        fenced: tuple[AttemptKey, ...] = (),
        later: tuple[AttemptKey, ...] = (),
        waiting_tasks: int = 0,
        store: str = "",
    ) -> Reply:
        """Return a reply with what waits to be sent: all of it, or as many attempts as a reply may hold."""
        count = _fitting(self.pending)
        pending, self.pending = self.pending[:count], self.pending[count:]
        cancelled, self.cancelled = self.cancelled, []
        specs = {spec.id: spec for _, spec in pending if spec.id not in self._specs}
        self._specs.update(dict.fromkeys(specs))
        return Reply(
            call.seq,
            tuple([job for job, _ in pending]),
            tuple(specs.values()),
            tuple(cancelled),
            fenced,
            later=later,
            waiting_tasks=waiting_tasks,
            store=store if call.profile is not None else "",
        )

    # ---- the call that waits for work

    @property
    def waits_for_work(self) -> bool:
        return self._wakeup is not None

    async def wait_for_work(self, wait_ms: int) -> None:
        """Return when `wake` is called, or after `wait_ms`."""
        loop = asyncio.get_running_loop()
        wakeup = self._wakeup = loop.create_future()
        self.waiting = self._reply
        timer = loop.call_at(loop.time() + wait_ms / 1000, self.wake)
        try:
            await wakeup
        finally:
            timer.cancel()
            if self._wakeup is wakeup:
                self._wakeup = self.waiting = None

    def wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def _failed(reply: ReplyFuture) -> bool:
    return reply.done() and (reply.cancelled() or reply.exception() is not None)


def _fitting(jobs: list[tuple[AttemptJob, NodeSpec]]) -> int:
    """How many of these go into one reply: at least one."""
    if len(jobs) < 2:
        return len(jobs)
    works = [job for job, _ in jobs]
    if sum(map(len, map(_args_of, works))) <= REPLY_BYTES_MAX and not any(map(_checkpoint_of, works)):
        return len(jobs)  # nearly always; the loop would take as long as the rest of the reply
    size = 0
    for index, (job, _) in enumerate(jobs):
        checkpoint = job.checkpoint
        size += len(job.args) + (len(checkpoint) if type(checkpoint) is bytes else 0)
        if size > REPLY_BYTES_MAX and index:
            return index
    return len(jobs)
