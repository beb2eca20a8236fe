"""The shape of a run: boot, safety phase with faults, heal, liveness phase with a budget, final checks.

Nodes, workers and clients are programs that the caller brings: each is a coroutine function that gets a seat, with
everything a process may reach. A supervisor starts a process again when it ends by itself. A run in which little was
accepted or few faults happened proves nothing, so it fails as vacuous.
"""

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from msgspec.structs import replace as replace_settings

from sim import checkers
from sim.executor import EffectLedger
from sim.faults import NONE, BadOption, Faults
from sim.hosts import MS, ORIGIN_MS, Host, World
from sim.io_guard import Guard
from sim.links import ForeignStore, Server, ServerService, SimLink
from sim.network import Net
from sim.recorder import Journals
from sim.report import Report, Violation
from sim.store import SimStore, StoreTroubles
from tickwork.cluster.lease_renewal import TTL_MS
from tickwork.cluster.placement import home_of
from tickwork.core.base.errors import TickworkError
from tickwork.core.base.names import TENANT
from tickwork.core.machine import Machine
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import Settings, State
from tickwork.journal.record import SealedRow
from tickwork.ports.store import Route
from tickwork.runtime.partition.logical_clock import STEP_MS
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.testing.seeded_random import Chance
from tickwork.testing.virtual_loop import OutOfTime, SimulationError

SLICES = 20  # of the safety phase: so often is looked at what must always hold
FOLD_SLICES = 5  # every so many of them, and at each crash of a node, its state is compared with its journal
LOOK_S = 5.0  # how often the liveness phase looks whether all has ended
SERVES_S = 120.0  # after which every live worker serves every partition, once nothing fails any more
BACK_S = 2.0  # after which a supervisor starts a process that ended by itself
ACCEPTED_MIN = 0.5
BUSY = (Phase.READY, Phase.RUNNING, Phase.BACKOFF, Phase.CHECKING)
EVENTS = (
    *("node_crashes", "worker_crashes", "pauses", "partitions", "store_outages", "disk_full", "clock_steps"),
    *("store_cuts", "hangs", "foreign_stores"),
)
FOREIGN_TASKS = 4  # of each partition, that another store has too
OFFSET_MS, DRIFT_PPM = 100, 500  # how wrong the clock of a host is without a fault
BELIEF_NS = TTL_MS * MS + 200 * MS  # a lease, and the skew between two clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    nodes: int = 2
    partitions: int = 1
    workers: int = 3
    clients: int = 1
    tasks: int = 50
    safety_s: int = 600
    liveness_s: int = 600
    random_order: bool = True
    faults: Faults = NONE
    enqueues: int = 0  # runs that an application puts into the inbox, as SQL does

    @classmethod
    def draw(cls, chance: Chance) -> Self:
        """Small on purpose: many small runs find more than one large one."""
        return cls(
            nodes=chance.between(1, 3),
            partitions=chance.stream("partitions").between(1, 3),
            workers=chance.between(1, 5),
            tasks=chance.between(20, 60),
            random_order=chance.happens(0.75),
            faults=Faults.draw(chance.stream("faults")),
        )

    @classmethod
    def of(cls, seed: int, words: Mapping[str, str]) -> Self:
        """Drawn for the seed, except for what the words say. They are those of `words`, all or some."""
        drawn = cls.draw(Chance(seed, "options"))
        if unknown := [name for name in words if name not in drawn.words()]:
            raise BadOption(f"there is no option {unknown[0]!r}; there are {', '.join(drawn.words())}")
        given: dict[str, Any] = {
            name: words[name] == "True" if name == "random_order" else int(words[name])
            for name in drawn.words()
            if name in words and name != "faults"
        }
        return replace(drawn, **given, faults=Faults.of(words["faults"]) if "faults" in words else drawn.faults)

    def words(self) -> dict[str, str]:
        """As the command line takes them."""
        return {item.name: str(getattr(self, item.name)) for item in fields(self)}


@dataclass(frozen=True, slots=True)
class Alive:
    """What a node holds in memory, for the comparison with its journal."""

    partition: int
    seq: int  # the last that is in the state, committed or not
    settings: Settings
    state: State
    hash: bytes = b""  # of that seq; b"": it is not known, and taken for the one in the journal


@dataclass(slots=True)
class NodeSeat:
    """What the program of a node may reach. `show` gives what it owns; the checkers ask at the end."""

    cluster: "Cluster"
    host: Host
    store: SimStore
    artifacts: MemoryArtifacts
    show: Callable[[], Sequence[Alive]] = lambda: ()
    workers: Callable[[], Mapping[int, Collection[str]]] = dict  # who serves the partitions that it owns

    def serve(self, server: Server) -> None:
        """To workers."""
        self.cluster.net.listen(self.host, ServerService(server))


