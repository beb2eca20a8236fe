"""Random sequences of operations on all stores side by side: every answer and every error must be the same.

A sequence is made from its seed and its place in the file alone. Writers come and go, old ones try again, rows are
mixed, stores are closed and opened. Some sequences follow one another in one file, each with names of its own: opening
a store takes as long as a whole sequence. On failure the seed, its place and the steps so far are in the message.
"""

import asyncio
import random
from collections import Counter, deque

import asyncpg
import pytest

from conformance.store_suite import BITS, P, run
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.core.base.errors import TickworkError
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import (
    BackfillRow,
    CacheRow,
    ChildRow,
    DefinitionRow,
    InboxRow,
    LogChunk,
    Payload,
    Route,
    Rows,
    RunFilter,
    TimeRange,
)
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite import connections
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.stores.sqlite.threads import JobThread

STEPS = 20
MIXED = 20  # these numbers are nobody else's
SEQUENCES_PER_FILE = 8
seen = Counter()  # what the sequences came across: a generator that only meets errors would prove nothing


class Sequence:
    """What to do next, from a seed and from what was done; it never looks into a store."""

    def __init__(self, seed: int, place: int) -> None:
        self.random = random.Random(seed)
        self.partitions = (P + 2 * place, P + 2 * place + 1)
        self.tenants = (f"a{place}", f"b{place}")
        self.place, self.numbers = place, 12 * place
        self.epoch = dict.fromkeys(self.partitions, 0)
        self.hashes = {partition: [GENESIS] for partition in self.partitions}
        self.watermark = dict.fromkeys(self.partitions, 0)

    def step(self):
        unclaimed = [partition for partition in self.partitions if not self.epoch[partition]]
        if unclaimed and self._often():
            return "claim", self._claim(unclaimed[0])
        name = self.random.choices(
            ["claim", "commit", "write_rows", "log", "route", "inbox", "taken", "reopen", "crash", "read"],
            [4, 12, 12, 2, 1, 1, 1, 1, 1, 6],
            k=1,
        )[0]
        return name, getattr(self, f"_{name}")(self.random.choice(self.partitions))

    def learn(self, name, arguments, answer) -> None:
        if isinstance(answer, type):
            return
        if name == "claim":
            self.epoch[arguments["partition"]] = answer.epoch
        elif name == "commit":
            self.hashes[arguments["partition"]].append(arguments["row"].hash)
        elif name == "write_rows":
            self.watermark[arguments["partition"]] = arguments["through"]

    def _stale(self, epoch: int) -> int:
        return epoch - self.random.choice([0] * 9 + [1, -1])

    def _claim(self, partition):
        return {"partition": partition, "owner": self.random.choice("abc"), "settings": self._bytes()}

    def _commit(self, partition):
        seq = len(self.hashes[partition]) + self.random.choice([0] * 9 + [1, -1])
        row = SealedRow(seq, seq * 7, self.random.randbytes(32), self._bytes(60))
        values = [b"%d-%d" % (self.place, self._small()) for _ in range(self.random.choice([0, 0, 3]))]
        payloads = [Payload(digest_of(value), value) for value in values]
        return {"partition": partition, "row": row, "payloads": payloads, "epoch": self._stale(self.epoch[partition])}

    def _write_rows(self, partition):
        seqs = len(self.hashes[partition]) - 1
        through = self.random.randint(self.watermark[partition], seqs) if self._often() else self._small()
        head = self.hashes[partition][min(through, seqs)]
        epoch = self._stale(self.epoch[partition])
        return {"partition": partition, "rows": self._rows(partition), "epoch": epoch, "through": through, "head": head}

    def _rows(self, partition) -> Rows:
        some = self._some
        return Rows(
            header=self.random.choice([b"", self._bytes()]),
            live_runs=list({n: (self._number(partition, n), self._bytes()) for n in some()}.values()),
            gone_runs=[self._number(partition, n) for n in some()],
            live_tasks=list({n: (self._number(partition, n), self._bytes()) for n in some()}.values()),
            gone_tasks=[self._number(partition, n) for n in some()],
            schedules=list({n: (self._number(partition, n), self._bytes()) for n in some()}.values()),
            gone_schedules=[self._number(partition, n) for n in some()],
            fates=[self._fate(partition, n) for n in some()],
            backfills=[
                BackfillRow(self._number(partition, n), self.tenants[n % 2], "s", self._bytes()) for n in some()
            ],
            definitions=[DefinitionRow(f"h{n}-{partition}", self._tenant(), "w", b"doc%d" % n, n) for n in some()],
            reopened=[self._number(partition, n) for n in sorted(set(some()))],
            runs=[self._run(partition, n) for n in sorted(set(some()))],
            attempts=[(self._number(partition, n), self._bytes()) for n in some()],
            children=[ChildRow(self._number(partition, n), n % 2, self._small(), self._bytes()) for n in some()],
            cache=[CacheRow(f"k{self.place}-{n}", self._bytes(), n) for n in some()],
        )

    def _backfill(self, partition, n):
        return BackfillRow(self._number(partition, n), self.tenants[n % 2], "s", self._bytes())

    def _fate(self, partition, n):
        number = self._number(partition, n)
        return FateRange(self._tenant(), "s", number, 1, n * 10, n * 10 + self._small(), 1, 2, "cause", n % 2)

    def _run(self, partition, n):
        # A number has one id for good. One id under two numbers is the rare mix-up that a store must refuse.
        mixed = not self._often()
        number = self._number(partition, n) + (MIXED if mixed else 0)
        return run(
            number,
            id="id-twice" if mixed else f"id{n}-{partition}",
            tenant=self.tenants[0 if mixed else number % 2],
            workflow=self.random.choice("xyz"),
            state=self.random.choice([4, 4, 5, 6]),
            key=self.random.choice(["", "", "k1", "k2"]),
            schedule=self.random.choice(["", "", "s"]),
            attempts=self.random.choice([b"", self._bytes()]),
            submitted_ms=self._moment(),
            started_ms=self.random.choice([0, self._moment()]),
            ended_ms=self._moment(),
            error=self.random.choice(["", "", "charge: TimeoutError 7", "load: disk full"]),
            tags=tuple(tag for tag in ("a", "b") if self.random.random() < 0.3),
            fields=self.random.choice([(), (("customer", "ed"),), (("customer", "ann"), ("region", "eu"))]),
            version=self.random.choice(["", "", "shop@1", "bank@1"]),
        )

    def _moment(self) -> int:
        """Some hours, days and months apart, so that they are in one small step, one large step, or neither."""
        return 1_700_000_000_000 + self._small() * self.random.choice([1, 3_600_000, 40 * 3_600_000, 20 * 86_400_000])

    def _range(self):
        if self.random.random() < 0.8:
            return TimeRange()
        first = self._moment()
        return TimeRange(first, first + 1 + self._small() * self.random.choice([1, 3_600_000, 86_400_000]))

    def _log(self, _partition):
        return {"chunks": [LogChunk(self.numbers + n % 2, 1, n, n, 1, self._small(), "d", 5) for n in self._some()]}

    def _route(self, partition):
        tenant, (first, second) = self.tenants[0], self.partitions
        over = self.random.choice([None, Route(tenant, first), Route(tenant, second)])
        return {"route": Route(tenant, partition, self.random.choice([1, 2])), "over": over}

    def _inbox(self, partition):
        return {"rows": [InboxRow(f"i{n}", partition, self.tenants[0], self._bytes(), "ann") for n in self._some()]}

    def _taken(self, partition):
        return {"partition": partition, "ids": [f"i{n}" for n in self._some()]}

    def _reopen(self, _partition):
        return {}

    def _crash(self, _partition):
        return {}

    def _read(self, partition):
        states = tuple(self._some())[:2]
        wanted = RunFilter(
            self._tenant(),
            workflow=self.random.choice(["", "x"]),
            states=tuple(4 + state % 3 for state in states),
            schedule=self.random.choice(["", "", "s"]),
            before=self.random.choice([0, 0, self._number(partition, self._small())]),
            limit=self.random.choice([1, 3, 50]),
            after=self.random.choice([0, 0, 0, self._number(partition, 1)]),
            tags=self.random.choice([(), (), ("a",), ("a", "b")]),
            fields=self.random.choice([(), (), (("customer", "ed"),), (("region", "eu"),)]),
            version=self.random.choice(["", "", "", "1", "shop@1"]),
            error=self.random.choice(["", "", "", "timeout", "Disk full", "timeouterror 7", "7"]),
            submitted=self._range(),
            started=self._range(),
            ended=self._range(),
        )
        return {"partition": partition, "wanted": wanted, "place": self.place}

    def _number(self, partition, n: int) -> int:
        return (partition << BITS) + n + 1

    def _some(self) -> list[int]:
        return [self._small() for _ in range(self.random.choice([0, 1, 1, 3]))]

    def _small(self) -> int:
        return self.random.randint(0, 5)

    def _tenant(self) -> str:
        return self.random.choice(self.tenants)

    def _often(self) -> bool:
        return self.random.random() < 0.95

    def _bytes(self, size: int = 8) -> bytes:
        return self.random.randbytes(self.random.randint(1, size))


