"""Huey on SQLite or Redis: one consumer with two processes.

On SQLite its consumer polls every 10 to 50 ms instead of 0.1 to 10 s, in its favour. Huey writes each task in a
transaction of its own and has no call for many. A chain is its pipeline. A graph is its chord; the root enqueues it.
"""

import sys
import time
from pathlib import Path
from typing import Any

from huey import RedisHuey, SqliteHuey
from huey.api import chord

from peer_kit import FOLDER, LINKS, STORE, WORKERS, Peer, measure

ON_REDIS = STORE.startswith("redis")
huey = RedisHuey("bench", url=STORE + "/2") if ON_REDIS else SqliteHuey("bench", filename=str(FOLDER / "huey.sqlite"))


@huey.task()
def one() -> int:
    return 1  # it stores no None


@huey.task()
def started() -> int:
    return time.time_ns()


@huey.task()
def link(before: list[int]) -> list[int]:
    # A pipeline spreads a tuple over the arguments, a list stays whole.
    return [*before, time.time_ns()]


@huey.task()
def leaf() -> int:
    return 1


@huey.task()
def join(parts: list[int]) -> int:
    return len(parts)


@huey.task()
def root() -> int:
    huey.enqueue(chord([leaf.s() for _ in range(10)], join.s()))
    return 1


class Huey(Peer):
    stored_per_graph = 12  # it counts the results of all tasks

    def workers(self) -> list[list[str | Path]]:
        program = Path(sys.executable).parent / "huey_consumer"
        pace = [] if ON_REDIS else ["-d", "0.01", "-m", "0.05"]
        return [[program, "peer_huey.huey", "-w", str(WORKERS), "-k", "process", "-q", "-n", *pace]]

    def put(self, kind: str, runs: int) -> None:
        task = root if kind == "graph" else one
        for _ in range(runs):
            task()

    def stored(self, kind: str) -> int:  # noqa: ARG002 - it counts results of every kind; one kind runs at a time
        return int(huey.result_count())

    def begin(self) -> Any:
        return started()

    def stamp(self, begun: Any) -> int:
        return int(begun.get(blocking=True, timeout=30, backoff=1, max_delay=0.01))

    def chain(self) -> list[int]:
        line = link.s([])
        for _ in range(LINKS - 1):
            line = line.then(link)
        *_, last = huey.enqueue(line)
        found: list[int] = last.get(blocking=True, timeout=30, backoff=1, max_delay=0.01)
        return found


if __name__ == "__main__":
    import peer_huey  # so that the tasks here and those of the consumer have one name

    measure(peer_huey.Huey())
