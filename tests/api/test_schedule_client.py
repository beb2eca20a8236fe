"""Both clients ask the real server everything about schedules; and what is in code becomes what is in the server."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import tickwork as tw
from api.test_server import server  # noqa: F401 - a fixture
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.sdk.authoring.app_loader import app_with
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.calls import StillRunning
from tickwork.sdk.client.client import Client
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds
from tickwork.system.zone_data import load_zones


@tw.task
def send(day: datetime, settings: Any) -> str:
    return f"{day} {settings}"


@tw.workflow
def report(day: datetime, settings: Any = None) -> str:
    return send(day, settings)


@tw.workflow(schedule=tw.cron("0 9 * * *", tz="Europe/Berlin", queue="nowhere"))
def lost() -> str:
    return send.using(id="only")(datetime(2026, 1, 1, tzinfo=UTC), None)


class Both:
    """The same question in the two ways; a synchronous client waits in a thread of its own."""

    def __init__(self, address, kind):
        self.client = kind(address)
        self.waits = kind is Client

    async def __call__(self, name, *args, **options):
        method = getattr(self.client, name)
        return await (asyncio.to_thread(method, *args, **options) if self.waits else method(*args, **options))


@pytest.fixture(params=[Client, AsyncClient])
async def ask(server, request):  # noqa: F811
    both = Both(server.address, request.param)
    await both("publish", report)
    yield both
    await both("close")


@pytest.mark.proves("S004-35", "S004-37", "S004-40", "S004-53", "S004-80")
async def test_a_schedule_is_made_changed_and_removed_at_run_time(ask):
    told = await ask(
        "create_schedule", "hourly-report", report, cron="0 * * * *", context={"report_type": "summary"},
        automatic_backfill=True, timezone="America/New_York", group="reports", start=datetime(2030, 7, 1, 9),
    )  # fmt: skip
    assert told.next[0].local == "2030-07-01T09:00:00-04:00" and told.next[0].utc == "2030-07-01T13:00:00Z"
    shown = await ask("schedule", "hourly-report")
    assert (shown.workflow, shown.timezone, shown.automatic_backfill) == ("report", "America/New_York", True)
    with pytest.raises(tw.Conflict) as there:
        await ask("create_schedule", "hourly-report", report, every="1h")
    assert there.value.code == "exists"

    await ask("put_schedule", "hourly-report", report, every=timedelta(minutes=90), overlap="forbid", grace="5m")
    shown = await ask("schedule", "hourly-report")
    assert (shown.expression, shown.overlap) == ("every 1h30m", "forbid")
    await ask("pause_schedule", "hourly-report", reason="rest", until=datetime.now(UTC) + timedelta(hours=1))
    assert [(one.name, one.paused) for one in await ask("schedules")] == [("hourly-report", True)]
    await ask("resume_schedule", "hourly-report")
    await ask("archive_schedule", "hourly-report")
    assert await ask("schedules") == [] and len(await ask("schedules", archived=True)) == 1
    await ask("restore_schedule", "hourly-report")
    await ask("reset_failures", "hourly-report")
    await ask("delete_schedule", "hourly-report")
    assert await ask("schedules") == []


@pytest.mark.proves("S004-38")
async def test_what_cannot_be_is_refused_with_its_field(ask):
    for options, code, path in (
        ({"cron": "0 9 * * *", "queue": "nowhere"}, "unknown_queue", "queue"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Base"}, "unknown_zone", "timezone"),
        ({"cron": "0 9 * * *", "every": "5m"}, "bad_schedule", "cron"),
        ({"cron": "0 9 * * *", "pause_after": "2"}, "bad_option", "pause_after"),
        ({"cron": "0 9 * * *", "when": "soon"}, "bad_option", ""),
    ):
        with pytest.raises(tw.Refused) as refused:
            await ask("put_schedule", "s", report, **options)
        assert (refused.value.code, refused.value.path) == (code, path)
    with pytest.raises(tw.Refused, match="oldest or newest"):
        await ask("backfill_schedule", "s", "2026-01-01", "2026-01-02", order="sideways")
    for name in ("a/b", "..", ""):
        with pytest.raises(tw.Refused, match="schedule name") as refused:
            await ask("schedule", name)
        assert refused.value.path == "schedule"
    with pytest.raises(tw.Refused, match="nowhere") as refused:
        await ask("publish", lost)
    assert "test_schedule_client.py:" in str(refused.value) and "tw.cron" in str(refused.value)  # the line in question


@pytest.mark.proves("S004-41", "S004-43", "S004-44", "S004-51")
async def test_triggers_backfills_and_what_they_leave(ask):
    await ask("put_schedule", "daily", report, cron="0 9 * * *", timezone="America/New_York", context=[1])
    plan = await ask("backfill_schedule", "daily", datetime(2026, 1, 1), date(2026, 1, 3), preview=True, order="newest")
    wanted = ["sched-daily-2026-01-02T14:00:00Z", "sched-daily-2026-01-01T14:00:00Z"]
    assert (list(plan.run_ids), plan.number) == (wanted, 0)
    begun = await ask("backfill_schedule", "daily", "2026-01-01T00:00:00-05:00", date(2026, 1, 3), order="newest")
    assert list(begun.run_ids) == wanted

    run_id = await ask("trigger_schedule", "daily")
    assert run_id.startswith("sched-daily-trigger-")
    run = await begun_run(ask, wanted[0])
    await begun_run(ask, wanted[1])
    assert run.inputs == {"day": "2026-01-02T09:00:00-05:00", "settings": [1]}  # first the time, in its zone
    assert await ask("trigger_schedule", "daily", test=True) != run_id
    await ask("pause_backfill", begun.number)
    await ask("resume_backfill", begun.number)
    with pytest.raises(StillRunning):
        await ask("wait_backfill", begun.number, timeout=0.01)
    await ask("cancel_backfill", begun.number)
    assert (await ask("wait_backfill", begun.number)).state == "cancelled"
    with pytest.raises(tw.Refused, match="no backfill"):
        await ask("wait_backfill", 10**9)
    assert [(one.number, one.state) for one in await ask("backfills")] == [(begun.number, "cancelled")]
    ran = await ask("occurrences", "daily", start="2026-01-01T00:00:00Z", end=datetime(2026, 2, 1, tzinfo=UTC))
    assert {(one.fate, one.backfill) for one in ran} == {("ran", begun.number)} and sum(one.count for one in ran) == 2


async def begun_run(ask, run_id):
    async with asyncio.timeout(10):
        while True:
            try:
                return await ask("get", run_id)
            except tw.Refused:  # not yet
                await asyncio.sleep(0.02)


async def test_the_rest_of_what_can_be_asked(ask):
    await ask("put_holidays", "bank", [date(2031, 1, 1), "2031-01-02"])
    assert dict(await ask("holidays")) == {"bank": ("2031-01-01", "2031-01-02")}
    told = await ask("preview_schedule", report, cron="0 9 1-3 1 *", holidays="bank", start="2031-01-01T00:00:00Z")
    assert told.next[0].utc == "2031-01-03T09:00:00Z"
    await ask("delete_holidays", "bank")
    assert await ask("schedules") == []

    wanted = wire.ScheduleRequest(workflow="report", cron="0 12 * * *", group="g", time_input="day")
    assert [one.owner for one in await ask("apply_schedules", "shop", {"a": wanted, "b": wanted})] == ["shop", "shop"]
    assert [one.name for one in await ask("schedules", group="g")] == ["a", "b"]
    assert len(await ask("upcoming", days=2, schedule="a")) == 2
    await ask("put_schedule", "minutes", report, cron="* * * * *")
    minutes = await ask("upcoming", days=8)  # more than one answer holds
    assert len(minutes) in (8 * 1440 + 16, 8 * 1440 + 17)  # a minute may end between two answers
    assert sorted(one.utc for one in minutes) == [one.utc for one in minutes]
    assert len(await ask("upcoming", days=8, limit=3)) == 3
    await ask("delete_schedule", "minutes")
    assert await ask("catch_ups", policy="all") == []
    await ask("pause_group", "g", reason="rest")
    assert (await ask("schedule", "a")).pause_reason == "group g is paused: rest"
    await ask("resume_group", "g")
    assert "Asia/Tokyo" in (await ask("zones")).zones
    governor = wire.GovernorRequest(min="1m")
    await ask("put_schedule", "probe", report, every="1h", governor=governor)
    hinted = await ask("hint", "probe", interval=timedelta(minutes=2), ttl="10m", reason="busy")
    assert hinted.governed.hints.interval == "2m"
    assert (await ask("clear_hints", "probe")).governed.hints is None


async def test_an_application_takes_back_what_it_declares_no_more(ask):
    @tw.workflow(name="kept", schedule=tw.every("1h"))
    def kept() -> None:
        send(datetime(2026, 1, 1, tzinfo=UTC), None)

    @tw.workflow(name="dropped", schedule=[tw.every("1h"), tw.cron("@daily", name="nightly")])
    def dropped() -> None:
        send(datetime(2026, 1, 1, tzinfo=UTC), None)

    await ask("publish", app_with(kept, dropped))
    assert {one.name: one.owner for one in await ask("schedules")} == {
        "dropped": "app", "kept": "app", "nightly": "app"
    }  # fmt: skip
    await ask("publish", app_with(kept))
    assert [one.name for one in await ask("schedules")] == ["kept"]


# ---- over a restart


class Moved(SystemClock):
    """The system's clock, some time later."""

    def __init__(self, later_ms):
        self.later_ms = later_ms

    def wall_ms(self):
        return super().wall_ms() + self.later_ms


