"""Archives of old runs and journal rows.

An archive is one object in the artifact store: some runs with all their data, or a part of the journal as an export
that `tickwork replay` can read. Callers read runs and journal rows here, whether they are archived or not.
"""

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.base.values import Ref, Value
from tickwork.core.state.state import NUMBER_BITS
from tickwork.journal.export import read as read_export
from tickwork.journal.record import SealedRow
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.store import ChildRow, Head, LogChunk, RunRow, Store
from tickwork.ports.store_maintenance import LOGS, RUNS, ArchiveObject
from tickwork.runtime.storage.payloads import APART, ARGUMENTS_STEP, decode_value

N = TypeVar("N")
T = TypeVar("T")
MAGIC_LOGS = b"TWL1"
MAGIC = b"TWA1"  # no packed value begins with it, so that no value has the digest of an archive
OBJECTS_KEPT = 4
BYTES_MAX = 1 << 30  # unpacked


class RunBundle(msgspec.Struct, frozen=True, array_like=True):
    """A run as it was taken away."""

    row: RunRow
    attempts: list[bytes]  # of earlier stretches; the row has the last one
    children: list[ChildRow]


class ArchivedLogChunk(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a log as it was taken away, with its lines."""

    row: LogChunk
    lines: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_logs = msgspec.msgpack.Decoder(list[ArchivedLogChunk]).decode
_decode = msgspec.msgpack.Decoder(list[RunBundle]).decode


def packed(bundles: Sequence[RunBundle]) -> bytes:
    return MAGIC + zlib.compress(_encode(bundles), 6)


def unpacked(data: bytes) -> list[RunBundle]:
    return _unpacked(data, MAGIC, _decode, "runs")


def packed_logs(chunks: Sequence[ArchivedLogChunk]) -> bytes:
    return MAGIC_LOGS + zlib.compress(_encode(chunks), 6)


def unpacked_logs(data: bytes) -> list[ArchivedLogChunk]:
    return _unpacked(data, MAGIC_LOGS, _decode_logs, "logs")


def _unpacked(data: bytes, magic: bytes, decode: Callable[[bytes], T], what: str) -> T:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(data[len(magic) :], BYTES_MAX)
        if not data.startswith(magic) or not unpacker.eof:
            raise Corrupt(f"this is not an archive of {what}, or it is truncated")
        return decode(plain)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"an archive of {what} cannot be read: {error}") from None


class ArchiveReader:
    def __init__(self, store: Store, artifacts: Artifacts) -> None:
        self._store = store
        self._artifacts = artifacts
        self._kept: OrderedDict[str, dict[int, RunBundle]] = OrderedDict()  # objects that were read last
        self._pieces: OrderedDict[str, list[SealedRow]] = OrderedDict()  # of the journal, as above
        self._opened: OrderedDict[int, RunBundle] = OrderedDict()  # runs that were read last

    # ---- runs

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        """Find runs as a store does, also in the archive. The archive is not searched for keys: they count for a
        day."""
        if not ids:
            return await self._store.find_runs(tenant, ids=ids, keys=keys)
        rows, archived = await asyncio.gather(
            self._store.find_runs(tenant, ids=ids, keys=keys), self._store.archived(tenant, ids)
        )
        here = {row.id for row in rows}
        for run in archived:
            bundle = await self._bundle(run.object, run.number) if run.id not in here else None
            if bundle is not None:
                rows.append(bundle.row)
        return rows

    async def known(self, tenant: str, ids: Sequence[str]) -> set[str]:
        """Return which of these ids are taken, here or in the archive. The store is read first, so a run that is
        archived meanwhile is seen in at least one of them."""
        here = {row.id for row in await self._store.find_runs(tenant, ids=ids, keys=())}
        return here | {run.id for run in await self._store.archived(tenant, ids)}

    def opened(self, number: int) -> RunBundle | None:
        """The archived run that `find_runs` found of late."""
        return self._opened.get(number)

    async def earlier(self, tenant: str, run_id: str) -> RunBundle | None:
        """Return what the archive holds of a run, even if the run has come back since."""
        for run in await self._store.archived(tenant, [run_id]):
            return await self._bundle(run.object, run.number)
        return None

    async def _bundle(self, object_: str, number: int) -> RunBundle | None:
        """None where the object has just been deleted: it was too old."""
        bundles = self._kept.get(object_)
        if bundles is None:
            data = await self._artifacts.get(object_)
            if data is None:
                return None
            bundles = {entry.row.number: entry for entry in unpacked(data)}
            _remember(self._kept, object_, bundles, OBJECTS_KEPT)
        bundle = bundles.get(number)
        if bundle is None:
            raise Corrupt(f"the archive {object_} lacks run {number}")
        _remember(self._opened, number, bundle, 64)
        return bundle

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        """Read children from the store or the archive. A value may consist of results of another run's children: of a
        run that was called and ended long ago."""
        rows = await self._store.read_children(run, step)
        if rows:
            return rows
        opened = list(self._opened.values())
        if rows := [(c.child, c.value) for bundle in opened for c in bundle.children if (c.run, c.step) == (run, step)]:
            return rows
        for archive in await self._store.archives_over(run >> NUMBER_BITS, kind=RUNS, number=run):
            data = await self._artifacts.get(archive.object)
            children = [c for bundle in unpacked(data) for c in bundle.children] if data is not None else []
            if rows := [(c.child, c.value) for c in children if (c.run, c.step) == (run, step)]:
                return rows
        return []

    async def rows_apart(self, values: Iterable[Value]) -> list[ChildRow]:
        """All rows in the table of children that these values are made of, and what those are made of."""
        rows: dict[tuple[int, int, int], ChildRow] = {}
        todo = [value for value in values if isinstance(value, Ref) and value.place in APART]
        while todo:
            ref = todo.pop()
            run, part = (int(text) for text in ref.digest.split("/"))
            step, only = (part, None) if ref.place == "gather" else (ARGUMENTS_STEP, part)
            for child, data in await self.read_children(run, step):
                if (run, step, child) not in rows and only in (None, child):
                    rows[run, step, child] = ChildRow(run, step, child, data)
                    value = decode_value(data)
                    if isinstance(value, Ref) and value.place in APART:
                        todo.append(value)
        return list(rows.values())

    # ---- the journal

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        """Across the border: rows of the archive come first, and never together with those of the store."""
        try:
            return await self._store.journal(partition, after=after, limit=limit)
        except Corrupt:
            archive = await self._store.journal_archive(partition, seq=after + 1)
            if archive is None:
                raise
        rows = await self._piece(archive)
        begin = after + 1 - archive.first
        return rows[begin : begin + limit]

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        """The seq of the row of each of these ticks, for those ticks that have a row, here or in the archive."""
        seqs = await self._store.seqs_at(partition, ticks)
        older = sorted(tick for tick in ticks if tick not in seqs) if await self._store.journal_cut(partition) else []
        while older:
            archive = await self._store.journal_archive_at(partition, tick=older[0])
            if archive is None:
                break
            rows = {row.tick: row.seq for row in await self._piece(archive)}
            seqs |= {tick: rows[tick] for tick in older if tick in rows}
            older = [tick for tick in older if tick > archive.tick]
        return seqs

    async def _piece(self, archive: ArchiveObject) -> list[SealedRow]:
        """The rows of a piece of the journal."""
        rows = self._pieces.get(archive.object)
        if rows is None:
            data = await self._artifacts.get(archive.object)
            if data is None:
                raise Corrupt(
                    f"the rows from seq {archive.first} to {archive.last} are in an object that does not exist any more"
                )
            rows = list(read_export([data])[1])
            _remember(self._pieces, archive.object, rows, OBJECTS_KEPT)
        return rows

    async def log_chunks(self, task: int, attempt: int, *, after: int) -> list[ArchivedLogChunk]:
        """Return the archived chunks of a log, in order."""
        chunks: dict[int, ArchivedLogChunk] = {}
        for archive in await self._store.archives_over(task >> NUMBER_BITS, kind=LOGS, number=task):
            data = await self._artifacts.get(archive.object)
            for archived in unpacked_logs(data) if data is not None else ():
                if (archived.row.task, archived.row.attempt) == (task, attempt) and archived.row.chunk > after:
                    chunks[archived.row.chunk] = archived
        return [chunks[chunk] for chunk in sorted(chunks)]

    async def read_head(self, partition: int) -> Head:
        return await self._store.read_head(partition)


def _remember(kept: "OrderedDict[N, T]", name: N, thing: T, count: int) -> None:
    kept[name] = thing
    kept.move_to_end(name)
    if len(kept) > count:
        kept.popitem(last=False)
