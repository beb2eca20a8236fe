"""The world of a run: true time, chance, hosts with clocks of their own, and what happens to them.

A host is a machine with one process on it. A crash ends the process: none of its callbacks runs again, and its
connections break. A restart is a new process on the same machine, with the same disk and another zero of its
monotonic clock. Nothing in here asks the operating system for anything.
"""

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar
from uuid import UUID

from sim.faults import NONE, Faults
from sim.report import Trace
from tickwork.testing.seeded_random import Chance
from tickwork.testing.virtual_loop import NS, PROCESS, Process, VirtualLoop

T = TypeVar("T")
ORIGIN_MS = 1_767_225_600_000  # 2026-01-01, UTC
MS = 1_000_000  # in ns
PPM = 1_000_000

Boot = Callable[["Host"], Coroutine[Any, Any, None]]


class HostClock:
    """`ports.clock.Clock` of one host: wrong by an offset, running at its own rate, and it may be stepped."""

    def __init__(self, loop: VirtualLoop, *, offset_ms: int = 0, drift_ppm: int = 0) -> None:
        self._loop = loop
        self._wall_ns = ORIGIN_MS * MS + offset_ms * MS
        self._mono_ns = 0
        self._read_ns = loop.now_ns  # both clocks are known as of this true time
        self._ppm = drift_ppm

    def wall_ms(self) -> int:
        return (self._wall_ns + self._passed_ns()) // MS

    def mono_ms(self) -> int:
        return (self._mono_ns + self._passed_ns()) // MS

    def step(self, ms: int) -> None:
        """Somebody sets the wall clock."""
        self._wall_ns += ms * MS

    def drift(self, ppm: int) -> None:
        """From now on it runs at this rate."""
        passed_ns = self._passed_ns()
        self._wall_ns, self._mono_ns, self._read_ns = (
            self._wall_ns + passed_ns,
            self._mono_ns + passed_ns,
            self._loop.now_ns,
        )
        self._ppm = ppm

    def reboot(self, mono_ms: int) -> None:
        self.drift(self._ppm)
        self._mono_ns = mono_ms * MS

    def _passed_ns(self) -> int:
        true_ns = self._loop.now_ns - self._read_ns
        return true_ns + true_ns * self._ppm // PPM


class HostIds:
    """`ports.ids.Ids` from the seed. The stream goes on over restarts: no id is made twice."""

    def __init__(self, chance: Chance, clock: HostClock) -> None:
        self._chance = chance
        self._clock = clock

    def new(self) -> str:
        high = self._clock.wall_ms() << 16 | 7 << 12 | self._chance.bits(12)
        return str(UUID(int=high << 64 | 2 << 62 | self._chance.bits(62)))

    def token(self) -> str:
        return f"{self._chance.bits(256):064x}"


class Host:
    """`boot` is the program that its process runs; it is begun anew on a restart."""

    def __init__(self, world: "World", name: str, boot: Boot | None) -> None:
        self.world = world
        self.name = name
        self.boot = boot
        self.chance = world.chance.stream(f"host/{name}")
        self.clock = HostClock(world.loop)
        self.ids = HostIds(self.chance.stream("ids"), self.clock)
        self.starts = 0
        self.pauses: list[tuple[int, int]] = []  # from, to, in true time
        self.process = Process(name)
        self.process.dead = True  # until it is started

    @property
    def up(self) -> bool:
        return not self.process.dead

    @property
    def stopped(self) -> bool:
        return self.process.held is not None

    def start(self) -> None:
        assert not self.up, f"{self.name} runs already"
        self.starts += 1
        self.process = Process(f"{self.name}.{self.starts}")
        self.clock.reboot(self.chance.between(0, 86_400_000))
        self.world.note(self.name, "starts", str(self.starts))
        if self.boot is not None:
            self.spawn(self.boot(self), name="main")

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> Any:
        """A task of its process."""
        assert self.up, f"{self.name} is down"
        return self.world.loop.create_task(coro, name=name, context=self.world.loop.context_of(self.process))

    def call(self, what: Callable[..., T], *args: Any) -> T:
        """Now, as its process: what it starts belongs to it."""
        return self.world.loop.context_of(self.process).run(what, *args)

    def crash(self, *, back_after_s: float | None = None, told: bool = True) -> None:
        """At once. `told`: the machine lives on and closes the connections; otherwise nobody hears of it."""
        if not self.up:
            return
        self.world.note(self.name, "crashes", "" if told else "silently")
        self.world.loop.kill(self.process)
        self.world.broken(self, told=told)
        if back_after_s is not None:
            self.world.later(back_after_s, self.restart)

    def restart(self) -> None:
        if not self.up:
            self.start()

    def pause(self, seconds: float) -> None:
        """It stands still, with its connections open, and goes on as if nothing had been."""
        if self.up and not self.stopped:
            self.world.note(self.name, "stands still", f"{seconds:.3f} s")
            process, now_ns = self.process, self.world.loop.now_ns
            self.pauses.append((now_ns, now_ns + round(seconds * NS)))
            self.world.loop.hold(process)
            self.world.later(seconds, self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if not process.dead:
            self.world.note(self.name, "goes on")
            self.world.loop.go_on(process)


class World:
    """`random_order`: timers of one instant in an order drawn from the seed; otherwise as they were set."""

    def __init__(self, seed: int, *, faults: Faults = NONE, random_order: bool = True) -> None:
        self.seed = seed
        self.chance = Chance(seed)
        self.faults = faults
        order = self.chance.stream("order") if random_order else None
        self.loop = VirtualLoop(order)  # type: ignore[abstract]  # what is not simulated is set by name
        self.trace = Trace()
        self.hosts: dict[str, Host] = {}
        self._on_crash: list[Callable[[Host, bool], None]] = []
        self._context = copy_context()
        self._context.run(PROCESS.set, None)

    def host(self, name: str, boot: Boot | None = None) -> Host:
        assert name not in self.hosts, f"there is a {name} already"
        host = self.hosts[name] = Host(self, name, boot)
        return host

    def later(self, seconds: float, what: Callable[..., object], *args: Any) -> None:
        """By the world itself, whoever asks for it: it happens also when the asker is dead."""
        self.at_ns(self.loop.now_ns + round(seconds * NS), what, *args)

    def at_ns(self, when_ns: int, what: Callable[..., object], *args: Any) -> None:
        self.loop.call_at_ns(when_ns, what, *args, context=self._context)

    def on_crash(self, told: Callable[[Host, bool], None]) -> None:
        self._on_crash.append(told)

    def broken(self, host: Host, *, told: bool) -> None:
        for hear in self._on_crash:
            hear(host, told)

    # ---- telling

    def note(self, who: str, what: str, detail: str = "") -> int:
        """Its number in the trace."""
        return self.trace.note(self.loop.now_ns, who, what, detail).number

    def fault(self, who: str, name: str, detail: str = "") -> None:
        self.trace.fault(self.loop.now_ns, who, name, detail)

    def strikes(self, chance: Chance, who: str, name: str) -> bool:
        """Whether this fault happens now, by its share; it is on record then."""
        share = getattr(self.faults, name)
        if not share or not chance.happens(share):
            return False
        self.fault(who, name)
        return True

    def heal(self) -> None:
        """No more faults by chance."""
        self.faults = NONE
        self.note("world", "heals")

    def close(self) -> None:
        self.loop.close()
