"""PgQueuer on PostgreSQL: two worker processes with uvloop, batches of 100 instead of its default of 10.

It is a queue: no results, no chains, no graphs. A task counts as done when its row has left the queue, which is the
transaction that also writes it to the log of PgQueuer.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from peer_kit import FOLDER, STORE, WORKERS, Peer, measure, until

BATCH = 100
PER_CALL = 2_000


async def work() -> None:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(STORE)))

    @queue.entrypoint("one")
    async def one(job: Any) -> None:
        return None

    @queue.entrypoint("started")
    async def started(job: Any) -> None:
        now, number = time.time_ns(), job.payload.decode()
        part = FOLDER / f"part.{number}"
        part.write_text(str(now))
        part.rename(FOLDER / f"stamp.{number}")  # there at once and whole

    await queue.run(batch_size=BATCH)


class WithPgQueuer(Peer):
    first = 2_000
    has_chain = False
    has_graph = False

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.connection = self.runner.run(asyncpg.connect(STORE))
        self.queries = Queries(AsyncpgDriver(self.connection))
        self.runner.run(self.queries.install())
        self.submitted = 0
        self.begun = 0

    def workers(self) -> list[list[str | Path]]:
        return [[sys.executable, __file__, "work"]] * WORKERS

    def put(self, kind: str, runs: int) -> None:
        self.submitted += runs
        for done in range(0, runs, PER_CALL):
            count = min(PER_CALL, runs - done)
            self.runner.run(self.queries.enqueue([kind] * count, [None] * count, [0] * count))

    def stored(self, kind: str) -> int:
        left = self.runner.run(self.connection.fetchval("select count(*) from pgqueuer where entrypoint = $1", kind))
        return self.submitted - int(left)

    def begin(self) -> Path:
        self.begun += 1
        self.runner.run(self.queries.enqueue("started", str(self.begun).encode()))
        return FOLDER / f"stamp.{self.begun}"

    def stamp(self, begun: Path) -> int:
        until(begun.exists, "a task to start", gap_s=0.005)
        return int(begun.read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        uvloop.run(work())
    else:
        measure(WithPgQueuer())
