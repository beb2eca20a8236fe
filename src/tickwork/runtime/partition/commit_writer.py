"""Makes decisions durable: repeats a commit until its outcome is known, and row writes until they succeed.

One writer serves one partition in one epoch, and decides nothing. If the head has another epoch, another node has taken
over: the writer raises `Fenced`, and writes nothing more.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.journal.record import SealedRow
from tickwork.ports.store import Fenced, Head, OutcomeUnknown, Payload, Rows, Store, StoreFull
from tickwork.runtime.storage.store_retry import RETRY_S, RETRY_S_MAX, retry_until_available

COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)  # bounds of a histogram


class CommitWriter:
    def __init__(
        self, store: Store, number: int, *, head: Head, watermark_head: bytes, on_alarm: Callable[[str, str], None]
    ) -> None:
        """`watermark_head` is the hash at the watermark."""
        self.watermark, self.watermark_head = head.watermark, watermark_head
        self.full = False  # the store has no space left
        self.taken = 0  # by the store: commits and portions of rows
        self.commit_counts = [0] * (len(COMMIT_SECONDS) + 1)  # by how long they took, for /metrics
        self.commit_seconds = 0.0
        self._store = store
        self._number, self._epoch = number, head.epoch
        self._on_alarm = on_alarm

    # ---- commits

    def begin(self, row: SealedRow, payloads: list[Payload]) -> "asyncio.Future[None]":
        """The disk has work while the shell still writes its write_behind."""
        return asyncio.ensure_future(self._store.commit(self._number, row, payloads, epoch=self._epoch))

    async def commit(self, row: SealedRow, payloads: list[Payload], begun: "asyncio.Future[None] | None") -> None:
        """Returns when it is durable. `begun` is what `begin` gave, where it was begun."""
        wait, doubt = RETRY_S, False
        while True:
            try:
                await (begun or self._store.commit(self._number, row, payloads, epoch=self._epoch))
            except OutcomeUnknown:
                doubt = True
                if await self._is_committed(row):
                    break
            except Fenced:
                # A commit that timed out may happen later; then it is our own row that stands in the way.
                if not (doubt and await self._is_committed(row)):
                    raise
                break
            except StoreFull:
                if not self.full:
                    self._on_alarm(
                        "store_full", "the store has no space left; no new work is accepted until space is free"
                    )
                self.full = True
            except Unavailable as error:
                self._on_alarm("store_unavailable", str(error))
            else:
                break
            begun = None
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_S_MAX)
        self.full = False

    def committed(self, took_s: float) -> None:
        self.commit_seconds += took_s
        self.commit_counts[bisect_left(COMMIT_SECONDS, took_s)] += 1
        self.taken += 1

    async def _is_committed(self, row: SealedRow) -> bool:
        """Whether a commit of unknown outcome happened: the head tells."""
        head = await self._head()
        if (head.seq, head.hash) == (row.seq, row.hash):
            return True
        if head.seq == row.seq - 1:
            return False
        raise Corrupt(f"partition {self._number} stands at seq {head.seq}, which this owner did not write")

    async def _head(self) -> Head:
        head = await retry_until_available(lambda: self._store.read_head(self._number))
        if head.epoch != self._epoch:
            raise Fenced(f"partition {self._number} has another owner since epoch {head.epoch}")
        return head

    # ---- rows

    async def write_rows(self, rows: Rows, *, through: int, head: bytes) -> None:
        """Ended runs first: writing them again after a crash changes nothing. The rest and the watermark in one, where
        all is to be written."""
        count, whole = self._store.portion, bool(rows.header)
        while len(rows.runs) > count or (rows.runs and not whole):
            portion, rows.runs = rows.runs[:count], rows.runs[count:]
            await self._write(Rows(runs=portion), through=self.watermark, head=self.watermark_head)
        if whole:
            await self._write(rows, through=through, head=head)
            self.watermark, self.watermark_head = through, head

    async def _write(self, rows: Rows, *, through: int, head: bytes) -> None:
        wait = RETRY_S
        while True:
            try:
                await self._store.write_rows(self._number, rows, epoch=self._epoch, through=through, head=head)
                self.taken += 1
                return
            except OutcomeUnknown:
                # Attempts must not be written twice, because they would be listed twice; ended runs may be.
                if rows.header and (await self._head()).watermark >= through:
                    return
            except Unavailable as error:
                self._on_alarm("rows_late", str(error))
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_S_MAX)
