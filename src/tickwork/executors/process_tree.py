"""Ending everything that a child started, also what has left its session.

A process belongs to a child if it is in the child's session, descends from it, or carries the child's mark in
its environment: a double fork with a session of its own keeps the mark. Only a process that has wiped its own
environment, left the session and lost its parent is not found. Where the agent itself is killed, its watchman does the
same by the mark alone.
"""

import atexit
import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tickwork.executors.limits import MARK

ROUNDS_MAX = 10  # something may fork while we look
LEAVE_S = 2.0
_PROC = Path("/proc")
log = logging.getLogger("tickwork.worker")


class _ProcessMark:
    """This process, as what it starts knows it: by a mark that no other has."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{time.time_ns():x}"
        self.numbers = itertools.count(1)
        self.watchman: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        if self.watchman is not None or not _PROC.is_dir():
            return
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("orphan_reaper.py")), f"{MARK}={self.mark}"]
        try:
            self.watchman = subprocess.Popen(  # noqa: S603 - a list of ours, and no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            log.warning("processes started by tasks will survive if this worker is killed: %s", error)

    def leave(self) -> None:
        """The process ends by itself: so does the watchman."""
        if self.watchman is not None:
            self._close_pipe(self.watchman)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.watchman.wait(LEAVE_S)

    def forget(self) -> None:
        """In a forked process, which is another agent: the end of the pipe belongs to the first one alone."""
        if self.watchman is not None:
            self._close_pipe(self.watchman)
            self.watchman.returncode = 0  # it is not a child of this process, so it cannot be waited for

    def _close_pipe(self, watchman: "subprocess.Popen[bytes]") -> None:
        assert watchman.stdin is not None
        watchman.stdin.close()


_agent = _ProcessMark()


def new_mark() -> str:
    """For all that one executor starts. From here on the orphan reaper watches this process."""
    _agent.watch()
    return f"{_agent.mark}-{next(_agent.numbers)}"


def _be_another() -> None:
    global _agent
    _agent.forget()
    _agent = _ProcessMark()


os.register_at_fork(after_in_child=_be_another)
atexit.register(lambda: _agent.leave())


def kill_all(leader: int, mark: str) -> int:
    """Kill the rest, `leader` itself included. Return how many there were."""
    killed = 0
    for _ in range(ROUNDS_MAX):
        pids = belonging(leader, mark)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed += len(pids)
        if not pids:
            break
    else:
        return killed
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)  # where there is no /proc, at least the group
    return killed


def belonging(leader: int, mark: str) -> list[int]:
    marker = f"{MARK}={mark}".encode()
    parents: dict[int, int] = {}
    pids = []
    for pid in _pids():
        parent, session, state = _stat(pid)
        if state in ("Z", "X", ""):
            continue
        parents[pid] = parent
        if session == leader or pid == leader or marker in _environ(pid):
            pids.append(pid)
    return [*pids, *_descendants(parents, {leader, *pids} - {os.getpid()}, known=set(pids))]


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
