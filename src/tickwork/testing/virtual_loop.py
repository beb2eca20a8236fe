"""An asyncio event loop in virtual time: no selector, no threads, nothing from outside.

When nothing is ready it jumps to the next timer, so waiting costs nothing. What was asked for with `call_soon`
runs first in, first out, as asyncio promises; timers of one instant, for which asyncio promises nothing, run in
the order of (virtual ns, draw, sequence), where the draw is 0 or random. Whatever belongs to a process that is
stopped or dead is held or dropped. An unhandled exception ends the run.
"""

import asyncio
import gc
import weakref
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, NoReturn, TypeVar, TypeVarTuple, cast

from tickwork.testing.seeded_random import Chance

T = TypeVar("T")
Args = TypeVarTuple("Args")
NS = 1_000_000_000
STEPS_PER_INSTANT_MAX = 1_000_000  # more of them means an endless loop: time stands still while callbacks are ready


class SimulationError(Exception):
    """The run cannot go on, or has already gone wrong."""


class NotSimulated(SimulationError):
    """Code reached past its ports for the real world."""


class Deadlock(SimulationError):
    """Nothing is ready, no timer is set, and what was waited for has not happened."""


class OutOfTime(SimulationError):
    """The budget of virtual time is spent, and what was waited for has not happened."""


class Unhandled(SimulationError):
    """An exception reached the loop, or the result of a failed task was never retrieved."""


