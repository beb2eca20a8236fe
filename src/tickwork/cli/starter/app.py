"""A first application: three tasks and a workflow that fans out."""

import tickwork as tw


@tw.task(retries=3, timeout="1m")
def fetch(topic: str) -> list[str]:
    """Code that may fail: it is retried up to three times."""
    return [f"{topic} {number}" for number in range(1, 4)]


@tw.task
def score(item: str) -> int:
    print("scoring", item)  # goes to the log of the run: tickwork logs RUN
    return sum(map(ord, item)) % 100


@tw.task
def best(items: list[str], scores: list[int]) -> str:
    return max(zip(scores, items, strict=True))[1]


@tw.workflow
def choose(topic: str = "idea") -> str:
    items = fetch(topic)
    return best(items, score.map(items))


# A workflow can also have a schedule. Times are in UTC unless you set a zone, such as tz="Europe/Berlin":
#
#     @tw.workflow(schedule=tw.cron("0 9 * * 1-5"))
#     def every_morning() -> str: ...
