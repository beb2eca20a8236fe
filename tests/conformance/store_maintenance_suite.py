"""The promises of every store about keeping less, and about being taken elsewhere."""

import pytest

from conformance.store_suite import J, P, claimed, committed, run, written
from tickwork.core.base.errors import Corrupt
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import (
    BackfillRow,
    CacheRow,
    ChildRow,
    ClusterIdentity,
    DefinitionRow,
    Fenced,
    InboxRow,
    IndexEntry,
    LogChunk,
    Payload,
    Route,
    Rows,
    RunFilter,
)
from tickwork.ports.store_maintenance import (
    COLUMNS,
    JOURNAL,
    LOGS,
    RUNS,
    ArchivedRun,
    ArchiveObject,
    StoreNotEmpty,
    TableBatch,
)

FIRST = P << 44  # numbers of this partition begin here


def archive(object_="obj-1", *, kind=RUNS, first=1, last=9, to_ms=500, **more):
    fields = {"before": b"", "hash": b"", "tick": 0} | more
    return ArchiveObject(object_, kind, P, first, last, 2, 300, *fields.values(), 100, to_ms, 900)


def rows_archive(first, last, *, to_ms=500):
    before = J[first - 2].hash if first > 1 else GENESIS
    more = {"before": before, "hash": J[last - 1].hash, "tick": J[last - 1].tick}
    return archive(f"journal-{last}", kind=JOURNAL, first=first, last=last, to_ms=to_ms, **more)


def moved(row, object_="obj-1", steps=2):
    return ArchivedRun(row.tenant, row.id, row.number, object_, row.ended_ms, steps)


async def exported(store):
    found = {}

    async def take(batch):
        found.setdefault(batch.table, []).extend(tuple(row) for row in batch.rows)

    await store.export(take)
    return found


async def streamed(tables):
    for table, rows in tables.items():
        yield TableBatch(table, rows)


async def filled(store):
    """Something in every table."""
    await store.establish_identity(cluster="c1", partitions=4)
    await store.put_route(Route("acme", 1, 2), over=None)
    await store.add_inbox([InboxRow("i1", P, "acme", b"{}", "sql")])
    epoch = await claimed(store)
    await store.commit(P, J[0], [Payload(digest_of(b"payload"), b"payload")], epoch=epoch)
    await committed(store, 5, epoch=epoch)
    rows = Rows(
        header=b"header",
        live_runs=[(FIRST + 40, b"live")],
        live_tasks=[(FIRST + 41, b"task")],
        schedules=[(FIRST + 50, b"schedule")],
        fates=[FateRange("acme", "nightly", FIRST + 50, 1, 1_000, 2_000, 3, 1, "")],
        backfills=[BackfillRow(FIRST + 60, "acme", "nightly", b"backfill")],
        definitions=[DefinitionRow("h1", "acme", "flow", b"{}", 5)],
        runs=[run(FIRST + 1), run(FIRST + 5), run(FIRST + 9)],
        attempts=[(FIRST + 1, b"first"), (FIRST + 1, b"second"), (FIRST + 5, b"third")],
        index=[IndexEntry(4, FIRST + 1, 2, b"entry"), IndexEntry(4, FIRST + 1, 3)],
        children=[
            ChildRow(FIRST + 1, 0, 0, b"x"),
            ChildRow(FIRST + 2, 7, 0, b"y"),
            ChildRow(FIRST + 3, 0, 0, b"z"),
        ],
        cache=[CacheRow("acme/k", b"v", 7)],
    )
    await written(store, rows, epoch=epoch, through=5)
    await store.add_log_chunks([LogChunk(FIRST + 1, 1, 0, 0, 3, 30, "log-1", 100)])
    return epoch


