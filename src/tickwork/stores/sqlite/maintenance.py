"""The part of the port that keeps less, and that takes everything elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tickwork.ports.store import ChildRow, LogChunk, RunRow
from tickwork.ports.store_maintenance import ArchivedRun, ArchiveObject, LogAddress, TableBatch, Take
from tickwork.stores.sqlite.connections import Connections
from tickwork.stores.sqlite.dump import Dump, Load
from tickwork.stores.sqlite.reader import Reader
from tickwork.stores.sqlite.threads import JobThread, ResultDispatcher
from tickwork.stores.sqlite.writer.transactions import WriterTransactions


class SqliteMaintenance:
    path: Path

    @property
    def _connections(self) -> Connections:
        raise NotImplementedError

    # ---- keeping less

    async def runs_after(self, partition: int, *, number: int, limit: int) -> list[RunRow]:
        return await self._connections.read(Reader.runs_after, partition, number, limit)

    async def children_between(self, first: int, last: int) -> list[ChildRow]:
        return await self._connections.read(Reader.children_between, first, last)

    async def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        return await self._connections.read(Reader.attempts_between, first, last)

    async def move_runs(
        self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], *, epoch: int
    ) -> None:
        await self._connections.write(WriterTransactions.move_runs, partition, archive, list(runs), epoch)

    async def drop_journal(self, partition: int, archive: ArchiveObject, *, epoch: int) -> None:
        await self._connections.write(WriterTransactions.drop_journal, partition, archive, epoch)

    async def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        return await self._connections.read(Reader.archived, tenant, ids)

    async def journal_cut(self, partition: int) -> int:
        return await self._connections.read(Reader.journal_cut, partition)

    async def journal_archive(self, partition: int, *, seq: int) -> ArchiveObject | None:
        return await self._connections.read(Reader.journal_archive, partition, seq)

    async def journal_archive_at(self, partition: int, *, tick: int) -> ArchiveObject | None:
        return await self._connections.read(Reader.journal_archive_at, partition, tick)

    async def old_archives(self, *, before_ms: int, limit: int) -> list[ArchiveObject]:
        return await self._connections.read(Reader.old_archives, before_ms, limit)

    async def drop_archive(self, object_: str) -> None:
        await self._connections.write(WriterTransactions.drop_archive, object_)

    async def log_chunks_after(self, partition: int, *, after: LogAddress, limit: int) -> list[LogChunk]:
        return await self._connections.read(Reader.log_chunks_after, partition, after, limit)

    async def named_logs(self, digests: Sequence[str], *, since_ms: int) -> frozenset[str]:
        return await self._connections.read(Reader.named_logs, digests, since_ms)

    async def drop_log_chunks(self, places: Sequence[LogAddress], *, archive: ArchiveObject | None = None) -> None:
        await self._connections.write(WriterTransactions.drop_log_chunks, list(places), archive)

    async def archives_over(self, partition: int, *, kind: str, number: int) -> list[ArchiveObject]:
        return await self._connections.read(Reader.archives_over, partition, kind, number)

    async def renew_payloads(self, digests: Sequence[str]) -> frozenset[str]:
        return frozenset(await self._connections.write(WriterTransactions.renew_payloads, list(digests)))

    async def drop_payloads(self, *, before: int, limit: int) -> int:
        return await self._connections.write(WriterTransactions.drop_payloads, before, limit)

    async def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        return await self._connections.read(Reader.named_objects, digests)

    async def note_renewal(self, partition: int, *, epoch: int) -> None:
        await self._connections.write(WriterTransactions.note_renewal, partition, epoch)

    async def renewals(self) -> dict[int, int]:
        return await self._connections.read(Reader.renewals)

    # ---- taking it elsewhere

    async def export(self, take: Take) -> None:
        """Run on a thread and a connection of its own, so that nothing waits for it."""
        assert self._connections is not None, "it is open"
        thread = JobThread("sqlite export", ResultDispatcher(asyncio.get_running_loop()))
        dump: Dump | None = None
        try:
            dump = await thread.ask(Dump, self.path)
            while (batch := await thread.ask(dump.next)) is not None:
                await take(batch)
        finally:
            if dump is not None:
                await thread.ask(dump.close)
            await thread.stop()

    async def bring_in(self, batches: AsyncIterator[TableBatch]) -> None:
        assert self._connections is not None, "it is open"
        thread = JobThread("sqlite import", ResultDispatcher(asyncio.get_running_loop()))
        arrival: Load | None = None
        try:
            arrival = await thread.ask(Load, self.path)
            async for batch in batches:
                await thread.ask(arrival.take, batch)
            await thread.ask(arrival.finish)
        finally:
            if arrival is not None:
                await thread.ask(arrival.close)
            await thread.stop()
