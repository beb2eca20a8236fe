"""What every store promises. An adapter's test class inherits these and provides `reopen` and `store`."""

import msgspec
import pytest

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.journal.record import GENESIS, Row, SealedRow, seal
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import (
    CacheRow,
    ChildRow,
    ClusterIdentity,
    DefinitionRow,
    Fenced,
    Head,
    InboxRow,
    IndexEntry,
    LogChunk,
    Payload,
    Route,
    Rows,
    RunFilter,
    RunRow,
    TimeRange,
)

P = 3
BITS = 44
N, M = P << BITS, P + 1 << BITS  # where the numbers of two partitions begin
COMPLETED, FAILED, CANCELLED = 4, 5, 6


def rows_of_journal(count: int, *, before: bytes = GENESIS, first: int = 1) -> list[SealedRow]:
    rows = []
    for seq in range(first, first + count):
        rows.append(seal(Row(seq, seq * 10, "rules", [], []), before))
        before = rows[-1].hash
    return rows


J = rows_of_journal(12)


def payload(data: bytes) -> Payload:
    return Payload(digest_of(data), data)


X = digest_of(b"x")


def small(number: int) -> int:
    """Within its partition."""
    return number & (1 << BITS) - 1


HOUR = 3_600_000
MANY = range(1, 601)


def seven(n: int, *, tail: str = "9c2dd2a637f0") -> str:
    """An id of version 7; some in each millisecond."""
    return f"01a1e37f-{n // 20:04x}-7{n % 20:03x}-8ed0-{tail}"


def number_of(row: RunRow) -> int:
    return row.number


def run(number: int, **changes) -> RunRow:
    row = RunRow(
        number,
        f"run-{small(number)}",
        "acme",
        "flow",
        "d1",
        COMPLETED,
        "api",
        "ann",
        1,
        2,
        3,
        "",
        "",
        "",
        b"record",
        b"out",
        b"",
    )
    return msgspec.structs.replace(row, **changes)


async def committed(store, count: int, *, epoch: int, partition: int = P) -> None:
    head = await store.read_head(partition)
    for row in J[head.seq : head.seq + count]:
        await store.commit(partition, row, [], epoch=epoch)


async def written(store, rows: Rows, *, epoch: int = 1, through: int = 0, partition: int = P) -> None:
    await store.write_rows(
        partition, rows, epoch=epoch, through=through, head=J[through - 1].hash if through else GENESIS
    )


async def claimed(store, owner: str = "n1") -> int:
    return (await store.claim(P, owner=owner, settings=b"settings")).epoch


async def everything(store, partition: int = P):
    return await store.load(partition)


