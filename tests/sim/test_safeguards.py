"""The product without one of its safeguards: the simulation of real nodes and workers notices, and says how to see it.

Each is taken away from the real code, not from a model of it, and found by the invariants that it is there for.
"""

import asyncio
import shlex

import msgspec
import pytest

from sim import checkers, scenario
from sim import links as net
from sim.__main__ import _options
from tickwork.api import forwarding as ways
from tickwork.cluster import home_definitions, worker_gateway
from tickwork.cluster import owner_session as line
from tickwork.core import machine
from tickwork.core.decide import worker_reports as reports
from tickwork.core.state import inputs
from tickwork.core.state.lifecycle import Phase
from tickwork.executors import process_pool as pool
from tickwork.ports.store import Fenced
from tickwork.runtime.partition import logical_clock as timekeeper
from tickwork.runtime.partition import partition
from tickwork.runtime.workers import sessions
from tickwork.stores.memory import store as memory
from tickwork.worker import exchange as caller

SEEDS = 40  # at most; the first few are enough today
SHAPE = {"nodes": "2", "workers": "2", "tasks": "60", "safety_s": "300"}
CRASHES = "node_crashes=200,store_slow=0.2,store_late=0.05,pauses=200"
LATE = "store_late=0.2,store_cuts=300,pauses=300"
LOST = "store_late=0.5,node_crashes=200"  # what was decided, and never committed by who decided it
SPREADS = "spreads=200,node_crashes=60"
HANGS = "hangs=60"
WIDE = {"nodes": "3", "partitions": "4", "tasks": "20"}
CLOCKS = "clock_steps=200,node_crashes=60"
POISON = "poison=0.1"
STRAYS = "foreign_stores=600,spike=0.05"
NEIGHBOURS = "neighbours=0.2"
ZOMBIES = "zombie=0.1,spike=0.1,pauses=200,duplicate=0.2"
FIRST_SEEDS = {ZOMBIES: 2}  # seed 1 is noticed too, and takes ten times as long as any other


def commits_of_any_epoch(patch):
    async def commit(self, number, row, payloads, *, epoch):
        found = self._disk.partitions[number]
        if found.head.seq != row.seq - 1:
            raise Fenced("another came first")
        found.head = memory.Head(found.head.epoch, row.seq, row.tick, row.hash, found.head.watermark)
        found.journal.append(row)
        found.epochs.append(epoch)
        for payload in payloads:
            self._disk.put_payload(payload.digest, payload.data)

    patch.setattr(memory.MemoryStore, "commit", commit)


def rows_of_any_epoch(patch):
    fenced = memory.MemoryStore.write_rows

    async def write_rows(self, number, rows, *, epoch, through, head):
        now = self._disk.partitions[number].head
        within = min(max(through, now.watermark), now.seq)
        await fenced(self, number, rows, epoch=now.epoch, through=within, head=head)

    patch.setattr(memory.MemoryStore, "write_rows", write_rows)


def epochs_that_are_not_raised(patch):
    async def claim(self, number, *, owner, settings):
        found = self._disk.partitions.setdefault(number, memory.Partition(settings, memory.Head(1), owner))
        found.owner = owner
        return found.head

    patch.setattr(memory.MemoryStore, "claim", claim)


def a_store_that_forgets(patch):
    honest = memory.MemoryStore.claim

    async def claim(self, number, *, owner, settings):
        """What came last is gone when the next owner comes, as without a sync."""
        found = self._disk.partitions.get(number)
        if found is not None and len(found.journal) > max(found.head.watermark, 1):
            found.journal.pop()
            found.epochs.pop()
            last = found.journal[-1]
            found.head = memory.Head(found.head.epoch, last.seq, last.tick, last.hash, found.head.watermark)
        return await honest(self, number, owner=owner, settings=settings)

    patch.setattr(memory.MemoryStore, "claim", claim)


def reports_of_any_attempt(patch):
    def succeeded(turn, place, asked):
        task = turn.state.tasks.get(asked.task)
        if task is not None and task.phase == Phase.RUNNING:
            asked = msgspec.structs.replace(asked, attempt=task.attempt)
        reports._succeeded(turn, place, asked)

    patch.setitem(machine._RULES, inputs.Succeeded, succeeded)


