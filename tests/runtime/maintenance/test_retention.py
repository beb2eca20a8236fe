"""What ended long ago leaves for the archive, opens by its id, and goes for good one day."""

import asyncio

import httpx2
import msgspec
import pytest

from runtime.engine_fixture import House, task
from runtime.maintenance.retention_fixture import KEEP, Keeping
from tickwork.api.app import make_app
from tickwork.compose.settings import how_long, load
from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.machine import Machine
from tickwork.journal.export import read as read_export
from tickwork.journal.replay import replay
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.runtime.maintenance import retention as module
from tickwork.runtime.maintenance.auditor import Auditor, at_the_beginning
from tickwork.runtime.maintenance.retention import DAY_MS, RetentionPolicy, keep_of
from tickwork.runtime.storage.archive import unpacked
from tickwork.stores.memory.store import MemoryStore


@pytest.fixture
async def house():
    house = Keeping()
    await house.open()
    yield house
    await house.engine.stop()


def http_of(engine):
    transport = httpx2.ASGITransport(app=make_app(engine), client=("127.0.0.1", 5000))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def some_runs(house, *, count=3, **functions):
    await house.define("flow", task("a"), task("b", needs=["a"]))
    async with house.serving(a=lambda: 1, b=lambda: 2, **functions):
        for number in range(count):
            await house.submit("flow", id=f"old-{number}", inputs={})
        for number in range(count):
            await house.until(f"old-{number}", "completed")


@pytest.mark.proves("S001-55")
async def test_an_archived_run_still_opens_by_its_id(house):
    await some_runs(house)
    engine = house.engine
    async with http_of(engine) as http:
        shown = (await http.get("/v1/runs/old-1")).json()
    before = [await engine.queries.run(f"old-{number}") for number in range(3)]
    await house.days(4)
    young = await house.submit("flow")

    assert house.disk.runs == {} and engine.maintenance.retention.runs == 3
    assert [await engine.queries.run(f"old-{number}") for number in range(3)] == before
    story = await engine.queries.why("old-1")
    assert story is not None and story.state == "COMPLETED" and story.entries
    async with http_of(engine) as http:
        assert (await http.get("/v1/runs/old-1")).json() == shown
        listed = (await http.get("/v1/runs")).json()["runs"]
    assert [run["id"] for run in listed] == [young], "a list leaves the archive out"
    assert (KEEP.runs_ms, how_long(load({}, env={})).runs_ms) == (3 * DAY_MS, 3 * DAY_MS), "the default"


async def test_what_is_young_or_lives_stays(house):
    await some_runs(house, count=2)
    await house.submit("flow", id="lives")
    await house.days(2)

    assert len(house.disk.runs) == 2 and house.engine.maintenance.retention.runs == 0
    await house.days(2)
    assert house.disk.runs == {} and (await house.engine.queries.run("lives")).state == "active"


@pytest.mark.proves("I13")
async def test_an_id_stays_taken_when_its_run_is_archived(house):
    await some_runs(house)
    await house.days(5)

    again = await house.engine.runs.submit([wire.Submission(workflow="flow", id="old-0", inputs={})], by="test")
    assert again == [wire.Submitted(id="old-0", duplicate=True)]
    [other] = await house.engine.runs.submit([wire.Submission(workflow="flow", id="old-0", priority=7)], by="test")
    assert isinstance(other, wire.Rejected) and other.code == "key_reused"
    with pytest.raises(Refused, match="COMPLETED"):
        await house.engine.runs.cancel("old-1", by="test")


async def test_a_failed_run_comes_back_from_the_archive_with_its_attempts(house):
    failing = [True]

    def end(values):
        if failing[0]:
            raise ValueError("not yet")
        return sum(values)

    body = {"kind": "task", "handler": "each", "args": {"item": {"from": "item"}}}
    await house.define(
        "fan",
        {"kind": "map", "id": "m", "over": "inputs.list", "body": body},
        {"kind": "task", "id": "last", "handler": "end", "needs": ["m"], "args": {"values": {"from": "nodes.m"}}},
        inputs={"list": {"type": "array"}},
    )
    async with house.serving(each=lambda item: item, end=end):
        await house.submit("fan", id="broken", inputs={"list": [1, 2, 3]})
        first = await house.until("broken", "failed")
        await house.days(4)
        assert (await house.engine.queries.run("broken")).tasks == first.tasks and house.disk.runs == {}
        failing[0] = False
        await house.engine.runs.resolve("broken", by="me", reason="mended")
        second = await house.until("broken", "completed")
        assert second.output == 6 or second.output == {"last": 6}, "what its children gave came back too"
        await house.days(4)

        assert house.disk.runs == {} and house.disk.attempts.get(1) is None
        again = await house.engine.queries.run("broken")
        assert again.output == second.output and again.state == "completed"
        said = [one.message for node in again.tasks for one in node.attempts]
        assert "not yet" in said, "what the first try said is not lost"


