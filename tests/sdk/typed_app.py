"""What a user writes, for the type checker: read by test_surface.py, never run."""

from datetime import UTC, datetime

import tickwork as tw


@tw.task(retries=3, timeout="5m")
def fetch(day: datetime) -> list[str]:
    return [str(day)]


@tw.task
def score(path: str) -> float:
    return float(len(path))


@tw.task
def best(scores: list[float]) -> float:
    return max(scores)


@tw.task
async def later(x: int) -> int:
    return x


async def double(x: int) -> int:
    return 2 * x


@tw.task
async def steps(n: int) -> int:
    return await tw.context().step("double", double, n)


@tw.workflow(schedule=tw.cron("0 9 * * 1-5", tz="America/New_York"))
def daily(scheduled_time: datetime) -> float:
    found = best(score.map(fetch(scheduled_time)))
    chosen = tw.branch(found > 3.0, lambda: best([1.0, found]), lambda: best([2.0]))
    tw.wait("3d")
    tw.node(fetch.using(id="again", retries=9)(scheduled_time)).after(later(3))
    return chosen


@tw.workflow
def outer() -> list[float]:
    return daily.map([datetime.now(UTC)])


def unit_test() -> None:
    days: list[str] = fetch(datetime.now(UTC))
    length: int = tw.context().step("length", len, days)
    print(length)
