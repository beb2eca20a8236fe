"""Procrastinate on PostgreSQL: two worker processes of ten coroutines each, tasks deferred in batches of 1,000.

It is a queue: no results and no graphs. A task counts as done when its row says succeeded. Its chain is one that every
task continues by itself, as its documentation proposes.
"""

import asyncio
import sys
import time
from pathlib import Path

import procrastinate
import psycopg

from peer_kit import FOLDER, LINKS, STORE, WORKERS, Peer, measure, until

AT_ONCE = 10
PER_CALL = 1_000
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=STORE, max_size=AT_ONCE + 4))


def note(name: str) -> None:
    """When it started: there at once and whole."""
    part = FOLDER / f"part.{name}"
    part.write_text(str(time.time_ns()))
    part.rename(FOLDER / f"stamp.{name}")


@app.task(name="one")
async def one() -> None:
    return None


@app.task(name="started")
async def started(number: int) -> None:
    note(str(number))


@app.task(name="link")
async def link(chain: int, place: int) -> None:
    note(f"{chain}.{place}")
    if place + 1 < LINKS:
        await link.defer_async(chain=chain, place=place + 1)


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=AT_ONCE, install_signal_handlers=False)


class Procrastinate(Peer):
    first = 500
    has_graph = False

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self._open())
        self.connection = psycopg.connect(STORE, autocommit=True)
        self.begun = self.chains = 0

    async def _open(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    def workers(self) -> list[list[str | Path]]:
        return [[sys.executable, __file__, "work"]] * WORKERS

    def put(self, kind: str, runs: int) -> None:  # noqa: ARG002 - it has only one kind
        for done in range(0, runs, PER_CALL):
            self.runner.run(one.batch_defer_async(*[{}] * min(PER_CALL, runs - done)))

    def stored(self, kind: str) -> int:
        asked = "select count(*) from procrastinate_jobs where task_name = %s and status = 'succeeded'"
        found = self.connection.execute(asked, (kind,)).fetchone()
        return int(found[0]) if found else 0

    def begin(self) -> Path:
        self.begun += 1
        self.runner.run(started.defer_async(number=self.begun))
        return FOLDER / f"stamp.{self.begun}"

    def stamp(self, begun: Path) -> int:
        until(begun.exists, "a task to start", gap_s=0.005)
        return int(begun.read_text())

    def chain(self) -> list[int]:
        self.chains += 1
        self.runner.run(link.defer_async(chain=self.chains, place=0))
        return [self.stamp(FOLDER / f"stamp.{self.chains}.{place}") for place in range(LINKS)]


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        asyncio.run(work())
    else:
        measure(Procrastinate())