class StoreSuite:
    # ---- the index of the journal

    async def test_the_row_of_a_tick_is_found(self, store):
        epoch = await claimed(store)
        assert await store.seqs_at(P, [10]) == {}
        await committed(store, 12, epoch=epoch)

        for seq in range(1, 13):
            assert await store.seqs_at(P, [seq * 10]) == {seq * 10: seq}
        assert await store.seqs_at(P, [120, 10, 55, 60, 70, 0, 121]) == {120: 12, 10: 1, 60: 6, 70: 7}
        assert await store.seqs_at(P, []) == {} and await store.seqs_at(P + 1, [10]) == {}

    async def test_index_entries_are_read_by_subject_and_seq(self, store, reopen):
        epoch = await claimed(store)
        entries = [
            IndexEntry(4, N + 7, 1),
            IndexEntry(4, N + 8, 3, b"x"),
            IndexEntry(4, N + 9, 2),
            IndexEntry(5, N + 7, 1),
        ]
        await store.claim(P + 1, owner="n1", settings=b"")
        await store.write_rows(P + 1, Rows(index=[IndexEntry(4, N + 7, 1, b"else")]), epoch=1, through=0, head=GENESIS)
        for _ in range(2):  # a recovery notes the same again
            await written(store, Rows(index=entries), epoch=epoch)
        await written(store, Rows(index=[IndexEntry(4, N + 8, 3, b"y")]), epoch=epoch)
        store = await reopen()

        async def entries_of(kind, subjects, after=0, through=99):
            return await store.read_index(P, kind=kind, subjects=subjects, after=after, through=through)

        assert await entries_of(4, (N + 7, N + 8)) == [IndexEntry(4, N + 7, 1), IndexEntry(4, N + 8, 3, b"y")]
        assert [entry.seq for entry in await entries_of(4, (N + 7, N + 9))] == [1, 2, 3]
        assert [entry.seq for entry in await entries_of(4, (N + 7, N + 9), after=1, through=2)] == [2]
        assert await entries_of(5, (N, N + 99)) == [entries[3]] and await entries_of(6, (N, N + 99)) == []

    async def test_the_latest_index_entry_up_to_a_seq_is_found(self, store):
        epoch = await claimed(store)
        entries = [IndexEntry(2, 9, seq, b"%d" % seq) for seq in (3, 5, 8)]
        await written(store, Rows(index=[*entries, IndexEntry(2, 10, 6)]), epoch=epoch)

        async def last(through, subject=9):
            return await store.last_index(P, kind=2, subject=subject, through=through)

        assert [await last(seq) for seq in (2, 3, 4, 7, 99)] == [None, entries[0], entries[0], entries[1], entries[2]]
        assert await last(99, subject=11) is None

    # ---- claims and fences

    @pytest.mark.proves("I3")
    async def test_every_claim_has_a_higher_epoch_also_after_a_restart(self, store, reopen):
        epochs = [await claimed(store), await claimed(store, "n2")]
        store = await reopen()
        epochs.append(await claimed(store))

        assert epochs == [1, 2, 3]

    async def test_partitions_have_epochs_and_journals_of_their_own(self, store):
        await claimed(store)
        other = await store.claim(P + 1, owner="n1", settings=b"other")
        await committed(store, 2, epoch=1)

        assert other == Head(1)
        assert await store.read_head(P + 1) == Head(1)
        assert (await store.load(P + 1)).settings == b"other"

    async def test_an_unknown_partition_has_an_empty_head(self, store):
        assert await store.read_head(99) == Head(0)
        assert (await store.load(99)).tail == []

    async def test_settings_count_for_a_new_partition_only(self, store):
        await store.claim(P, owner="n1", settings=b"first")
        await store.claim(P, owner="n2", settings=b"second")

        assert (await store.load(P)).settings == b"first"

    async def test_a_claim_tells_where_the_partition_stands(self, store):
        await claimed(store)
        await committed(store, 3, epoch=1)
        await written(store, Rows(header=b"h"), through=2)

        assert await store.claim(P, owner="n2", settings=b"") == Head(2, 3, J[2].tick, J[2].hash, 2)

    @pytest.mark.proves("I1", "I2")
    async def test_a_replaced_writer_cannot_append(self, store):
        old = await claimed(store)
        await claimed(store, "n2")

        with pytest.raises(Fenced):
            await store.commit(P, J[0], [payload(b"x")], epoch=old)
        assert await store.read_head(P) == Head(2)
        assert await store.read_payloads([X]) == {}

    @pytest.mark.proves("F24", "I2", "I3")
    async def test_of_two_writers_of_one_name_only_the_last_one_writes(self, store):
        """A node started twice, or a machine that was copied: who they say they are changes nothing."""
        first, second = await claimed(store), await claimed(store)

        assert second > first
        with pytest.raises(Fenced):
            await store.commit(P, J[0], [], epoch=first)
        await store.commit(P, J[0], [], epoch=second)
        assert (await store.read_head(P)).seq == 1

    @pytest.mark.proves("I2")
    async def test_a_replaced_writer_cannot_write_rows(self, store):
        old = await claimed(store)
        await committed(store, 1, epoch=old)
        await claimed(store, "n2")

        with pytest.raises(Fenced):
            await written(store, Rows(header=b"h", runs=[run(N + 1)], live_runs=[(N + 2, b"x")]), epoch=old, through=1)
        assert (await everything(store)).header == b""
        assert await store.find_runs("acme", ids=["run-1"]) == []

    async def test_an_epoch_that_nobody_was_given_is_fenced(self, store):
        await claimed(store)

        with pytest.raises(Fenced):
            await store.commit(P, J[0], [], epoch=7)
        with pytest.raises(Fenced):
            await written(store, Rows(), epoch=7)

    async def test_nobody_commits_to_a_partition_without_a_claim(self, store):
        with pytest.raises(Fenced):
            await store.commit(P, J[0], [], epoch=0)
        with pytest.raises(Fenced):
            await store.commit(P, J[0], [], epoch=1)

    @pytest.mark.proves("I1")
    @pytest.mark.parametrize("seq", [0, 1, 2, 4])
    async def test_only_the_next_seq_is_taken(self, store, seq):
        await claimed(store)
        await committed(store, 2, epoch=1)

        with pytest.raises(Fenced):
            await store.commit(P, SealedRow(seq, 99, b"h" * 32, b"data"), [payload(b"x")], epoch=1)
        assert await store.read_head(P) == Head(1, 2, J[1].tick, J[1].hash)
        assert await store.journal(P, after=0, limit=9) == J[:2]
        assert await store.read_payloads([X]) == {}

    async def test_rows_are_never_ahead_of_the_journal_nor_behind_the_watermark(self, store):
        await claimed(store)
        await committed(store, 3, epoch=1)
        await written(store, Rows(header=b"2"), through=2)

        for through in (1, 4):
            with pytest.raises(Fenced):
                await written(store, Rows(header=b"wrong"), through=through)
        assert (await everything(store)).header == b"2"

    # ---- the journal

    @pytest.mark.proves("I12")
    async def test_what_was_committed_is_there_after_a_restart(self, store, reopen):
        await claimed(store)
        for row in J[:3]:
            await store.commit(P, row, [payload(b"x" * row.seq)], epoch=1)
        store = await reopen()

        assert await store.read_head(P) == Head(1, 3, J[2].tick, J[2].hash)
        assert await store.journal(P, after=0, limit=99) == J[:3]
        xxx = digest_of(b"xxx")
        assert await store.read_payloads([X, xxx, "none"]) == {X: b"x", xxx: b"xxx"}

    async def test_a_payload_is_stored_once_under_its_digest(self, store):
        await claimed(store)
        await store.commit(P, J[0], [payload(b"x"), payload(b"x")], epoch=1)
        await store.commit(P, J[1], [payload(b"x")], epoch=1)

        assert await store.read_payloads([X, X]) == {X: b"x"}

    @pytest.mark.proves("I1")
    @pytest.mark.parametrize(("after", "limit", "seqs"), [(0, 2, [1, 2]), (2, 9, [3, 4, 5]), (5, 9, []), (0, 0, [])])
    async def test_the_journal_is_read_in_order_without_a_gap(self, store, after, limit, seqs):
        await claimed(store)
        await committed(store, 5, epoch=1)

        assert [row.seq for row in await store.journal(P, after=after, limit=limit)] == seqs

    async def test_a_load_is_the_rows_at_the_watermark_and_the_journal_behind_it(self, store, reopen):
        await claimed(store)
        await committed(store, 5, epoch=1)
        live = Rows(header=b"head", live_runs=[(N + 9, b"nine"), (N + 7, b"seven")], live_tasks=[(N + 8, b"task")])
        await written(store, live, through=3)
        store = await reopen()
        loaded = await everything(store)

        assert loaded.head == Head(1, 5, J[4].tick, J[4].hash, 3)
        assert (loaded.settings, loaded.header, loaded.watermark_hash) == (b"settings", b"head", J[2].hash)
        assert (loaded.live_runs, loaded.live_tasks) == ([b"seven", b"nine"], [b"task"])
        assert loaded.tail == J[3:5]

    async def test_a_partition_without_rows_is_loaded_from_its_journal(self, store):
        await claimed(store)
        await committed(store, 2, epoch=1)
        loaded = await everything(store)

        assert (loaded.header, loaded.watermark_hash, loaded.tail) == (b"", GENESIS, J[:2])

    # ---- rows

    async def test_live_rows_are_replaced_and_go(self, store):
        await claimed(store)
        await written(store, Rows(live_runs=[(N + 1, b"a"), (N + 2, b"b")], live_tasks=[(N + 3, b"c"), (N + 4, b"d")]))
        await written(
            store,
            Rows(live_runs=[(N + 1, b"A")], gone_runs=[N + 2], live_tasks=[(N + 4, b"D")], gone_tasks=[N + 3, N + 77]),
        )
        loaded = await everything(store)

        assert (loaded.live_runs, loaded.live_tasks) == ([b"A"], [b"D"])

    async def test_rows_without_a_header_leave_it_as_it_was(self, store):
        await claimed(store)
        await written(store, Rows(header=b"h"))
        await written(store, Rows(live_runs=[(N + 1, b"a")]))

        assert (await everything(store)).header == b"h"

    async def test_partitions_do_not_see_each_others_rows(self, store):
        await claimed(store)
        await store.claim(P + 1, owner="n1", settings=b"")
        await written(store, Rows(header=b"h", live_runs=[(N + 1, b"a")], live_tasks=[(N + 2, b"b")]))
        await written(store, Rows(header=b"H", live_runs=[(M + 1, b"A")], gone_tasks=[M + 2]), partition=P + 1)

        assert ((await everything(store)).live_runs, (await everything(store)).live_tasks) == ([b"a"], [b"b"])
        assert (await everything(store, P + 1)).live_runs == [b"A"]

    @pytest.mark.proves("I2")
    async def test_rows_that_mix_up_two_runs_change_nothing(self, store):
        await claimed(store)
        await committed(store, 1, epoch=1)
        await written(store, Rows(runs=[run(N + 1)]))
        mixed = Rows(
            header=b"h", live_runs=[(N + 5, b"x")], runs=[run(N + 2), run(N + 3, id="run-1")], attempts=[(N + 1, b"a")]
        )

        with pytest.raises(Corrupt):
            await written(store, mixed, through=1)
        loaded = await everything(store)
        assert (loaded.head.watermark, loaded.header, loaded.live_runs) == (0, b"", [])
        assert [small(row.number) for row in (await store.list_runs(RunFilter("acme"))).rows] == [1]
        assert await store.read_attempts(N + 1) == []

    async def test_an_ended_run_is_read_as_it_was_written(self, store, reopen):
        await claimed(store)
        row = run(N + 7, key="k", error="boom", schedule="s", state=FAILED, attempts=b"att", output=b"", by="zoë")
        await written(store, Rows(runs=[row]))
        store = await reopen()

        assert await store.find_runs("acme", ids=["run-7"]) == [row]

    async def test_many_runs_are_written_at_once(self, store):
        await claimed(store)
        rows = [run(N + number) for number in range(1, 101)]
        await written(store, Rows(runs=rows))

        assert (await store.list_runs(RunFilter("acme", limit=200))).rows == rows[::-1]

    async def test_a_run_that_ends_again_has_one_row_and_all_its_attempts(self, store, reopen):
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1, state=FAILED, attempts=b"first")]))
        await written(store, Rows(reopened=[N + 1], live_runs=[(N + 1, b"live")], attempts=[(N + 1, b"second")]))
        reopened = await store.find_runs("acme", ids=["run-1"]), await store.read_attempts(N + 1)
        await written(store, Rows(gone_runs=[N + 1], runs=[run(N + 1, attempts=b"third")]))
        store = await reopen()

        assert reopened == ([], [b"first", b"second"])
        assert await store.read_attempts(N + 1) == [b"first", b"second", b"third"]
        assert [row.state for row in (await store.list_runs(RunFilter("acme"))).rows] == [COMPLETED]

    async def test_a_run_may_be_reopened_and_end_in_one_write(self, store):
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1, state=FAILED, attempts=b"first")]))
        await written(
            store, Rows(reopened=[N + 1], attempts=[(N + 1, b"second")], runs=[run(N + 1, attempts=b"third")])
        )

        assert await store.read_attempts(N + 1) == [b"first", b"second", b"third"]
        assert await store.find_runs("acme", ids=["run-1"]) == [run(N + 1, attempts=b"third")]

    async def test_reopening_a_run_without_a_row_changes_nothing(self, store):
        await claimed(store)
        await written(store, Rows(reopened=[N + 5]))

        assert await store.read_attempts(N + 5) == []

    # ---- what people ask for

    async def test_runs_are_found_by_id_and_by_key_in_their_tenant(self, store):
        await claimed(store)
        rows = [run(N + 1, key="k"), run(N + 2, key="k"), run(N + 3), run(N + 4, id="run-1", tenant="other", key="k")]
        await written(store, Rows(runs=rows))
        found = await store.find_runs("acme", ids=["run-1", "run-3", "none"], keys=["k", "", "none"])

        assert sorted(small(row.number) for row in found) == [1, 2, 3]
        assert [small(row.number) for row in await store.find_runs("other", keys=["k"])] == [4]
        assert await store.find_runs("nobody", ids=["run-1"], keys=["k"]) == []

    @pytest.mark.parametrize("stem", ["", "run-", "sched-often-"])
    async def test_a_run_whose_id_is_longer_than_any_is_not_found(self, store, stem):
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1)]))

        assert await store.find_runs("acme", ids=["run-1", stem + "9" * 5_000]) == [run(N + 1)]

    async def test_a_text_that_the_store_cannot_take_is_no_outage(self, store):
        """A caller that waits until the store answers would wait for ever."""
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1)]))
        try:
            found = await store.find_runs("acme", keys=["a\0b"])
        except Unavailable as error:
            pytest.fail(f"taken for an outage: {error}")
        except ValueError:
            found = []

        assert found == []
        assert await store.find_runs("acme", ids=["run-1"]) == [run(N + 1)]

    async def test_of_several_runs_with_one_key_the_latest_is_found_in_whatever_partition(self, store):
        await claimed(store)
        await store.claim(P + 1, owner="n", settings=b"")
        await written(store, Rows(runs=[run(N + 5, key="k"), run(N + 9, key="k")]))
        await written(store, Rows(runs=[run(M + 7, key="k")]), partition=P + 1)

        assert [small(row.number) for row in await store.find_runs("acme", keys=["k"])] == [7]

    async def test_a_run_found_by_id_and_by_key_is_told_once(self, store):
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1, key="k")]))

        assert await store.find_runs("acme", ids=["run-1", "run-1"], keys=["k"]) == [run(N + 1, key="k")]

    @pytest.mark.parametrize(
        ("wanted", "numbers"),
        [
            ({}, [8, 7, 6, 5, 4, 3, 2, 1]),
            ({"limit": 3}, [8, 7, 6]),
            ({"limit": 3, "before": 6}, [5, 4, 3]),
            ({"limit": 0}, []),
            ({"before": 1}, []),
            ({"workflow": "b"}, [8, 6, 4, 2]),
            ({"states": (FAILED,)}, [6, 3]),
            ({"states": (FAILED, COMPLETED), "limit": 4}, [8, 7, 6, 5]),
            ({"states": (FAILED, FAILED)}, [6, 3]),
            ({"states": (CANCELLED,)}, []),
            ({"workflow": "b", "states": (FAILED,)}, [6]),
            ({"schedule": "s"}, [4, 1]),
            ({"schedule": "s", "workflow": "b"}, [4]),
            ({"schedule": "s", "states": (FAILED,)}, []),
            ({"schedule": "s", "before": 4}, [1]),
            ({"workflow": "none"}, []),
        ],
    )
    async def test_runs_are_listed_newest_first_by_what_is_wanted(self, store, wanted, numbers):
        await claimed(store)
        rows = [
            run(
                N + n,
                workflow="b" if n % 2 == 0 else "a",
                state=FAILED if n % 3 == 0 else COMPLETED,
                schedule="s" if n % 3 == 1 and n < 7 else "",
            )
            for n in range(1, 9)
        ]
        await written(store, Rows(runs=[*rows, run(N + 9, tenant="other")]))
        if wanted.get("before"):
            wanted = wanted | {"before": N + wanted["before"]}

        assert [small(row.number) for row in (await store.list_runs(RunFilter("acme", **wanted))).rows] == numbers

    @pytest.mark.parametrize(
        ("wanted", "numbers"),
        [
            ({"tags": ("nightly",)}, [8, 6, 4, 2]),
            ({"tags": ("nightly", "big")}, [8, 4]),
            ({"tags": ("nightly",), "states": (FAILED,)}, [6]),
            ({"tags": ("nightly",), "workflow": "b"}, [8, 4]),
            ({"tags": ("absent",)}, []),
            ({"fields": (("customer", "ed"),)}, [5]),
            ({"fields": (("customer", "ed"), ("region", "eu"))}, [5]),
            ({"fields": (("customer", "ed"), ("region", "us"))}, []),
            ({"version": "shop@2"}, [7]),
            ({"version": "2"}, [7]),
            ({"error": "timeout"}, [6, 3]),
            ({"error": "TimeoutError order 6"}, [6]),
            ({"error": "6"}, [6]),
            ({"submitted": TimeRange(3 * HOUR, 6 * HOUR)}, [5, 4, 3]),
            ({"submitted": TimeRange(3 * HOUR, 3 * HOUR + 1)}, [3]),
            ({"ended": TimeRange(1, 5 * HOUR)}, [4, 3, 2, 1]),
            ({"started": TimeRange(1, 1_000 * HOUR)}, [8, 7, 6, 5, 4, 3, 2]),
            ({"ended": TimeRange(2 * HOUR, 8 * HOUR), "tags": ("big",), "before": 8}, [4]),
            ({"tags": ("nightly",), "after": 2, "limit": 2}, [8, 6]),
            ({"tags": ("nightly",), "after": 4}, [8, 6]),
        ],
    )
    async def test_runs_are_found_by_what_they_carry(self, store, wanted, numbers):
        await claimed(store)
        changes = {
            5: {"fields": (("customer", "ed"), ("region", "eu"))},
            6: {"fields": (("customer", "eddie"),)},
            7: {"version": "shop@2"},
        }
        rows = [
            run(
                N + n,
                workflow="b" if n % 4 == 0 else "a",
                state=FAILED if n % 3 == 0 else COMPLETED,
                tags=(*(["nightly"] if n % 2 == 0 else []), *(["big"] if n % 4 == 0 else [])),
                error=f"charge: TimeoutError of order {n}" if n % 3 == 0 else "",
                submitted_ms=n * HOUR,
                started_ms=0 if n == 1 else n * HOUR + 1,
                ended_ms=n * HOUR + 2,
                **changes.get(n, {}),
            )
            for n in range(1, 9)
        ]
        strangers = [run(N + 9, tenant="other", tags=("nightly",))]
        await written(store, Rows(runs=[*rows, *strangers]))
        wanted = wanted | {name: N + wanted[name] for name in ("before", "after") if name in wanted}

        assert [small(row.number) for row in (await store.list_runs(RunFilter("acme", **wanted))).rows] == numbers

    async def test_a_search_that_few_runs_fit_goes_on_page_by_page(self, store, monkeypatch):
        """The index of ranges names more than fit: the search stops after some, and the next page goes on."""
        for module in ("sqlite", "postgres"):
            monkeypatch.setattr(f"tickwork.stores.{module}.run_blocks.SCAN_MAX", 2)
        await claimed(store)
        fits = [run(N + 256 * n + 1, tags=("a",), fields=(("x", "1"),)) for n in (1, 6)]
        others = [run(N + 256 * n + 2, tags=("a",)) for n in range(8)]
        others += [run(N + 256 * n + 3, fields=(("x", "1"),)) for n in range(8)]
        await written(store, Rows(runs=sorted([*fits, *others], key=lambda row: row.number)))
        met, before = [], 0
        for _ in range(9):
            wanted = RunFilter("acme", tags=("a",), fields=(("x", "1"),), before=before, limit=3)
            page = await store.list_runs(wanted)
            met += [row.number for row in page.rows]
            before = page.before
            if not before:
                break

        assert met == [row.number for row in fits[::-1]]
        assert before == 0

    async def test_runs_that_left_or_changed_are_not_found_by_what_they_were(self, store):
        await claimed(store)
        await written(store, Rows(runs=[run(N + 1, tags=("a",)), run(N + 2, tags=("a", "b"))]))
        await written(store, Rows(runs=[run(N + 2, tags=("c",))]))
        await written(store, Rows(reopened=[N + 1]))

        async def listed(tag):
            return [small(row.number) for row in (await store.list_runs(RunFilter("acme", tags=(tag,)))).rows]

        assert [await listed(tag) for tag in "abc"] == [[], [], [2]]

    async def test_paging_through_a_list_meets_every_run_once(self, store):
        await claimed(store)
        await store.claim(P + 1, owner="n", settings=b"")
        await written(store, Rows(runs=[run(N + n, state=4 + n % 3) for n in range(1, 20)]))
        await written(store, Rows(runs=[run(M + n) for n in range(30, 40)]), partition=P + 1)
        met, before = [], 0
        while page := (await store.list_runs(RunFilter("acme", before=before, limit=4))).rows:
            met += [small(row.number) for row in page]
            before = page[-1].number

        assert met == [*range(39, 29, -1), *range(19, 0, -1)]

    async def test_a_run_is_found_among_many_whatever_its_id_looks_like(self, store, reopen):
        await claimed(store)
        rows = [run(N + n, id=seven(n) if n % 3 else f"order-{n}", key=f"k{n}" if n % 50 == 0 else "") for n in MANY]
        for at in range(0, len(rows), 90):  # as portions are: not cut where numbers are, and not in their order
            await written(store, Rows(runs=rows[at : at + 90][::-1]))
        store = await reopen()
        asked = [rows[n] for n in (0, 1, 89, 90, 255, 256, 400, 599)]

        for row in asked:
            assert await store.find_runs("acme", ids=[row.id]) == [row]
        assert sorted(await store.find_runs("acme", ids=[row.id for row in asked]), key=number_of) == asked
        assert [small(row.number) for row in await store.find_runs("acme", keys=["k300", "k7"])] == [300]
        assert await store.find_runs("acme", ids=[seven(5, tail="other"), "order-601", ""]) == []
        assert await store.find_runs("other", ids=[rows[0].id]) == []

    async def test_lists_go_on_over_many_runs(self, store):
        await claimed(store)
        rows = [run(N + n, state=FAILED if n % 97 == 0 else COMPLETED, workflow="b" if n > 300 else "a") for n in MANY]
        await written(store, Rows(runs=rows[::2]))
        await written(store, Rows(runs=rows[1::2]))

        async def numbers(**wanted):
            return [small(row.number) for row in (await store.list_runs(RunFilter("acme", **wanted))).rows]

        assert await numbers(limit=1_000) == [*range(600, 0, -1)]
        assert await numbers(states=(FAILED,)) == [582, 485, 388, 291, 194, 97]
        assert await numbers(states=(FAILED,), workflow="a", limit=2) == [291, 194]
        assert await numbers(workflow="a", before=N + 258, limit=4) == [257, 256, 255, 254]

    async def test_runs_that_are_there_already_are_written_once(self, store):
        """After a crash, cut into other portions, and some of them with another end."""
        await claimed(store)
        rows = [run(N + n, id=seven(n), key=f"k{n % 7}") for n in MANY]
        await written(store, Rows(runs=rows[:200]))
        await written(store, Rows(runs=rows[200:400]))
        again = [run(N + n, id=seven(n), state=FAILED, workflow="b") for n in range(150, 601)]
        await written(store, Rows(runs=again[:300]))
        await written(store, Rows(runs=again[300:]))

        assert (await store.list_runs(RunFilter("acme", limit=1_000))).rows == [*rows[:149], *again][::-1]
        assert len((await store.list_runs(RunFilter("acme", workflow="flow", limit=1_000))).rows) == 149
        assert [small(row.number) for row in await store.find_runs("acme", keys=["k1"])] == [148]
        assert await store.find_runs("acme", ids=[seven(300)]) == [again[150]]

    async def test_runs_that_end_one_by_one_are_found_and_listed(self, store):
        await claimed(store)
        rows = [run(N + n, id=seven(n), state=FAILED if n == 31 else COMPLETED) for n in range(1, 61)]
        for row in rows:
            await written(store, Rows(runs=[row]))
        await written(store, Rows(reopened=[N + 30]))
        left = [row for row in rows if row.number != N + 30]

        assert (await store.list_runs(RunFilter("acme", limit=100))).rows == left[::-1]
        assert (await store.list_runs(RunFilter("acme", states=(FAILED,)))).rows == [rows[30]]
        assert sorted(await store.find_runs("acme", ids=[seven(n) for n in range(61)]), key=number_of) == left

    async def test_runs_leave_from_among_others(self, store):
        await claimed(store)
        rows = [run(N + n, id=seven(n), attempts=b"att") for n in MANY]
        await written(store, Rows(runs=rows))
        await written(store, Rows(reopened=[N + 1, N + 256, N + 300, *range(N + 512, N + 601)]))
        left = [row for row in rows[1:511] if small(row.number) not in (256, 300)]

        assert (await store.list_runs(RunFilter("acme", limit=1_000))).rows == left[::-1]
        assert await store.find_runs("acme", ids=[seven(1), seven(300), seven(600)]) == []
        assert await store.find_runs("acme", ids=[seven(301)]) == [rows[300]]
        assert await store.read_attempts(N + 300) == await store.read_attempts(N + 301) == [b"att"]

    async def test_large_runs_are_read_as_they_were_written(self, store):
        await claimed(store)
        rows = [run(N + n, output=bytes([n]) * 30_000) for n in range(1, 41)]
        await written(store, Rows(runs=rows))

        assert (await store.list_runs(RunFilter("acme"))).rows == rows[::-1]
        assert await store.find_runs("acme", ids=["run-17"]) == [rows[16]]

    async def test_attempts_are_read_oldest_first(self, store):
        await claimed(store)
        await written(store, Rows(attempts=[(N + 1, b"a"), (N + 2, b"x"), (N + 1, b"b")]))
        await written(store, Rows(attempts=[(N + 1, b"c")], runs=[run(N + 1, attempts=b"d"), run(N + 2)]))

        assert await store.read_attempts(N + 1) == [b"a", b"b", b"c", b"d"]
        assert await store.read_attempts(N + 2) == [b"x"]
        assert await store.read_attempts(N + 3) == []

    async def test_children_are_read_by_child(self, store):
        await claimed(store)
        await written(
            store,
            Rows(children=[ChildRow(N + 1, 2, 10, b"ten"), ChildRow(N + 1, 2, 9, b"?"), ChildRow(N + 1, 3, 0, b"")]),
        )
        await written(store, Rows(children=[ChildRow(N + 1, 2, 9, b"nine")]))

        assert await store.read_children(N + 1, 2) == [(9, b"nine"), (10, b"ten")]
        assert await store.read_children(N + 1, 3) == [(0, b"")]
        assert await store.read_children(N + 2, 2) == []

    async def test_the_cache_has_the_latest_value(self, store):
        await claimed(store)
        await written(store, Rows(cache=[CacheRow("acme/a", b"1", 5), CacheRow("acme/b", b"2", 6)]))
        await written(store, Rows(cache=[CacheRow("acme/a", b"3", 7)]))

        assert await store.read_cache(["acme/a", "acme/none"]) == {"acme/a": CacheRow("acme/a", b"3", 7)}

    async def test_definitions_are_read_by_tenant_and_hash_and_loaded_with_their_partition(self, store):
        await claimed(store)
        row = DefinitionRow("h1", "acme", "flow", b"doc", 5)
        await written(store, Rows(definitions=[row, DefinitionRow("h0", "other", "flow", b"doc0", 6)]))

        assert await store.read_definition("acme", "h1") == row
        assert await store.read_definition("acme", "h0") is None
        assert (await everything(store)).documents == [("h0", b"doc0"), ("h1", b"doc")]
        assert (await store.load(P + 1)).documents == []

    async def test_repeating_a_log_chunk_changes_nothing(self, store, reopen):
        first = LogChunk(1, 1, 0, 0, 10, 100, "d0", 5)
        second = LogChunk(1, 1, 1, 10, 10, 100, "d1", 6)
        await store.add_log_chunks([second, first])
        await store.add_log_chunks([msgspec.structs.replace(first, digest="other"), LogChunk(1, 2, 0, 0, 1, 1, "x", 7)])
        store = await reopen()

        assert await store.read_log_chunks(1, 1) == [first, second]
        assert await store.read_log_chunks(1, 1, after=0) == [second]
        assert await store.read_log_chunks(9, 1) == []

    # ---- what all nodes share

    async def test_what_was_founded_first_stays(self, store, reopen):
        first = await store.establish_identity(cluster="c1", partitions=16)
        store = await reopen()

        assert first == ClusterIdentity("c1", 16)
        assert await store.establish_identity(cluster="c2", partitions=4) == first

    async def test_a_route_is_put_only_in_place_of_what_was_read(self, store, reopen):
        old, new = Route("acme", 3), Route("acme", 3, spread=4)

        assert await store.put_route(old, over=None)
        assert not await store.put_route(new, over=None)
        assert not await store.put_route(new, over=Route("acme", 4))
        assert not await store.put_route(Route("Zeta", 1), over=Route("Zeta", 2))
        assert await store.put_route(new, over=old)
        assert not await store.put_route(old, over=old)
        assert await store.put_route(Route("Zeta", 1), over=None)
        store = await reopen()
        assert await store.read_routes() == [Route("Zeta", 1), new]  # by their bytes

    async def test_inbox_rows_stay_until_they_are_dropped(self, store, reopen):
        rows = [InboxRow(f"run-{n}", P, "acme", b"%d" % n, "ann") for n in range(5)]
        other = InboxRow("run-1", P + 1, "acme", b"other")
        await store.add_inbox([*rows, other])
        await store.add_inbox([msgspec.structs.replace(rows[0], data=b"again")])
        await store.add_inbox([])
        await store.drop_inbox(P, ["run-1", "run-3", "none"])
        await store.drop_inbox(P, [])
        store = await reopen()

        assert sorted(await store.read_inbox(P, limit=9), key=lambda row: row.id) == rows[::2]
        assert len(await store.read_inbox(P, limit=2)) == 2
        assert await store.read_inbox(P, limit=0) == []
        assert await store.read_inbox(P + 1, limit=9) == [other]
        assert await store.read_inbox(P + 2, limit=9) == []

    async def test_a_closed_store_says_so(self, store):
        await store.close()
        await store.close()

        with pytest.raises(Unavailable):
            await store.read_head(P)
