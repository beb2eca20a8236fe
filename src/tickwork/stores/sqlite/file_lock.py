"""One process per file.

A lock of the operating system on `<file>.lock`, so that it is gone with the process that held it, however that
ended. The pid inside is only for the message.
"""

import fcntl
import os
import weakref
from pathlib import Path
from typing import Self

from tickwork.ports.store import StoreInUse
from tickwork.system.private_files import FILE_MODE

_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


class FileLock:
    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        _held.add(self)

    @classmethod
    def take(cls, path: Path) -> Self:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise StoreInUse(_in_use(path, holder)) from None
        except BaseException:
            os.close(handle)
            raise
        return cls(path, handle)

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two files of one name."""
        if self._handle >= 0:
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # closing alone would leave it to children that share it
            self.forget()

    def forget(self) -> None:
        os.close(self._handle)
        self._handle = -1


def _in_use(path: Path, holder: str) -> str:
    database = path.with_suffix("")
    who = f"process {holder}" if holder else "another process"
    return f"{database} is in use by {who}: stop it first, or give this one a file of its own"


def _forget_in_child() -> None:
    """Drop the lock in a forked child: if it outlived this process, no other process could take the file."""
    for lock in list(_held):
        if lock._handle >= 0:
            lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)