def answers_before_the_commit(patch):
    decided = partition.Partition._decided

    def early(self, *told):
        decided(self, *told)
        for one in self._undurable:
            partition._resolve_batches(one.through)

    patch.setattr(partition.Partition, "_decided", early)


def work_before_the_commit(patch):
    decided = partition.Partition._decided

    def early(self, *told):
        before = len(self._undurable)
        decided(self, *told)
        for one in list(self._undurable)[before:]:
            if one.row is not None:
                self._on_durable(one)
                one.orders, one.effects = [], []

    patch.setattr(partition.Partition, "_decided", early)


def workers_without_a_start(patch):
    """A process that was started again under its name is taken for the one before it."""
    offered = sessions.offer_of

    def offer_of(worker, credit):
        return msgspec.structs.replace(offered(worker, credit), start="")

    patch.setattr(sessions, "offer_of", offer_of)


def changes_beside_the_events(patch):
    apply = machine.Machine.apply

    def impure(self, tick, asked):
        outcome = apply(self, tick, asked)
        if tick % 50 == 0:
            for tenant in self.state.tenants.values():
                tenant.accepted += 1
        return outcome

    patch.setattr(machine.Machine, "apply", impure)


def publications_beside_spreads(patch):
    """Each node brings what is published to the partitions that it knows of, whoever spreads the tenant meanwhile."""

    class Open:
        async def __aenter__(self): ...

        async def __aexit__(self, *_): ...

    async def in_order(self, place, route, scope, receive, whole):
        said = next((value for name, value in scope["headers"] if name == ways.PARTITION), None)
        if said is not None:
            return await self._here_or_nowhere(place, route, scope, receive, whole, said)
        body = await ways._body(receive, whole, route)
        return await self._all(place, route, scope, body, self.node.routes.partitions_of("default"))

    async def complete(self, engine, tenant):
        return False

    patch.setattr(ways.ClusterRouter, "_in_order", in_order)
    patch.setattr(home_definitions.HomeDefinitions, "copy_to", complete)
    patch.setattr(asyncio, "Lock", Open)


def wall_clocks_that_are_believed_at_once(patch):
    honest = timekeeper.RealTime.__init__

    def gullible(self, clock, **_):
        honest(self, clock, hold_ms=0)

    patch.setattr(timekeeper.RealTime, "__init__", gullible)


def calls_that_end_with_the_connection_of_another(patch):
    """As when a connection that was closed cancelled those who waited for it, and nothing began the next call."""
    waiting = {}
    exchange, keep_only = net.SimReach.exchange, net.SimReach.keep_only

    async def shared(self, address, partition, call):
        job = asyncio.get_running_loop().create_task(exchange(self, address, partition, call))
        jobs = waiting.setdefault((self, address), [])
        jobs.append(job)
        try:
            return await asyncio.shield(job)
        finally:
            jobs.remove(job)

    def cancelling(self, addresses):
        for (reach, address), jobs in waiting.items():
            if reach is self and address not in addresses:
                for job in jobs:
                    job.cancel()
        keep_only(self, addresses)

    async def asked(self, call, honest=caller.ExchangeClient._reply_to):
        try:
            return await honest(self, call)
        finally:
            if self._lost_to_another:
                raise asyncio.CancelledError

    async def ask(self, call, honest=line.OwnerSession.send):
        try:
            return await honest(self, call)
        except asyncio.CancelledError:
            self._exchange._lost_to_another = True
            raise

    patch.setattr(net.SimReach, "exchange", shared)
    patch.setattr(net.SimReach, "keep_only", cancelling)
    patch.setattr(caller.ExchangeClient, "_lost_to_another", False, raising=False)
    patch.setattr(caller.ExchangeClient, "_reply_to", asked)
    patch.setattr(line.OwnerSession, "send", ask)
    patch.setattr(caller.ExchangeClient, "_call_ended", lambda *_: None)


def stores_that_are_not_compared(patch):
    for module in (sessions, worker_gateway):
        patch.setattr(module, "of_other_store", lambda _call, _store: None)


