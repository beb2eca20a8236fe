"""When things start, as an application sees it: one-off runs, and many schedules of one moment."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import tickwork as tw

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@tw.task
def work() -> None:
    pass


@tw.workflow
def once() -> None:
    work()


@tw.workflow(schedule=tw.at("2026-03-01T12:00:00Z"))
def at_noon() -> None:
    work()


def started(run):
    return datetime.fromisoformat(run.tasks["work"].view.attempts[0].dispatched_at)


@pytest.mark.proves("S001-01")
@pytest.mark.tickwork(now="2026-03-01T11:00:00Z")
def test_a_one_off_run_starts_at_its_instant_and_once(world):
    world.publish(at_noon)
    run = world.submit(once, start_at=NOON.isoformat())
    world.advance(minutes=59, seconds=59)
    assert (run.state, world.runs(at_noon)) == ("pending", [])
    world.advance(seconds=1)

    [scheduled] = world.runs(at_noon)
    for begun in (run, scheduled):
        begun.assert_completed()
        assert timedelta(0) <= started(begun) - NOON < timedelta(seconds=1)
    world.advance(days=400)
    assert (len(world.runs(at_noon)), len(world.runs(once))) == (1, 1)


def hourly(number, **options):
    def flow() -> None:
        work()

    flow.__qualname__ = flow.__name__ = f"hourly_{number}"
    return tw.workflow(schedule=tw.cron("0 * * * *", **options))(flow)


@pytest.mark.proves("S001-166", "S001-174")
@pytest.mark.tickwork(now="2026-03-01T11:30:00Z")
def test_schedules_of_one_moment_start_apart_with_jitter(world):
    flows = [hourly(number, jitter=True) for number in range(30)]
    world.publish(*flows)
    world.advance(minutes=31)
    runs = [run for flow in flows for run in world.runs(flow)]
    delays = [(started(run) - NOON).total_seconds() for run in runs]

    assert len(runs) == 30
    assert min(delays) >= 0 and max(delays) < 10.5, "a tenth of the interval, ten seconds at most"
    in_one_second = Counter(int(delay) for delay in delays)
    assert max(in_one_second.values()) <= 10, "without jitter, all of them start in the same second"


@pytest.mark.proves("S001-166")
@pytest.mark.tickwork(now="2026-03-01T11:30:00Z")
def test_a_burst_of_one_moment_is_held_back_by_the_rate_of_its_queue(world):
    world.put_queue("slow", rate=5, per="1s", burst=5)
    world.serve("slow")
    flows = [hourly(number, queue="slow") for number in range(30)]
    world.publish(*flows)
    world.advance(minutes=31)
    delays = sorted((started(run) - NOON).total_seconds() for flow in flows for run in world.runs(flow))

    assert len(delays) == 30
    assert max(Counter(int(delay) for delay in delays).values()) <= 11, "a burst, and five in each second"
    assert 4 <= delays[-1] < 10
