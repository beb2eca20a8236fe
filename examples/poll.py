"""Poll a service that fails now and then, until it is done or the time is over.

    tickwork dev examples/poll.py
    tickwork run examples/poll.py:wait_for_export

Between two calls no worker is held. A failed call does not end the poll: `tolerate` counts failures in a row, and
`tw.previous` stays the last good result. `timeout` limits the whole poll, a running call included.
"""

from typing import Any

import tickwork as tw


@tw.task
def ask(number: int, previous: dict[str, Any] | None) -> dict[str, Any]:
    if number % 3 == 1:
        raise ConnectionError("the service does not answer")
    rows = (previous or {"rows": 0})["rows"] + 100
    return {"rows": rows, "done": rows >= 300}


@tw.task
def report(last: dict[str, Any]) -> str:
    return f"{last['rows']} rows, {'complete' if last['done'] else 'incomplete'}"


@tw.workflow
def wait_for_export(patience: str = "1m") -> str:
    last = tw.repeat(
        lambda: ask(tw.iteration, tw.previous),
        until=lambda last: last["done"],
        delay="100ms",
        timeout=patience,
        tolerate=2,
        on_max="continue",
    )
    return report(last)
