"""Second opinions on real time: the clock of a database, and the time since this machine was booted."""

import asyncio
import os
import time
from pathlib import Path

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.store import HasTime
from tickwork.system.private_files import private_file

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StoreTime:
    """The clock of a database that the nodes share."""

    independent = True

    def __init__(self, store: HasTime) -> None:
        self._store = store

    async def read_ms(self) -> int | None:
        return await self._store.time_ms()

    async def record(self, real_ms: int) -> None:  # noqa: ARG002 - it has a clock of its own
        return


class _Anchor(msgspec.Struct, frozen=True):
    boot_id: str
    boot_ms: int
    real_ms: int


class BootTime:
    """The time that was recorded last, plus what has passed since by the clock that counts from the boot of this
    machine, suspension included. It survives a restart of the process, not of the machine. It confirms that time has
    passed and cannot know that the wall clock was corrected, so it is not independent."""

    independent = False

    def __init__(self, path: Path, *, boot_id: Path = BOOT_ID) -> None:
        self._path = path
        self._boot_id = _text(boot_id)

    async def read_ms(self) -> int | None:
        anchor = await asyncio.to_thread(self._read)
        if anchor is None or anchor.boot_id != self._boot_id:
            return None
        return anchor.real_ms + _boot_ms() - anchor.boot_ms

    async def record(self, real_ms: int) -> None:
        if self._boot_id:
            await asyncio.to_thread(self._write, _Anchor(self._boot_id, _boot_ms(), real_ms))

    def _read(self) -> _Anchor | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Anchor)
        except (OSError, msgspec.MsgspecError):
            return None  # not there, or half written by a crash: then there is no second opinion

    def _write(self, anchor: _Anchor) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            with open(private_file(draft), "wb") as file:
                file.write(msgspec.json.encode(anchor))
            draft.replace(self._path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise Unavailable(f"the time could not be recorded: {error.strerror}", retry_after_ms=60_000) from error


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _text(path: Path) -> str:
    """Empty where the system has no such file: then nothing is recorded."""
    try:
        return path.read_text().strip() if hasattr(time, "CLOCK_BOOTTIME") else ""
    except OSError:
        return ""
