"""What children print, line by line, for the attempt that printed it.

A child waits until the output of an attempt is read before it goes on with the next, so what is read belongs to the
attempt in the child's mark, or to its last one.
"""

import asyncio
import logging
from collections.abc import Callable

from tickwork.executors.child_process import ChildProcess, Key

READ_BYTES_MAX, PAUSE_S = 16 * 1024 * 1024, 0.05  # of one child, before others have a turn
Printed = Callable[[Key, str, str, int], None]

log = logging.getLogger("tickwork.worker")


class ChildOutput:
    """`printed` gets each line with its attempt, stream and time in ms."""

    def __init__(self, printed: Printed, wall_ns: Callable[[], int]) -> None:
        self._printed = printed
        self._wall_ns = wall_ns
        self._children: set[ChildProcess] = set()

    def listen(self, child: ChildProcess) -> None:
        self._children.add(child)
        loop = asyncio.get_running_loop()
        for fd in child.prints:
            loop.add_reader(fd, self._read, child, fd)

    def stop(self, child: ChildProcess) -> None:
        """Read what is left, and nothing more."""
        self._children.discard(child)
        loop = asyncio.get_running_loop()
        for fd in child.prints:
            self._read(child, fd)
            loop.remove_reader(fd)

    def read_all(self, child: ChildProcess) -> None:
        for fd in list(child.prints):
            self._read(child, fd)

    def end_lines(self, child: ChildProcess, key: Key) -> None:
        """The attempt has ended: a line without an end is its last, and no beginning of another's."""
        for fd, printer in child.printers.items():
            if printer == key:
                self._end_line(child, fd, key)

    def _end_line(self, child: ChildProcess, fd: int, key: Key) -> None:
        lines = child.prints[fd]
        for text in lines.rest():
            self._printed(key, lines.stream, text, self._wall_ns() // 1_000_000)

    def _read(self, child: ChildProcess, fd: int) -> None:
        marked = child.marked()  # before the data: the child may go on as soon as they are read
        data = child.printed(fd)
        if data is None:
            return
        lines = child.prints[fd]
        self._limit(child, fd, len(data))
        child.noisy = True
        key = marked[0][0] if len(marked) == 1 else child.last if not marked else None
        before = child.printers.get(fd)
        if before is not None and before != key:
            self._end_line(child, fd, before)
        child.printers[fd] = key
        for text in lines.feed(data) if data else lines.rest():
            if key is None:
                log.info("%s of child %d: %s", lines.stream, child.pid, text)
            else:
                self._printed(key, lines.stream, text, self._wall_ns() // 1_000_000)

    def _limit(self, child: ChildProcess, fd: int, size: int) -> None:
        """A child that prints faster than its output is read has to wait. That delays its own code only."""
        loop = asyncio.get_running_loop()
        child.printed_bytes += size
        if not size:
            loop.remove_reader(fd)
        elif child.printed_bytes > READ_BYTES_MAX:
            loop.remove_reader(fd)
            loop.call_later(PAUSE_S, self._listen_again, child, fd)

    def _listen_again(self, child: ChildProcess, fd: int) -> None:
        if child in self._children and fd in child.prints:
            child.printed_bytes = 0
            asyncio.get_running_loop().add_reader(fd, self._read, child, fd)