class UpkeepSuite:
    # ---- keeping less

    async def test_ended_runs_of_a_partition_are_read_by_number(self, store):
        epoch = await claimed(store)
        await store.claim(P + 1, owner="n1", settings=b"")
        await written(store, Rows(runs=[run(FIRST + 5), run(FIRST + 1), run(FIRST + 9)]), epoch=epoch)
        await store.write_rows(P + 1, Rows(runs=[run((P + 1 << 44) + 1, id="else")]), epoch=1, through=0, head=GENESIS)

        async def numbers(after, limit):
            return [row.number - FIRST for row in await store.runs_after(P, number=after, limit=limit)]

        assert (await numbers(0, 9), await numbers(FIRST + 1, 1), await numbers(FIRST + 9, 9)) == ([1, 5, 9], [5], [])

    async def test_runs_move_to_an_archive_with_what_belongs_to_them(self, store, reopen):
        epoch = await filled(store)
        one = run(FIRST + 1)

        for _ in range(2):  # a crash before the answer makes it happen twice
            await store.move_runs(P, archive(), [moved(one)], epoch=epoch)
        store = await reopen()

        assert await store.archived("acme", [one.id, "nobody"]) == [ArchivedRun("acme", one.id, one.number, "obj-1")]
        assert await store.find_runs("acme", ids=[one.id]) == []
        assert [row.number for row in (await store.list_runs(RunFilter("acme"))).rows] == [FIRST + 9, FIRST + 5]
        assert await store.read_attempts(FIRST + 1) == [] and await store.read_attempts(FIRST + 5) == [b"third"]
        assert [child.run for child in await store.children_between(FIRST, FIRST + 99)] == [FIRST + 3]
        assert len(await store.read_fates("acme", "nightly", from_ms=0, to_ms=9_000, limit=9)) == 1

    async def test_a_run_that_ended_again_meanwhile_stays(self, store):
        epoch = await filled(store)
        before = run(FIRST + 5)
        await written(store, Rows(runs=[run(FIRST + 5, ended_ms=before.ended_ms + 7)]), epoch=epoch, through=5)

        await store.move_runs(P, archive(), [moved(before)], epoch=epoch)

        assert [row.ended_ms for row in await store.find_runs("acme", ids=[before.id])] == [before.ended_ms + 7]
        assert await store.archived("acme", [before.id]) == []
        assert await store.read_attempts(FIRST + 5) == [b"third"]

    async def test_the_latest_end_of_a_run_is_where_it_is_found(self, store):
        epoch = await filled(store)
        one = run(FIRST + 1)
        await store.move_runs(P, archive(), [moved(one)], epoch=epoch)
        again = run(FIRST + 1, ended_ms=one.ended_ms + 5)
        await written(store, Rows(runs=[again]), epoch=epoch, through=5)
        await store.move_runs(P, archive("obj-2"), [moved(again, "obj-2")], epoch=epoch)

        assert [found.object for found in await store.archived("acme", [one.id])] == ["obj-2"]

    @pytest.mark.proves("I2")
    async def test_whoever_is_not_the_owner_moves_nothing(self, store):
        epoch = await filled(store)
        await claimed(store, "n2")

        with pytest.raises(Fenced):
            await store.move_runs(P, archive(), [moved(run(FIRST + 1))], epoch=epoch)
        with pytest.raises(Fenced):
            await store.drop_journal(P, rows_archive(1, 2), epoch=epoch)
        assert len(await store.runs_after(P, number=0, limit=9)) == 3
        assert len(await store.journal(P, after=0, limit=99)) == 6
        assert await store.old_archives(before_ms=10_000, limit=9) == []

    async def test_a_journal_that_was_cut_goes_on_and_is_loaded(self, store, reopen):
        epoch = await filled(store)
        before = await store.load(P)

        for _ in range(2):
            await store.drop_journal(P, rows_archive(1, 3), epoch=epoch)
        store = await reopen()

        assert await store.load(P) == before
        assert [row.seq for row in await store.journal(P, after=3, limit=99)] == [4, 5, 6]
        with pytest.raises(Corrupt):
            await store.journal(P, after=0, limit=99)
        assert (await store.journal_archive(P, seq=2)).last == 3
        assert await store.journal_archive(P, seq=4) is None and await store.journal_archive(P + 1, seq=2) is None
        epoch = await claimed(store, "n2")
        await committed(store, 2, epoch=epoch)
        await written(store, Rows(header=b"later"), epoch=epoch, through=7)
        await store.drop_journal(P, rows_archive(4, 6), epoch=epoch)
        assert (await store.journal_archive(P, seq=4)).first == 4
        assert (await store.read_head(P)).seq == 8
        assert [row.seq for row in (await store.load(P)).tail] == [8]

    @pytest.mark.parametrize("last", [5, 6])
    async def test_what_recovery_needs_of_the_journal_stays(self, store, last):
        epoch = await filled(store)

        with pytest.raises(Fenced):
            await store.drop_journal(P, rows_archive(1, last), epoch=epoch)
        assert len(await store.journal(P, after=0, limit=99)) == 6

    async def test_the_piece_of_a_journal_that_has_a_tick_is_found(self, store):
        epoch = await filled(store)
        assert await store.journal_archive_at(P, tick=10) is None
        await store.drop_journal(P, rows_archive(1, 2), epoch=epoch)
        await store.drop_journal(P, rows_archive(3, 4), epoch=epoch)

        pieces = [await store.journal_archive_at(P, tick=tick) for tick in (5, 10, 20, 30, 40)]

        assert [piece.first for piece in pieces] == [1, 1, 1, 3, 3]
        assert await store.journal_archive_at(P, tick=50) is None
        assert await store.journal_archive_at(P + 1, tick=10) is None
        assert await store.seqs_at(P, [10, 40, 50, 60]) == {50: 5, 60: 6}

    async def test_index_entries_go_with_their_piece_of_the_journal(self, store):
        epoch = await filled(store)
        index = [IndexEntry(kind, 7, seq) for kind in (2, 4) for seq in (1, 2, 3, 4)]
        await written(store, Rows(index=index), epoch=epoch, through=5)
        await store.drop_journal(P, rows_archive(1, 3), epoch=epoch)

        async def seqs(kind):
            return [one.seq for one in await store.read_index(P, kind=kind, subjects=(7, 7), after=0, through=99)]

        assert (await seqs(2), await seqs(4)) == ([1, 2, 3, 4], [1, 2, 3, 4])  # the rows are still readable
        for _ in range(2):
            await store.drop_archive(rows_archive(1, 3).object)
        assert (await seqs(2), await seqs(4)) == ([3, 4], [4])

    @pytest.mark.proves("S66")
    async def test_archives_are_told_by_age_and_forgotten_with_their_runs(self, store):
        epoch = await filled(store)
        first, second = run(FIRST + 1), run(FIRST + 5)
        await store.move_runs(P, archive(to_ms=500), [moved(first)], epoch=epoch)
        await store.move_runs(P, archive("obj-2", to_ms=400), [moved(second, "obj-2")], epoch=epoch)

        old = await store.old_archives(before_ms=500, limit=9)
        assert old == [archive("obj-2", to_ms=400)]
        assert [one.object for one in await store.old_archives(before_ms=501, limit=1)] == ["obj-2"]
        for _ in range(2):
            await store.drop_archive("obj-2")
        assert await store.archived("acme", [first.id, second.id]) == [
            ArchivedRun("acme", first.id, first.number, "obj-1")
        ]

    async def test_pieces_of_logs_are_walked_and_dropped(self, store):
        chunks = [
            LogChunk(FIRST + 1, 1, 0, 0, 1, 9, "a", 100),
            LogChunk(FIRST + 1, 1, 1, 1, 1, 9, "b", 900),
            LogChunk(FIRST + 1, 2, 0, 0, 1, 9, "a", 950),
            LogChunk(FIRST + 7, 1, 0, 0, 1, 9, "c", 120),
        ]
        await store.add_log_chunks([*chunks, LogChunk((P + 1 << 44) + 1, 1, 0, 0, 1, 9, "a", 1)])

        assert await store.log_chunks_after(P, after=(0, 0, 0), limit=99) == chunks
        assert await store.log_chunks_after(P, after=(FIRST + 1, 1, 0), limit=2) == chunks[1:3]
        assert await store.named_logs(["a", "b", "c", "d"], since_ms=900) == {"a", "b"}
        await store.drop_log_chunks([(FIRST + 1, 1, 0), (FIRST + 7, 1, 0)])
        assert await store.log_chunks_after(P, after=(0, 0, 0), limit=99) == chunks[1:3]
        assert await store.read_log_chunks(FIRST + 1, 1) == [chunks[1]]

    async def test_pieces_of_logs_move_to_an_archive_that_is_found_by_its_tasks(self, store, reopen):
        chunks = [LogChunk(FIRST + number, 1, 0, 0, 1, 9, "a", 100) for number in (1, 4, 9)]
        await store.add_log_chunks(chunks)
        places = [(one.task, one.attempt, one.chunk) for one in chunks]
        first, last = FIRST + 1, FIRST + 4
        archive = ArchiveObject("logs-1", "logs", P, first, last, 2, 99, b"", b"", 0, 100, 900, 1_000)

        for _ in range(2):  # again, as after a crash
            await store.drop_log_chunks(places[:2], archive=archive)
        again = await reopen()

        assert await again.log_chunks_after(P, after=(0, 0, 0), limit=99) == chunks[2:]
        for task in (first, first + 1, last):
            assert await again.archives_over(P, kind=LOGS, number=task) == [archive]
        for number in (first - 1, last + 1):
            assert await again.archives_over(P, kind=LOGS, number=number) == []
        assert await again.archives_over(P, kind=RUNS, number=first) == []
        assert await again.archives_over(P + 1, kind=LOGS, number=first) == []
        assert [one.object for one in await again.old_archives(before_ms=901, limit=9)] == ["logs-1"]
        await again.drop_archive("logs-1")
        assert await again.archives_over(P, kind=LOGS, number=first) == []

    # ---- taking it elsewhere

    async def test_values_that_nobody_needed_since_go(self, store):
        epoch = await claimed(store)
        await store.claim(P + 1, owner="n1", settings=b"")
        words = [b"idle", b"idle-too", b"renewed", b"again", b"archive", b"log"]
        names = [digest_of(word) for word in words]
        _, _, renewed, again, archived, log = names
        await store.commit(P, J[0], [Payload(digest_of(word), word) for word in words], epoch=epoch)
        await store.move_runs(P, archive(archived), [], epoch=epoch)
        await store.add_log_chunks([LogChunk(FIRST + 1, 1, 0, 0, 3, 30, log, 100)])
        await self.a_day_later(store)

        assert await store.renew_payloads([renewed, "nobody"]) == {renewed}
        await store.commit(P, J[1], [Payload(again, b"again")], epoch=epoch)
        assert await store.renewals() == {P: 0, P + 1: 0}
        await store.note_renewal(P, epoch=epoch)
        today = (await store.renewals())[P]
        assert today and (await store.renewals())[P + 1] == 0
        assert await store.named_objects([*names, "obj-9"]) == {archived, log}

        assert await store.drop_payloads(before=today - 1, limit=9) == 0
        assert [await store.drop_payloads(before=today, limit=1) for _ in range(3)] == [1, 1, 0]
        assert set(await store.read_payloads(names)) == {again, archived, log, renewed}
        with pytest.raises(Fenced):
            await store.note_renewal(P, epoch=epoch - 1)

    async def test_a_value_that_went_can_come_again(self, store):
        epoch = await claimed(store)
        await store.commit(P, J[0], [Payload(digest_of(b"d"), b"d")], epoch=epoch)
        await self.a_day_later(store)
        await store.note_renewal(P, epoch=epoch)
        assert await store.drop_payloads(before=(await store.renewals())[P], limit=9) == 1

        await store.commit(P, J[1], [Payload(digest_of(b"d"), b"d")], epoch=epoch)

        assert await store.read_payloads([digest_of(b"d")]) == {digest_of(b"d"): b"d"}

    async def test_an_empty_store_has_nothing_to_tell(self, store):
        assert await exported(store) == {}

    @pytest.mark.proves("P12")
    async def test_everything_goes_out_and_comes_in_again(self, store, make):
        epoch = await filled(store)
        await store.move_runs(P, archive(), [moved(run(FIRST + 9))], epoch=epoch)
        await store.drop_journal(P, rows_archive(1, 2), epoch=epoch)
        before, loaded = await exported(store), await store.load(P)

        assert set(before) == set(COLUMNS)
        assert all(len(row) == len(COLUMNS[table]) for table, rows in before.items() for row in rows)
        with pytest.raises(StoreNotEmpty):
            await store.bring_in(streamed(before))
        other = self.elsewhere(make)
        await other.open()
        try:
            await other.bring_in(streamed(before))
            assert await exported(other) == before
            assert await other.load(P) == loaded
            assert await other.read_attempts(FIRST + 1) == [b"first", b"second"]
            assert await other.establish_identity(cluster="x", partitions=1) == ClusterIdentity("c1", 4)
            head = await other.claim(P, owner="n3", settings=b"")
            assert (head.epoch, head.seq) == (epoch + 1, 6)
            await committed(other, 1, epoch=head.epoch)
        finally:
            await other.close()

    async def test_values_that_came_in_were_needed_today(self, store, make):
        await filled(store)
        await self.a_day_later(store)
        tables, other = await exported(store), self.elsewhere(make)
        await other.open()
        try:
            await other.bring_in(streamed(tables))
            assert set((await other.renewals()).values()) == {0}, "there nobody has looked through anything"
            epoch = await claimed(other, owner="n2")
            await other.note_renewal(P, epoch=epoch)
            today = (await other.renewals())[P]

            assert await other.drop_payloads(before=today, limit=9) == 0
            assert await other.drop_payloads(before=today + 1, limit=9) == 1
        finally:
            await other.close()

    async def test_what_breaks_off_leaves_nothing_behind(self, store, make):
        await filled(store)
        tables = await exported(store)

        async def breaking():
            async for batch in streamed(tables):
                yield batch
                if batch.table == "runs":
                    raise ConnectionError("gone")

        other = self.elsewhere(make)
        await other.open()
        try:
            with pytest.raises(ConnectionError):
                await other.bring_in(breaking())
            assert await exported(other) == {}
            await other.bring_in(streamed(tables))
        finally:
            await other.close()

    async def test_an_export_is_of_one_moment(self, store):
        epoch = await filled(store)
        found = {}

        async def take(batch):
            if not found:
                await committed(store, 2, epoch=epoch)
                await written(store, Rows(runs=[run(FIRST + 99)]), epoch=epoch, through=7)
            found.setdefault(batch.table, []).extend(batch.rows)

        await store.export(take)

        assert (len(found["journal"]), len(found["runs"])) == (6, 3)
        assert found["partitions"][0][3] == 6