@pytest.mark.proves("I55")
async def test_the_journal_verifies_across_the_border_and_replays_from_its_pieces(house, monkeypatch):
    monkeypatch.setattr(module, "JOURNAL_PORTION", 4)
    await some_runs(house)
    await house.days(4)
    engine = house.engine
    cut = await house.store.journal_cut(0)
    assert cut > 8 and house.engine.maintenance.retention.rows == cut

    machine, head, seq = Machine(settings=engine.context.state.settings), None, 0
    last = engine.context.live.durable_seq
    rows = []
    while seq < last:
        found = await engine.overview.journal(after=seq, limit=7)
        rows += found
        seq = found[-1].seq
    head = replay(rows, machine)
    assert head == (await house.store.read_head(0)).hash
    desk = []

    async def never(*_):
        desk.append(1)

    auditor = Auditor(
        engine.context.archives, 0, at_the_beginning(engine.context.state.settings), zones=UTC_ONLY, clock=house.clock,
        hold=never, keep=never,
    )  # fmt: skip
    assert await auditor.catch_up() is None and auditor.seq == last and desk == []
    archive = await house.store.journal_archive(0, seq=5)
    piece_head, piece = read_export([house.artifacts.kept[archive.object]])
    assert (piece_head.after, piece_head.hash) == (archive.first - 1, archive.before)
    assert [row.seq for row in piece] == list(range(archive.first, archive.last + 1))


async def test_a_house_comes_up_again_on_a_cut_journal(house):
    await some_runs(house)
    await house.days(4)
    await house.engine.stop()
    await house.open()

    assert (await house.engine.queries.run("old-0")).state == "completed"
    await house.submit("flow", id="new")
    assert (await house.engine.queries.run("new")).state == "active"


@pytest.mark.proves("S66", "S001-37")
async def test_archive_and_logs_go_when_their_time_is_over_and_not_before(house):
    await some_runs(house)
    engine = house.engine
    task_id = int((await engine.queries.run("old-0")).tasks[0].id)
    line = b'{"at": 1, "stream": "stdout", "text": "hello"}\n'
    await engine.context.logs.append(task_id, 1, chunk=0, first=0, data=line)
    await house.days(20)
    await engine.context.logs.append(task_id, 2, chunk=0, first=0, data=line)  # the same bytes, named once more
    await house.days(11)

    assert engine.maintenance.retention.logs == 1 and len(house.disk.log_chunks[task_id, 2]) == 1
    assert [lines async for _, lines in engine.context.logs.read(task_id, 2)] == [[(1, "stdout", "hello")]]
    await house.days(20)
    assert engine.maintenance.retention.logs == 2 and not any(data == line for data in house.artifacts.kept.values())

    async def read(attempt):
        return [lines async for _, lines in engine.context.logs.read(task_id, attempt)]

    assert await read(1) == await read(2) == [[(1, "stdout", "hello")]], "a year in the archive, behind a month here"
    await house.days(300)
    assert (await engine.queries.run("old-0")).state == "completed"
    await house.days(40)
    assert await read(1) == await read(2) == [[(1, "stdout", "hello")]]
    with pytest.raises(Refused, match="no run"):
        await engine.queries.run("old-0")
    assert engine.maintenance.retention.forgotten >= 2 and house.disk.archived == {}
    await house.days(40)
    assert await read(1) == await read(2) == []
    kinds = {archive.kind for archive in house.disk.archives.values()}
    assert kinds == {"journal"}, "the last piece of the journal stays: the next one is chained to it"
    assert set(house.artifacts.kept) >= set(house.disk.archives)


