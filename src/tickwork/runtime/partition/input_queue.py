"""The queue of inputs for the next tick, in order of arrival.

A caller gets one future for all inputs of a call. It is done when the last of them is durable.
"""

import asyncio
from collections import deque

import msgspec

from tickwork.core.state.effects import CommandResult
from tickwork.core.state.inputs import Input
from tickwork.ports.store import Payload

INPUTS_PER_TICK_MAX = 2_000  # inputs may use half of a tick's 5,000 changes, and most make one or two
BYTES_PER_TICK_MAX = 16 * 1024 * 1024


class InputBatch(msgspec.Struct, eq=False):
    """The inputs of one call. `answers` maps the index of an input to the machine's result, if there is one."""

    inputs: list[Input]
    done: "asyncio.Future[None]"
    payloads: list[Payload] = []
    facts: bool = False  # some of them need something looked up first
    weight: int = 0  # bytes, roughly
    taken: int = 0
    answers: dict[int, CommandResult] = msgspec.field(default_factory=dict)


class BatchSlice(msgspec.Struct):
    """The part of a batch that one tick takes."""

    batch: InputBatch
    start: int  # index in the batch
    count: int


class InputQueue:
    def __init__(self) -> None:
        self._batches: deque[InputBatch] = deque()
        self.waiting = 0  # inputs

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: InputBatch) -> None:
        self._batches.append(batch)
        self.waiting += len(batch.inputs)

    def take(self, *, limit: int = INPUTS_PER_TICK_MAX) -> list[BatchSlice]:
        """As much as one tick may have. `settle` says how much of it was decided upon."""
        parts: list[BatchSlice] = []
        inputs = weight = 0
        while self._batches and inputs < limit and weight < BYTES_PER_TICK_MAX:
            batch = self._batches.popleft()
            count = min(len(batch.inputs) - batch.taken, limit - inputs)
            parts.append(BatchSlice(batch, batch.taken, count))
            inputs += count
            weight += batch.weight
            if batch.taken + count < len(batch.inputs):
                break  # the rest follows when this part is decided
        return parts

    def settle(self, parts: list[BatchSlice], taken: int) -> list[InputBatch]:
        """`taken` inputs were decided upon; the others come first next time. Returns the batches that are through."""
        self.waiting -= taken
        through: list[InputBatch] = []
        back: list[InputBatch] = []
        for part in parts:
            batch = part.batch
            used = min(part.count, taken)
            taken -= used
            batch.taken += used
            (through if batch.taken == len(batch.inputs) else back).append(batch)
        self._batches.extendleft(reversed(back))
        return through

    def drain(self) -> list[InputBatch]:
        batches, self._batches, self.waiting = list(self._batches), deque(), 0
        return batches
