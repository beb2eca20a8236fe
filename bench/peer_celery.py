"""Celery with Redis for broker and results: one worker with two processes (prefork, its default), prefetch as it is.

The sender of the plain tasks has no result backend, because with one Celery subscribes to every task it sends:
results are stored all the same, and sending is quicker.
"""

import sys
import time
from pathlib import Path
from typing import Any

import redis
from celery import Celery, chord
from celery import chain as make_chain

from peer_kit import LINKS, STORE, WORKERS, Peer, measure

RESULTS = STORE + "/1"
app = Celery("peer_celery", broker=STORE + "/0", backend=RESULTS)
app.conf.update(broker_connection_retry_on_startup=True)
sender = Celery("sender", broker=STORE + "/0")


@app.task(name="one")
def one() -> None:
    return None


@app.task(name="started")
def started() -> int:
    return time.time_ns()


@app.task(name="link")
def link(before: list[int]) -> list[int]:
    return [*before, time.time_ns()]


@app.task(name="leaf")
def leaf() -> int:
    return 1


@app.task(name="join")
def join(parts: list[int]) -> int:
    return len(parts)


class WithCelery(Peer):
    def __init__(self) -> None:
        self.results = redis.Redis.from_url(RESULTS)
        self.graphs: list[str] = []
        self.graphs_stored = 0

    def workers(self) -> list[list[str | Path]]:
        command = [sys.executable, "-m", "celery", "-A", "peer_celery", "worker", "-c", str(WORKERS), "-l", "WARNING"]
        return [[*command, "--without-gossip", "--without-mingle"]]

    def put(self, kind: str, runs: int) -> None:
        if kind == "graph":
            for _ in range(runs):
                made = leaf.si() | chord([leaf.si() for _ in range(10)], join.s())
                self.graphs.append("celery-task-meta-" + made.apply_async().id)
            return
        with sender.producer_or_acquire() as producer:
            for _ in range(runs):
                sender.send_task("one", producer=producer)

    def stored(self, kind: str) -> int:
        if kind != "graph":
            return int(self.results.dbsize())
        while names := self.graphs[self.graphs_stored : self.graphs_stored + 100]:
            there = self.results.exists(*names)
            if there < len(names):
                return self.graphs_stored + int(there)
            self.graphs_stored += len(names)
        return self.graphs_stored

    def begin(self) -> Any:
        return started.apply_async()

    def stamp(self, begun: Any) -> int:
        return int(begun.get(timeout=30))

    def chain(self) -> list[int]:
        found: list[int] = make_chain(link.s([]), *(link.s() for _ in range(LINKS - 1))).apply_async().get(timeout=30)
        return found


if __name__ == "__main__":
    import peer_celery  # so that the tasks here and those of the worker have one name

    measure(peer_celery.WithCelery())