METHODS = {"log": "add_log_chunks", "route": "put_route", "inbox": "add_inbox", "taken": "drop_inbox"}


async def answer(store, name, arguments):
    """What it said, or the kind of error; messages may differ."""
    if name == "read":
        return await whole(store, **arguments)
    method = getattr(store, METHODS.get(name, name))
    try:
        return await method(**arguments)
    except TickworkError as error:
        return type(error)


async def whole(store, partition, wanted, place):
    """Everything that can be read of a partition."""
    known = [(partition << BITS) + n + 1 for n in range(6)]
    asked = (
        store.read_head(partition),
        store.load(partition),
        store.read_payloads([digest_of(b"%d-%d" % (place, n)) for n in range(6)]),
        store.find_runs(wanted.tenant, ids=[f"id1-{partition}", "id-twice"], keys=["k1", "k2"]),
        store.read_cache([f"k{place}-{n}" for n in range(6)]),
        store.read_inbox(partition, limit=9),
        store.journal(partition, after=1, limit=3),
        store.list_runs(wanted),
        store.read_log_chunks(12 * place + 1, 1),
        store.read_fates(wanted.tenant, "s", from_ms=12, to_ms=41, limit=4),
        store.list_backfills(wanted.tenant, limit=3),
        store.read_routes(),
        store.establish_identity(cluster=wanted.workflow, partitions=partition),
        *(store.read_attempts(n) for n in known),
        *(store.read_children(n, n % 2) for n in known),
        *(store.read_definition(wanted.tenant, f"h{n}-{partition}") for n in range(6)),
    )
    head, loaded, payloads, found, cache, inbox, *rest = await at_once(asked, store)
    found.sort(key=lambda row: row.number)
    inbox.sort(key=lambda row: row.id)
    return [head, loaded, sorted(payloads.items()), found, list(cache.items()), inbox, rest]