class Process:
    """The owner of callbacks, read from the context that a callback runs in, so that tasks inherit it."""

    __slots__ = ("__weakref__", "dead", "held", "name", "started", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.held: list[_Call] | None = None  # a list while it is stopped: what will run when it goes on
        self.started = 0
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    @property
    def runs(self) -> bool:
        return not self.dead and self.held is None


PROCESS: ContextVar[Process | None] = ContextVar("tickwork_sim_process", default=None)


class _Call(asyncio.TimerHandle):
    """A callback that waits for its turn. It is never compared: the heap's keys are unique before they reach it."""

    __slots__ = ("loop",)

    def __init__(self, loop: "VirtualLoop", when: float, callback: Any, args: Any, context: Context) -> None:
        # The parent's __init__ looks for stack frames and debug mode on each call; this is the hot path.
        self.loop = loop
        self._when = when
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._context = context

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = None, ()

    def __repr__(self) -> str:
        return f"<call of {self._callback!r} at {self._when:.9f}{' cancelled' if self._cancelled else ''}>"


class VirtualLoop(asyncio.AbstractEventLoop):
    """`chance` makes the order of timers of one instant random; without it they run in the order they were set."""

    def __init__(self, chance: Chance | None = None) -> None:
        self.now_ns = 0
        self.steps = 0  # callbacks that ran
        self.failures: list[BaseException] = []
        self._draw = chance.bits if chance is not None else None
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[int, int, int, _Call]] = []
        self._sequence = 0
        self._own = Process("world")
        self._running = False
        self._closed = False
        self._stopping = False
        self._graves: list[asyncio.Task[Any]] = []

    # ---- what asyncio asks of a loop

    def time(self) -> float:
        return self.now_ns / NS

    def call_soon(self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None) -> _Call:
        call = _Call(self, 0.0, callback, args, copy_context() if context is None else context)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Call:
        """There is one thread only."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Call:
        return self.call_at_ns(self.now_ns + max(0, round(delay * NS)), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Call:
        when_ns = int(when * NS)
        if when_ns / NS < when:
            when_ns += 1  # never early, also by the caller's own arithmetic
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at_ns(
        self, when_ns: int, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Call:
        call = _Call(self, when_ns / NS, callback, args, copy_context() if context is None else context)
        self._sequence += 1
        draw = self._draw(32) if self._draw is not None else 0
        heappush(self._timers, (when_ns, draw, self._sequence, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], *, name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:  # fmt: skip
        owner = (PROCESS.get() if context is None else context.get(PROCESS)) or self._own
        owner.started += 1
        # asyncio counts task names for the whole interpreter: they would differ from run to run.
        named = f"{owner.name}/{name or owner.started}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=named, context=context)
        owner.tasks.add(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        self._stopping = True

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Called for results that were not retrieved. They count as failures, except those of dead processes."""
        error = context.get("exception")
        trouble = Unhandled(f"{context.get('message', 'an error')}: {error!r} {context.get('task', '')}".strip())
        trouble.__cause__ = error
        self.failures.append(trouble)

    async def shutdown_asyncgens(self) -> None:
        """Nothing to wait for: generators end with the objects that hold them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # ---- running

    def run_until_complete(self, future: Awaitable[T] | Generator[Any, None, T]) -> T:
        given = isinstance(future, asyncio.Future)
        task = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        try:
            self._run(None, task.done)
        except SimulationError:
            if not given:
                self.bury([task])
            raise
        if not task.done():
            raise SimulationError("the loop was stopped before its future was done")
        return task.result()

    def run_until(self, condition: Callable[[], bool], budget_s: float) -> None:
        """Until it holds, looked at whenever time is about to pass. Raises `OutOfTime` or `Deadlock`."""
        self._run(self.now_ns + round(budget_s * NS), condition)

    def advance(self, seconds: float) -> None:
        """Everything that is due on the way happens at its own time."""
        until_ns = self.now_ns + round(seconds * NS)
        self._run(until_ns, None)
        self.now_ns = max(self.now_ns, until_ns)

    def run_forever(self) -> None:
        """Until `stop`, or until nothing is left to do."""
        self._run(None, None)

    def _run(self, until_ns: int | None, condition: Callable[[], bool] | None) -> None:
        if self._running:
            raise SimulationError("this loop runs already: inside the simulation, await asyncio.sleep to let time pass")
        if self._closed:
            raise SimulationError("this loop is closed")
        self._running, self._stopping = True, False
        collected = gc.isenabled()
        gc.disable()  # a collection would run finalizers at a moment that no seed decides
        outer = events._get_running_loop()  # a test that is itself asynchronous
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._instant()
                if condition is not None and condition():
                    return
                if not self._jump(until_ns, condition is not None):
                    return
        finally:
            events._set_running_loop(outer)
            self._running = False
            if collected:
                gc.enable()

    def _instant(self) -> None:
        """All that can happen without time passing. Timers that are due join at the end, as they do in asyncio."""
        ready, timers, now_ns = self._ready, self._timers, self.now_ns
        first = self.steps
        while True:
            while timers and timers[0][0] <= now_ns:
                ready.append(heappop(timers)[3])
            if not ready or self._stopping:
                return
            self._turn(len(ready))
            if self.steps - first > STEPS_PER_INSTANT_MAX:
                spins = f"{STEPS_PER_INSTANT_MAX} callbacks at one instant: a callback loops without waiting"
                raise SimulationError(f"{spins}\n{self.waiting()}")

    def _turn(self, count: int) -> None:
        ready, get = self._ready, PROCESS
        ran = 0
        try:
            for _ in range(count):
                call = ready.popleft()
                if call._cancelled:
                    continue
                context = call._context
                process = context.get(get)
                if process is not None and (process.dead or process.held is not None):
                    if process.held is not None:
                        process.held.append(call)
                    continue
                ran += 1
                context.run(call._callback, *call._args)
        except (KeyboardInterrupt, SystemExit, SimulationError):
            raise
        except BaseException as error:
            raise Unhandled(f"an exception in a callback of {process.name if process else 'the world'}") from error
        finally:
            self.steps += ran
        if self.failures:
            self.check()

    def _jump(self, until_ns: int | None, awaited: bool) -> bool:
        """Jump to the next timer; return False if the given time ends before it."""
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heappop(timers)
        if not timers:
            if awaited:
                raise Deadlock(f"nothing is ready and no timer is set\n{self.waiting()}")
            return False
        due_ns = timers[0][0]
        if until_ns is not None and due_ns > until_ns:
            if awaited:
                self.now_ns = until_ns
                raise OutOfTime(f"it did not happen in time\n{self.waiting()}")
            return False
        self.now_ns = due_ns
        return True

    # ---- processes

    def context_of(self, process: Process) -> Context:
        context = copy_context()
        context.run(PROCESS.set, process)
        return context

    def kill(self, process: Process) -> None:
        """None of its callbacks runs again; not even its `finally` blocks go on."""
        self.bury([task for task in process.tasks if not task.done()])  # first: what is held may be all that keeps them
        process.dead, process.held = True, None

    def hold(self, process: Process) -> None:
        if process.runs:
            process.held = []

    def go_on(self, process: Process) -> None:
        if process.held is not None:
            self._ready.extend(process.held)
            process.held = None

    def bury(self, tasks: Any) -> None:
        """Kept until `close`: a coroutine that is collected would run its `finally` blocks then."""
        for task in tasks:
            task._log_destroy_pending = False
            self._graves.append(task)

    # ---- the end

    def waiting(self) -> str:
        """Tasks that wait, by name, and where."""
        buried = set(self._graves)
        tasks = sorted(
            (task for task in asyncio.all_tasks(self) if task not in buried), key=lambda task: task.get_name()
        )
        return "\n".join(
            [f"at {self.time():.6f} s, {len(tasks)} tasks wait:", *(f"  {_where(task)}" for task in tasks)]
        )

    def check(self) -> None:
        """Raise the first unhandled failure."""
        if self.failures:
            first, self.failures = self.failures[0], []
            raise first

    def settle(self) -> None:
        """Find also what only the collector finds: results that were never retrieved. Once, at the end of a run."""
        gc.collect()
        self.check()

    def close(self) -> None:
        """End what is left, without letting any of it go on."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self.bury(task for task in asyncio.all_tasks(self) if not task.done())
        for task in self._graves:
            _end(task)
        self._graves.clear()
        self.failures.clear()


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    line = f"{frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else "nowhere"
    return f"{task.get_name()} in {line}"


def _end(task: asyncio.Task[Any]) -> None:
    coro: Any = task.get_coro()
    with suppress(BaseException):  # the complaint of a dead process is dropped
        coro.close()


_MISSING = (
    "run_in_executor", "set_default_executor", "getaddrinfo", "getnameinfo", "create_connection", "create_server",
    "start_tls", "create_unix_connection", "create_unix_server", "connect_accepted_socket", "create_datagram_endpoint",
    "sendfile", "connect_read_pipe", "connect_write_pipe", "subprocess_shell", "subprocess_exec", "add_reader",
    "remove_reader", "add_writer", "remove_writer", "sock_recv", "sock_recv_into", "sock_recvfrom",
    "sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_connect", "sock_accept", "sock_sendfile",
    "add_signal_handler", "remove_signal_handler",
)  # fmt: skip


def _missing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *_: Any, **__: Any) -> NoReturn:
        error = NotSimulated(f"loop.{name} is not simulated: go through a port")
        self.failures.append(error)  # also where the caller swallows it
        raise error

    return refuse


for _name in _MISSING:
    setattr(VirtualLoop, _name, _missing(_name))
