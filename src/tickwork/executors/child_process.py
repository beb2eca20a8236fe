"""One process that runs user code, as the pool sees it.

It has a stream of its own for what it says, shared memory in which it notes what it runs, and pipes for what its
code prints past Python. Ending it ends everything it started.
"""

import contextlib
import mmap
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable

from tickwork.executors.limits import Limits, confined, environment
from tickwork.executors.process_tree import kill_all, state_of
from tickwork.protocol.child_messages import ChildMessage, ControlMessage, FrameDecoder, frame, sayings_decoder
from tickwork.protocol.child_shared_memory import ChildSharedMemory, marks_bytes
from tickwork.protocol.log_lines import LineSplitter

READ_BYTES = 256 * 1024
STOP_GRACE_S = 5.0  # what an attempt gets to end after it was called off
INSIST_NS = 500_000_000  # so long an attempt may look by itself whether it was called off
_buffer = bytearray(READ_BYTES)
_view = memoryview(_buffer)
Key = tuple[int, int]


class ChildSettings:
    """How children are started; the same for all pools of an executor."""

    def __init__(
        self,
        app: str,
        *,
        folder: str,
        cwd: str | None = None,
        limits: Limits | None = None,
        env: dict[str, str] | None = None,
        command: tuple[str, ...] = (),
        stop_grace_s: float = STOP_GRACE_S,
        mono_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.stop_grace_ns = round(stop_grace_s * 1e9)
        self.mono_ns, self.wall_ns = mono_ns, wall_ns
        self.app, self.folder, self.cwd = app, folder, cwd
        self.limits = limits or Limits()
        self.env = env or {}
        self.command = command


class ChildProcess:
    def __init__(self, mode: str, width: int, mark: str, *, queue: socket.socket, settings: ChildSettings) -> None:
        self.mode, self.width, self.mark = mode, width, mark
        self.ready = False
        self.doomed = False  # we end it: what it runs besides is handed back, not failed
        self.kill_at_ns = 0  # when asking was enough
        self.insist_at_ns = 0  # when it is stopped a second time
        self.retired = False  # takes nothing more, and ends when all that is left in it was called off
        self.heard_retire = False  # it says that it takes nothing more
        self.printed_bytes = 0  # past Python, since it was last held up
        self.noisy = False  # has printed past Python
        self.printers: dict[int, Key | None] = {}  # by pipe: whose attempt printed last past Python
        self.last: Key | None = None  # what it ended last
        self.born_ns = time.monotonic_ns()
        self.held_ns = 0  # when it was last ordered to start nothing more of a packet
        self.unfit: tuple[str, str] | None = None
        self.frames = FrameDecoder()
        self.process = self._start(queue, settings)
        self.pid = self.process.pid
        self.pidfd = _pidfd(self.pid)

    def _start(self, queue: socket.socket, settings: ChildSettings) -> subprocess.Popen[bytes]:
        self.sock, theirs = socket.socketpair()
        try:
            return self._started(queue, theirs, settings)
        except OSError:
            self.sock.close()
            raise
        finally:
            theirs.close()

    def _started(self, queue: socket.socket, theirs: socket.socket, settings: ChildSettings) -> subprocess.Popen[bytes]:
        size = marks_bytes(self.width)
        marks = _shared(size)
        try:
            self._memory = mmap.mmap(marks, size)
            self.marks = ChildSharedMemory(memoryview(self._memory), self.width)
            argv = [*settings.command, self.mode, str(self.width), settings.app, settings.folder]
            fds = (queue.fileno(), theirs.fileno(), marks)
            process = subprocess.Popen(  # noqa: S603 - a list of ours, and no shell
                confined(settings.limits, [*argv, *map(str, fds)]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(os.environ, given=settings.env, mark=self.mark),
                cwd=settings.cwd,
                pass_fds=fds,
                start_new_session=True,
            )
        finally:
            os.close(marks)
        assert process.stdout is not None and process.stderr is not None
        self.sock.setblocking(False)
        self.prints = {process.stdout.fileno(): LineSplitter("stdout"), process.stderr.fileno(): LineSplitter("stderr")}
        for fd in self.prints:
            os.set_blocking(fd, False)
        return process

    # ---- what it says

    def sayings(self) -> list[ChildMessage]:
        """What has come, at most some hundred kilobytes of it."""
        messages: list[ChildMessage] = []
        try:
            size = self.sock.recv_into(_buffer)  # a fresh buffer of this size for each call costs more than the call
        except (BlockingIOError, ConnectionResetError):
            return messages
        for packed in self.frames.feed(bytes(_view[:size])):
            messages += sayings_decoder.decode(packed)
        return messages

    def unsaid(self) -> list[ChildMessage]:
        """Ends of attempts that it has not sent, and that may come once more."""
        return sayings_decoder.decode(self.marks.unsent())

    def order(self, order: ControlMessage) -> bool:
        try:
            self.sock.send(frame(order))
        except OSError:
            return False
        return True

    def printed(self, fd: int) -> bytes | None:
        """None: nothing there now; empty: never again."""
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    # ---- what it runs

    def marked(self) -> list[tuple[Key, int]]:
        """The attempts whose code runs, with their start on the monotonic clock in ns."""
        return self.marks.running()

    def at_rest(self) -> bool:
        """Whether it waits in the system, by the system's own account."""
        return state_of(self.pid) in "S"

    def hold(self, packet: int) -> None:
        """Nothing more of this packet is to begin."""
        self.marks.hold(packet)
        self.held_ns = time.monotonic_ns()

    def holds(self, packet: int) -> bool:
        return self.marks.held() == packet

    # ---- its end

    def ask_to_end(self, *, grace_ns: int) -> None:
        """Politely, to the whole group: the attempt sees that it was called off. `insist` follows, then `kill`."""
        if not self.kill_at_ns:
            self.doomed = True
            now_ns = time.monotonic_ns()
            self.kill_at_ns, self.insist_at_ns = now_ns + grace_ns, now_ns + min(INSIST_NS, grace_ns // 2)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)

    def insist(self, now_ns: int) -> None:
        """A second time, after a while: now an error is raised in the attempt, and its `finally` runs."""
        if self.insist_at_ns and now_ns > self.insist_at_ns:
            self.insist_at_ns = 0
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self.doomed = True
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        kill_all(self.pid, self.mark)

    def exited(self) -> bool:
        """Whether it is dead. It stays unreaped, so that its number still means it."""
        if self.pidfd is not None:
            return bool(select.select([self.pidfd], [], [], 0)[0])
        return self.process.poll() is not None

    def bury(self) -> int:
        """End what it left behind, then take its exit code (negative: a signal)."""
        kill_all(self.pid, self.mark)
        code = self.process.wait()
        self.close()
        return code

    def close(self) -> None:
        self.sock.close()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.marks.release()
        self._memory.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def _shared(size: int) -> int:
    """A file without a name, for memory that two processes see."""
    maker: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if maker is not None:
        fd = maker("tickwork-marks")
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd


def _pidfd(pid: int) -> int | None:
    """None: not made for this system, or no descriptor is left; then the process is polled."""
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    with contextlib.suppress(OSError):
        return opener(pid) if opener is not None else None
    return None


def end_of(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the process was killed (signal SIGKILL); often that is the system, out of memory"
    if code < 0:
        return f"the process was ended by signal {_signal_name(-code)}"
    return f"the process ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