async def at_once(asked, store):
    """Answers of a thread come back together."""
    threads = isinstance(store, SqliteStore) and connections.JobThread is JobThread
    return await asyncio.gather(*asked) if threads else [await one for one in asked]


class AtOnce:
    """In place of a thread of the SQLite store: jobs in the same order, done where they are asked. The way to a thread
    and back costs more than most jobs, and nothing in these sequences happens at the same time."""

    def __init__(self, _name, _answers) -> None:
        self._posted = deque()

    def ask(self, job, *args):
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(job(*args))
        except Exception as error:
            future.set_exception(error)
        while self._posted:
            self._posted.popleft()()
        return future

    def post(self, job) -> None:
        self._posted.append(job)

    async def stop(self) -> None: ...


class SideBySide:
    """The stores, and the way to open them anew. SQLite without syncs: here answers count, not power cuts."""

    def __init__(self, folder, more) -> None:
        self.disk, self.path, self.more = MemoryDisk(), folder / "pair.db", more

    async def open(self):
        self.stores = [MemoryStore(self.disk), SqliteStore(self.path, synchronous="OFF"), *self.more()]
        for store in self.stores:
            await store.open()

    async def close(self):
        for store in self.stores:
            await store.close()

    async def crash(self):
        """The files go on as they lay there before the closing, the log not yet moved into the database."""
        names = [self.path.name, f"{self.path.name}-wal"]
        left = {name: (self.path.parent / name).read_bytes() for name in names}
        await self.close()
        for name in names:
            (self.path.parent / name).write_bytes(left[name])


