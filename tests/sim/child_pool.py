"""Attempts that share a process, as tasks in threads do: the real `ProcessPool` over simulated children in virtual
time.

A child has as many threads as the worker has slots, and takes packets from the pool as a real one does. A signal ends
it with everything that runs in it. A thread sees that it was called off only where its code looks; one that the fault
`neighbours` strikes hangs beyond its time limit, and half of those never look.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec

from sim.executor import Cut, SimExecutor
from sim.hosts import MS
from tickwork.executors.child_process import ChildProcess, ChildSettings, Key
from tickwork.executors.packet_queue import PacketQueue, QueuedAttempt
from tickwork.executors.process_pool import ProcessPool
from tickwork.ports.executor import ReportSink
from tickwork.protocol.child_messages import (
    AppLoaded,
    Cancel,
    CheckpointDurable,
    ChildMessage,
    ControlMessage,
    FrameDecoder,
    PacketDone,
    Retire,
    SpilledResult,
    head,
    opened,
    spec_decoder,
)
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Catalog,
    Checkpointed,
    Continued,
    Failed,
    HandedBack,
    NodeSpec,
    Report,
    StepsRecorded,
    Succeeded,
    Suspended,
)

SWEEP_S = 0.1
LIMIT_MS = (500, 8_000)  # what a struck attempt is allowed
HANG_MS = (10_000, 60_000)  # and how long it hangs: longer than the limit and the grace after it
LONG_MS = (130_000, 180_000)  # some hang beyond the limit that the server counts as well, and another attempt begins
LOAD_MS = (50, 500)  # until a child takes packets
SIGTERM, SIGKILL = -15, -9


class Pipe:
    """One end of the socket between a pool and its children. Packets keep their order and their borders."""

    def __init__(self, packets: deque[bytes], sent: Callable[[], None]) -> None:
        self._packets, self._sent = packets, sent

    def send(self, data: bytes) -> None:
        self._packets.append(data)
        self._sent()

    def recv(self, _size: int, _flags: int) -> bytes:
        if not self._packets:
            raise BlockingIOError
        return self._packets.popleft()

    def close(self) -> None: ...


class SharedChild(ChildProcess):
    """A process with threads. Of a real child it has what a pool sees."""

    def __init__(self, pool: "SharedPool", mark: str) -> None:
        self.mode, self.width, self.mark = pool.mode, pool.width, mark
        self.pool, self.executor = pool, pool.executor
        self.ready = self.doomed = self.retired = self.heard_retire = self.noisy = False
        self.kill_at_ns = self.insist_at_ns = self.held_ns = 0
        self.printers, self.prints = {}, {}
        self.last = self.unfit = None
        self.frames = FrameDecoder()
        self.pid = pool.executor.next_pid()
        self.pidfd = self.pid  # its end is reported
        self.marks = cast("Any", self)
        self.exit_code: int | None = None
        self._loaded = False
        self._said: list[ChildMessage] = []
        self._packets = [0] * self.width  # the last one of each thread
        self._threads: list[tuple[Key, int, asyncio.Task[None]] | None] = [None] * self.width
        self._free = list(range(self.width))  # threads that wait for a packet
        self._loop = pool.executor.world.loop
        self._loop.call_later(pool.executor.chance.between(*LOAD_MS) / 1000, self._load)

    def _load(self) -> None:
        if self.exit_code is None:
            self._loaded = True
            self.say(AppLoaded(self.pid))
            self.take()

    # ---- what it runs

    def take(self) -> None:
        """Each thread that is free takes a packet."""
        while self._loaded and self.exit_code is None and self._free:
            try:
                data = self.pool.pipe.recv(0, 0)
            except BlockingIOError:
                return
            slot = self._free.pop(0)
            number, heads, (work,), _ = opened(data)
            self._packets[slot] = number
            if self.retired:  # this thread waited when that was ordered, and ends now
                self.say(PacketDone(number, 0))
                continue
            spec = next(iter(map(spec_decoder.decode, FrameDecoder().feed(heads))))
            key = (work.task, work.attempt)
            self.executor.begins(key)
            running = self._loop.create_task(self._thread(slot, work, spec), name=f"attempt {key} in {self.pid}")
            self._threads[slot] = (key, self._loop.now_ns, running)

    async def _thread(self, slot: int, work: AttemptJob, spec: NodeSpec) -> None:
        await self.executor.attempt(work, spec)
        if self._threads[slot] is not None:  # it never reports: its thread hangs
            await self._loop.create_future()

    def ends(self, key: Key, saying: ChildMessage) -> None:
        for slot, one in enumerate(self._threads):
            if one is not None and one[0] == key:
                self._threads[slot] = None
                self.say(saying)
                if not self.retired:
                    self._free.append(slot)
                    self._loop.call_soon(self.take)

    def say(self, saying: ChildMessage) -> None:
        self._said.append(saying)
        self._loop.call_soon(self.pool.readable, self)

    # ---- what a pool sees

    def sayings(self) -> list[ChildMessage]:
        said, self._said = self._said, []
        return said

    def unsaid(self) -> list[ChildMessage]:
        return []

    def marked(self) -> list[tuple[Key, int]]:
        return [(one[0], one[1]) for one in self._threads if one is not None]

    def packets(self) -> list[int]:
        return self._packets

    def at_rest(self) -> bool:
        return True

    def order(self, order: ControlMessage) -> bool:
        if self.exit_code is not None:
            return False
        match order:
            case CheckpointDurable():
                self.executor.kept((order.task, order.attempt))
            case Cancel():
                self._call_off((order.task, order.attempt))
            case Retire():
                pass  # `retired` is set by the pool: `take` looks at it
        return True

    def _call_off(self, key: Key) -> None:
        """Where its code looks, it ends."""
        for one in self._threads:
            if one is not None and one[0] == key and self.executor.looks(key):
                one[2].cancel()
                self.ends(key, Failed(*key, "Cancelled", "this attempt was cancelled"))

    def ask_to_end(self, *, grace_ns: int) -> None:
        """A process with threads has no handler for the signal."""
        if not self.kill_at_ns:
            self.doomed, self.kill_at_ns = True, self._loop.now_ns + grace_ns
            self._die(SIGTERM)

    def insist(self, now_ns: int) -> None: ...

    def kill(self) -> None:
        self.doomed = True
        self._die(SIGKILL)

    def _die(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            self.executor.world.note(self.executor.host.name, "child ends", f"{self.pid} with {code}")
            for one in self._threads:
                if one is not None:
                    one[2].cancel()
            self._loop.call_soon(self.pool.exited, self)

    def exited(self) -> bool:
        return self.exit_code is not None

    def bury(self) -> int:
        assert self.exit_code is not None
        return self.exit_code


class SharedPool(ProcessPool):
    def __init__(self, executor: "SharedExecutor", settings: ChildSettings, *, width: int) -> None:
        self.executor = executor
        super().__init__("thread", executor, settings, processes=1, width=width, mark="sim")

    def _outbox(self) -> PacketQueue:
        packets: deque[bytes] = deque()
        self.pipe = Pipe(packets, self._sent)
        ends = cast("Any", (self.pipe, self.pipe))
        return PacketQueue(children=self.processes, width=self.width, pair=ends)

    def _sent(self) -> None:
        self.executor.world.loop.call_soon(self._take)

    def _take(self) -> None:
        for child in self.children:
            cast("SharedChild", child).take()

    def _made(self, mark: str) -> ChildProcess:
        return SharedChild(self, mark)

    def _listen(self, child: ChildProcess) -> None:
        """It calls by itself."""

    def _listen_no_more(self, child: ChildProcess) -> None: ...

    def readable(self, child: ChildProcess) -> None:
        if child in self.children:
            self._readable(child)

    def exited(self, child: ChildProcess) -> None:
        self._on_exit(child)


class SharedExecutor(SimExecutor):
    """`ports.executor.Executor`, and the owner of its pool."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        settings = ChildSettings(
            "sim", folder="", mono_ns=lambda: self.world.loop.now_ns, wall_ns=lambda: self.host.clock.wall_ms() * MS
        )
        self.pool = SharedPool(self, settings, width=self._slots)
        self._pids = 0
        self._struck: dict[Key, tuple[int, bool]] = {}  # how long they hang, and whether they look meanwhile
        self._called_off: set[Key] = set()
        self._sweeping = self._closing = False

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    async def start(self, sink: ReportSink) -> Catalog:
        self.pool.start()
        return await super().start(sink)

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        key = (work.task, work.attempt)
        if self._strikes("neighbours"):
            short = self.chance.happens(0.9)
            hang_ms = self.chance.between(*(HANG_MS if short else LONG_MS))
            self._struck[key] = (hang_ms, self.chance.happens(0.5))
            limit_ms = self.chance.between(*LIMIT_MS) if short else LONG_MS[1]
            spec = msgspec.structs.replace(spec, running_ms=limit_ms)
        self.pool.submit(QueuedAttempt(key, work, spec, head(spec), len(work.args)))
        self._sweep_soon()

    def saved(self, task: int, attempt: int) -> None:
        self.pool.kept((task, attempt))

    def stop(self, task: int, attempt: int) -> None:
        if (task, attempt) in self.pool:
            self._called_off.add((task, attempt))
            self.pool.stop((task, attempt))

    def recall(self) -> tuple[Key, ...]:
        return tuple(self.pool.recall())

    async def close(self, *, grace_s: float) -> None:
        self._closing = True
        await self.pool.close(grace_s=grace_s)

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self.world.loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        self.pool.sweep(self.world.loop.now_ns)
        if not self.pool.idle or self.pool.ending:
            self._sweep_soon()

    # ---- what threads do

    def begins(self, key: Key) -> None:
        for other in [one for one in self.running() if one[0] == key[0]]:
            at = self.world.note(self.host.name, "begins beside another attempt", f"task {key[0]}, attempt {key[1]}")
            self.ledger.overlaps.append(Cut(*key, self.host.name, f"while attempt {other[1]} ran", at))

    def running(self) -> dict[Key, SharedChild]:
        children = [cast("SharedChild", child) for child in self.pool.children if not child.exited()]
        return {key: child for child in children for key, _ in child.marked()}

    async def attempt(self, work: AttemptJob, spec: NodeSpec) -> None:
        key = (work.task, work.attempt)
        if key in self._struck:
            await asyncio.sleep(self._struck[key][0] / 1000)
        await self._attempt(work, spec)

    def looks(self, key: Key) -> bool:
        """Most code ends by itself before anybody would notice that it did not look."""
        return key in self._struck and self._struck[key][1]

    def kept(self, key: Key) -> None:
        super().saved(*key)

    def _end(self, work: AttemptJob, report: Report) -> None:
        key = (work.task, work.attempt)
        self.running()[key].ends(key, cast("ChildMessage", report))

    def _report(self, report: Report) -> None:
        """What an attempt says before its end goes through its child; what it says again goes past it."""
        child = self.running().get((report.task, report.attempt))
        if child is None:
            super()._report(report)
        elif isinstance(report, Checkpointed):
            child.say(report)

    # ---- what the pool says

    def ended(self, report: Succeeded | Failed | HandedBack | Suspended | Continued) -> None:
        key = (report.task, report.attempt)
        died = isinstance(report, Failed) and report.error == "ProcessDied"
        cut = died or (isinstance(report, HandedBack) and (report.begun or key in self.running()))
        if cut and not self._closing and key not in self._called_off:
            how = "ProcessDied" if died else "handed back"
            at = self.world.note(self.host.name, "is cut", f"task {report.task}, attempt {report.attempt}: {how}")
            self.ledger.cuts.append(Cut(*key, self.host.name, how, at))
        self._forget(key)
        super()._report(report)

    def _forget(self, key: Key) -> None:
        self._struck.pop(key, None)
        self._saving.pop(key, None)

    def done(self, reports: list[Succeeded]) -> None:
        for report in reports:
            self.ended(report)

    def in_progress(self, report: Report) -> None:
        super()._report(report)

    def saving(self, saved: Checkpointed | StepsRecorded) -> None:
        super()._report(saved)

    def spilled(self, spilled: SpilledResult) -> None:
        raise AssertionError(f"no value of a simulated attempt is a file: {spilled}")

    def printed(self, key: Key, stream: str, text: str, at_ms: int, number: int = -1) -> None: ...

    def folder(self, key: Key) -> None: ...

    def loaded(self, mode: str, ready: AppLoaded) -> None: ...

    def unfit(self, mode: str, error: str, message: str) -> None: ...