async def started(disk, folder, later_ms):
    engine = Engine(
        store=MemoryStore(disk), artifacts=FolderArtifacts(folder), clock=Moved(later_ms), ids=SystemIds(),
        owner="test", zones=load_zones(),
    )  # fmt: skip
    await engine.start()
    return engine


@pytest.mark.proves("S004-36", "S004-45", "S004-46", "S004-50")
async def test_schedules_survive_a_restart_and_make_up_for_it_where_they_should(tmp_path):
    disk = MemoryDisk()
    engine = await started(disk, tmp_path, 0)
    documents = (msgspec.json.decode(report.document()),)
    await engine.workflows.publish(wire.Publication(documents=documents), by="test")
    every = wire.ScheduleRequest(workflow="report", every="1s", time_input="day", grace="0s")
    always = wire.ScheduleRequest(
        workflow="report", every="1s", time_input="day", grace="0s", automatic_backfill=True
    )  # fmt: skip
    await engine.schedules.put("leisure", every, by="test")
    await engine.schedules.put("billing", always, by="test")
    async with asyncio.timeout(10):
        while not engine.schedules.get("billing").last_fired_at:
            await asyncio.sleep(0.02)
    await engine.stop()

    engine = await started(disk, tmp_path, 60_000)
    async with asyncio.timeout(20):
        while engine.schedules.get("billing").fired < 55 or engine.schedules.catch_ups():
            await asyncio.sleep(0.02)
    runs, _ = await engine.queries.runs(engine.queries.filter(schedule="billing", limit=500))
    times = sorted(datetime.fromisoformat(run.scheduled_at) for run in runs)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=1)}
    assert engine.schedules.get("leisure").fired < 20  # one stands for what was late
    await engine.stop()
