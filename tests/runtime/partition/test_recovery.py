"""Rows at the watermark and the journal's tail give back the machine that never died."""

from random import Random

import msgspec
import pytest

from campaign import seeds
from driver import Driver
from histories import History
from tickwork.core.base.errors import Corrupt
from tickwork.core.machine import Machine, Outcome
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state import inputs as inp
from tickwork.core.state.inputs import Input
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.journal.replay import Recorder
from tickwork.ports.store import Rows, RunFilter, RunRow, Store
from tickwork.runtime.partition.recovery import recover
from tickwork.runtime.partition.write_behind import AttemptRecord, WriteBehind, attempts_decoder
from tickwork.stores.memory.store import MemoryDisk, MemoryStore


class Taped(Driver):
    """A driver whose rows are kept as they come."""

    def tape(self) -> None:
        self.taped: list[tuple[SealedRow, list[Input], Outcome]] = []
        self.recorder = Recorder()

    def _apply(self, tick: int, asked: list[Input]) -> Outcome:
        outcome = super()._apply(tick, asked)
        taken = asked[: outcome.taken]
        self.taped.append((self.recorder.row(tick, taken, outcome.events), taken, outcome))
        return outcome


class Storing(History):
    """A history that is stored as the runtime does it: every tick committed, rows behind, now and then, and in between
    those of ended runs alone, where `early`."""

    def __init__(self, seed: int, store: Store, epoch: int, *, early: bool) -> None:
        super().__init__(seed)
        self.early = Random(seed) if early else None
        self.driver.__class__ = Taped
        self.driver.tape()
        self.check = False
        self.store, self.epoch = store, epoch
        self.write_behind = WriteBehind(self.driver.state)
        self.pending: list[SealedRow] = []

    async def go(self, steps: int) -> None:
        """Step by step, because what is stored must be stored before the next tick."""
        apply = self.driver._apply
        moments: list[tuple[SealedRow, Rows | None]] = []

        def observed(tick: int, asked: list[Input]) -> Outcome:
            outcome = apply(tick, asked)
            self.write_behind.observe(asked[: outcome.taken], outcome.events)
            sealed = self.driver.taped[-1][0]
            rows = None
            whole = self.rng.random() < 0.2
            if whole or (self.early and self.early.random() < 0.3 and not self.write_behind.window.reopened):
                rows = self.write_behind.rows() if whole else self.write_behind.ended_rows()
                self.write_behind.written()
                rows = _renamed(rows)
            moments.append((sealed, rows))
            return outcome

        self.driver._apply = observed
        self.run(steps)
        through, head = 0, GENESIS
        for sealed, rows in moments:
            await self.store.commit(0, sealed, [], epoch=self.epoch)
            if rows is not None:
                through, head = (sealed.seq, sealed.hash) if rows.header else (through, head)
                await self.store.write_rows(0, rows, epoch=self.epoch, through=through, head=head)
        self.last = (sealed.seq, sealed.hash)

    async def close(self) -> None:
        seq, head = self.last
        await self.store.write_rows(0, _renamed(self.write_behind.rows()), epoch=self.epoch, through=seq, head=head)


def _renamed(rows: Rows) -> Rows:
    """These histories use an id again without the fact that it is known; the runtime never does."""
    rows.runs = [msgspec.structs.replace(row, id=f"{row.id}.{row.number}") for row in rows.runs]
    return rows


async def stored(seed: int, steps: int, *, early: bool = True) -> tuple[Storing, MemoryStore]:
    store = MemoryStore(MemoryDisk())
    await store.open()
    history = Storing.__new__(Storing)
    settings = History(seed).driver.state.settings
    head = await store.claim(0, owner="n1", settings=msgspec.msgpack.encode(settings))
    history.__init__(seed, store, head.epoch, early=early)
    await history.go(steps)
    return history, store


@pytest.mark.proves("I7", "I9", "I12")
@pytest.mark.parametrize("seed", seeds(0, few=20, many=40))
async def test_recovery_gives_back_the_machine_that_never_died(seed):
    history, store = await stored(seed, 60)

    machine, write_behind, _ = await recover(store, 0)

    assert digest(machine.state) == digest(history.driver.state)
    assert {task: (held.row.attempt, held.row.worker) for task, held in write_behind.open.items()} == {
        task: (held.row.attempt, held.row.worker) for task, held in history.write_behind.open.items()
    }


@pytest.mark.parametrize("seed", range(40))
async def test_rows_of_ended_runs_may_be_written_early(seed):
    """In the end all is stored as if they had been written with everything else, also where one lived again."""
    early, late = [await stored(seed, 60, early=early) for early in (True, False)]
    for history, _ in (early, late):
        await history.close()
    found = [await _ended(history, store) for history, store in (early, late)]

    assert found[0] == found[1] and found[0]


async def _ended(history: Storing, store: MemoryStore) -> list[tuple[RunRow, list[AttemptRecord]]]:
    wanted = [RunFilter(tenant=tenant, limit=10_000) for tenant in sorted(history.driver.state.tenants)]
    rows = [row for one in wanted for row in (await store.list_runs(one)).rows]
    # Which of its attempts lie in the row itself depends on when it was written; all of them are compared.
    return [
        (msgspec.structs.replace(row, attempts=b""), _attempts_in(await store.read_attempts(row.number)))
        for row in rows
    ]


def _attempts_in(pieces: list[bytes]) -> list[AttemptRecord]:
    """In how many writes they came is nobody's concern."""
    return [attempt for piece in pieces for attempt in attempts_decoder.decode(piece)]


@pytest.mark.proves("I7", "I8")
@pytest.mark.parametrize("seed", range(100, 108))
async def test_its_next_thousand_ticks_are_the_same_byte_for_byte(seed):
    history, store = await stored(seed, 80)
    recovered, *_ = await recover(store, 0)
    twin = Recorder(seq=history.driver.recorder.seq, head=history.driver.recorder.head)
    before = len(history.driver.taped)

    del history.driver.__dict__["_apply"]
    while len(history.driver.taped) < before + 1_000:
        history.run(20)
    for sealed, asked, outcome in history.driver.taped[before : before + 1_000]:
        again = recovered.apply(outcome.tick, asked)

        assert twin.row(outcome.tick, asked, again.events).data == sealed.data


async def test_a_journal_that_does_not_end_at_the_head_is_refused():
    history, _ = await stored(1, 20)
    damaged = MemoryStore(MemoryDisk())
    await damaged.open()
    settings = msgspec.msgpack.encode(history.driver.state.settings)
    head = await damaged.claim(0, owner="n1", settings=settings)
    rows = [sealed for sealed, *_ in history.driver.taped]
    await damaged.commit(0, rows[0], [], epoch=head.epoch)
    changed = msgspec.structs.replace(rows[1], hash=bytes(32))
    await damaged.commit(0, changed, [], epoch=head.epoch)

    with pytest.raises(Corrupt):
        await recover(damaged, 0)


async def test_newer_rules_are_refused(monkeypatch):
    for seed in range(3, 40):  # until one leaves rows behind the watermark
        _, store = await stored(seed, 10)
        if (await store.load(0)).tail:
            break
    monkeypatch.setattr("tickwork.runtime.partition.recovery.MACHINE", 0)
    with pytest.raises(Corrupt, match="newer rules"):
        await recover(store, 0)


def test_the_driver_of_these_tests_decides_like_the_machine():
    machine, driver = Machine(), Driver()
    driver.__class__ = Taped
    driver.tape()
    driver.send(inp.PutTenant("x", "t2"))

    assert machine.state.tick == 0 and len(driver.taped) == 1
