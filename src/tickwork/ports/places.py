"""Folders and files that only their owner may look into: inputs, results and logs of users lie in them.

What is made here has these rights whatever the umask says. What is there already keeps the rights that somebody gave
it; `tickwork doctor` tells where they are wider.
"""

import os
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077


def private_folder(folder: Path) -> None:
    """This folder, and those above it that are missing."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        try:
            one.mkdir(mode=FOLDER_MODE)
        except FileExistsError:  # somebody else was first
            continue
        one.chmod(FOLDER_MODE)
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
