"""The memory that a pool shares with one child: what the child runs, what it has not yet said, what it is to drop.

Each word has one writer. The child notes its packet before anything in it, and an attempt before the first line of its
code; the ends of attempts lie here until they are sent, so a killed child takes none along. The pool writes one word
only: the packet of which nothing more is to begin. The child notes an attempt first and looks at that word second, so
a pool that wrote it a while ago and still sees the same attempt knows that the child will see the word before
any other begins: what stands behind that attempt is the pool's again.
"""

import time
from typing import Final

from tickwork.protocol.child_messages import sizes

WORD: Final = 8
HELD, UNSENT = 0, 1  # of the whole child
HEAD_WORDS: Final = 2
PACKET, TASK, ATTEMPT, START, TAKEN = range(5)  # of a slot; `TAKEN` is written last and makes the others count
SLOT_WORDS: Final = 5
ENDS_BYTES: Final = 160 * 1024  # more than the largest single one
LIST_HEAD: Final = 7  # four bytes of length, then a MessagePack array of 16 bits
# The word of the ends: how often they were sent, the bytes of those that are kept since, and how many these are.
SENT_BIT, SIZE_BIT = 40, 16
SENT_MASK, SIZE_MASK, COUNT_MASK = (1 << 23) - 1, (1 << SENT_BIT - SIZE_BIT) - 1, (1 << SIZE_BIT) - 1
NO_ENDS: Final = b"\xdc\0\0"
Key = tuple[int, int]


def marks_bytes(width: int) -> int:
    return WORD * (HEAD_WORDS + SLOT_WORDS * width) + ENDS_BYTES


class AttemptSlot:
    """Of one attempt at a time, as the child writes it."""

    __slots__ = ("_at", "words")

    def __init__(self, words: memoryview, number: int) -> None:
        self.words, self._at = words, HEAD_WORDS + SLOT_WORDS * number

    def take(self, packet: int) -> None:
        self.words[self._at] = packet

    def begin(self, task: int, attempt: int) -> int:
        """Its start on the monotonic clock, in ns; 0: its packet is held, and it must not begin."""
        words, at = self.words, self._at
        words[at + 1] = task
        words[at + 2] = attempt
        words[at + 3] = now_ns = time.monotonic_ns()
        words[at + 4] = 1
        if words[HELD] == words[at]:
            words[at + 4] = 0
            return 0
        return now_ns

    def end(self) -> None:
        self.words[self._at + 4] = 0


class ChildSharedMemory:
    """`memory` is of `marks_bytes(width)`, and the same bytes on both sides."""

    def __init__(self, memory: memoryview, width: int) -> None:
        self._memory, self._width = memory, width
        self._words_end = WORD * (HEAD_WORDS + SLOT_WORDS * width)
        self.words = memory[: self._words_end].cast("q")
        self._ends = memory[self._words_end :]
        self._sent = self._size = self._count = 0  # of the ends that are kept, as the child knows them

    def release(self) -> None:
        self._ends.release()
        self.words.release()
        self._memory.release()

    # ---- the child's

    def slot(self, number: int) -> AttemptSlot:
        return AttemptSlot(self.words, number)

    def keep(self, end: bytes) -> bool:
        """Whether it fits beside those that are kept already."""
        at = LIST_HEAD + self._size
        after = at + len(end)
        if after > ENDS_BYTES:
            return False
        self._ends[at:after] = end
        self._size += len(end)
        self._count += 1
        self._tell_kept()
        return True

    def kept(self) -> memoryview:
        """All that is kept, as one frame."""
        self._ends[:LIST_HEAD] = sizes.pack(self._size + 3) + b"\xdc" + self._count.to_bytes(2, "big")
        return self._ends[: LIST_HEAD + self._size]

    def sent(self) -> None:
        """Before anything is kept where these were."""
        self._size = self._count = 0
        self._sent = self._sent + 1 & SENT_MASK
        self._tell_kept()

    def _tell_kept(self) -> None:
        self.words[UNSENT] = self._sent << SENT_BIT | self._size << SIZE_BIT | self._count

    # ---- the pool's

    def running(self) -> list[tuple[Key, int]]:
        """The attempts whose code runs, with their start on the monotonic clock in ns."""
        words = self.words
        return [
            ((words[at + TASK], words[at + ATTEMPT]), words[at + START])
            for at in range(HEAD_WORDS, len(words), SLOT_WORDS)
            if words[at + TAKEN]
        ]

    def packets(self) -> list[int]:
        """What it has taken last, in each slot."""
        return list(self.words[HEAD_WORDS + PACKET :: SLOT_WORDS])

    def hold(self, packet: int) -> None:
        self.words[HELD] = packet

    def held(self) -> int:
        return int(self.words[HELD])

    def unsent(self) -> bytes:
        """What is kept, as a MessagePack array. None of it, where the child sent it while it was read: others may lie
        there by then."""
        word = self.words[UNSENT]
        size, count = word >> SIZE_BIT & SIZE_MASK, word & COUNT_MASK
        data = bytes(self._ends[LIST_HEAD : LIST_HEAD + size])
        if self.words[UNSENT] >> SENT_BIT != word >> SENT_BIT:
            return NO_ENDS
        return b"\xdc" + count.to_bytes(2, "big") + data
