"""DBOS through its queue: SQLite with one worker process, PostgreSQL with two.

Its queue and its messages are polled ten times a second instead of its default of once, in its favour. Runs are
enqueued many to a transaction. Chain and graph are one workflow of durable steps, the form that it recommends.
"""

import asyncio
import os
import sys
import threading
import time
from typing import Any

from dbos import DBOS, DBOSClient

from peer_kit import ITEMS, LINKS, STORE, WORKERS, Peer, measure, until

ON_POSTGRES = STORE.startswith("postgresql")
ADDRESS = STORE.replace("postgresql://", "postgresql+psycopg://")
POLL_S = 0.1
PER_TRANSACTION = 500
PAID_S = 3 * 86_400


@DBOS.workflow()
def one() -> None:
    return None


@DBOS.workflow()
def started() -> int:
    return time.time_ns()


@DBOS.step()
async def stamp() -> int:
    return time.time_ns()


@DBOS.workflow()
async def chain() -> list[int]:
    return [await stamp() for _ in range(LINKS)]


@DBOS.workflow()
async def graph() -> None:
    await stamp()
    await asyncio.gather(*(stamp() for _ in range(10)))
    await stamp()


@DBOS.step()
async def reserve(number: int) -> str:
    return f"reserved {number}"


@DBOS.step()
async def pack(item: int) -> str:
    return f"packed {item}"


@DBOS.workflow()
async def order(number: int) -> int:
    await reserve(number)
    paid = await DBOS.recv_async("paid", timeout_seconds=PAID_S)
    assert paid is not None, "nobody paid"
    await asyncio.gather(*(pack(item) for item in range(ITEMS)))
    shipped_ns: int = await stamp()
    return shipped_ns


def work() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": ADDRESS,
            "application_version": "1",
            "executor_id": os.environ["PEER_NUMBER"],
            "run_admin_server": False,
            "notification_listener_polling_interval_sec": POLL_S,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue("work", polling_interval_sec=POLL_S)
    threading.Event().wait()


class Dbos(Peer):
    first = 200
    look_s = 0.25  # on SQLite a reader is in the way of its writers: no WAL

    def __init__(self) -> None:
        self.client = DBOSClient(system_database_url=ADDRESS)
        self.schema = "dbos." if ON_POSTGRES else ""

    def workers(self) -> list[list[str | Any]]:
        return [[sys.executable, __file__, "work"]] * (WORKERS if ON_POSTGRES else 1)

    def ready(self) -> None:
        until(self._has_queue, "the workers to make the tables and the queue", gap_s=0.25)
        super().ready()

    def _has_queue(self) -> bool:
        try:
            return self.client.retrieve_queue("work") is not None
        except Exception:  # no table yet, in the words of either database
            return False

    def put(self, kind: str, runs: int) -> None:
        # More than one writer helps PostgreSQL; SQLite has only one.
        share = [runs // 4] * 3 + [runs - runs // 4 * 3] if ON_POSTGRES else [runs]
        threads = [threading.Thread(target=self._put, args=(kind, part)) for part in share]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _put(self, kind: str, runs: int) -> None:
        for done in range(0, runs, PER_TRANSACTION):
            with self.client._sys_db.engine.begin() as connection:
                for _ in range(min(PER_TRANSACTION, runs - done)):
                    self.client.enqueue_in_transaction(connection, self._options(kind))

    def _options(self, kind: str) -> Any:
        return {"workflow_name": kind, "queue_name": "work", "app_version": "1", "application_name": "bench"}

    def stored(self, kind: str) -> int:
        text = f"select count(*) from {self.schema}workflow_status where name = '{kind}' and status = 'SUCCESS'"
        with self.client._sys_db.engine.connect() as connection:
            return int(connection.exec_driver_sql(text).scalar_one())

    def begin(self) -> Any:
        return self.client.enqueue(self._options("started"))

    def stamp(self, begun: Any) -> int:
        return int(begun.get_result(polling_interval_sec=0.02))

    def chain(self) -> list[int]:
        found: list[int] = self.client.enqueue(self._options("chain")).get_result(polling_interval_sec=0.02)
        return found

    def order(self, count: int) -> list[Any]:
        return [self.client.enqueue(self._options("order"), number) for number in range(count)]

    def pay(self, orders: list[Any]) -> None:
        for order in orders:
            self.client.send(order.workflow_id, {"amount": 1}, topic="paid")

    def shipped(self, order: Any) -> int:
        return int(order.get_result(polling_interval_sec=0.02))


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        measure(Dbos())
