"""Folders and files that only their owner may read: they contain inputs, results and logs of users.

What is created here has these rights whatever the umask says. Existing files keep their rights; `tickwork doctor`
reports wider ones. `ScratchDirectory` is for files that are needed only while a process lives.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077
SCRATCH = "tickwork-scratch-"
MOVING_IN_S = 60


def private_folder(folder: Path) -> None:
    """This folder, and those above it that are missing."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for parent in reversed(missing):
        try:
            parent.mkdir(mode=FOLDER_MODE)
        except FileExistsError:  # another process was first
            continue
        parent.chmod(FOLDER_MODE)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def private_file(path: Path) -> int:
    """A new file, open for writing. Raises `FileExistsError`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    os.fchmod(handle, FILE_MODE)
    return handle


def open_to_others(path: Path) -> bool:
    """Whether anybody but its owner may do something with it."""
    return bool(path.stat().st_mode & OTHERS)


class ScratchDirectory:
    """A folder of this process in the system's temporary one, until `remove`.

    A lock shows that its process lives; the system releases it however the process ends. So folders of killed processes
    are recognized, also across containers that share the temporary folder, and the next process removes them.
    """

    _swept = False

    def __init__(self) -> None:
        if not ScratchDirectory._swept:
            ScratchDirectory._swept = True
            _remove_left(Path(tempfile.gettempdir()))
        self.path = tempfile.mkdtemp(prefix=SCRATCH)
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # without locks, it cannot be mistaken for a left-behind file either
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        if self._handle >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._handle)
            self._handle = -1


def _remove_left(parent: Path) -> None:
    """Remove folders of this user whose process has ended. A young one may belong to a process that is starting."""
    for folder in parent.glob(f"{SCRATCH}*"):
        try:
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < MOVING_IN_S:
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(handle)
