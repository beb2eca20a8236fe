"""Ending everything that a child started, also what has left its session.

A process belongs to a child if it is in the child's session, descends from it, or carries the child's mark in
its environment: a double fork with a session of its own keeps the mark. Only a process that has wiped its own
environment, left the session and lost its parent is not found.
"""

import contextlib
import os
import signal
from pathlib import Path

from tickwork.executors.limits import MARK

ROUNDS_MAX = 10  # something may fork while we look
_PROC = Path("/proc")


def kill_all(leader: int, mark: str) -> int:
    """Kill the rest, `leader` itself included. Answers how many were found."""
    killed = 0
    for _ in range(ROUNDS_MAX):
        found = belonging(leader, mark)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed += len(found)
        if not found:
            break
    else:
        return killed
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)  # where there is no /proc, at least the group
    return killed


def belonging(leader: int, mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    parents: dict[int, int] = {}
    found = []
    for pid in _pids():
        parent, session, state = _stat(pid)
        if state in ("Z", "X", ""):
            continue
        parents[pid] = parent
        if session == leader or pid == leader or wanted in _environ(pid):
            found.append(pid)
    return [*found, *_descendants(parents, {leader, *found} - {os.getpid()}, known=set(found))]


def _descendants(parents: dict[int, int], roots: set[int], *, known: set[int]) -> list[int]:
    more: list[int] = []
    grown = True
    while grown:
        new = [pid for pid, parent in parents.items() if parent in roots and pid not in roots and pid not in known]
        more += new
        roots = roots | set(new)
        grown = bool(new)
    return more


def state_of(pid: int) -> str:
    """R, S, D, T, Z …; "" where it is gone."""
    return _stat(pid)[2]


def _pids() -> list[int]:
    try:
        return [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> tuple[int, int, str]:
    """Parent, session, state."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[1]), int(fields[3]), fields[0]
    except (OSError, IndexError, ValueError):
        return 0, 0, ""


def _environ(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
