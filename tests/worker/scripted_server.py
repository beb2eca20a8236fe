"""A server that a test plays: it records calls and answers as it is told."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from tickwork.core.base.errors import Unavailable
from tickwork.ports.artifacts import digest_of
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Catalog,
    Checkpointed,
    Failed,
    HandedBack,
    LogPiece,
    NodeSpec,
    Reading,
    ReadRequest,
    Reply,
    Succeeded,
    call_decoder,
    encoder,
)

TASK = NodeSpec(1, "task", "flow", "node", "sha256:0", "noop")
ENDS = (Succeeded, Failed, HandedBack)


class Ids:
    def new(self) -> str:
        return "session-1"

    def token(self) -> str:
        return "token"


class LoopClock:
    """The loop's time, so that it also runs where time is simulated."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.mono_ms()

    def mono_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Server:
    """Gives out what `offer` was given as far as credit goes, takes reports once, and waits like a real one."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ends: dict[tuple[int, int], list] = {}
        self.saves: list[Checkpointed] = []
        self.others: list = []
        self.away = False
        self.lose_replies = 0  # calls that are handled, but whose reply is lost
        self.forgotten = False  # as after a restart
        self.refused = ""
        self.artifacts: dict[str, bytes] = {}
        self.logs: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
        self.catalog: Catalog | None = None
        self.goodbye = False
        self.specs: dict[int, NodeSpec] = {}
        self._told: set[int] = set()
        self._ready: list[AttemptJob] = []
        self.assigned: dict[tuple[int, int], AttemptJob] = {}
        self.stops: list[tuple[int, int]] = []
        self._answers: dict[int, Reply] = {}
        self._changed = asyncio.Event()
        self._newest = self._credit = 0

    # ---- what a test does

    def offer(self, works: Iterable[AttemptJob], spec: NodeSpec = TASK) -> None:
        self.specs[spec.id] = spec
        self._ready += works
        self._changed.set()

    def stop(self, *key: int) -> None:
        self.stops.append((key[0], key[1]))
        self.assigned.pop((key[0], key[1]), None)
        self._changed.set()

    async def until(self, holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.005)

    def text(self, *key: int) -> str:
        return b"".join(data for _, _, data in sorted(self.logs.get((key[0], key[1]), []))).decode()

    # ---- Link

    async def call(self, call: Call) -> Reply:
        call = call_decoder.decode(encoder.encode(call))
        await asyncio.sleep(0)
        self._check_away()
        self.calls.append(call)
        if call.seq in self._answers:
            return self._answers[call.seq]
        self._credit = call.credit
        if not call.reports or call.held is not None:  # beside reports, one that waits goes on waiting
            self._newest = max(self._newest, call.seq)
        self._changed.set()
        if self.refused:
            return Reply(call.seq, refused=self.refused)
        if self.forgotten and call.profile is None:
            return Reply(call.seq, resync=True)
        reply = await self._handle(call)
        self._answers[call.seq] = reply
        if self.lose_replies and (call.reports or reply.work):
            self.lose_replies -= 1
            raise Unavailable("the reply was lost", retry_after_ms=1)
        return reply

    async def _handle(self, call: Call) -> Reply:
        if call.profile is not None:
            self._told.clear()
            self.forgotten = False
        self._take(call)
        if call.held is not None:
            held = set(call.held)
            self._ready[:0] = [work for key, work in self.assigned.items() if key not in held]
            self.assigned = {key: work for key, work in self.assigned.items() if key in held}
        self.goodbye = self.goodbye or call.goodbye
        until = asyncio.get_running_loop().time() + (0 if call.reports else call.wait_ms / 1000)
        while True:
            reply = self._reply(call)
            left = until - asyncio.get_running_loop().time()
            if reply.work or reply.stop or left <= 0 or self._newest > call.seq:
                return reply
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
            self._check_away()

    def _check_away(self) -> None:
        if self.away:
            self._changed.set()
            raise Unavailable("the server is away", retry_after_ms=1)

    def _take(self, call: Call) -> None:
        for report in call.reports:
            key = (report.task, report.attempt)
            if isinstance(report, ENDS):
                self.ends.setdefault(key, []).append(report)
                self.assigned.pop(key, None)
            elif isinstance(report, Checkpointed):
                self.saves.append(report)
            else:
                self.others.append(report)

    def _reply(self, call: Call) -> Reply:
        room = max(0, self._credit - len(self.assigned))
        if call.goodbye or call.seq < self._newest:
            room = 0
        works, self._ready = self._ready[:room], self._ready[room:]
        new = dict.fromkeys(work.spec for work in works if work.spec not in self._told)
        self._told.update(new)
        self.assigned.update({(work.task, work.attempt): work for work in works})
        stops, self.stops = tuple(self.stops), []
        return Reply(call.seq, tuple(works), tuple(self.specs[one] for one in new), stops)

    async def fetch(self, digest: str) -> bytes:
        self._check_away()
        return self.artifacts[digest]

    async def store(self, data: bytes) -> str:
        self._check_away()
        digest = digest_of(data)
        self.artifacts[digest] = data
        return digest

    async def log(self, piece: LogPiece) -> None:
        self._check_away()
        self.logs.setdefault((piece.task, piece.attempt), []).append((piece.chunk, piece.first, piece.lines))

    async def read(self, request: ReadRequest) -> Reading:
        raise AssertionError(request)

    async def publish(self, catalog: Catalog) -> str:
        self._check_away()
        self.catalog = catalog
        return catalog.version


def work(task: int, attempt: int = 1, *, spec: NodeSpec = TASK, args: bytes = b"\x80", **more) -> AttemptJob:
    return AttemptJob(task, attempt, spec.id, "acme", f"run-{task}", args, **more)


class Puppet:
    """An executor whose attempts end when the test says so."""

    kinds = frozenset({"task"})
    isolation = "none: nothing runs"

    def __init__(self, slots: int = 4, *, at_once: bool = False) -> None:
        self.slots, self.at_once = slots, at_once
        self.runs: dict[tuple[int, int], AttemptJob] = {}
        self.seen: list[tuple[int, int]] = []
        self.stopped: list[tuple[int, int]] = []
        self.kept: list[tuple[int, int]] = []
        self.waiting: list[tuple[int, int]] = []
        self.closed = False

    async def start(self, sink) -> Catalog:
        self.sink = sink
        return Catalog(handlers=("noop",))

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        key = (work.task, work.attempt)
        self.seen.append(key)
        self.runs[key] = work
        if self.at_once:
            self.end(*key)

    def end(self, *key: int) -> None:
        del self.runs[key[0], key[1]]
        self.sink.report(Succeeded(*key))

    def saved(self, *key: int) -> None:
        self.kept.append((key[0], key[1]))

    def stop(self, *key: int) -> None:
        self.runs.pop((key[0], key[1]), None)
        self.stopped.append((key[0], key[1]))

    def recall(self) -> tuple[tuple[int, int], ...]:
        back = tuple(key for key in self.waiting if key in self.runs)
        for key in back:
            del self.runs[key]
        return back

    async def close(self, *, grace_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace_s
        while self.runs and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for key in list(self.runs):
            del self.runs[key]
            self.sink.report(HandedBack(*key))
        self.closed = True
