"""The machine this runs on: its clocks, its chance, its folder of artifacts. Adapters of the ports."""

import asyncio
import contextlib
import errno
import os
import secrets
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.ports.artifacts import Named, digest_of
from tickwork.ports.store import StoreFull
from tickwork.system.private_files import private_file, private_folder
from tickwork.system.uuids import Uuids

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # gone when something else ends, without anybody's doing


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemIds(Uuids):
    def token(self) -> str:
        return secrets.token_urlsafe(32)


class SystemProcesses:
    """Linux: a process is named by the boot, its namespaces of processes and of time, its number and its start.

    Numbers mean nothing in another namespace and start times nothing in another one of time, so that both are part of
    the name: what a container calls process 7 is never compared with process 7 of another. A namespace ends with its
    last process, so that a name is never given twice.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def own(self) -> str:
        pid = os.getpid()
        try:
            if os.readlink(self._proc / "self") != str(pid):
                return ""  # it shows the processes of another namespace
            _, start = self._stat(pid)
            return f"{self._domain()}/{pid}/{start}"
        except (OSError, ValueError, IndexError):
            return ""

    def has_ended(self, process: str) -> bool:
        domain, _, rest = process.partition("/")
        pid, _, start = rest.partition("/")
        try:
            if not process or domain != self._domain() or not self.own():
                return False
            with contextlib.suppress(PermissionError):  # it is there, and another user's
                os.kill(int(pid), 0)
            state, began = self._stat(int(pid))
            # A thread may outlive the first one of its process, which then waits as a zombie for it.
            return began != start or (state in "ZX" and len(os.listdir(self._proc / pid / "task")) <= 1)
        except ProcessLookupError:
            return True  # of `kill`, which sees the processes of all users in this namespace
        except (OSError, ValueError, IndexError):
            return False

    def _domain(self) -> str:
        boot = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}.{self._namespace('pid')}.{self._namespace('time')}"

    def _namespace(self, kind: str) -> str:
        try:
            return os.readlink(self._proc / "self/ns" / kind).strip(f"{kind}:[]")
        except FileNotFoundError:
            return ""  # a kernel without namespaces of this kind has one for all

    def _stat(self, pid: int) -> tuple[str, str]:
        """State and start, in clock ticks after the boot. A program's name may contain anything, also brackets."""
        fields = (self._proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]


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

    async def renew(self, digests: Sequence[str]) -> frozenset[str]:
        return await asyncio.to_thread(
            lambda: frozenset(digest for digest in digests if self._touch(self._path(digest)))
        )

    async def sweep(self, *, before: int, named: Named) -> int:
        count = 0
        for folder in await asyncio.to_thread(_folders, self._folder):
            old = await asyncio.to_thread(_old_in, folder, before)
            kept = await named(old) if old else ()
            gone = [self._path(digest) for digest in old if digest not in kept]
            count += await asyncio.to_thread(lambda paths: sum(_drop_old(path, before) for path in paths), gone)
        return count

    def _touch(self, path: Path) -> bool:
        """Whether it is there."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]

    def _write(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        if self._touch(path):
            return
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            private_folder(path.parent)
            with open(private_file(draft), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            try:
                _sync_folder(path.parent)
            except OSError:
                path.unlink(missing_ok=True)  # who tries again must not find it there, and take it for synced
                raise
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


def _folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def _old_in(folder: Path, before: int) -> list[str]:
    digests = []
    for entry in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if not entry.name.startswith(".") and _day_of(entry) < before:
                digests.append(folder.name + entry.name)
    return digests


def _drop_old(path: Path, before: int) -> bool:
    """Rename first. A user of the file before that makes it young again; one that comes later writes it again."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    if _day_of(aside) >= before:
        aside.replace(path)
        return False
    aside.unlink()
    return True


def _day_of(path: Path) -> int:
    return int(path.stat().st_mtime) // 86_400


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
