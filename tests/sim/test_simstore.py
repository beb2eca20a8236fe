"""A store with faults: what happened happened whole, and whoever is not told can find out."""

import pytest

from sim.faults import Faults
from sim.hosts import World
from sim.recorder import Journals
from sim.store import SimStore, StoreTroubles
from tickwork.core.base.errors import Unavailable
from tickwork.journal.record import GENESIS, Row, seal
from tickwork.ports.store import Fenced, OutcomeUnknown, Store, StoreFull
from tickwork.stores.memory.store import MemoryDisk, MemoryStore


class Bench:
    def __init__(self, seed=1, **faults):
        self.world = World(seed, faults=Faults(**faults))
        self.disk, self.journals = MemoryDisk(), Journals()
        self.troubles = StoreTroubles(self.world)

    def open(self, name):
        host = self.world.host(name) if name not in self.world.hosts else self.world.hosts[name]
        host.start()
        store: Store = SimStore(host, MemoryStore(self.disk), self.journals, self.troubles)
        store.at_once = 0.0
        self.run(host, self.until(store.open))
        return host, store

    async def until(self, deed, *args, **fields):
        for _ in range(100):
            try:
                return await deed(*args, **fields)
            except Unavailable:
                continue
        raise AssertionError("never")

    def run(self, host, coro):
        got = []

        async def body():
            try:
                got.append(await coro)
            except Exception as error:
                got.append(error)

        host.spawn(body())
        self.world.loop.run_until(lambda: bool(got), 600)
        return got[0]

    def claim(self, host, store):
        return self.run(host, self.until(store.claim, 0, owner=host.name, settings=b"")).epoch

    @property
    def journal(self):
        return self.disk.partitions[0].journal


def rows(count):
    made, before = [], GENESIS
    for seq in range(1, count + 1):
        made.append(seal(Row(seq, seq, "test", [], []), before))
        before = made[-1].hash
    return made


ROWS = rows(300)


@pytest.fixture
def bench():
    made = []

    def make(**fields):
        made.append(Bench(**fields))
        return made[-1]

    yield make
    for one in made:
        one.world.loop.settle()
        one.world.close()


def test_operations_take_time_and_happen_in_order(bench):
    b = bench()
    host, store = b.open("n")
    epoch = b.claim(host, store)
    begin = b.world.loop.time()
    for row in ROWS[:20]:
        host.spawn(store.commit(0, row, (), epoch=epoch))
    b.world.loop.advance(1)

    assert b.journal == ROWS[:20]
    assert [commit.row for commit in b.journals.acknowledged] == ROWS[:20]
    assert b.world.loop.time() > begin


def test_a_commit_at_once_is_written_and_acknowledged_before_anybody_waits_for_it(bench):
    b = bench()
    host, store = b.open("n")
    epoch = b.claim(host, store)
    store.at_once = 1.0
    answers = [store.commit(0, row, (), epoch=epoch) for row in (*ROWS[:2], ROWS[1])]

    assert all(answer.done() for answer in answers)
    assert isinstance(answers[2].exception(), Fenced)
    assert b.journal == [commit.row for commit in b.journals.acknowledged] == ROWS[:2]
    b.troubles.go_down(1)
    assert isinstance(b.run(host, store.commit(0, ROWS[2], (), epoch=epoch)), Unavailable)


def test_an_old_owner_is_fenced(bench):
    b = bench()
    one, old = b.open("one")
    two, new = b.open("two")
    epoch = b.claim(one, old)
    b.claim(two, new)

    assert isinstance(b.run(one, old.commit(0, ROWS[0], (), epoch=epoch)), Fenced)
    assert b.journals.commits(0) == []


def outcomes(b, host, store, epoch):
    """Commit until each row is in, as a caller does who reads the head; what was seen on the way."""
    seen = []
    for row in ROWS:
        while b.disk.partitions[0].head.seq < row.seq:
            seen.append(b.run(host, store.commit(0, row, (), epoch=epoch)))
    return seen


def test_failing_before_leaves_nothing_behind(bench):
    b = bench(store_fails=0.2)
    host, store = b.open("n")
    seen = outcomes(b, host, store, b.claim(host, store))

    failed = [error for error in seen if isinstance(error, Unavailable)]
    assert 30 < len(failed) < 150 and not any(isinstance(error, OutcomeUnknown) for error in failed)
    assert b.journal == [commit.row for commit in b.journals.acknowledged] == ROWS


def test_a_lost_answer_leaves_the_commit_there(bench):
    b = bench(store_answer_lost=0.2)
    host, store = b.open("n")
    seen = outcomes(b, host, store, b.claim(host, store))

    unknown = sum(isinstance(error, OutcomeUnknown) for error in seen)
    assert 20 < unknown < 120
    assert len(b.journals.acknowledged) == 300 - unknown
    assert b.journal == ROWS


def test_a_commit_that_timed_out_may_come_later_and_is_never_there_twice(bench):
    b = bench(store_late=0.2)
    host, store = b.open("n")
    epoch = b.claim(host, store)
    b.world.loop.advance(60)  # a late claim has come by now
    epoch = b.disk.partitions[0].head.epoch
    seen = outcomes(b, host, store, epoch)
    b.world.loop.advance(60)

    unknown = [error for error in seen if isinstance(error, OutcomeUnknown)]
    came_late = 300 - len(b.journals.acknowledged)
    assert len(unknown) > 20
    assert 0 <= came_late <= len(unknown)
    assert b.journal == ROWS


def test_slow_is_a_hundred_times_as_long(bench):
    def seconds(**faults):
        b = bench(**faults)
        host, store = b.open("n")
        epoch, begin = b.claim(host, store), b.world.loop.time()
        for row in ROWS[:100]:
            b.run(host, store.commit(0, row, (), epoch=epoch))
        return b.world.loop.time() - begin

    assert 20 < seconds(store_slow=1.0) / seconds() < 500


def test_outage_and_full_disk_end_by_themselves(bench):
    b = bench()
    host, store = b.open("n")
    epoch = b.claim(host, store)
    b.troubles.go_down(10)
    assert isinstance(b.run(host, store.read_head(0)), Unavailable)
    b.world.loop.advance(10)
    b.troubles.fill(10)
    assert isinstance(b.run(host, store.commit(0, ROWS[0], (), epoch=epoch)), StoreFull)
    assert b.run(host, store.read_head(0)).seq == 0  # reading goes on
    b.world.loop.advance(10)

    assert b.run(host, store.commit(0, ROWS[0], (), epoch=epoch)) is None
    assert b.journal == ROWS[:1]


def test_a_crash_in_the_middle_of_a_commit_happened_wholly_or_not_at_all(bench):
    there = []
    for seed in range(40):
        b = bench(seed=seed)
        host, store = b.open("n")
        epoch = b.claim(host, store)
        host.spawn(store.commit(0, ROWS[0], (), epoch=epoch))
        b.world.loop.advance(0.00001)
        host.crash()
        b.world.loop.advance(10)
        there.append(len(b.journal))
        assert b.journals.acknowledged == []
        assert [commit.row for commit in b.journals.commits(0)] == b.journal

    assert 5 < sum(there) < 35
