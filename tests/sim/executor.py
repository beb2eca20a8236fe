"""A worker's executor in virtual time: handlers take drawn times, and what they do to the world is written down.

The ledger stands for the outside: every effect goes there under the task's idempotency key, and the ledger keeps one
effect per key, as a good outside does. What it was asked for more than once is on record too. Faults strike
around the effect and around the report.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from sim.hosts import MS, Host
from tickwork.core.base.values import pack
from tickwork.ports.executor import ReportSink
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Catalog,
    Checkpointed,
    Failed,
    NodeSpec,
    Report,
    Started,
    Succeeded,
)
from tickwork.testing.virtual_loop import NS

BACK_S_MAX = 60
POISON_BACK_S_MAX = 5  # sooner than anybody misses them
ZOMBIE_S = 40  # longer than a worker may be silent


@dataclass(frozen=True, slots=True)
class Write:
    key: str
    task: int
    attempt: int
    worker: str
    applied: bool  # False: there was one under this key already
    at: int  # number in the trace


@dataclass(frozen=True, slots=True)
class Cut:
    """An attempt that ended otherwise than by itself, although it was not called off and its worker lives."""

    task: int
    attempt: int
    worker: str
    how: str
    at: int  # number in the trace


@dataclass(slots=True)
class EffectLedger:
    writes: list[Write] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    overlaps: list[Cut] = field(default_factory=list)  # began beside another attempt of its task in the same worker
    begun: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=dict)  # by which starts of workers
    _kept: dict[str, Write] = field(default_factory=dict)

    def begin(self, task: int, attempt: int, start: str, at: int) -> None:
        self.begun.setdefault((task, attempt), []).append((start, at))

    def write(self, write: Write) -> bool:
        """Whether it had an effect: the first under its key has."""
        first = write.key not in self._kept
        made = replace(write, applied=first)
        self.writes.append(made)
        if first:
            self._kept[write.key] = made
        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What an attempt does: takes a while, then calls `body` with its arguments. Without one it answers None."""

    ms: tuple[int, int] = (1, 100)
    body: Callable[..., Any] | None = None
    fails: float = 0.0  # share of attempts that end in an error
    saves: int = 0  # checkpoints on the way; each is waited for, and a later attempt goes on behind the last one
    commands: Callable[[AttemptJob], bytes] | None = None  # what its code asks of the engine


def key_of(work: AttemptJob, spec: NodeSpec) -> str:
    """The idempotency key: the same for every attempt of one task."""
    return f"{work.tenant}/{work.run_id}/{spec.node}/{work.child}"