async def test_a_backfill_of_what_is_missing_knows_archived_occurrences(house):
    await house.define("flow", task("a"), task("b", needs=["a"]))
    engine = house.engine
    async with house.serving(a=lambda: 1, b=lambda: 2):
        await engine.schedules.put("hourly", wire.ScheduleRequest(workflow="flow", cron="0 * * * *"), by="test")
        began_ms = house.clock.wall_ms()
        for hour in range(3):
            house.clock.pass_ms(3_600_000)
            engine.context.live.refresh()
            async with asyncio.timeout(5):
                while len((await engine.queries.runs(RunFilter("default", states=(4,))))[0]) <= hour:
                    await asyncio.sleep(0.01)
        await engine.admin.pause("schedule", "hourly", by="test")
        house.clock.pass_ms(1)
        await house.days(5)
        assert house.disk.runs == {} and engine.maintenance.retention.runs == 3
        fates = await house.store.read_fates("default", "hourly", from_ms=0, to_ms=1 << 60, limit=99)
        assert fates, "fates outlive runs"
        window = wire.BackfillRequest(start=instant_text(began_ms), end=instant_text(began_ms + 3 * 3_600_000))
        begun = await engine.schedules.backfill("hourly", window, by="test")
        async with asyncio.timeout(5):
            while (
                now := next(one for one in await engine.schedules.backfills() if one.number == begun.number)
            ).state == "active":
                await asyncio.sleep(0.01)

        assert now.started == 0 and now.known >= 3


@pytest.mark.proves("S004-42", "I22")
@pytest.mark.parametrize(
    ("cron", "started"),
    [
        ("0 * * * *", 0),  # only its description was edited: they are the same times
        ("0,30 * * * *", 6),  # of a range of other times, only the two ends are known to be among these
    ],
)
async def test_a_backfill_knows_what_ran_by_fates_alone_also_after_an_edit(house, cron, started):
    await house.define("flow", task("a"), task("b", needs=["a"]))
    engine = house.engine
    async with house.serving(a=lambda: 1, b=lambda: 2):
        await engine.schedules.put("hourly", wire.ScheduleRequest(workflow="flow", cron="0 * * * *"), by="test")
        began_ms = house.clock.wall_ms() // 3_600_000 * 3_600_000 + 1
        for hour in range(4):
            house.clock.pass_ms(3_600_000)
            engine.context.live.refresh()
            async with asyncio.timeout(5):
                while len((await engine.queries.runs(RunFilter("default", states=(4,))))[0]) <= hour:
                    await asyncio.sleep(0.01)
        await engine.admin.pause("schedule", "hourly", by="test")
        edited = wire.ScheduleRequest(workflow="flow", cron=cron, description="edited")
        await engine.schedules.put("hourly", edited, by="test")
        await house.days(5)
        await house.days(400)
        assert house.disk.runs == {} and house.disk.archived == {}, "nothing but their fates is left of these runs"
        window = wire.BackfillRequest(start=instant_text(began_ms), end=instant_text(began_ms + 4 * 3_600_000))
        planned = await engine.schedules.backfill("hourly", msgspec.structs.replace(window, preview=True), by="test")
        begun = await engine.schedules.backfill("hourly", window, by="test")
        async with asyncio.timeout(5):
            while (
                now := next(one for one in await engine.schedules.backfills() if one.number == begun.number)
            ).state == "active":
                await asyncio.sleep(0.01)

        assert (len(planned.run_ids), now.started) == (started, started)


class Breaking(MemoryStore):
    """Ends the process, so to speak, before or after a step."""

    at, after = "", False

    async def move_runs(self, *args, **named):
        return await self._step("move_runs", super().move_runs, args, named)

    async def drop_journal(self, *args, **named):
        return await self._step("drop_journal", super().drop_journal, args, named)

    async def drop_archive(self, *args, **named):
        return await self._step("drop_archive", super().drop_archive, args, named)

    async def drop_log_chunks(self, *args, **named):
        return await self._step("drop_log_chunks", super().drop_log_chunks, args, named)

    async def _step(self, name, deed, args, named):
        if Breaking.at == name and not Breaking.after:
            raise Unavailable("before", retry_after_ms=1)
        answer = await deed(*args, **named)
        if Breaking.at == name:
            raise Unavailable("after", retry_after_ms=1)
        return answer


@pytest.mark.proves("I13", "F9")
@pytest.mark.parametrize("after", [False, True])
async def test_an_end_between_any_two_steps_loses_nothing_and_is_repeated(after):
    house = Keeping(store=Breaking)
    await house.open()
    try:
        await some_runs(house)
        engine = house.engine
        before = [await engine.queries.run(f"old-{number}") for number in range(3)]
        task_id = int(before[0].tasks[0].id)
        await engine.context.logs.append(task_id, 1, chunk=0, first=0, data=b'{"at": 1, "stream": "x", "text": "y"}\n')
        for step, days in (("move_runs", 4), ("drop_journal", 4), ("drop_log_chunks", 40)):
            Breaking.at, Breaking.after = step, after
            with pytest.raises(Unavailable):
                await house.days(days)
            assert [await engine.queries.run(f"old-{number}") for number in range(3)] == before
            await engine.queries.why("old-2")
            Breaking.at = ""
            await engine.maintenance.retention.look_through()
            assert [await engine.queries.run(f"old-{number}") for number in range(3)] == before
        assert not house.disk.log_chunks[task_id, 1] and house.disk.runs == {}
        Breaking.at = "drop_archive"
        with pytest.raises(Unavailable):
            await house.days(400)
        Breaking.at = ""
        await engine.maintenance.retention.look_through()
        assert house.disk.archived == {}
    finally:
        Breaking.at = ""
        await house.engine.stop()


