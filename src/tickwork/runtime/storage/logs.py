"""Logs: chunks of lines into the artifact store, one index row each; never through tick or journal.

A chunk is JSON lines `{"at": ms, "stream": …, "text": …}` as the worker sent them. Index rows are collected for a
moment and written together. Followers of a log are woken when the rows are readable.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.store import LogChunk, Store
from tickwork.ports.system import Clock
from tickwork.protocol.log_lines import PIECE
from tickwork.runtime.storage.archive import ArchiveReader

CHUNK_BYTES_MAX = 1024 * 1024
GATHER_S = 0.02
OFFSETS_MAX = 10_000  # that are remembered; others are read again

Line = tuple[int, str, str]  # at_ms, stream, text
Piece = tuple[int, int, str]  # at_ms, number, text


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    at: int
    stream: str
    text: str
    number: int = -1  # of a piece


_lines = msgspec.json.Decoder(_Line)


class LogStore:
    def __init__(self, store: Store, artifacts: Artifacts, clock: Clock, archives: ArchiveReader) -> None:
        self._store = store
        self._archives = archives
        self._artifacts = artifacts
        self._clock = clock
        self._chunks: list[LogChunk] = []
        self._offsets: dict[tuple[int, int], int] = {}  # where the chunks begin that a worker counts from 0 now
        self._writer: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()

    async def append(self, task: int, attempt: int, *, chunk: int, first: int, data: bytes) -> None:
        """Durable when it returns."""
        if len(data) > CHUNK_BYTES_MAX:
            raise Refused("log_chunk_too_large", f"a chunk of a log has at most {CHUNK_BYTES_MAX} bytes; send several")
        lines = records(data)
        digest = await self._artifacts.put(data)
        position = await self._position(task, attempt, chunk, digest)
        row = LogChunk(task, attempt, position, first, len(lines), len(data), digest, self._clock.wall_ms())
        self._chunks.append(row)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        await asyncio.shield(self._writer)

    async def _position(self, task: int, attempt: int, chunk: int, digest: str) -> int:
        """Return the chunk's position in the stored log. A retried run counts its attempts from the start again, and a
        worker that took a log for ended does so with its chunks: such chunks go after the stored ones. A chunk that is
        sent again keeps its position."""
        key = (task, attempt)
        if chunk == 0 or key not in self._offsets:
            rows = await self._store.read_log_chunks(task, attempt)
            if len(self._offsets) >= OFFSETS_MAX:
                self._offsets.clear()
            if chunk == 0:
                behind = rows[-1].chunk + 1 if rows else 0
                self._offsets[key] = next((row.chunk for row in rows if row.digest == digest), behind)
            else:
                self._offsets[key] = max((row.chunk for row in rows if row.first == 0), default=0)
        return self._offsets[key] + chunk

    async def _write(self) -> None:
        try:
            await asyncio.sleep(GATHER_S)
        finally:
            chunks, self._chunks, self._writer = self._chunks, [], None
        await self._store.add_log_chunks(chunks)
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    async def read(self, task: int, attempt: int, *, after: int = -1) -> AsyncIterator[tuple[int, list[Line]]]:
        """Chunks behind `after`, each with its number and the lines that people read."""
        async for chunk, records in self._read(task, attempt, after):
            yield chunk, [(record.at, record.stream, record.text) for record in records if record.stream != PIECE]

    async def read_pieces(self, task: int, attempt: int, *, after: int = -1) -> AsyncIterator[tuple[int, list[Piece]]]:
        """The same with what the code streamed."""
        async for chunk, records in self._read(task, attempt, after):
            yield chunk, [(record.at, record.number, record.text) for record in records if record.stream == PIECE]

    async def _read(self, task: int, attempt: int, after: int) -> AsyncIterator[tuple[int, list[_Line]]]:
        """Those that left for the archive first."""
        rows = await self._store.read_log_chunks(task, attempt, after=after)
        if not rows or rows[0].chunk > after + 1:
            for old in await self._archives.log_chunks(task, attempt, after=after):
                if not rows or old.row.chunk < rows[0].chunk:
                    yield old.row.chunk, records(old.lines)
        for row in rows:
            data = await self._artifacts.get(row.digest)
            gone = [_Line(row.written_ms, "log", "[these lines are not available any more]")]
            yield row.chunk, records(data) if data is not None else gone

    async def more(self, timeout_s: float) -> None:
        """Until some log has grown, or for so long."""
        grown = self._grown
        try:
            async with asyncio.timeout(timeout_s):
                await grown.wait()
        except TimeoutError:
            return


def records(data: bytes) -> list[_Line]:
    try:
        return [_lines.decode(line) for line in data.split(b"\n") if line]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(
            "bad_log_chunk", f'a log chunk is JSON lines {{"at": ms, "stream": "…", "text": "…"}}: {error}'
        ) from None
