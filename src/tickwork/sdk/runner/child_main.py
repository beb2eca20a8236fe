"""The process that runs user code: `python -m tickwork.sdk.runner.child_main MODE WIDTH APP FOLDER QUEUE STREAM MARKS`.

It takes a packet from the socket it shares with its siblings only when it is free to run it, writes down which attempt
it runs before the first line of user code, and how it ended before it begins another. The ends of short attempts that
came in one packet are sent together. The pool starts it; the three numbers are file descriptors. MODE is `process` (one
at a time), `thread` or `async` (WIDTH at a time).
"""

import asyncio
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tickwork.core.base.errors import TickworkError
from tickwork.core.base.values import Ref
from tickwork.protocol.child_messages import (
    IN_FILE,
    PARKED_VARIABLE,
    READ_VARIABLE,
    AppLoaded,
    ChildMessage,
    FrameDecoder,
    LargeAttemptJob,
    LoadFailed,
    OutputLine,
    OutputLines,
    PacketDone,
    Retired,
    SpilledResult,
    WorkDirCreated,
    opened,
    spec_decoder,
)
from tickwork.protocol.child_shared_memory import AttemptSlot, ChildSharedMemory, marks_bytes
from tickwork.protocol.log_lines import PIECE, sendable
from tickwork.protocol.worker_messages import (
    VALUE_BYTES_MAX,
    AttemptJob,
    Checkpointed,
    Continued,
    NodeSpec,
    Progressed,
    StepsRecorded,
    Suspended,
)
from tickwork.sdk.authoring.app_loader import App, Handler, load_app
from tickwork.sdk.context import _current, running
from tickwork.sdk.durable.driver import seed_of
from tickwork.sdk.durable.parked import ParkedFunctions
from tickwork.sdk.runner.agent_connection import (
    PACKET_BYTES,
    ControlReader,
    FrameSender,
    Key,
    OutputPipes,
    ResultBuffer,
)
from tickwork.sdk.runner.attempt import (
    AttemptContext,
    Cancelled,
    answered,
    arguments,
    checkpoint_of,
    explained,
    failed,
    items_in,
    own_folder,
    put_down,
)
from tickwork.sdk.runner.function_attempt import FunctionAttempt, FunctionOutcome, FunctionResult, history_of
from tickwork.sdk.runner.output_capture import Output

if TYPE_CHECKING:
    from tickwork.sdk.client.async_client import AsyncClient
    from tickwork.sdk.client.client import Client

PARKED_BYTES_MAX = 64 * 1024 * 1024  # of suspended functions that stay in memory
KNOWN_MAX = 1_000  # heads of packets whose meaning is remembered
PROGRESS_NS = 200_000_000  # at most five a second for each attempt
WAIT_NS = 1_000_000  # an end waits no longer for others before the next attempt begins
KnownSpecs = dict[int, tuple[NodeSpec, Handler | None]]  # by the number of the spec
become = _current.set  # each thread runs one attempt after the other, so nothing needs to be restored


def settling(future: "asyncio.Future[None]") -> Callable[[], None]:
    """Return what settles this future, from any thread."""
    thread = threading.get_ident()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def from_any() -> None:
        if threading.get_ident() == thread:
            settle()
        else:
            future.get_loop().call_soon_threadsafe(settle)

    return from_any