@dataclass(slots=True)
class WorkerSeat:
    cluster: "Cluster"
    host: Host
    link: SimLink
    ledger: EffectLedger


@dataclass(slots=True)
class ClientSeat:
    """A client counts what it asked for and what it was promised."""

    cluster: "Cluster"
    host: Host
    nodes: tuple[str, ...]

    def asks(self) -> None:
        self.cluster.submitted += 1

    def accepted(self, tenant: str, run_id: str) -> None:
        self.cluster.accepted[tenant, run_id] = None


NodeProgram = Callable[[NodeSeat], Coroutine[Any, Any, None]]
WorkerProgram = Callable[[WorkerSeat], Coroutine[Any, Any, None]]
ClientProgram = Callable[[ClientSeat], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Programs:
    """What runs on the hosts. A client's program ends when it has nothing more to ask; the others never do."""

    node: NodeProgram
    worker: WorkerProgram
    client: ClientProgram
    settings: Settings = field(default_factory=Settings)  # of the partitions, to fold their journals
    doubts_clocks: bool = True  # False: its nodes believe their wall clock at once
    checks: Callable[["Cluster"], Sequence[Violation]] = lambda _: ()  # of its own, at the end
    unserved: Callable[["Cluster"], Sequence[str]] = lambda _: ()  # live workers that some partition has not


@contextmanager
def silent_deaths() -> Iterator[None]:
    """What a crashed host leaves behind is dropped, not ended. Python finds that worth a warning, whenever it happens
    to look; so it looks here, and keeps it to itself."""
    hook, collecting = sys.unraisablehook, gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            sys.unraisablehook = lambda _: None
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
        if collecting:
            gc.enable()


class Cluster:
    def __init__(self, seed: int, programs: Programs, options: Options | None = None, *, scenario: str = "") -> None:
        self.options = options or Options.draw(Chance(seed, "options"))
        self.world = World(seed, faults=self.options.faults, random_order=self.options.random_order)
        self.programs = programs
        self.scenario = scenario
        self.net = Net(self.world)
        self.disk = MemoryDisk()
        self.leases = MemoryLeases(lambda: self.world.loop.now_ns // MS)
        if self.options.partitions > 1:
            spread = self.world.chance.stream("spread").between(1, self.options.partitions)
            self.disk.routes[TENANT] = Route(TENANT, home_of(TENANT, self.options.partitions), spread)
        self.troubles = StoreTroubles(self.world)
        self.journals = Journals()
        self.world.on_crash(self._crashed)
        self.ledger = EffectLedger()
        self.artifacts = MemoryArtifacts()
        self.submitted = 0
        self.accepted: dict[tuple[str, str], None] = {}
        self.violations: list[Violation] = []
        self.small_steps = 0  # of wall clocks, forward, that nobody can tell from drift
        self.planned = 0  # fault events that were drawn
        self.seats: dict[str, NodeSeat] = {}
        self.links: dict[str, SimLink] = {}  # of workers
        self._busy_clients = self.options.clients
        self.nodes = self._hosts("node", self.options.nodes, self._node)
        self.workers = self._hosts("worker", self.options.workers, self._worker)
        self.clients = self._hosts("client", self.options.clients, self._client)

    def _hosts(self, kind: str, count: int, boot: Callable[[Host], Coroutine[Any, Any, None]]) -> list[Host]:
        return [self.world.host(f"{kind}{number}", boot) for number in range(1, count + 1)]

    # ---- the whole run

    def run(self) -> Report:
        """Never raises for what the run did: it is in the report."""
        world, options = self.world, self.options
        world.note("world", "options", str(options.words()))
        gc.freeze()  # what was there before is no part of the one collection at the end
        try:
            with silent_deaths(), Guard():
                self._boot()
                self._safety_phase()
                self._heal()
                self._liveness_phase()
                self._workers_come_back()
                self._come_to_rest()
                world.loop.settle()
                self._final_checks()
        except SimulationError as error:
            text = f"{error} {error.__cause__!r}" if error.__cause__ else str(error)
            self.violations.append(Violation(type(error).__name__, text))
        report = self._report()
        with silent_deaths():
            world.close()
        gc.unfreeze()
        return report

    def _report(self) -> Report:
        options = self.options.words() | ({"scenario": self.scenario} if self.scenario else {})
        summary = [f"{host.name}: {_standing(host)}" for host in self.world.hosts.values()]
        return Report(self.world.seed, options, self.world.trace, self.violations, summary)

    def _boot(self) -> None:
        for host in self.world.hosts.values():
            chance = host.chance.stream("clock")
            host.clock.step(chance.between(-OFFSET_MS, OFFSET_MS))
            host.clock.drift(chance.between(-DRIFT_PPM, DRIFT_PPM))
            host.start()

    def _safety_phase(self) -> None:
        Chaos(self).plan()
        for number in range(SLICES):
            self.world.loop.advance(self.options.safety_s / SLICES)
            self._always()
            if number % FOLD_SLICES == 0:
                self._fold(self.alive())

    def _heal(self) -> None:
        """No more faults. Some of the workers that are down stay down; one is left in any case."""
        self.world.heal()
        self.net.heal()
        self.troubles.heal()
        chance = self.world.chance.stream("heal")
        for host in self.world.hosts.values():
            may_stay_down = host in self.workers and any(other.up for other in self.workers)
            if not host.up and not (may_stay_down and chance.happens(0.3)):
                host.start()

    def _liveness_phase(self) -> None:
        loop, until = self.world.loop, self.world.loop.time() + self.options.liveness_s
        while loop.time() < until and not self._settled():
            loop.advance(LOOK_S)

    def _workers_come_back(self) -> None:
        """Whatever happened to nodes and connections, every live worker serves every partition again."""
        try:
            self.world.loop.run_until(lambda: not self.programs.unserved(self), SERVES_S)
        except OutOfTime:
            missing = "; ".join(self.programs.unserved(self)) or "at times"
            self.violations.append(Violation("SERVES", f"not within {SERVES_S:.0f} s: {missing}"))

    def _come_to_rest(self) -> None:
        """Until what the nodes have decided is in their journals; one that never gets there shows in I7."""
        with suppress(OutOfTime):
            self.world.loop.run_until(lambda: all(self._written(alive) for alive in self.alive()), LOOK_S * 12)

    def alive(self) -> list[Alive]:
        """Of a node that stands still nobody knows what it would say: it may have been replaced meanwhile."""
        hosts = {name: self.world.hosts[name] for name in self.seats}
        awake = [seat for name, seat in self.seats.items() if hosts[name].up and not hosts[name].stopped]
        return [alive for seat in awake for alive in seat.show()]

    def _written(self, alive: Alive) -> bool:
        partition = self.disk.partitions.get(alive.partition)
        if partition is None or alive.seq > len(partition.journal):
            return False
        # Somebody else may have written that seq, where a node does not know yet that it was replaced.
        return not (alive.seq and alive.hash) or partition.journal[alive.seq - 1].hash == alive.hash

    def _settled(self) -> bool:
        if self._busy_clients:
            return False
        if alive := self.alive():
            return all(self._written(one) and self._at_rest(one.state) for one in alive)
        return not any(self._unfinished(rows) for rows in self.kept().values())

    def _at_rest(self, state: State) -> bool:
        """Nothing is left to do but what waits for a person, an event, or for longer than this run goes on."""
        if state.outbox or any(task.phase in BUSY for task in state.tasks.values()):
            return False
        due = Machine(state).next_tick()
        return due is None or state.settings.clock.ms_of(due) - state.now_ms > self.options.liveness_s * 1000

    def _unfinished(self, rows: Sequence[SealedRow]) -> bool:
        lives = checkers.lives_of(rows)
        return any(state not in checkers.OVER for state in lives.states.values())

    # ---- looking

    def kept(self) -> dict[int, Sequence[SealedRow]]:
        """The journals as the disk has them."""
        return {number: partition.journal for number, partition in sorted(self.disk.partitions.items())}

    def _always(self) -> None:
        found = [*checkers.one_journal(self.journals, self.kept()), *checkers.fenced(self.journals)]
        if found:
            self.violations += found
            raise SimulationError("what must always hold does not")

    def _final_checks(self) -> None:
        kept, settings = self.kept(), self.programs.settings
        found = [*checkers.one_journal(self.journals, kept), *checkers.fenced(self.journals)]
        pauses = {host.name: host.pauses for host in self.nodes}
        now_ns = self.world.loop.now_ns
        found += checkers.one_believes(self.journals.beliefs, pauses, allowed_ns=BELIEF_NS, now_ns=now_ns)
        found += checkers.nothing_acknowledged_is_gone(self.journals, kept)
        found += checkers.every_start_is_an_attempt(self.ledger)
        found += checkers.neighbours_end_by_themselves(self.ledger)
        for number in kept if self.programs.doubts_clocks else ():
            commits = self.journals.commits(number)
            found += checkers.never_early(commits, settings, origin_ms=ORIGIN_MS, allowed_ms=self._skew_ms())
        workers = any(host.up for host in self.workers)
        for number, rows in kept.items():
            of_one = replace_settings(settings, partition=number)
            found += checkers.nothing_is_lost(of_one, rows, self._home(rows), workers=workers)
            found += checkers.only_the_current_attempt_counts(rows)
            found += checkers.one_result(rows, self.ledger)
        found += checkers.commands_happen_once([*kept.values()], [alive.state for alive in self.alive()])
        found += self._known_somewhere()
        for alive in self.alive():
            found += checkers.folds_to(alive.settings, kept.get(alive.partition, ())[: alive.seq], alive.state)
        self.violations += [*found, *self.programs.checks(self), *self._vacuous()]

    def _skew_ms(self) -> int:
        """What a wall clock may be ahead without being in doubt: offset, drift, and steps too small to notice."""
        drift_ms = round(self.world.loop.time() * 1000 * DRIFT_PPM) // 1_000_000
        return STEP_MS + OFFSET_MS + drift_ms + STEP_MS * self.small_steps

    def _home(self, rows: Sequence[SealedRow]) -> list[tuple[str, str]]:
        known = checkers.lives_of(rows).states
        return [name for name in self.accepted if name in known]

    def _known_somewhere(self) -> list[Violation]:
        known = [checkers.lives_of(rows).states for rows in self.kept().values()]
        return [
            Violation("I25", f"{'/'.join(name)} was accepted, and no journal knows it")
            for name in self.accepted
            if not any(name in states for states in known)
        ]

    def _vacuous(self) -> list[Violation]:
        found: list[Violation] = []
        if self.submitted == 0 or len(self.accepted) < ACCEPTED_MIN * self.submitted:
            found.append(Violation("VACUOUS", f"{len(self.accepted)} of {self.submitted} submissions were accepted"))
        happened = sum(self.world.trace.faults.get(name, 0) for name in EVENTS)
        if happened < self.planned // 2:
            found.append(Violation("VACUOUS", f"{happened} of {self.planned} fault events happened"))
        return found

    def _fold(self, known: Sequence[Alive]) -> None:
        """What is in memory is the fold of the journal, as far as it is there."""
        for alive in known:
            if alive.hash and self._written(alive):
                journal = self.disk.partitions[alive.partition].journal
                self.violations += checkers.folds_to(alive.settings, journal[: alive.seq], alive.state)

    def _crashed(self, host: Host, _: bool) -> None:
        """Who is dead believes nothing. What it held is looked at as if it had been asked a moment before."""
        if host.name in self.seats:
            self._fold(self.seats[host.name].show())
        for belief in self.journals.beliefs:
            if belief.owner == host.name and belief.end_ns is None:
                belief.end_ns = self.world.loop.now_ns

    # ---- processes

    async def _node(self, host: Host) -> None:
        store = SimStore(host, MemoryStore(self.disk), self.journals, self.troubles)
        seat = self.seats[host.name] = NodeSeat(self, host, store, self.artifacts)
        await self._supervise(host, self.programs.node(seat))

    async def _worker(self, host: Host) -> None:
        names = [node.name for node in self.nodes]
        first = host.chance.below(len(names))
        link = self.links[host.name] = SimLink(self.net, host, (*names[first:], *names[:first]))
        await self._supervise(host, self.programs.worker(WorkerSeat(self, host, link, self.ledger)))

    async def _client(self, host: Host) -> None:
        await self.programs.client(ClientSeat(self, host, tuple(node.name for node in self.nodes)))
        self._busy_clients -= 1
        self.world.note(host.name, "has nothing more to ask")

    async def _supervise(self, host: Host, program: Coroutine[Any, Any, None]) -> None:
        """A process that ends, or gives up with an error of ours, is started again. Any other error is a bug."""
        try:
            await program
            how = "ends"
        except TickworkError as error:
            how = f"gives up: {type(error).__name__}: {error}"
        self.world.note(host.name, how)
        host.crash(back_after_s=BACK_S)
        await asyncio.get_running_loop().create_future()


class Chaos:
    """Fault events of the safety phase, drawn before it begins: moment, kind and victim."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.chance = cluster.world.chance.stream("chaos")
        self.cuts = cluster.world.chance.stream("store_cuts")
        self.hangs = cluster.world.chance.stream("hangs")
        self.strays = cluster.world.chance.stream("foreign_stores")

    def plan(self) -> None:
        safety_s = self.cluster.options.safety_s
        for name in EVENTS:
            per_hour = getattr(self.world.faults, name)
            count = max(1, per_hour * safety_s // 3600) if per_hour else 0
            self.cluster.planned += count
            # What came later has draws of its own, so that a seed's other faults are those that it had before.
            seldom = {"store_cuts": self.cuts, "hangs": self.hangs, "foreign_stores": self.strays}
            chance = seldom.get(name, self.chance)
            for _ in range(count):
                self.world.later(chance.below(safety_s * 900) / 1000, getattr(self, f"_{name}"))

    def _node_crashes(self) -> None:
        self._crash(self.cluster.nodes, "node_crashes")

    def _worker_crashes(self) -> None:
        self._crash(self.cluster.workers, "worker_crashes")

    def _crash(self, hosts: list[Host], name: str) -> None:
        if up := [host for host in hosts if host.up]:
            victim = self.chance.pick(up)
            self.world.fault(victim.name, name)
            victim.crash(back_after_s=self._seconds(60), told=self.chance.happens(0.8))

    def _pauses(self) -> None:
        if up := [host for host in (*self.cluster.nodes, *self.cluster.workers) if host.up and not host.stopped]:
            victim = self.chance.pick(up)
            self.world.fault(victim.name, "pauses")
            victim.pause(self._seconds(60))

    def _hangs(self) -> None:
        """All nodes but one stand still, for longer than a lease, and go on. Not quite at the same moment."""
        up = [host for host in self.cluster.nodes if host.up and not host.stopped]
        spared = self.hangs.pick(up) if up else None
        for host in up:
            if host is not spared:
                self.world.fault(host.name, "hangs")
                seconds = self.hangs.between(TTL_MS + 2_000, 4 * TTL_MS) / 1000
                self.world.later(self.hangs.below(3_000) / 1000, host.pause, seconds)

    def _partitions(self) -> None:
        """One host from everybody, or one path, one way or both."""
        one = self.chance.pick([*self.cluster.nodes, *self.cluster.workers]).name
        other = "*" if self.chance.happens(0.5) else self.chance.pick(self.cluster.nodes).name
        both_ways = self.chance.happens(0.5)
        self.world.fault("net", "partitions")
        self.cluster.net.partition(one, other, both_ways=both_ways)
        self.world.later(self._seconds(90), self._join, one, other, both_ways)

    def _join(self, one: str, other: str, both_ways: bool) -> None:
        self.cluster.net.join(one, other, both_ways=both_ways)

    def _foreign_stores(self) -> None:
        """One worker meets another store at its servers' addresses. That one gives it tasks with the numbers that its
        own servers will give out next."""
        links = [link for _, link in sorted(self.cluster.links.items()) if link.host.up and link.foreign is None]
        if not links:
            return
        link, pairs = self.strays.pick(links), list[tuple[int, int]]()
        for alive in self.cluster.alive():
            ready = [one for one in alive.state.tasks.values() if one.phase == Phase.READY]
            pairs += [(one.number, one.attempt + 1) for one in ready[:FOREIGN_TASKS]]
            pairs += [(alive.state.next_number + number, 1) for number in range(FOREIGN_TASKS)]
        self.world.fault(link.host.name, "foreign_stores", f"with tasks {pairs}")
        link.foreign = ForeignStore(pairs)
        self.world.later(self.strays.between(1_000, 12_000) / 1000, link.come_home)

    def _store_outages(self) -> None:
        self.cluster.troubles.go_down(self._seconds(30))

    def _disk_full(self) -> None:
        self.cluster.troubles.fill(self._seconds(30))

    def _clock_steps(self) -> None:
        host = self.chance.pick([*self.cluster.nodes, *self.cluster.workers])
        ms = self.chance.pick([-3_600_000, -1_000, 1_000, 3_600_000])
        self.world.fault(host.name, "clock_steps", f"{ms} ms")
        host.clock.step(ms)
        if 0 < ms <= STEP_MS:
            self.cluster.small_steps += 1
        elif self.chance.happens(0.5):  # wrong for a moment only
            self.world.later(self._seconds(10), host.clock.step, -ms)

    def _store_cuts(self) -> None:
        victim, seconds = self.cuts.pick(self.cluster.nodes).name, self.cuts.between(100, 60_000) / 1000
        self.cluster.troubles.cut(victim, seconds, answers_only=self.cuts.happens(0.5))

    def _seconds(self, most: int) -> float:
        return self.chance.between(100, most * 1000) / 1000


def _standing(host: Host) -> str:
    how = "down" if not host.up else "stands still" if host.stopped else "up"
    return f"{how}, started {host.starts} times"
