"""`why`: a run's history, read from the journal rows that concern it.

The rows are found by what the run's record says (ticks of its submission, start and end, and of its attempts) and by
the index that is written behind the journal (`core/explain/history_index`). A run that wants a visit is followed from
row to row until it has had it. Neither the length of the journal nor how long the run waited matters.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from tickwork.core.explain.excerpt import Excerpt, RunFacts
from tickwork.core.explain.history_index import (
    COMMAND,
    COVERED,
    LANE,
    REPORT,
    RUN,
    WORKER,
    RunNote,
    command_subject,
    decode_lane,
    decode_run,
    decode_through,
    decode_worker,
)
from tickwork.core.explain.run_history import RunHistory
from tickwork.core.state.state import LogicalClock, Run, State
from tickwork.journal.record import GENESIS, Row, SealedRow, unseal
from tickwork.ports.store import IndexEntry, RunRow, Store
from tickwork.runtime.partition.write_behind import AttemptRecord, WriteBehind
from tickwork.runtime.storage.archive import ArchiveReader
from tickwork.runtime.storage.run_records import rest_of

SUBJECT_MAX = (1 << 63) - 1
ROWS_TOGETHER = 4  # rows that lie this near to each other are read in one go


def facts_of_live(run: Run) -> RunFacts:
    return RunFacts(
        number=run.number, id=run.id, tenant=run.tenant.id, plan=run.plan, by=run.by, source=run.source,
        priority=run.priority, queue=run.queue, pin=run.pin, schedule=run.schedule, backfill=run.backfill, own=run.own,
    )  # fmt: skip


def facts_of_ended(row: RunRow, state: State) -> RunFacts | None:
    """None where its definition is no longer known."""
    plan, rest = state.plans.get(row.definition), rest_of(row)
    if plan is None:
        return None
    return RunFacts(
        number=row.number, id=row.id, tenant=row.tenant, plan=plan, by=row.by, source=row.source,
        priority=rest.priority, queue=rest.queue, pin=rest.pin, schedule=row.schedule, backfill=rest.backfill,
        own=rest.own,
    )  # fmt: skip


def ticks_of(clock: LogicalClock, *, run: Iterable[int], attempts: Iterable[AttemptRecord]) -> set[int]:
    """Ticks in which the journal has something about a run: of the run itself, and of its attempts."""
    ticks = {tick for tick in run if tick}
    for attempt in attempts:
        begun_ms = attempt.dispatched_ms
        ticks.update(clock.tick_at(begun_ms + after_ms) for after_ms in (0, *attempt.marks))
        if attempt.ended_ms:
            ticks.add(clock.tick_at(attempt.ended_ms))
    return ticks


class HistoryReader:
    """Reads histories of one partition's runs up to the row `through`, which is durable and of the tick `tick`."""

    def __init__(
        self,
        state: State,
        write_behind: WriteBehind,
        store: Store,
        archives: ArchiveReader,
        *,
        partition: int,
        through: int,
        tick: int,
    ) -> None:
        self._state, self._write_behind, self._store, self._archives = state, write_behind, store, archives
        self._partition, self._through, self._tick = partition, through, tick
        self._last: SealedRow | None = None
        self._ahead: dict[int, SealedRow] = {}

    async def read(
        self,
        facts: RunFacts,
        ticks: Iterable[int],
        tasks: Iterable[int],
        *,
        begin: Callable[[Excerpt], None] = lambda _: None,
    ) -> RunHistory | None:
        """The history of a run; None where not all of its rows are indexed. `tasks` are those of its attempts. `begin`
        gets the excerpt before its first row, and another one where it has to be read again."""
        own = await self._archives.seqs_at(self._partition, [tick for tick in ticks if tick <= self._tick])
        known = set(tasks)
        while True:
            notes = await self._notes(facts, known)
            seqs = sorted({*own.values(), *notes})
            if not seqs or not await self._is_covered(seqs[0], seqs[-1]):
                return None
            excerpt = Excerpt(self._state, facts)
            begin(excerpt)
            await self._follow(excerpt, seqs, notes)
            unheard = excerpt.children - known
            if not await self._reports(unheard):
                return excerpt.story(self._through, self._tick)
            known |= unheard  # reports about children that no worker ever had

    async def _follow(self, excerpt: Excerpt, seqs: list[int], notes: dict[int, RunNote]) -> None:
        heapify(seqs)
        seq = 0
        while seqs:
            before, seq = seq, heappop(seqs)
            await self._follow_lanes(excerpt, after=before, through=seq - 1)
            row = await self._row(seq, seqs)
            for number in excerpt.lost_workers(row):
                if (entry := await self._latest(WORKER, number, seq - 1)) is not None:
                    excerpt.worker_started(number, decode_worker(entry.data))
            for number in excerpt.workers_of(row):
                if (entry := await self._latest(WORKER, number, seq)) is not None:
                    excerpt.know_worker(number, decode_worker(entry.data))
            excerpt.add_row(row, notes.get(seq) or RunNote())
            await self._look_at_lanes(excerpt, seq)
            if excerpt.wants_visit and seq < self._through and (not seqs or seqs[0] != seq + 1):
                heappush(seqs, seq + 1)
            await asyncio.sleep(0)
        if excerpt.live:
            await self._follow_lanes(excerpt, after=seq, through=self._through)

    async def _follow_lanes(self, excerpt: Excerpt, *, after: int, through: int) -> None:
        """What held the ready queues in which tasks of the run stand, between two of its rows."""
        if after >= through:
            return
        changes = [
            entry
            for number in excerpt.lanes
            for entry in await self._entries(LANE, (number, number), after=after, through=through)
        ]
        for entry in sorted(changes, key=_by_seq):
            excerpt.lane_changed(entry.seq, entry.subject, decode_lane(entry.data))

    async def _look_at_lanes(self, excerpt: Excerpt, seq: int) -> None:
        """What holds them at the end of one of its rows."""
        unknown = excerpt.unknown_lanes()
        for number in excerpt.lanes:
            entry = await self._latest(LANE, number, seq)
            if number in unknown or (entry is not None and entry.seq == seq):
                excerpt.know_lane(number, None if entry is None else decode_lane(entry.data))
        excerpt.end_row()

    # ---- the index

    async def _notes(self, facts: RunFacts, tasks: Iterable[int]) -> dict[int, RunNote]:
        first, last = facts.number, facts.number + len(facts.plan.steps) - 1
        entries = await self._entries(RUN, (first, last))
        entries += await self._entries(REPORT, (first, last))
        entries += await self._reports({task for task in tasks if not first <= task <= last})
        subject = command_subject(facts.tenant, facts.id)
        entries += await self._entries(COMMAND, (subject, subject))
        notes: dict[int, RunNote] = {}
        for entry in entries:
            note = decode_run(entry.data)
            known = notes.setdefault(entry.seq, note)
            known.later, known.governed = known.later or note.later, known.governed or note.governed
            known.leaver, known.lanes = known.leaver or note.leaver, known.lanes | note.lanes
        return notes

    async def _reports(self, children: set[int]) -> list[IndexEntry]:
        if not children:
            return []
        entries = await self._entries(REPORT, (min(children), max(children)))
        return [entry for entry in entries if entry.subject in children]

    async def _is_covered(self, first: int, last: int) -> bool:
        """Whether an owner that wrote the index observed all of these rows. One of an earlier version did not."""
        entries = await self._entries(COVERED, (0, SUBJECT_MAX), after=-1)
        spans = sorted((entry.seq, decode_through(entry.data)) for entry in entries)
        reached = first - 1
        for begin, end in (*spans, (self._write_behind.index.begin, self._through)):
            if begin <= reached:
                reached = max(reached, end)
        return reached >= last

    async def _entries(
        self, kind: int, subjects: tuple[int, int], *, after: int = 0, through: int | None = None
    ) -> list[IndexEntry]:
        """Read memory first, then the store: rows written meanwhile are in one of the two."""
        through = self._through if through is None else through
        unwritten = self._write_behind.index_entries(kind, subjects, after=after, through=through)
        stored = await self._store.read_index(
            self._partition, kind=kind, subjects=subjects, after=after, through=through
        )
        entries = {(entry.subject, entry.seq): entry for entry in (*stored, *unwritten)}
        return sorted(entries.values(), key=_by_seq)

    async def _latest(self, kind: int, subject: int, through: int) -> IndexEntry | None:
        unwritten = self._write_behind.index_entries(kind, (subject, subject), after=-1, through=through)
        stored = await self._store.last_index(self._partition, kind=kind, subject=subject, through=through)
        return max((*unwritten, *([stored] if stored is not None else [])), key=_by_seq, default=None)

    # ---- the journal

    async def _row(self, seq: int, later: Sequence[int]) -> Row:
        """Return one row after verifying its position in the chain. `later` are the rows to be read next."""
        before = self._last if self._last is not None and self._last.seq == seq - 1 else None
        if seq not in self._ahead or (before is None and seq > 1 and seq - 1 not in self._ahead):
            self._ahead = {}
            after = seq - 1 if before is not None or seq == 1 else seq - 2
            end = max((position for position in later if position <= seq + ROWS_TOGETHER), default=seq)
            while after < end:
                rows = await self._archives.journal(self._partition, after=after, limit=end - after)
                self._ahead |= {row.seq: row for row in rows}
                after = rows[-1].seq
        before = before or self._ahead.get(seq - 1)
        self._last = self._ahead[seq]
        return unseal(self._last, GENESIS if before is None else before.hash)


def _by_seq(entry: IndexEntry) -> int:
    return entry.seq