async def test_a_damaged_archive_says_so(house):
    await some_runs(house, count=1)
    await house.days(4)
    [archive] = [one for one in house.disk.archives.values() if one.kind == "runs"]
    bundles = unpacked(house.artifacts.kept[archive.object])
    assert [bundle.row.id for bundle in bundles] == ["old-0"]
    house.artifacts.damage(archive.object)

    with pytest.raises(Corrupt):
        await house.engine.queries.run("old-0")
    with pytest.raises(Corrupt):
        unpacked(b"TWA1" + b"x")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"runs": "3h"}, "retention_runs"),
        ({"archive": "2d"}, "retention_archive"),
        ({"logs": "often"}, "retention_logs"),
    ],
)
def test_too_short_a_time_is_refused(changes, path):
    words = {"runs": "3d", "journal": "3d", "archive": "365d", "logs": "30d"}
    assert keep_of(**words) == KEEP
    assert keep_of(**dict.fromkeys(words, "0")) == RetentionPolicy(runs_ms=0, journal_ms=0, archive_ms=0, logs_ms=0)
    with pytest.raises(Refused) as refused:
        keep_of(**(words | changes))
    assert refused.value.path == path


async def test_nothing_goes_where_it_is_kept_for_ever():
    house = Keeping()
    house.keep = msgspec.structs.replace(KEEP, runs_ms=0, journal_ms=0, archive_ms=0, logs_ms=0)
    await house.open()
    await some_runs(house, count=1)
    await house.days(4_000)

    assert len(house.disk.runs) == 1 and house.disk.archives == {}
    await house.engine.stop()


@pytest.mark.proves("S001-37")
async def test_pieces_of_a_log_come_in_order_from_the_archive_and_from_here(house, monkeypatch):
    monkeypatch.setattr(module, "LOGS_BYTES", 100)
    await some_runs(house)
    engine = house.engine
    task_id = int((await engine.queries.run("old-0")).tasks[0].id)
    for chunk in range(6):
        text = b'{"at": 1, "stream": "stdout", "text": "line %d"}\n' % chunk
        await engine.context.logs.append(task_id, 1, chunk=chunk, first=chunk, data=text)
        await house.days(8)

    found = [(chunk, lines[0][2]) async for chunk, lines in engine.context.logs.read(task_id, 1)]
    later = [chunk async for chunk, _ in engine.context.logs.read(task_id, 1, after=1)]

    assert 0 < len(house.disk.log_chunks[task_id, 1]) < 6
    assert found == [(chunk, f"line {chunk}") for chunk in range(6)] and later == [2, 3, 4, 5]


async def test_logs_that_the_archive_would_not_keep_longer_go_for_good(house):
    house.engine.maintenance.retention._keep = msgspec.structs.replace(KEEP, archive_ms=25 * DAY_MS)
    await some_runs(house)
    task_id = int((await house.engine.queries.run("old-0")).tasks[0].id)
    line = b'{"at": 1, "stream": "stdout", "text": "hello"}\n'
    await house.engine.context.logs.append(task_id, 1, chunk=0, first=0, data=line)
    await house.days(31)

    assert [lines async for _, lines in house.engine.context.logs.read(task_id, 1)] == []
    assert "logs" not in {archive.kind for archive in house.disk.archives.values()}


@pytest.mark.parametrize("end", ["stop", "abandon"])
async def test_an_engine_that_ends_leaves_nothing_running_beside_it(end):
    """One whose partition became another's would keep its whole state, and delete logs behind the owner's back."""
    house = House()
    engine = Engine(
        store=house.make_store(house.disk), artifacts=house.artifacts, clock=house.clock, ids=house.ids, owner="n1",
        keep=KEEP,
    )  # fmt: skip
    await engine.start()

    async def keep(name, data): ...

    await engine.maintenance.audit(keep)
    before = asyncio.all_tasks()
    await (engine.stop() if end == "stop" else engine.abandon("it is another's"))

    assert len(before) > 2
    assert asyncio.all_tasks() - {asyncio.current_task()} == set()
