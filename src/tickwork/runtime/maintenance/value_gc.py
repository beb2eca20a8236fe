"""Garbage collection of values: payloads and artifacts are deleted when nothing refers to them.

Values are stored under their digest, and references are not counted: the same value may be the input of one run, the
result of another, and part of an archive. Instead, each value has the last day on which it was needed. That is the day
on which it was stored, or on which its partition renewed a reference to it: once a day for everything live, and for an
ended run when it moves to the archive. A value that was needed on no day for longer than archives are kept has no
reference left.

A reference can only be copied from something live, ended or archived, and the copy is itself renewed after `runs_ms` at
the latest. `swept_before` allows for that, counting from the last day on which each partition renewed all its
references. A partition that falls behind stops the sweep for all.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from tickwork.core.base.values import Ref, Value
from tickwork.core.snapshot.mailbox_rows import encode_message
from tickwork.core.snapshot.run_rows import encode_run, encode_task
from tickwork.core.snapshot.schedule_rows import encode_schedule
from tickwork.core.snapshot.snapshot import encode_header
from tickwork.core.state.state import Run, State
from tickwork.core.state.tables import NumberTable
from tickwork.ports.artifacts import DIGEST_BYTES, Artifacts
from tickwork.ports.store import ChildRow, Store
from tickwork.ports.system import Clock
from tickwork.runtime.storage.archive import ArchiveReader
from tickwork.runtime.storage.payloads import APART

T = TypeVar("T")
DAY_MS = 86_400_000
SLACK_DAYS = 7  # for passes that come late
STEP_S = 0.01  # between two steps
ROWS_PORTION = 1_000
DIGESTS_PORTION = 1_000
DROPPED_PORTION = 500
# A digest as MessagePack encodes it, in any context. A false match is harmless.
_DIGEST = re.compile(rb"\xd9%c([0-9a-f]{%d})" % (2 * DIGEST_BYTES, 2 * DIGEST_BYTES))


def named_in(rows: Iterable[bytes]) -> set[str]:
    """The digests that these rows name."""
    return {digest.decode() for row in rows for digest in _DIGEST.findall(row)}


def swept_before(renewals: Mapping[int, int], *, runs_ms: int, archive_ms: int) -> int:
    """Return the day before which an unreferenced value was last needed. 0: unknown, because something is kept forever,
    or a partition has not renewed all its references."""
    if not runs_ms or not archive_ms or not renewals:
        return 0
    last = min(renewals.values())
    kept = -(-archive_ms // DAY_MS) + 2 * -(-runs_ms // DAY_MS) + SLACK_DAYS
    return max(last - kept, 0) if last else 0


class ValueCollector:
    def __init__(
        self,
        *,
        store: Store,
        artifacts: Artifacts,
        archives: ArchiveReader,
        clock: Clock,
        partition: int,
        epoch: int,
        runs_ms: int,
        archive_ms: int,
        state: Callable[[], State],
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._archives = archives
        self._clock = clock
        self._partition = partition
        self._epoch = epoch
        self._runs_ms, self._archive_ms = runs_ms, archive_ms
        self._state = state
        self.swept = 0  # since the start
        self._waits_until = 0  # the day before which nothing is swept

    async def look_through(self) -> None:
        """Once a day: renew what lives, then sweep. Call it when everything old has left for the archive."""
        known = await self._store.renewals()
        today = self._clock.wall_ms() // DAY_MS
        if known.get(self._partition, 0) >= today:
            return
        self._note_outage(known, today)
        await self._renew_live()
        await self._store.note_renewal(self._partition, epoch=self._epoch)
        # Count the days before this one: references copied during this pass are renewed in the next.
        before = swept_before(known, runs_ms=self._runs_ms, archive_ms=self._archive_ms)
        if before and today >= self._waits_until and self._partition == min(known):  # one of them is enough
            await self._sweep(before)

    def _note_outage(self, known: Mapping[int, int], today: int) -> None:
        """After an outage longer than archives are kept, a run that ended during or right after it refers to values
        that were not renewed since. They are renewed when it is archived, so the sweep waits for that."""
        last = min((day for day in known.values() if day), default=today)
        if today - last >= self._archive_ms // DAY_MS:
            self._waits_until = today + -(-self._runs_ms // DAY_MS) + SLACK_DAYS

    async def renew(self, digests: Iterable[str]) -> None:
        ordered = sorted(digests)
        for at in range(0, len(ordered), DIGESTS_PORTION):
            portion = ordered[at : at + DIGESTS_PORTION]
            await self._store.renew_payloads(portion)
            await self._artifacts.renew(portion)

    async def _renew_live(self) -> None:
        for rows in _live_rows(self._state()):
            await self.renew(named_in(rows))
            await asyncio.sleep(STEP_S)
        async for children in self._apart():
            await self.renew(named_in(child.value for child in children))

    async def referred(self) -> frozenset[int]:
        """Numbers under which the store has what old live runs are made of: also of other runs, which have ended."""
        return frozenset([child.run async for children in self._apart() for child in children])

    async def _apart(self) -> AsyncIterator[list[ChildRow]]:
        """Renew values of old runs only: values of younger runs are young themselves."""
        before_ms = self._clock.wall_ms() - self._runs_ms
        for values in _old_values(self._state(), before_ms=before_ms):
            yield await self._archives.rows_apart(values)
            await asyncio.sleep(STEP_S)

    async def _sweep(self, before: int) -> None:
        while gone := await self._store.drop_payloads(before=before, limit=DROPPED_PORTION):
            self.swept += gone
            await asyncio.sleep(STEP_S)
        self.swept += await self._artifacts.sweep(before=before, named=self._store.named_objects)


def _live_rows(state: State) -> Iterator[list[bytes]]:
    """Everything that lives, in portions between which it goes on living."""
    yield [encode_header(state)]
    yield from _portions(state.schedules, encode_schedule)
    yield from _portions(state.messages, encode_message)
    yield from _portions(state.runs, encode_run)
    yield from _portions(state.tasks, encode_task)


def _portions(table: NumberTable[T], encode: Callable[[T], bytes]) -> Iterator[list[bytes]]:
    for number in sorted(table.blocks):
        things = list(table.blocks.get(number, {}).values())
        for at in range(0, len(things), ROWS_PORTION):
            yield [encode(thing) for thing in things[at : at + ROWS_PORTION]]


def _old_values(state: State, *, before_ms: int) -> Iterator[list[Ref]]:
    """Values of older live runs that are made of rows in the table of children; those of each run together."""
    clock = state.settings.clock
    for number in sorted(state.runs.blocks):
        for run in list(state.runs.blocks.get(number, {}).values()):
            if clock.ms_of(run.submitted) >= before_ms:
                continue
            values = (run.inputs, *(run.results or {}).values(), *_in_progress(run), *_recorded(state, run))
            if apart := [value for value in values if isinstance(value, Ref) and value.place in APART]:
                yield apart


def _recorded(state: State, run: Run) -> Iterator[Value]:
    """Values in the histories of a run's tasks."""
    histories = [run.history] + [
        task.history for index in range(len(run.phases)) if (task := state.tasks.get(run.number + index)) is not None
    ]
    for history in histories:
        if history is not None:
            yield from (entry.value for entry in (*history.entries, *history.arrived))
            yield from (pending.request.value for pending in history.awaits.values())


def _in_progress(run: Run) -> Iterator[Value]:
    """Yield the results so far of active maps, and the inputs of child runs."""
    for step, task in (run.fanning or {}).items():
        yield Ref(f"{run.number}/{step}", 0, None, "gather")
        if task.fan is not None:
            yield from (Ref(f"{task.number}/{child}", 0, None, "arguments") for child in sorted(task.fan.live))
            yield task.fan.last
