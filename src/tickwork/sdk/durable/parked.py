"""Suspended functions that stay in memory: the next attempt goes on where the function waits, without a replay.

Only a cache. The history is the truth: a function that is taken from here is compared with it, and one that is not
here, or does not fit, is replayed.
"""

from collections import OrderedDict
from dataclasses import dataclass

from tickwork.protocol.worker_messages import FunctionHistory
from tickwork.sdk.durable.driver import Driver
from tickwork.sdk.durable.function import Durable

FUNCTION_BYTES = 16 * 1024  # of a driver and a coroutine, beside what the function has got
GROWTH = 4  # bytes in memory for each byte of a history, about


@dataclass(frozen=True, slots=True)
class ParkedFunction:
    """A function after the suspension that ended this attempt."""

    driver: Driver
    context: Durable
    attempt: int

    def fits(self, history: FunctionHistory | None) -> bool:
        """Whether that suspension was the last thing that the server accepted, and the history only adds to it."""
        return history is not None and history.past == self.attempt and self.driver.is_extended_by(history)


class ParkedFunctions:
    """By task; of too many, those that waited longest are dropped."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._functions: OrderedDict[str, tuple[ParkedFunction, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._functions)

    def keep(self, name: str, function: ParkedFunction, *, history_bytes: int) -> None:
        self._drop(name)
        size = FUNCTION_BYTES + GROWTH * history_bytes
        self._functions[name] = (function, size)
        self._bytes += size
        while len(self._functions) > self._count_max or self._bytes > self._bytes_max:
            self._drop(next(iter(self._functions)))

    def take(self, name: str, history: FunctionHistory | None) -> ParkedFunction | None:
        """The function, which then belongs to the caller; None where it must be replayed."""
        known = self._functions.get(name)
        if known is None:
            return None
        if not known[0].fits(history):
            self._drop(name)
            return None
        del self._functions[name]
        self._bytes -= known[1]
        return known[0]

    def _drop(self, name: str) -> None:
        known = self._functions.pop(name, None)
        if known is not None:
            self._bytes -= known[1]
            known[0].driver.close()
