"""One thread with one connection, and the way from the event loop to it and back.

Jobs run in the order in which they were put. Answers that are ready together come back in one wake-up of the
loop: waking it costs more than most answers. A job whose caller was cancelled still runs to its end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


class ResultDispatcher:
    """Results on their way back to one loop, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._waking = False

    def give(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._ready.append((future, result, error))
        # Two threads may both find it False: one wake-up too many does no harm, one too few would.
        if not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed, so nothing waits
                self._ready.clear()

    def _deliver(self) -> None:
        self._waking = False  # first: what is put from here on wakes the loop again
        while self._ready:
            future, result, error = self._ready.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


class JobThread:
    def __init__(self, name: str, answers: ResultDispatcher) -> None:
        self._answers = answers
        self._jobs: SimpleQueue[_Job | Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def ask(self, job: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, args, future))
        return future

    def post(self, job: Callable[[], None]) -> None:
        """Run a job that is not awaited and handles its own errors. Callable from any thread."""
        self._jobs.put(job)

    async def stop(self) -> None:
        """After the jobs that were put before."""
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not isinstance(job, tuple):
                job()
                continue
            function, args, future = job
            try:
                result = function(*args)
            except BaseException as error:  # whatever it is belongs to the caller, not to this thread
                self._answers.give(future, None, error)
            else:
                self._answers.give(future, result, None)
            del job, function, args, future
