"""Random sequences of operations on both stores side by side: every answer and every error must be the same.

A sequence is made from its seed alone. Writers come and go, old ones try again, rows are mixed, stores are closed
and opened. On failure the seed and the steps so far are in the message.
"""

import random
from collections import Counter

import pytest

from conformance.store_suite import BITS, P, run
from tickwork.core.errors import TickworkError
from tickwork.journal.record import GENESIS, Sealed
from tickwork.ports.store import CacheRow, ChildRow, DefinitionRow, LogChunk, Payload, Rows, RunFilter
from tickwork.stores.memory import MemoryDisk, MemoryStore
from tickwork.stores.sqlite.store import SqliteStore

STEPS = 20
PARTITIONS = (P, P + 1)
seen = Counter()  # what the sequences came across: a generator that only meets errors would prove nothing


class Sequence:
    """What to do next, from a seed and from what was done; it never looks into a store."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.epoch = dict.fromkeys(PARTITIONS, 0)
        self.hashes = {partition: [GENESIS] for partition in PARTITIONS}
        self.watermark = dict.fromkeys(PARTITIONS, 0)

    def step(self):
        unclaimed = [partition for partition in PARTITIONS if not self.epoch[partition]]
        if unclaimed and self._often():
            return "claim", self._claim(unclaimed[0])
        name = self.random.choices(
            ["claim", "commit", "write_rows", "log", "reopen", "crash", "read"], [4, 12, 12, 2, 1, 1, 6], k=1
        )[0]
        return name, getattr(self, f"_{name}")(self.random.choice(PARTITIONS))

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
        row = Sealed(seq, seq * 7, self.random.randbytes(32), self._bytes(60))
        payloads = [Payload(f"d{self._small()}", b"p") for _ in range(self.random.choice([0, 0, 3]))]
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
            definitions=[DefinitionRow(f"h{n}-{partition}", self._tenant(), "w", b"doc%d" % n, n) for n in some()],
            reopened=[self._number(partition, n) for n in sorted(set(some()))],
            runs=[self._run(partition, n) for n in sorted(set(some()))],
            attempts=[(self._number(partition, n), self._bytes()) for n in some()],
            children=[ChildRow(self._number(partition, n), n % 2, self._small(), self._bytes()) for n in some()],
            cache=[CacheRow(f"k{n}", self._bytes(), n) for n in some()],
        )

    def _run(self, partition, n):
        number = self._number(partition, n)
        # Ids are told apart by number, but for the rare mix-up that a store must refuse.
        name = f"id{n}-{partition}" if self._often() else "id-twice"
        return run(
            number,
            id=name,
            tenant=self._tenant() if name == "id-twice" else "ab"[number % 2],
            workflow=self.random.choice("xyz"),
            state=self.random.choice([4, 4, 5, 6]),
            key=self.random.choice(["", "", "k1", "k2"]),
            schedule=self.random.choice(["", "", "s"]),
            attempts=self.random.choice([b"", self._bytes()]),
        )

    def _log(self, _partition):
        return {"chunks": [LogChunk(n % 2, 1, n, n, 1, self._small(), "d", 5) for n in self._some()]}

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
        )
        return {"partition": partition, "wanted": wanted}

    def _number(self, partition, n: int) -> int:
        return (partition << BITS) + n + 1

    def _some(self) -> list[int]:
        return [self._small() for _ in range(self.random.choice([0, 1, 1, 3]))]

    def _small(self) -> int:
        return self.random.randint(0, 5)

    def _tenant(self) -> str:
        return self.random.choice("ab")

    def _often(self) -> bool:
        return self.random.random() < 0.95

    def _bytes(self, size: int = 8) -> bytes:
        return self.random.randbytes(self.random.randint(1, size))


async def answer(store, name, arguments):
    """What it said, or the kind of error; messages may differ."""
    if name == "read":
        return await whole(store, **arguments)
    method = getattr(store, {"log": "add_log_chunks"}.get(name, name))
    try:
        return await method(**arguments)
    except TickworkError as error:
        return type(error)


async def whole(store, partition, wanted):
    """Everything that can be read."""
    found = await store.find_runs(wanted.tenant, ids=[f"id1-{partition}", "id-twice"], keys=["k1", "k2"])
    return [
        await store.read_head(partition),
        await store.load(partition),
        await store.journal(partition, after=1, limit=3),
        sorted((await store.read_payloads([f"d{n}" for n in range(6)])).items()),
        sorted(found, key=lambda row: row.number),
        await store.list_runs(wanted),
        [await store.read_attempts((partition << BITS) + n) for n in range(1, 7)],
        [await store.read_children((partition << BITS) + n + 1, n % 2) for n in range(6)],
        list((await store.read_cache([f"k{n}" for n in range(6)])).items()),
        [await store.read_definition(wanted.tenant, f"h{n}-{partition}") for n in range(6)],
        await store.read_log_chunks(1, 1),
    ]


class Pair:
    """Both stores, and the way to open them anew. SQLite without syncs: here answers count, not power cuts."""

    def __init__(self, folder) -> None:
        self.disk, self.path = MemoryDisk(), folder / "pair.db"

    async def open(self):
        self.stores = [MemoryStore(self.disk), SqliteStore(self.path, synchronous="OFF")]
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


async def compare(seed: int, folder) -> None:
    sequence, pair, done = Sequence(seed), Pair(folder), []
    await pair.open()
    try:
        for _ in range(STEPS):
            name, arguments = sequence.step()
            done.append((name, arguments))
            if name in ("reopen", "crash"):
                await (pair.close() if name == "reopen" else pair.crash())
                await pair.open()
                continue
            memory, sqlite = [await answer(store, name, arguments) for store in pair.stores]
            assert memory == sqlite, f"seed {seed}, after {done}"
            seen[name, memory.__name__ if isinstance(memory, type) else ""] += 1
            sequence.learn(name, arguments, memory)
    finally:
        await pair.close()


async def compare_all(seeds, tmp_path) -> None:
    seen.clear()
    for seed in seeds:
        folder = tmp_path / str(seed)
        await compare(seed, folder)
        for left in folder.iterdir():
            left.unlink()

    for expected in ("", "Fenced"):
        assert seen["commit", expected] and seen["write_rows", expected]
    assert seen["write_rows", "Corrupt"] or len(seeds) < 100
    assert seen["read", ""]


@pytest.mark.proves("I1", "I2", "I3")
async def test_both_stores_answer_the_same_to_the_same_sequence(tmp_path):
    await compare_all(range(60), tmp_path)


@pytest.mark.slow
@pytest.mark.proves("I1", "I2", "I3")
@pytest.mark.parametrize("block", range(20))
async def test_both_stores_answer_the_same_to_ten_thousand_sequences(tmp_path, block):
    await compare_all(range(block * 500, block * 500 + 500), tmp_path)
