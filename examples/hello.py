"""Count the words of three pages in parallel. One call fails at first and is retried."""

import tickwork as tw

PAGES = {"one": "to be or not to be", "two": "that is the question", "three": "whether tis nobler"}


@tw.task(retries=3, retry_delay="200ms")
def count(page: str) -> int:
    if page == "two" and tw.context().attempt == 1:
        raise ConnectionError("connection lost")
    return len(PAGES[page].split())


@tw.task
def report(counts: list[int]) -> str:
    return f"{sum(counts)} words on {len(counts)} pages"


@tw.workflow
def hello(pages: list[str] = ["one", "two", "three"]) -> str:
    return report(count.map(pages))