def attempts_that_end_with_their_process(patch):
    """A thread that is called off is ended as a process would be, with everything that runs beside it."""

    def end_in(self, child, key):
        child.ask_to_end(grace_ns=self._settings.stop_grace_ns)

    patch.setattr(pool.ProcessPool, "_end_in", end_in)


def processes_that_do_not_retire(patch):
    """A thread that does not end after it was called off is ended by force."""

    def insist(self, child, key):
        if key in self._ending and child in self.children:
            child.ask_to_end(grace_ns=pool.GRACE_NS)

    patch.setattr(pool.ProcessPool, "_insist", insist)


def attempts_that_do_not_wait_for_the_one_before(patch):
    """The next attempt of a task begins while one that was called off has not ended in the same worker."""

    def submit(self, errand, honest=pool.ProcessPool.submit):
        ending, self._ending = self._ending, {}
        honest(self, errand)
        self._ending = ending

    patch.setattr(pool.ProcessPool, "submit", submit)


def first_caught(faults):
    shape = SHAPE | WIDE if faults in (SPREADS, HANGS) else SHAPE
    for seed in range(FIRST_SEEDS.get(faults, 0), SEEDS):
        report = scenario.run(seed, shape | {"faults": faults})
        if not report.ok:
            return report
    raise AssertionError(f"nothing was found in {SEEDS} seeds")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("take_away", "faults", "found_by"),
    [
        (commits_of_any_epoch, CRASHES, {"I1", "I2"}),
        (rows_of_any_epoch, LATE, {"I2"}),
        (epochs_that_are_not_raised, CRASHES, {"I1", "I2"}),
        (a_store_that_forgets, CRASHES, {"I1", "I12"}),
        (reports_of_any_attempt, ZOMBIES, {"I5"}),
        (stores_that_are_not_compared, STRAYS, {"FOREIGN"}),
        (answers_before_the_commit, LATE, {"I25", "ANSWER"}),
        (work_before_the_commit, LOST, {"I29", "I5"}),
        (workers_without_a_start, POISON, {"I5"}),
        (changes_beside_the_events, CRASHES, {"I7"}),
        (publications_beside_spreads, SPREADS, {"ANSWER"}),
        (calls_that_end_with_the_connection_of_another, HANGS, {"SERVES"}),
        (wall_clocks_that_are_believed_at_once, CLOCKS, {"I16"}),
        (attempts_that_end_with_their_process, NEIGHBOURS, {"NEIGHBOURS"}),
        (processes_that_do_not_retire, NEIGHBOURS, {"NEIGHBOURS"}),
        (attempts_that_do_not_wait_for_the_one_before, NEIGHBOURS, {"OVERLAP"}),
    ],
)
def test_taking_a_safeguard_away_is_noticed_and_seen_again(take_away, faults, found_by, monkeypatch):
    take_away(monkeypatch)
    report = first_caught(faults)

    assert {violation.invariant for violation in report.violations} & found_by, str(report)
    words = shlex.split(report.command())
    told = _options(words[words.index("--seed") + 2 :])
    assert told.pop("scenario") == "sim.scenario:run"
    again = scenario.run(report.seed, told)
    assert (again.trace.hash, again.violations) == (report.trace.hash, report.violations)


@pytest.mark.slow
def test_the_same_runs_with_all_safeguards_are_well():
    for faults in (CRASHES, LATE, LOST, POISON, ZOMBIES, STRAYS, CLOCKS, NEIGHBOURS):
        for seed in range(2):
            report = scenario.run(seed, SHAPE | {"faults": faults})
            assert report.ok, str(report)


@pytest.mark.proves("I7")
def test_the_state_of_a_node_is_compared_when_it_crashes(monkeypatch):
    folded = []
    honest = checkers.folds_to
    monkeypatch.setattr(checkers, "folds_to", lambda *told: folded.append(len(told[1])) or honest(*told))
    report = scenario.run(0, SHAPE | {"faults": "node_crashes=200"})

    assert report.ok, str(report)
    assert len(folded) > 6 and max(folded) > 50  # four looks, the end, and crashes that left nothing half done
