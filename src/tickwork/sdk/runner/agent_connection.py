"""The child's side of its connection with the agent: frames, results, orders, and what was printed past Python."""

import contextlib
import fcntl
import os
import socket
import termios
import threading
import time
from collections.abc import Callable

from tickwork.protocol.child_messages import (
    Cancel,
    CheckpointDurable,
    ChildMessage,
    ControlMessage,
    FrameDecoder,
    Retire,
    encoder,
    frame,
    order_decoder,
)
from tickwork.protocol.child_shared_memory import ChildSharedMemory

PACKET_BYTES = 256 * 1024
LOOK_NS = 200_000  # whatever printed past Python took longer, or has done so before
READ_S, READ_S_MAX = 0.0005, 0.2  # how often, and how long, is looked whether the agent has read it
BESIDE_S = 0.02
Key = tuple[int, int]


class FrameSender:
    """Frames to the agent, each whole, from any thread."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._lock = threading.Lock()

    def say(self, *sayings: ChildMessage) -> None:
        self.send(frame(sayings))

    def send(self, data: bytes | memoryview) -> None:
        with self._lock:
            sent = self.stream.send(data)
            if sent < len(data):
                self.stream.sendall(data[sent:])


class ResultBuffer:
    """How attempts ended, until it is said. It lies in shared memory, so that a killed child takes nothing along."""

    def __init__(self, marks: ChildSharedMemory, voice: FrameSender) -> None:
        self._marks, self._voice = marks, voice
        self.since_ns = 0  # start of the first attempt whose end is not said; 0: there is none

    def keep(self, end: ChildMessage, started_ns: int) -> None:
        data = encoder.encode(end)
        if not self._marks.keep(data):
            self.say()
            fits = self._marks.keep(data)
            assert fits, "a value of this size travels as a file"
        if not self.since_ns:
            self.since_ns = started_ns

    def say(self) -> None:
        self._voice.send(self._marks.kept())
        self._marks.sent()
        self.since_ns = 0


class ControlReader:
    """Messages of the agent to this process. The thread that waits for a reply reads, and wakes other receivers."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._frames = FrameDecoder()
        self._reading = threading.Lock()
        self._kept: dict[Key, list[Callable[[], None]]] = {}  # waiters of each attempt, in the order of what it sent
        self._keeping = threading.Lock()
        self.cancel: Callable[[Key], None] = lambda _key: None
        self.retire: Callable[[], None] = lambda: None

    def expect(self, key: Key, kept: Callable[[], None]) -> None:
        """An attempt may have several that wait: its threads, or its coroutines."""
        with self._keeping:
            self._kept.setdefault(key, []).append(kept)

    def _next_waiter(self, key: Key) -> Callable[[], None]:
        with self._keeping:
            waiting = self._kept.get(key)
            if not waiting:
                return lambda: None
            kept = waiting.pop(0)
            if not waiting:
                del self._kept[key]
            return kept

    def read(self, *, flags: int = 0) -> None:
        data = self._stream.recv(PACKET_BYTES, flags)
        if not data:
            os._exit(0)  # the agent is gone, and so is the receiver of all reports
        for data_frame in self._frames.feed(data):
            self._follow(order_decoder.decode(data_frame))

    def _follow(self, order: ControlMessage) -> None:
        match order:
            case CheckpointDurable():
                self._next_waiter((order.task, order.attempt))()
            case Cancel():
                self.cancel((order.task, order.attempt))
            case Retire():
                self.retire()

    def read_pending(self) -> None:
        """Read what has come, unless another thread does."""
        if self._reading.acquire(blocking=False):
            try:
                with contextlib.suppress(BlockingIOError):
                    self.read(flags=socket.MSG_DONTWAIT)
            finally:
                self._reading.release()

    def wait_beside_loop(self, done: threading.Event) -> None:
        """The same for a thread beside an event loop, which reads unless it is blocked itself."""
        while not done.wait(BESIDE_S):
            self.read_pending()

    def wait(self, done: threading.Event) -> None:
        """Blocks this thread until what it expects has come."""
        while not done.is_set():
            if self._reading.acquire(timeout=0.05):
                try:
                    if not done.is_set():
                        self.read()
                finally:
                    self._reading.release()


class OutputPipes:
    """What was printed past Python lies in pipes, where nothing tells one attempt from the next: the agent takes it for
    the one whose mark it sees. So an attempt has ended when the agent has read what it printed."""

    def __init__(self) -> None:
        self._fds = tuple(os.dup(fd) for fd in (1, 2))  # user code may put something else in their place
        self._size = bytearray(4)
        self._loud = False  # has ever printed so

    def until_read(self, started_ns: int) -> None:
        if not self._loud and time.monotonic_ns() - started_ns < LOOK_NS:
            return
        if self._unread():
            self._loud = True
            until = time.monotonic() + READ_S_MAX
            while self._unread() and time.monotonic() < until:
                time.sleep(READ_S)

    def _unread(self) -> bool:
        with contextlib.suppress(OSError):  # closed by user code
            for fd in self._fds:
                fcntl.ioctl(fd, termios.FIONREAD, self._size)
                if any(self._size):
                    return True
        return False