class SimExecutor:
    """`ports.executor.Executor`. Handlers by name; a plain callable takes no virtual time of its own."""

    def __init__(
        self, host: Host, handlers: Mapping[str, Handler | Callable[..., Any]], ledger: EffectLedger, *,
        slots: int = 4, catalog: Catalog | None = None,
    ) -> None:  # fmt: skip
        self.host, self.world = host, host.world
        self.handlers = {
            name: given if isinstance(given, Handler) else Handler(ms=(0, 0), body=given)
            for name, given in handlers.items()
        }
        self.ledger = ledger
        self.chance = host.chance.stream(f"executor/{host.starts}")
        self._slots = slots
        self._catalog = catalog or Catalog(handlers=tuple(sorted(self.handlers)))
        self._sink: ReportSink | None = None
        self._running: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._waiting: dict[tuple[int, int], tuple[AttemptJob, NodeSpec]] = {}
        self._saving: dict[tuple[int, int], asyncio.Future[None]] = {}

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"task", "http", "shell", "send"})

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def isolation(self) -> str:
        return "none: it is a simulation"

    async def start(self, sink: ReportSink) -> Catalog:
        self._sink = sink
        return self._catalog

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        name = (work.task, work.attempt)
        assert name not in self._running and name not in self._waiting, f"attempt {name} was given twice"
        self._waiting[name] = (work, spec)
        self._fill()

    def saved(self, task: int, attempt: int) -> None:
        self.world.note(self.host.name, "checkpoint is durable", f"task {task}, attempt {attempt}")
        saving = self._saving.pop((task, attempt), None)
        if saving is not None and not saving.done():
            saving.set_result(None)

    def stop(self, task: int, attempt: int) -> None:
        self._waiting.pop((task, attempt), None)
        self._saving.pop((task, attempt), None)
        running = self._running.pop((task, attempt), None)
        if running is not None:
            running.cancel()
        self._fill()

    def recall(self) -> tuple[tuple[int, int], ...]:
        back = tuple(self._waiting)
        self._waiting.clear()
        return back

    async def close(self, *, grace_s: float) -> None:
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=grace_s)
        for name in list(self._running):
            self.stop(*name)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            name = next(iter(self._waiting))
            work, spec = self._waiting.pop(name)
            task = self.world.loop.create_task(self._attempt(work, spec), name=f"attempt {name}")
            self._running[name] = task

    async def _attempt(self, work: AttemptJob, spec: NodeSpec) -> None:
        handler = self.handlers.get(spec.handler or spec.node)
        start = f"{self.host.name}, start {self.host.starts}"
        at = self.world.note(self.host.name, "begins", f"task {work.task}, attempt {work.attempt}")
        if work.tenant != "foreign":  # its numbers are those of other attempts
            self.ledger.begin(work.task, work.attempt, start, at)
        begun_ms = self.host.clock.wall_ms()
        if handler is None:
            self._end(work, Failed(work.task, work.attempt, "UnknownHandler", f"nobody knows {spec.handler!r}", True))
            return
        await asyncio.sleep(self.chance.between(handler.ms[0] * MS, handler.ms[1] * MS) / NS)
        if handler.saves:
            await self._save(handler, work, begun_ms)
        await self._crash("poison")
        await self._crash("crash_before_effect")
        if self._strikes("zombie"):
            self.host.pause(ZOMBIE_S + self.chance.below(20))
            await asyncio.sleep(0)  # it stands still here and goes on as if nothing had been
        report = await self._act(handler, work, spec, begun_ms)
        await self._crash("crash_after_effect")
        if self._strikes("never_reports"):
            return
        self._end(work, report)
        if self._strikes("reports_twice"):
            self._report(report)
        await self._crash("crash_after_report")

    async def _save(self, handler: Handler, work: AttemptJob, begun_ms: int) -> None:
        """One checkpoint after the other, from where the last attempt stood."""
        name = (work.task, work.attempt)
        self._report(Started(*name, begun_ms))
        first = msgspec.msgpack.decode(work.checkpoint) if isinstance(work.checkpoint, bytes) else 0
        for step in range(first, handler.saves):
            self._saving[name] = self.world.loop.create_future()
            self._report(Checkpointed(*name, pack(step + 1)))
            await self._saving[name]
            await asyncio.sleep(self.chance.between(handler.ms[0] * MS, handler.ms[1] * MS) / NS)

    async def _act(self, handler: Handler, work: AttemptJob, spec: NodeSpec, begun_ms: int) -> Report:
        if self.chance.happens(handler.fails):
            return self._broke(work, begun_ms, "SimulatedError", "drawn")
        value: Any = None
        try:
            if handler.body is not None:
                value = handler.body(**msgspec.msgpack.decode(work.args or b"\x80"))
                if inspect.isawaitable(value):
                    value = await value
            packed = None if value is None else pack(value)
        except Exception as error:  # whatever the code of users raises is its report
            return self._broke(work, begun_ms, type(error).__name__, str(error))
        at = self.world.note(self.host.name, "effect", f"{key_of(work, spec)}, attempt {work.attempt}")
        self.ledger.write(Write(key_of(work, spec), work.task, work.attempt, self.host.name, True, at))
        commands = handler.commands(work) if handler.commands is not None else None
        return Succeeded(work.task, work.attempt, packed, begun_ms, self.host.clock.wall_ms(), commands)

    def _broke(self, work: AttemptJob, begun_ms: int, error: str, message: str) -> Failed:
        ended_ms = self.host.clock.wall_ms()
        return Failed(work.task, work.attempt, error, message, started_ms=begun_ms, ended_ms=ended_ms)

    def _end(self, work: AttemptJob, report: Report) -> None:
        self._running.pop((work.task, work.attempt), None)
        self._report(report)
        self._fill()

    def _report(self, report: Report) -> None:
        assert self._sink is not None, "start comes first"
        self._sink.report(report)

    async def _crash(self, fault: str) -> None:
        if self._strikes(fault):
            poison = fault == "poison"
            for node in [host for name, host in self.world.hosts.items() if poison and name.startswith("node")]:
                node.crash(back_after_s=1 + self.chance.below(POISON_BACK_S_MAX))
            self.host.crash(back_after_s=1 + self.chance.below(POISON_BACK_S_MAX if poison else BACK_S_MAX))
            await asyncio.get_running_loop().create_future()  # dead: nothing of this process goes on

    def _strikes(self, fault: str) -> bool:
        return self.world.strikes(self.chance, self.host.name, fault)