class AttemptChannel:
    """The way of one attempt to the agent."""

    __slots__ = ("_host", "_key", "_reported_ns")

    def __init__(self, host: "ChildRunner", key: Key) -> None:
        self._host, self._key, self._reported_ns = host, key, 0

    def save(self, value: bytes) -> None:
        done = threading.Event()
        self._host.orders.expect(self._key, done.set)  # before it is sent: the answer may be quick
        self._send(value)
        self._host.wait(done)

    async def save_async(self, value: bytes) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host.orders.expect(self._key, settling(kept))
        self._send(value)
        await kept

    def _send(self, value: bytes) -> None:
        self._host.output.flush()
        if len(value) <= VALUE_BYTES_MAX:
            self._host.voice.say(Checkpointed(*self._key, value))
            return
        path = put_down(value, self._host.folder, f"{self._key[0]}-{self._key[1]}", "checkpoint")
        self._host.voice.say(SpilledResult(*self._key, path, len(value), items_in(value), True))

    async def record(self, report: StepsRecorded) -> None:
        """Return when the steps of a durable function are durable."""
        recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._host.orders.expect(self._key, settling(recorded))
        self._host.output.flush()
        self._host.voice.say(report)
        await recorded

    async def put(self, data: bytes) -> Ref:
        """A file, which the agent makes an artifact of."""
        path = put_down(data, self._host.folder, f"{self._key[0]}-{self._key[1]}", "value")
        return Ref(path, len(data), items_in(data), IN_FILE)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def folder(self) -> Path:
        self._host.voice.say(WorkDirCreated(*self._key))
        return own_folder(self._host.folder, f"{self._key[0]}-{self._key[1]}")

    def progress(self, done: int, total: int, message: str) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._reported_ns >= PROGRESS_NS or done == total:
            self._reported_ns = now_ns
            self._host.voice.say(Progressed(*self._key, done, total, sendable(message[:1_000])))

    def stream(self, number: int, text: str) -> None:
        self._host.voice.say(OutputLines((OutputLine(*self._key, PIECE, text, time.time_ns() // 1_000_000, number),)))

    def client(self) -> "Client":
        import httpx2  # here, because few tasks read

        from tickwork.sdk.client.reading import reading_client

        return reading_client(httpx2.HTTPTransport(uds=os.environ[READ_VARIABLE]))

    def async_client(self) -> "AsyncClient":
        import httpx2

        from tickwork.sdk.client.reading import async_reading_client

        return async_reading_client(httpx2.AsyncHTTPTransport(uds=os.environ[READ_VARIABLE]))


class ChildRunner:
    def __init__(
        self, app: App, *, queue: socket.socket, stream: socket.socket, marks: ChildSharedMemory, folder: str
    ) -> None:
        self.app, self.queue, self.marks, self.folder = app, queue, marks, folder
        self.voice, self.orders = FrameSender(stream), ControlReader(stream)
        self.output = Output(self.voice.say)
        self.wait: Callable[[threading.Event], object] = self.orders.wait
        self._known: dict[bytes, KnownSpecs] = {}
        self._forked = False
        self._retired = threading.Event()
        self._beside = False  # attempts run in threads, beside each other
        self._contexts: dict[Key, AttemptContext] = {}  # of attempts in threads
        self._prints: OutputPipes | None = None  # where one attempt runs at a time
        os.register_at_fork(after_in_child=self._on_fork)

    def _on_fork(self) -> None:
        self._forked = True

    def channel(self, key: Key) -> AttemptChannel:
        return AttemptChannel(self, key)

    # ---- reading

    def known(self, heads: bytes) -> KnownSpecs:
        """The specs of a packet, with their functions."""
        return self._known.get(heads) or self._read(heads)

    def _read(self, heads: bytes) -> KnownSpecs:
        """The same bytes come again and again."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        specs = map(spec_decoder.decode, FrameDecoder().feed(heads))
        known = self._known[heads] = {spec.id: (spec, self.app.handlers.get(spec.handler)) for spec in specs}
        return known

    # ---- running

    def run(
        self, work: AttemptJob, job: LargeAttemptJob | None, spec: NodeSpec, handler: Handler | None
    ) -> ChildMessage:
        """A function from beginning to end, in this thread."""
        started_ms = time.time_ns() // 1_000_000
        try:
            if handler is None:
                raise self.missing(spec.handler)
            here = AttemptContext((work, job, spec, self.channel))
            become(here)
            if self._beside:
                self._contexts[work.task, work.attempt] = here
            try:
                value = handler.call(work.args if job is None else arguments(work, job), here)
            finally:
                become(None)
            return answered(work.task, work.attempt, value, handler, here, folder=self.folder, started_ms=started_ms)
        except BaseException as error:
            return failed(work.task, work.attempt, error, started_ms=started_ms)

    def ended(self, key: Key, started_ns: int = 0) -> None:
        """Before its end is said."""
        if self._forked:
            os._exit(0)  # user code has forked and come back here: only one of the two goes on
        if self.output.used:
            self.output.ended(key)
        if self._prints is not None:
            self._prints.until_read(0 if self.output.by_bytes else started_ns)

    def missing(self, handler: str) -> TickworkError:
        from tickwork.core.base.errors import Refused

        known = ", ".join(sorted(self.app.handlers)[:20]) or "none"
        return Refused("no_handler", f"this application has no handler {handler!r}; it has {known}")

    # ---- the three ways

    def serve_process(self) -> None:
        signal.signal(signal.SIGTERM, self._called_off)
        buffer = bytearray(PACKET_BYTES)
        view = memoryview(buffer)
        slot, ends = self.marks.slot(0), ResultBuffer(self.marks, self.voice)
        self._prints = OutputPipes()
        while not self._retired.is_set() and (size := self.queue.recv_into(buffer)):
            number, heads, works, job = opened(bytes(view[:size]))
            slot.take(number)
            known = self.known(heads)
            if len(works) == 1:
                self._serve_one(slot, number, works[0], job, known)
            else:
                self._serve_many(slot, number, works, known, ends)

    def _called_off(self, number: int, _frame: object) -> None:
        """The first time the attempt may see it by itself, the second time an error is raised in it. Where no attempt
        runs, and in what user code has forked, it is the signal that it always was."""
        here = None if self._forked else _current.get()
        if here is None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not here.cancelled:
            self._retired.set()  # it is killed when this attempt has ended: nothing else may begin in it
            here.cancel()
        else:
            raise Cancelled("this attempt was cancelled")

    def _serve_one(
        self, slot: AttemptSlot, number: int, work: AttemptJob, job: LargeAttemptJob | None, known: KnownSpecs
    ) -> None:
        started_ns = slot.begin(work.task, work.attempt)
        if not started_ns:
            self.voice.say(PacketDone(number, 0))
            return
        end = self.run(work, job, *known[work.spec])
        self.ended((work.task, work.attempt), started_ns)
        self.voice.say(end)
        slot.end()

    def _serve_many(
        self, slot: AttemptSlot, number: int, works: list[AttemptJob], known: KnownSpecs, ends: ResultBuffer
    ) -> None:
        run, ended = self.run, self.ended
        ran, took_ns = 0, -time.monotonic_ns()
        for work in works:
            started_ns = slot.begin(work.task, work.attempt)
            if not started_ns:
                break
            if ends.since_ns and started_ns - ends.since_ns > WAIT_NS:
                ends.say()
            end = run(work, None, *known[work.spec])
            ended((work.task, work.attempt), started_ns)
            ends.keep(end, started_ns)
            slot.end()
            ran += 1
        took_ns += time.monotonic_ns()
        ends.keep(PacketDone(number, ran, took_ns // 1_000), 0)
        ends.say()

    def serve_threads(self, width: int) -> None:
        self.wait = threading.Event.wait  # another thread reads
        self._beside, self.orders.cancel, self.orders.retire = True, self._call_off, self._retire
        threading.Thread(target=self._read_orders, name="tickwork-orders", daemon=True).start()
        for number in range(width):
            slot = self.marks.slot(number)
            threading.Thread(target=self._serve_thread, args=(slot,), name=f"tickwork-{number}").start()

    def _serve_thread(self, slot: AttemptSlot) -> None:
        buffer = bytearray(PACKET_BYTES)
        view = memoryview(buffer)
        while not self._retired.is_set() and (size := self.queue.recv_into(buffer)):
            number, heads, (work,), job = opened(bytes(view[:size]))
            slot.take(number)
            if self._retired.is_set():
                self.voice.say(PacketDone(number, 0))  # another process has it
                return
            self._serve_one(slot, number, work, job, self.known(heads))
            self._contexts.pop((work.task, work.attempt), None)

    def _call_off(self, key: Key) -> None:
        """A thread cannot be ended; its attempt sees that it was called off."""
        here = self._contexts.get(key)
        if here is not None:
            here.cancel()

    def _retire(self) -> None:
        self._retired.set()

    def _read_orders(self) -> None:
        while True:
            self.orders.read()

    async def serve_async(self, width: int) -> None:
        await _Loop(self, width).serve()


class _Loop:
    """Many coroutines at once. A job is taken only while a slot is free."""

    def __init__(self, host: ChildRunner, width: int) -> None:
        self._host = host
        self._free = [host.marks.slot(number) for number in reversed(range(width))]
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._contexts: dict[Key, AttemptContext] = {}
        parked = int(os.environ.get(PARKED_VARIABLE) or 0)
        self._parked = ParkedFunctions(count_max=parked, bytes_max=PARKED_BYTES_MAX)
        self._over = asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._listening = self._retired = False

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        host = self._host
        host.orders.cancel = lambda key: self._here(partial(self._cancel, key))
        host.orders.retire = lambda: self._here(self._retire)
        host.wait = self._wait
        loop.add_reader(host.voice.stream.fileno(), self._ordered)
        self._listen()
        await self._over.wait()
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _listen(self) -> None:
        loop, fd = asyncio.get_running_loop(), self._host.queue.fileno()
        should_listen = bool(self._free) and not self._over.is_set() and not self._retired
        if should_listen and not self._listening:
            loop.add_reader(fd, self._take)
        elif self._listening and not should_listen:
            loop.remove_reader(fd)
        self._listening = should_listen

    def _take(self) -> None:
        while self._free and not self._retired:
            try:
                packet = self._host.queue.recv(PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not packet:
                self._over.set()
                break
            slot = self._free.pop()
            number, heads, (work,), job = opened(packet)
            slot.take(number)
            slot.begin(work.task, work.attempt)
            running = self._run(slot, work, job, *self._host.known(heads)[work.spec])
            self._tasks[work.task, work.attempt] = asyncio.get_running_loop().create_task(running)
        self._listen()

    async def _run(
        self, slot: AttemptSlot, work: AttemptJob, job: LargeAttemptJob | None, spec: NodeSpec, handler: Handler | None
    ) -> None:
        host, key = self._host, (work.task, work.attempt)
        saying: ChildMessage
        started_ms = time.time_ns() // 1_000_000
        try:
            if handler is None:
                raise host.missing(spec.handler)
            here = AttemptContext((work, job, spec, host.channel))
            self._contexts[key] = here
            with running(here):
                if handler.durable:
                    outcome = await self._function(work, job, spec, handler, here)
                    value = outcome.value if isinstance(outcome, FunctionResult) else None
                else:
                    outcome, value = None, await handler.call(arguments(work, job), here)
            if isinstance(outcome, Suspended | Continued):
                saying = outcome
            else:
                saying = answered(*key, value, handler, here, folder=host.folder, started_ms=started_ms)
        except BaseException as error:
            saying = failed(*key, error, started_ms=started_ms)
        host.ended(key)
        host.voice.say(saying)
        slot.end()
        del self._tasks[key]
        self._contexts.pop(key, None)
        self._free.append(slot)
        if not self._listening:
            self._listen()

    async def _function(
        self, work: AttemptJob, job: LargeAttemptJob | None, spec: NodeSpec, handler: Handler, here: AttemptContext
    ) -> FunctionOutcome:
        files = dict(job.fetched) if job is not None else {}

        async def fetched(digest: str) -> bytes:
            return Path(files[digest]).read_bytes()

        checkpoint = checkpoint_of(work, job)
        history = await history_of(checkpoint, fetched)
        whole = msgspec.structs.replace(work, args=arguments(work, job))
        channel, parked, name = self._host.channel((work.task, work.attempt)), self._parked, seed_of(work)
        attempt = FunctionAttempt(
            whole, handler, here, channel, history, budget=spec.budget, parked=parked.take(name, history)
        )
        size = len(checkpoint or b"") + sum(Path(file).stat().st_size for file in files.values())
        return await attempt.run(park=partial(parked.keep, name, history_bytes=size))

    def _here(self, do: Callable[[], None]) -> None:
        """Do it in the thread of the loop: another one may have read the order."""
        if threading.get_ident() == self._thread:
            do()
        else:
            self._loop.call_soon_threadsafe(do)

    def _wait(self, done: threading.Event) -> None:
        if threading.get_ident() == self._thread:
            self._host.orders.wait(done)  # nothing else runs here meanwhile
        else:
            self._host.orders.wait_beside_loop(done)

    def _cancel(self, key: Key) -> None:
        task, here = self._tasks.get(key), self._contexts.get(key)
        if here is not None:
            here.cancel()
        if task is not None:
            task.cancel()

    def _retire(self) -> None:
        """One coroutine does not end; the others end in peace, and whatever comes is another process's."""
        self._retired = True
        self._listen()
        self._host.voice.say(Retired())

    def _ordered(self) -> None:
        self._host.orders.read_pending()


def ready(app: App) -> AppLoaded:
    catalog = app.catalog()
    modes = tuple((name, mode_of(handler)) for name, handler in sorted(app.handlers.items()))
    return AppLoaded(
        os.getpid(), modes, catalog.documents, catalog.schedules, catalog.application, catalog.version,
        catalog.mailboxes,
    )  # fmt: skip


def mode_of(handler: Handler) -> str:
    return "async" if handler.is_async else handler.executor


def no_terminal(*_args: object, **_kwargs: object) -> None:
    """What `breakpoint()` does in a task."""
    message = "breakpoint() needs a terminal, and the process of a task has none: call the function of the task in a"
    more = "test or script, where it works, or let a remote debugger through with --pass-env PYTHONBREAKPOINT"
    raise RuntimeError(f"{message} {more}")


def main(mode: str, width: str, target: str, folder: str, *fds: str) -> int:
    queue, stream = (socket.socket(fileno=int(fd)) for fd in fds[:2])
    memory = mmap.mmap(int(fds[2]), marks_bytes(int(width)))
    for fd in fds:
        os.set_inheritable(int(fd), False)
    for channel in (queue, stream):
        channel.setblocking(True)
    if "PYTHONBREAKPOINT" not in os.environ:  # a debugger that needs no terminal is for the user to choose
        sys.breakpointhook = no_terminal
    try:
        app = load_app(target)
        hello = ready(app)
    except BaseException as error:
        FrameSender(stream).say(LoadFailed(type(error).__name__, explained(error)))
        return 1
    marks = ChildSharedMemory(memoryview(memory), int(width))
    host = ChildRunner(app, queue=queue, stream=stream, marks=marks, folder=folder)
    host.output.capture()
    host.voice.say(hello)
    if mode == "process":
        host.serve_process()
    elif mode == "thread":
        host.serve_threads(int(width))
    else:
        asyncio.run(host.serve_async(int(width)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
