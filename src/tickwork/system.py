"""The machine this runs on: its clocks, its chance, its folder of artifacts. Adapters of the ports."""

import asyncio
import errno
import os
import secrets
import time
import uuid
from pathlib import Path

from tickwork.core.errors import Corrupt, Unavailable
from tickwork.ports.artifacts import digest_of
from tickwork.ports.places import private_file, private_folder
from tickwork.ports.store import StoreFull

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # gone when something else ends, without anybody's doing
_COUNTER_MAX = 0xFFF
_COUNTERS = tuple(f"{number:03x}" for number in range(_COUNTER_MAX + 1))
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemIds:
    """UUID version 7: 48 bits of time, a counter of 12 bits within the millisecond, and 62 bits of chance for each
    millisecond. So no process gives an id twice, and no two processes meet."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._counter = 0
        self._head = self._tail = ""

    def new(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._last_ms:
            self._begin(now_ms)
        elif self._counter == _COUNTER_MAX:
            self._begin(self._last_ms + 1)
        else:
            self._counter += 1
        return self._head + _COUNTERS[self._counter] + self._tail

    def _begin(self, ms: int) -> None:
        text, chance = f"{ms:012x}", os.urandom(8).hex()
        self._last_ms, self._counter, self._head = ms, 0, f"{text[:8]}-{text[8:]}-7"
        self._tail = f"-{_VARIANTS[chance[0]]}{chance[1:4]}-{chance[4:]}"

    def token(self) -> str:
        return secrets.token_urlsafe(32)


class FolderArtifacts:
    """One file per artifact, named by its digest. A file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> str:
        digest = digest_of(data)
        await asyncio.to_thread(self._write, digest, data)
        return digest

    async def get(self, digest: str) -> bytes | None:
        data = await asyncio.to_thread(self._read, digest)
        if data is not None and digest_of(data) != digest:
            raise Corrupt(f"artifact {digest} is damaged: its bytes do not match its name")
        return data

    async def delete(self, digest: str) -> None:
        await asyncio.to_thread(self._path(digest).unlink, missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]

    def _write(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        if path.exists():
            return
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            private_folder(path.parent)
            with open(private_file(draft), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            draft.unlink(missing_ok=True)
            kind = Unavailable if error.errno in _SCARCE else StoreFull
            raise kind(f"an artifact could not be written: {error.strerror}", retry_after_ms=5_000) from error

    def _read(self, digest: str) -> bytes | None:
        try:
            return self._path(digest).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"an artifact could not be read: {error.strerror}", retry_after_ms=1_000) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
