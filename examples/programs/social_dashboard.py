"""A cached pipeline over named data: posts, figures about them, and a page.

Prefect's atproto dashboard. Each step names the data that it makes, so the next one runs when that is new, and
`tickwork assets` shows the lineage. Fetching the same page again takes the earlier result.
"""

from typing import Any

import tickwork as tw

posts = tw.asset("social.posts")
figures = tw.asset("social.figures")
page = tw.asset("social.page")


@tw.task(cache="1h")
def fetch(account: str) -> list[dict[str, Any]]:
    return [{"text": f"post {number} of {account}", "likes": 10 * number} for number in range(1, 6)]


@tw.task(produces=posts)
def store(account: str, fetched: list[dict[str, Any]]) -> int:
    return tw.materialized(len(fetched), partition=account, details={"likes": [post["likes"] for post in fetched]})


@tw.workflow
def ingest(account: str) -> int:
    return store(account, fetch(account))


@tw.task(produces=figures)
def count(account: str, because: list[tw.Update]) -> None:
    likes = because[-1].payload["likes"]
    return tw.materialized(None, partition=account, details={"posts": len(likes), "likes": sum(likes)})


@tw.workflow(schedule=tw.on(posts))
def analyse(partition: str, because: list[tw.Update]) -> None:
    count(partition, because)


@tw.task(produces=page)
def render(account: str, because: list[tw.Update]) -> str:
    about = because[-1].payload
    return f"# {account}\n\n{about['posts']} posts, {about['likes']} likes\n"


@tw.workflow(schedule=tw.on(figures))
def dashboard(partition: str, because: list[tw.Update]) -> str:
    return render(partition, because)
