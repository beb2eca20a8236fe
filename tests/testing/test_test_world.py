"""How users test their workflows: each test reads like an example."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tickwork as tw


@tw.task(retries=3, retry_delay="1m")
def fetch(day: str) -> list[int]:
    return [1, 2, 3]


@tw.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@tw.workflow
def report(day: str):
    return total(fetch(day))


def test_a_workflow_runs_from_beginning_to_end(world):
    run = world.run(report, day="2026-03-01")

    run.assert_completed(output=6)
    assert run.tasks["fetch"].attempts == 1
    assert world.calls(fetch) == [{"day": "2026-03-01"}]


def test_a_stand_in_takes_the_place_of_a_function(world):
    world.replace(fetch, lambda day: [len(day), 100])

    assert world.run(report, day="today").output == 105


def test_looking_at_a_node_does_not_end_the_stand_in_of_its_function(world):
    world.replace(fetch, [10])
    assert world.calls("fetch") == []
    world.restore("fetch")

    assert world.run(report, day="today").output == 10
    assert world.calls("fetch") == world.calls(fetch) == [{"day": "today"}]


def test_what_is_said_of_a_node_goes_before_what_is_said_of_its_function(world):
    world.replace(fetch, [10])
    world.fail("fetch", times=1)

    run = world.run(report, day="today")

    assert (run.output, run.tasks["fetch"].attempts) == (10, 2)


def test_a_failure_is_retried_without_anybody_waiting(world):
    world.fail(fetch, times=2, error=TimeoutError("the service is slow"))
    begin = world.now

    run = world.run(report, day="today")

    run.assert_completed(output=6)
    assert run.tasks["fetch"].attempts == 3
    assert [attempt.error for attempt in run.tasks["fetch"].history] == ["TimeoutError", "TimeoutError", ""]
    assert timedelta(minutes=3) <= world.now - begin < timedelta(minutes=4)  # one minute, then two, and jitter


@tw.task
def half(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@tw.workflow
def halves(numbers: list[int]):
    return total(half.map(numbers))


def test_a_failed_child_of_a_map_is_what_failed(world):
    run = world.run(halves, numbers=[2, 3, 4])

    run.assert_failed(node="half", error=ValueError)
    assert run.error.startswith("half: ValueError: 3 is odd")
    assert "testing/local_executor.py" not in run.why(), "a traceback has the lines of users only"


def test_a_failure_that_lasts_fails_the_run(world):
    world.fail(fetch, error=ConnectionError("nobody answers"))

    run = world.run(report, day="today")

    run.assert_failed(node="fetch", error=ConnectionError)
    assert run.tasks["fetch"].attempts == 4
    assert run.tasks["total"].state == "blocked"

    world.restore(fetch)
    world.retry(run)

    run.assert_completed(output=6)


# ---- time


@tw.task
def remind(name: str) -> str:
    return f"dear {name}"


@tw.workflow
def trial(name: str):
    remind.using(id="welcome")(name)
    tw.wait("14d")
    return remind.using(id="ends")(name)


def test_days_pass_at_once(world):
    run = world.run(trial, name="Ada")
    run.assert_waiting()
    assert run.tasks["welcome"].state == "succeeded"

    world.advance(days=13)
    assert run.state == "waiting"

    world.advance(days=1)
    run.assert_completed(output="dear Ada")


@tw.workflow(schedule=tw.cron("0 6 * * *"))
def nightly(scheduled_time: datetime):
    return total.using(id="sum")([1, 2])


@pytest.mark.tickwork(now="2026-03-01T12:00:00Z")
def test_schedules_fire_as_time_passes(world):
    world.publish(nightly)
    assert world.now == datetime(2026, 3, 1, 12, tzinfo=UTC)

    world.advance(days=3)

    runs = world.runs(nightly)
    assert [run.scheduled_at for run in runs] == [datetime(2026, 3, day, 6, tzinfo=UTC) for day in (2, 3, 4)]
    assert all(run.output == 3 for run in runs)


def test_a_month_of_a_daily_schedule_is_a_matter_of_a_moment(world):
    world.publish(nightly)

    world.advance(days=31)

    assert len(world.runs(nightly, state="completed")) == 31


@tw.task
async def poll(seconds: int) -> str:
    await asyncio.sleep(seconds)
    return await asyncio.to_thread(lambda: "ready")


@tw.workflow
def polling(seconds: int):
    return poll(seconds)


def test_asynchronous_tasks_sleep_in_virtual_time(world):
    begin = world.now

    run = world.run(polling, seconds=3600)

    run.assert_completed(output="ready")
    assert timedelta(hours=1) <= world.now - begin < timedelta(hours=1, seconds=1)


def test_a_started_run_goes_on_as_time_passes(world):
    run = world.start(polling, seconds=60)

    world.advance(seconds=30)
    assert run.tasks["poll"].state == "running"

    world.advance(seconds=31)
    run.assert_completed()


# ---- people and events


@tw.workflow
def release(version: str):
    tw.approval("release")
    return remind.using(id="ship")(version)


def test_an_approval_is_given_or_refused(world):
    run = world.run(release, version="1.0")
    run.assert_waiting("release")

    world.approve(run, "release")
    run.assert_completed(output="dear 1.0")

    refused = world.run(release, version="2.0")
    world.reject(refused, "release", comment="not today")
    assert (refused.state, refused.error) == ("failed", "release: rejected: by test: not today")


@tw.workflow
def order(number: str):
    tw.event("paid", key=number)
    return remind.using(id="send")(number)


def test_an_event_wakes_the_run_that_waits_for_its_key(world):
    one, other = world.run(order, number="A"), world.run(order, number="B")

    world.signal("paid", key="A", payload={"cents": 100})

    one.assert_completed(output="dear A")
    other.assert_waiting()

    world.cancel(other, reason="never paid")
    other.assert_cancelled()


def test_a_paused_run_stays_until_it_is_resumed(world):
    run = world.run(trial, name="Ada")
    world.pause(run)
    world.advance(days=30)
    assert run.state == "paused"

    world.resume(run)
    run.assert_completed()


# ---- more than one


@tw.task(retries=1)
def square(number: int) -> int:
    return number * number


@tw.workflow
def squares(numbers: list[int]):
    return total(square.map(numbers))


@tw.workflow
def twice(numbers: list[int]):
    first = squares(numbers)
    return total.using(id="both")([first, first])


def test_maps_and_child_workflows(world):
    assert world.run(squares, numbers=[1, 2, 3]).output == 14
    assert world.run(twice, numbers=[1, 2, 3]).output == 28
    assert len(world.calls(square)) == 6


def test_large_values_travel(world):
    world.replace(fetch, list(range(100_000)))

    assert world.run(report, day="today").output == sum(range(100_000))


@tw.task(retries=2)
def careful(names: list[str]) -> list[str]:
    ctx = tw.context()
    return [ctx.step(name, lambda name=name: name.upper()) for name in names]


@tw.workflow
def stepped(names: list[str]):
    return careful(names)


def test_steps_and_checkpoints_work(world):
    world.run(stepped, names=["a", "b"]).assert_completed(output=["A", "B"])


@tw.task
def writes() -> str:
    place = tw.context().workdir / "note"
    place.write_text("kept")
    assert place.read_text() == "kept"
    return str(place)


@tw.workflow
def writing():
    return writes()


def test_an_attempt_has_a_folder_of_its_own_that_goes_with_it(world):
    run = world.run(writing).assert_completed()

    assert not Path(run.output).parent.exists()


@tw.workflow
def calls_out():
    page = tw.http("https://example.invalid/")
    return total.using(id="after", after=page)([1])


def test_what_calls_outside_needs_a_stand_in(world):
    refused = world.run(calls_out)
    refused.assert_failed(node="http")
    assert "world.replace('http', ...)" in refused.tasks["http"].history[0].message

    world.replace("http", {"status": 200})
    world.run(calls_out).assert_completed(output=1)


@tw.task
async def at_last(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "at last"


@tw.workflow
def goes_on():
    half.using(id="early")(3)
    at_last(3_600)


def test_a_run_that_ends_long_after_its_node_failed_still_says_why(world):
    run = world.run(goes_on)

    run.assert_failed(node="early", error=ValueError)
    assert run.error.startswith("early: ValueError: 3 is odd")


@tw.workflow
def waits_for_payment():
    tw.event("paid", timeout="7d")


def test_what_nobody_held_says_why_it_failed(world):
    run = world.run(waits_for_payment)
    world.advance(days=8)

    assert run.error == "paid: timeout: no event came in time"


# ---- what a failed expectation says


def test_a_failed_expectation_tells_what_happened_instead(world):
    run = world.run(release, version="1.0")

    with pytest.raises(AssertionError) as said:
        run.assert_completed()

    text = str(said.value)
    assert "should be completed" in text and "release" in text and "approv" in text


def test_wrong_inputs_are_refused_where_they_are_given(world):
    with pytest.raises(tw.Refused, match="day"):
        world.run(report, month="March")


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (lambda world: world.replace(report, 1), "report.* is neither a task nor the function of a step"),
        (lambda world: world.replace(7, 1), "7 is neither a task nor the function of a step"),
        (lambda world: world.run(len), "len is not a workflow"),
        (lambda world: world.run(fetch), "fetch is not a workflow"),
        (lambda world: world.fail(fetch, times=0), "give 1 or more"),
        (lambda world: world.advance_to("soon"), "'soon' is not a time"),
        (lambda world: world.advance_to("2025-12-31"), "time cannot go back"),
        (lambda world: (world.replace("release", True), world.run(release, version="1")), "of kind approval"),
        (lambda world: (world.run(release, version="1"), world.replace("release", True)), "of kind approval"),
    ],
)
def test_a_mistake_in_a_test_is_told_where_it_is_made(world, deed, words):
    with pytest.raises(tw.Refused, match=words):
        deed(world)


def test_a_stand_in_with_other_parameters_is_told_so_once(world):
    world.replace(fetch, lambda first, second: [first, second])

    run = world.run(report, day="today")

    assert run.tasks["fetch"].attempts == 1, "trying again would not help"
    assert "takes (first, second), but is called with day" in run.error


def test_a_node_that_is_none_is_answered_with_those_that_are(world):
    with pytest.raises(KeyError, match="there are fetch, total"):
        world.run(report, day="today").tasks["fetsh"]


def test_a_time_without_a_zone_is_in_utc(world):
    world.advance_to("2026-02-01")
    assert world.now >= datetime(2026, 2, 1, tzinfo=UTC)

    world.advance_to(datetime(2026, 3, 1))
    assert world.now >= datetime(2026, 3, 1, tzinfo=UTC)


async def test_it_works_inside_an_asynchronous_test(world):
    assert world.run(report, day="today").output == 6

    await asyncio.sleep(0)  # and the test's own loop goes on
    assert asyncio.get_running_loop().is_running()


# ---- schedules with zones, contexts and policies


@tw.task
def note(day: datetime, settings: dict | None = None) -> str:
    return f"{day.isoformat()} {settings}"


@tw.workflow(schedule=tw.cron("0 9 * * *", tz="America/New_York", context={"kind": "summary"}))
def mornings(day: datetime, settings: dict) -> str:
    return note(day, settings)


@pytest.mark.tickwork(now="2026-03-06T00:00:00Z")
@pytest.mark.proves("S004-23", "S004-31", "S004-75", "S004-76", "S004-82")
def test_a_zoned_schedule_keeps_its_time_of_day_when_the_clock_is_changed(world):
    world.publish(mornings)

    world.advance(days=4)

    runs = world.runs(mornings)
    assert [run.id for run in runs] == [
        f"sched-mornings-2026-03-{day:02}T{hour}:00:00Z" for day, hour in ((6, 14), (7, 14), (8, 13), (9, 13))
    ]
    assert [run.output for run in runs] == [
        f"2026-03-{day:02}T09:00:00{offset} {{'kind': 'summary'}}"
        for day, offset in ((6, "-05:00"), (7, "-05:00"), (8, "-04:00"), (9, "-04:00"))
    ]


class Reports:
    def __init__(self, who: str) -> None:
        self.who = who

    @tw.task
    def write(self, day: datetime) -> str:
        return f"{self.who} {day:%d.%m.}"

    @tw.workflow(schedule=tw.cron("0 6 * * *"))
    def mine(self, day: datetime) -> str:
        return self.write(day)

    @tw.workflow(schedule=tw.cron("0 7 * * *", context={"n": 1}))
    @classmethod
    def ours(cls, day: datetime, what: dict) -> str:
        return note(day, what)

    @tw.workflow(schedule=tw.cron("0 8 * * *"))
    @staticmethod
    def anyone(day: datetime) -> str:
        return note(day)


@pytest.mark.proves("S004-92")
@pytest.mark.tickwork(now="2026-03-01T00:00:00Z")
def test_methods_run_by_schedule_as_what_they_are(world):
    ada = tw.instance("ada-of-reports", Reports("Ada"))
    flows = [ada.mine, Reports.ours, Reports.anyone]
    world.publish(*flows)

    world.advance(days=1)

    assert [run.output for flow in flows for run in world.runs(flow)] == [
        "Ada 01.03.",
        "2026-03-01T07:00:00+00:00 {'n': 1}",
        "2026-03-01T08:00:00+00:00 None",
    ]


@tw.task(timeout="2h")
async def slowly() -> None:
    await asyncio.sleep(5_400)


@tw.workflow(schedule=tw.every("1h", overlap="forbid", anchor="2026-01-01T00:00:00Z", max_runs=2))
def hourly() -> None:
    slowly()


@pytest.mark.tickwork(now="2026-03-01T00:30:00Z")
def test_policies_reach_the_schedule(world):
    world.publish(hourly)

    world.advance(hours=8)

    assert [run.scheduled_at.hour for run in world.runs(hourly)] == [1, 3]  # at 2 it still ran; two are all


@tw.task
def slow() -> None: ...


@tw.task
def tidy() -> str:
    return "tidied"


@tw.task
def report_failure() -> None: ...


@tw.workflow(timeout="1h")
def deploying():
    work = slow.using(after=[tw.wait("2h")])()
    tidy.using(after=[work], on="all_done")()
    report_failure.using(after=[work], on="any_failed")()


def test_clean_up_and_alerts_run_when_the_time_of_a_run_is_over(world):
    run = world.run(deploying)
    world.advance(hours=1)

    assert (run.state, run.error) == ("failed", "the run took too long")
    assert world.calls(slow) == []
    assert world.calls(tidy) == [{}] and world.calls(report_failure) == [{}]