async def compare(seed: int, place: int, pair: SideBySide) -> None:
    sequence, done = Sequence(seed, place), []
    for _ in range(STEPS):
        name, arguments = sequence.step()
        done.append((name, arguments))
        if name in ("reopen", "crash"):
            await (pair.close() if name == "reopen" else pair.crash())
            await pair.open()
            continue
        memory, *others = [await answer(store, name, arguments) for store in pair.stores]
        for store, other in zip(pair.stores[1:], others, strict=True):
            assert memory == other, f"{type(store).__name__}, seed {seed} in place {place}, after {done}"
        seen[name, memory.__name__ if isinstance(memory, type) else ""] += 1
        sequence.learn(name, arguments, memory)


async def compare_all(seeds, tmp_path, more=list, clear=None) -> None:
    seen.clear()
    for first in range(0, len(seeds), SEQUENCES_PER_FILE):
        pair = SideBySide(tmp_path / str(first), more)
        await pair.open()
        try:
            for place, seed in enumerate(seeds[first : first + SEQUENCES_PER_FILE]):
                await compare(seed, place, pair)
        finally:
            await pair.close()
        if clear is not None:
            await clear()

    for expected in ("", "Fenced"):
        assert seen["commit", expected] and seen["write_rows", expected]
    assert seen["write_rows", "Corrupt"] or len(seeds) < 100
    assert all(seen[name, ""] for name in ("read", "log", "route", "inbox", "taken"))


@pytest.mark.proves("I1", "I2", "I3")
async def test_stores_answer_the_same_to_the_same_sequence(tmp_path):
    await compare_all(range(60), tmp_path)


@pytest.mark.slow
@pytest.mark.proves("I1", "I2", "I3")
@pytest.mark.parametrize("block", range(20))
async def test_stores_answer_the_same_to_ten_thousand_sequences(tmp_path, block, monkeypatch):
    if block:  # five hundred with threads are enough
        monkeypatch.setattr(connections, "JobThread", AtOnce)
    await compare_all(range(block * 500, block * 500 + 500), tmp_path)


class LastingPostgres(PostgresStore):
    """Its connections outlive the steps that open the others anew: making them takes longer than all other steps."""

    async def open(self):
        if self._opened is None:
            await super().open()

    async def close(self):
        for known in (self._seen, self._doubts, self._writes):
            known.clear()


@pytest.mark.proves("I1", "I2", "I3")
async def test_postgresql_answers_the_same_as_the_others(tmp_path, postgres, schema):  # noqa: F811
    """Fewer of them, because each step crosses a socket; what a sequence leaves behind is cleared for the next."""
    store = LastingPostgres(postgres, schema=schema)
    await store.open()
    keeper = await asyncpg.connect(postgres, server_settings={"search_path": schema})
    names = "select string_agg('delete from ' || tablename, ';') from pg_tables where schemaname = $1"
    forget = await keeper.fetchval(names + " and tablename <> 'migrations'", schema)
    try:
        await compare_all(range(20_000, 20_150), tmp_path, lambda: [store], lambda: keeper.execute(forget))
    finally:
        await keeper.close()
        await PostgresStore.close(store)
