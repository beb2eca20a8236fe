"""New ids: UUID version 7."""

import os
import time
from threading import Lock

_COUNTER_MAX = 0xFFF
_COUNTERS = tuple(f"{number:03x}" for number in range(_COUNTER_MAX + 1))
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class Uuids:
    """For one thread. 48 bits of time, a counter of 12 bits within the millisecond, and 62 bits of chance for each
    millisecond. So no process gives an id twice, and no two processes meet."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._counter = 0
        self._head = self._tail = ""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A process that was forked draws its own chance, also within this millisecond."""
        self._counter = _COUNTER_MAX

    def new(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > self._last_ms:
            self._begin(now_ms)
        elif self._counter == _COUNTER_MAX:
            self._begin(self._last_ms + 1)
        else:
            self._counter += 1
        return self._head + _COUNTERS[self._counter] + self._tail

    def _begin(self, ms: int) -> None:
        text, chance = f"{ms:012x}", os.urandom(8).hex()
        self._last_ms, self._counter, self._head = ms, 0, f"{text[:8]}-{text[8:]}-7"
        self._tail = f"-{_VARIANTS[chance[0]]}{chance[1:4]}-{chance[4:]}"


class SharedUuids(Uuids):
    """For several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = Lock()

    def new(self) -> str:
        with self._turn:
            return super().new()
