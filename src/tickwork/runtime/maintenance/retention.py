"""Retention: a job of the owner that archives and deletes old data in small steps, concurrently with ticks.

Old ended runs and journal rows move to archive objects. Old archives and logs are deleted, and so are values that
nothing refers to (`value_gc`). Each step first writes its object, then deletes the rows in one transaction: if it is
interrupted, nothing is lost, and the next step repeats it. Retention never blocks a tick, and never removes what is
still needed: live runs, the journal after the watermark, and the fates of occurrences.
"""

import asyncio
from collections.abc import Callable

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, TickworkError, Unavailable
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.state.state import Settings, State
from tickwork.journal import export, stream
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.store import ChildRow, Fenced, LogChunk, RunRow, Store
from tickwork.ports.store_maintenance import JOURNAL, LOGS, RUNS, ArchivedRun, ArchiveObject, LogAddress
from tickwork.ports.system import Clock
from tickwork.runtime.maintenance.value_gc import DAY_MS, ValueCollector, named_in
from tickwork.runtime.storage.archive import ArchivedLogChunk, ArchiveReader, RunBundle, packed, packed_logs
from tickwork.runtime.storage.payloads import decode_value
from tickwork.runtime.storage.run_records import rest_of

PASS_S = 600.0  # between two looks at everything
STEP_S = 0.05  # between two steps: at most so many portions a second
RUNS_PORTION = 500
JOURNAL_PORTION = 256
JOURNAL_BYTES = 4 * 1024 * 1024  # of one object, about
LOGS_PORTION = 500
LOGS_BYTES = 8 * 1024 * 1024  # of lines in one object, about
LOGS_YOUNG_MAX = 20  # portions without an old piece after which the rest is taken to be young
ARCHIVES_PORTION = 20


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Retention periods. 0: keep forever."""

    runs_ms: int = 3 * DAY_MS
    journal_ms: int = 3 * DAY_MS
    archive_ms: int = 365 * DAY_MS
    logs_ms: int = 30 * DAY_MS

    @property
    def logs_go_cold(self) -> bool:
        """Then they are in the archive, for as long as that is kept."""
        return not self.archive_ms or self.archive_ms > self.logs_ms


def keep_of(*, runs: str, journal: str, archive: str, logs: str) -> RetentionPolicy:
    """Parse durations as people write them; `0` means forever. Raises `Refused` where a duration is too short."""
    periods = {
        name: 0 if text.strip() == "0" else duration_ms(text, path=name)
        for name, text in (
            ("retention_runs", runs), ("retention_journal", journal), ("retention_archive", archive),
            ("retention_logs", logs),
        )
    }  # fmt: skip
    if 0 < periods["retention_runs"] < DAY_MS:  # submit keys are found in the store, and count for a day
        raise Refused("bad_setting", "runs must be kept for at least a day", path="retention_runs")
    for name in ("retention_runs", "retention_journal"):
        if 0 < periods["retention_archive"] < periods[name]:
            raise Refused(
                "bad_setting", f"the archive must be kept at least as long as {name}", path="retention_archive"
            )
    runs_ms, journal_ms, archive_ms, logs_ms = periods.values()
    return RetentionPolicy(runs_ms=runs_ms, journal_ms=journal_ms, archive_ms=archive_ms, logs_ms=logs_ms)


class Retention:
    def __init__(
        self,
        *,
        store: Store,
        artifacts: Artifacts,
        archives: ArchiveReader,
        clock: Clock,
        partition: int,
        epoch: int,
        settings: Settings,
        keep: RetentionPolicy,
        state: Callable[[], State],
        on_alarm: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._archives = archives
        self._clock = clock
        self._partition = partition
        self._epoch = epoch
        self._settings = settings
        self._keep = keep
        self._state = state
        self.renewal = ValueCollector(
            store=store, artifacts=artifacts, archives=archives, clock=clock, partition=partition, epoch=epoch,
            runs_ms=keep.runs_ms, archive_ms=keep.archive_ms, state=state,
        )  # fmt: skip
        self._on_alarm = on_alarm
        self._kept_numbers: frozenset[int] | None = None
        self.runs = self.rows = self.logs = self.forgotten = 0  # since the start: moved, moved, deleted, deleted

    async def run(self) -> None:
        """Run a pass periodically, until cancelled."""
        while True:
            try:
                await self.look_through()
            except Unavailable as error:
                self._on_alarm("retention_late", str(error))
            except Fenced:
                return
            except TickworkError as error:
                self._on_alarm("retention_stopped", f"archiving has stopped: {error}")
                return
            await asyncio.sleep(PASS_S)

    async def look_through(self) -> None:
        """One pass over everything, with a rest between two steps."""
        self._kept_numbers = None
        await self._move_runs()
        await self._move_journal()
        await self._forget_archives()
        await self._forget_logs()
        await self.renewal.look_through()

    def _before_ms(self, kept_ms: int) -> int:
        return self._clock.wall_ms() - kept_ms if kept_ms else -1

    # ---- runs

    async def _move_runs(self) -> None:
        """By number, which is the order in which they were submitted: the first young one is the end."""
        before_ms, number = self._before_ms(self._keep.runs_ms), 0
        while before_ms >= 0:
            page = await self._store.runs_after(self._partition, number=number, limit=RUNS_PORTION)
            lives = self._state().runs
            old = [row for row in page if row.ended_ms < before_ms and row.number not in lives]
            if old:
                await self._move(old)
            if len(page) < RUNS_PORTION or page[-1].submitted_ms >= before_ms:
                return
            number = page[-1].number
            await asyncio.sleep(STEP_S)

    async def _move(self, rows: list[RunRow]) -> None:
        steps = {row.number: max(1, len(rest_of(row).phases)) for row in rows}
        first, last = rows[0].number, rows[-1].number + steps[rows[-1].number] - 1
        attempts: dict[int, list[bytes]] = {}
        for run, data in await self._store.attempts_between(first, last):
            attempts.setdefault(run, []).append(data)
        children = await self._store.children_between(first, last)
        bundles = [
            RunBundle(row, attempts.get(row.number, []), _within(children, row.number, steps[row.number]))
            for row in rows
        ]
        bundles = [await self._whole(await self._with_earlier(bundle)) for bundle in bundles]
        await self.renewal.renew(named_in(part for bundle in bundles for part in _parts(bundle)))
        data = packed(bundles)
        object_ = await self._artifacts.put(data)
        ends = [row.ended_ms for row in rows]
        archive = ArchiveObject(
            object_, RUNS, self._partition, first, last, len(rows), len(data), b"", b"", 0,
            min(ends), max(ends), self._clock.wall_ms(),
        )  # fmt: skip
        for kept in await self._referred() if children else ():  # what its children gave is needed by one that lives
            for row in rows:
                if row.number <= kept < row.number + steps[row.number]:
                    steps[row.number] = 0
        moved = [ArchivedRun(row.tenant, row.id, row.number, object_, row.ended_ms, steps[row.number]) for row in rows]
        await self._store.move_runs(self._partition, archive, moved, epoch=self._epoch)
        self.runs += len(rows)

    async def _referred(self) -> frozenset[int]:
        """Read once per pass: a run is needed only by an older one."""
        if self._kept_numbers is None:
            self._kept_numbers = await self.renewal.referred()
        return self._kept_numbers

    async def _whole(self, bundle: RunBundle) -> RunBundle:
        """With what its values are made of, also where that belongs to a run that it called."""
        row, rest = bundle.row, rest_of(bundle.row)
        own = [decode_value(child.value) for child in bundle.children]
        values = [rest.inputs, decode_value(row.output), *(value for _, value in rest.results), *own]
        if rest.history is not None:
            values += [entry.value for entry in rest.history.entries]
        known = {(child.run, child.step, child.child) for child in bundle.children}
        more = [
            child
            for child in await self._archives.rows_apart(values)
            if (child.run, child.step, child.child) not in known
        ]
        return RunBundle(row, bundle.attempts, [*bundle.children, *more]) if more else bundle

    async def _with_earlier(self, bundle: RunBundle) -> RunBundle:
        """Add to a run that came back from the archive what the archive holds of it."""
        row = bundle.row
        earlier = await self._archives.earlier(row.tenant, row.id)
        if earlier is None or earlier.row.ended_ms == row.ended_ms:
            return bundle
        attempts = [*earlier.attempts, *filter(None, [earlier.row.attempts])]
        known = {(child.run, child.step, child.child) for child in bundle.children}
        more = [child for child in earlier.children if (child.run, child.step, child.child) not in known]
        return RunBundle(row, attempts + bundle.attempts, [*more, *bundle.children])

    # ---- the journal

    async def _move_journal(self) -> None:
        before_ms = self._before_ms(self._keep.journal_ms)
        while before_ms >= 0:
            watermark = (await self._store.read_head(self._partition)).watermark
            after = await self._store.journal_cut(self._partition)
            rows = await self._store.journal(self._partition, after=after, limit=JOURNAL_PORTION + 1)
            old = [row for row in rows if row.seq < watermark and self._at_ms(row) < before_ms]
            old = _not_too_large(old)
            if not old:
                return
            await self._move_rows(old, after)
            await asyncio.sleep(STEP_S)

    def _at_ms(self, row: SealedRow) -> int:
        return self._settings.clock.ms_of(row.tick)

    async def _move_rows(self, rows: list[SealedRow], after: int) -> None:
        before = GENESIS
        if after:
            last = await self._store.journal_archive(self._partition, seq=after)
            if last is None:
                raise Corrupt(f"the hash of seq {after}, after which the journal begins, is unknown")
            before = last.hash
        head = export.ExportHead(self._settings, after, before, rows[-1].seq, rows[-1].hash)
        data = export.write_head(head) + b"".join(stream.write(rows))
        object_ = await self._artifacts.put(data)
        archive = ArchiveObject(
            object_, JOURNAL, self._partition, rows[0].seq, rows[-1].seq, len(rows), len(data), before, rows[-1].hash,
            rows[-1].tick, self._at_ms(rows[0]), self._at_ms(rows[-1]), self._clock.wall_ms(),
        )  # fmt: skip
        await self._store.drop_journal(self._partition, archive, epoch=self._epoch)
        self.rows += len(rows)

    # ---- what goes for good

    async def _forget_archives(self) -> None:
        before_ms = self._before_ms(self._keep.archive_ms)
        kept = 0
        while before_ms >= 0:
            old = await self._store.old_archives(before_ms=before_ms, limit=ARCHIVES_PORTION + kept)
            going = [archive for archive in old if not await self._is_last(archive)]
            if not going:
                return
            kept = len(old) - len(going)
            for archive in going:
                await self._artifacts.delete(archive.object)
                await self._store.drop_archive(archive.object)
                self.forgotten += 1
            await asyncio.sleep(STEP_S)

    async def _is_last(self, archive: ArchiveObject) -> bool:
        """The last piece of a journal stays: the next one is chained to it."""
        if archive.kind != JOURNAL:
            return False
        return await self._store.journal_archive(archive.partition, seq=archive.last + 1) is None

    async def _forget_logs(self) -> None:
        before_ms, young = self._before_ms(self._keep.logs_ms), 0
        position: LogAddress = (0, 0, 0)
        while before_ms >= 0 and young < LOGS_YOUNG_MAX:
            page = await self._store.log_chunks_after(self._partition, after=position, limit=LOGS_PORTION)
            old = [chunk for chunk in page if chunk.written_ms < before_ms]
            if old:
                await self._take_away(old)
                self.logs += len(old)
            young = 0 if old else young + 1
            if len(page) < LOGS_PORTION:
                return
            position = (page[-1].task, page[-1].attempt, page[-1].chunk)
            await asyncio.sleep(STEP_S)

    async def _take_away(self, chunks: list[LogChunk]) -> None:
        """Move chunks to the archive in portions of limited size, or delete them where the archive keeps them no
        longer."""
        portion: list[ArchivedLogChunk] = []
        for row in chunks:
            lines = await self._artifacts.get(row.digest)
            portion.append(ArchivedLogChunk(row, lines if lines is not None else b""))
            if sum(len(chunk.lines) for chunk in portion) > LOGS_BYTES:
                await self._take_portion(portion)
                portion = []
        if portion:
            await self._take_portion(portion)

    async def _take_portion(self, chunks: list[ArchivedLogChunk]) -> None:
        rows = [chunk.row for chunk in chunks]
        archive = (
            await self._archive_logs([chunk for chunk in chunks if chunk.lines]) if self._keep.logs_go_cold else None
        )
        await self._store.drop_log_chunks([(row.task, row.attempt, row.chunk) for row in rows], archive=archive)
        digests = sorted({row.digest for row in rows})
        named = await self._store.named_logs(digests, since_ms=0)
        for digest in digests:
            if digest not in named:
                await self._artifacts.delete(digest)

    async def _archive_logs(self, chunks: list[ArchivedLogChunk]) -> ArchiveObject | None:
        if not chunks:
            return None
        data = packed_logs(chunks)
        object_ = await self._artifacts.put(data)
        tasks, times = [chunk.row.task for chunk in chunks], [chunk.row.written_ms for chunk in chunks]
        return ArchiveObject(
            object_, LOGS, self._partition, min(tasks), max(tasks), len(chunks), len(data), b"", b"", 0, min(times),
            max(times) + self._keep.logs_ms, self._clock.wall_ms(),
        )  # fmt: skip


def _parts(bundle: RunBundle) -> list[bytes]:
    return [bundle.row.record, bundle.row.output, *(child.value for child in bundle.children)]


def _within(children: list[ChildRow], first: int, steps: int) -> list[ChildRow]:
    return [child for child in children if first <= child.run < first + steps]


def _not_too_large(rows: list[SealedRow]) -> list[SealedRow]:
    size = 0
    for index, row in enumerate(rows[:JOURNAL_PORTION]):
        size += len(row.data)
        if size > JOURNAL_BYTES:
            return rows[: index + 1]
    return rows[:JOURNAL_PORTION]
