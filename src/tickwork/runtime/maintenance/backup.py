"""A whole store as one stream, for backups and copies to another store.

The file consists of frames of rows, each with a checksum, and a last frame with the counts: a file without it is
truncated. Artifacts are included under their own table name. An imported store is fenced: it becomes another cluster,
with epochs that no owner of the original will ever reach, so that neither can write into the other.
"""

import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import MappingProxyType
from typing import IO, Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.names import TENANT
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.store import ALONE, Store
from tickwork.ports.store_maintenance import COLUMNS, TableBatch
from tickwork.runtime.context import PARTITION

MAGIC = b"TWB1"
EPOCH_STEP = 1_000_000  # claims that the original will not live to see
ARTIFACTS = "artifacts"
FRAME_BYTES_MAX = 1 << 30
INLINE_BYTES_MAX = 64 * 1024  # values larger than a payload are artifacts
_SIZE = struct.Struct(">II")  # length, checksum
_COUNTS = "counts"
# Tables of work, and the column whose number includes the partition.
_NUMBERED = MappingProxyType({"live_runs": 0, "schedules": 0, "runs": 0, "archived": 2})

ReportProgress = Callable[[str, int], None]  # a table, and how many of its rows have passed


class _Frame(msgspec.Struct, array_like=True, frozen=True):
    table: str
    rows: list[tuple[Any, ...]]


_decoder = msgspec.msgpack.Decoder(_Frame)
_encode = msgspec.msgpack.Encoder().encode


def frame(batch: TableBatch) -> bytes:
    body = zlib.compress(_encode(_Frame(batch.table, batch.rows)), 1)
    return _SIZE.pack(len(body), zlib.crc32(body)) + body


async def write(
    store: Store, artifacts: Iterable[tuple[str, bytes]], file: IO[bytes], say: ReportProgress
) -> dict[str, int]:
    """Yield the rows of a store, then the artifacts outside it, then the counts."""
    counts: dict[str, int] = {}
    file.write(MAGIC)

    async def take(batch: TableBatch) -> None:
        file.write(frame(batch))
        counts[batch.table] = counts.get(batch.table, 0) + len(batch.rows)
        say(batch.table, counts[batch.table])

    await store.export(take)
    for digest, data in artifacts:
        await take(TableBatch(ARTIFACTS, [(digest, data)]))
    file.write(frame(TableBatch(_COUNTS, sorted(counts.items()))))
    return counts


def read(file: IO[bytes]) -> Iterator[TableBatch]:
    """What `write` wrote. Raises `Corrupt` where it is damaged, at the latest when it ends too early."""
    if file.read(len(MAGIC)) != MAGIC:
        raise Corrupt("this is not a tickwork backup: its first bytes are wrong")
    counts: dict[str, int] = {}
    while True:
        batch = _next(file)
        if batch.table == _COUNTS:
            if dict(batch.rows) != counts or file.read(1):
                raise Corrupt("the number of rows in the backup does not match its count: it is damaged")
            return
        if batch.table not in COLUMNS and batch.table != ARTIFACTS:
            raise Corrupt(f"the backup has a table {batch.table!r}, which this version does not know: upgrade it")
        counts[batch.table] = counts.get(batch.table, 0) + len(batch.rows)
        yield batch


def _next(file: IO[bytes]) -> TableBatch:
    head = file.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise Corrupt("the backup is truncated")
    length, checksum = _SIZE.unpack(head)
    if length > FRAME_BYTES_MAX:
        raise Corrupt("the backup is damaged: a frame cannot be that long")
    body = file.read(length)
    if len(body) < length or zlib.crc32(body) != checksum:
        raise Corrupt("the backup is truncated or damaged: a checksum does not match")
    try:
        batch = _decoder.decode(zlib.decompress(body))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the backup cannot be read: {error}") from None
    return TableBatch(batch.table, batch.rows)


def fenced(batch: TableBatch, *, cluster: str) -> TableBatch:
    """The same rows, of another cluster: owners of the original are strangers to it."""
    if batch.table == "founded":
        return TableBatch(batch.table, [(cluster, *row[1:]) for row in batch.rows])
    if batch.table == "partitions":
        return TableBatch(batch.table, [(row[0], row[1] + EPOCH_STEP, *row[2:]) for row in batch.rows])
    return batch


class RestoreResult(msgspec.Struct):
    """What came in."""

    rows: dict[str, int] = {}
    heads: dict[int, tuple[int, bytes]] = {}  # of partitions: seq and hash


async def bring_in(
    store: Store,
    artifacts: Artifacts,
    batches: AsyncIterator[TableBatch],
    *,
    cluster: str,
    inside: bool,
    say: ReportProgress,
) -> RestoreResult:
    """All of it or nothing, fenced. `inside`: the store is a database that nodes share, and keeps artifacts itself,
    among its payloads; a folder has only one partition. What comes from a folder has its home there."""
    arrived = RestoreResult()
    named: set[str] = set()  # bytes that are read as artifacts

    async def rows() -> AsyncIterator[TableBatch]:
        async for batch in batches:
            if inside and batch.table == "founded":
                batch = TableBatch(batch.table, [row for row in batch.rows if row[1] != ALONE])
                if not batch.rows:
                    continue  # of a folder: the first node founds its cluster
            count = arrived.rows.get(batch.table, 0) + len(batch.rows)
            arrived.rows[batch.table] = count
            say(batch.table, count)
            if batch.table == ARTIFACTS and inside:
                yield TableBatch("payloads", batch.rows)
                continue
            if batch.table == ARTIFACTS:
                for _, data in batch.rows:
                    await artifacts.put(data)
                continue
            if not inside:
                _must_fit_one(batch)
            for row in batch.rows:
                if batch.table == "partitions":
                    arrived.heads[row[0]] = (row[3], row[5])
                elif batch.table == "log_chunks":
                    named.add(row[6])
                elif batch.table == "archives":
                    named.add(row[0])
                elif batch.table == "payloads" and len(row[1]) > INLINE_BYTES_MAX and not inside:
                    await artifacts.put(row[1])
            yield fenced(batch, cluster=cluster)
        if inside and "founded" not in arrived.rows and "routes" not in arrived.rows and arrived.heads:
            yield TableBatch("routes", [(TENANT, PARTITION, 1)])  # not where the hash of a name would look for it

    await store.bring_in(rows())
    for digest in sorted(named):  # a database keeps artifacts among its payloads; a folder does not
        if not inside and await artifacts.get(digest) is None:
            data = (await store.read_payloads([digest])).get(digest)
            if data is not None:
                await artifacts.put(data)
    for partition, (seq, hash_) in arrived.heads.items():
        head = await store.read_head(partition)
        if (head.seq, head.hash) != (seq, hash_):
            raise Corrupt(
                f"partition {partition} was restored at seq {head.seq}, but backed up at {seq}, or with another hash"
            )
    return arrived


def _must_fit_one(batch: TableBatch) -> None:
    column = _NUMBERED.get(batch.table)
    if column is None:
        return
    elsewhere = next(
        (row[column] >> NUMBER_BITS for row in batch.rows if row[column] >> NUMBER_BITS != PARTITION), None
    )
    if elsewhere is not None:
        raise Refused(
            "many_partitions",
            f"this backup of a cluster has work in partition {elsewhere}, and a folder has only "
            f"partition {PARTITION}: name a PostgreSQL database",
        )
