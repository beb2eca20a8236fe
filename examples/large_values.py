"""Large results: above 64 KiB they go to the artifact store by themselves, and only their address travels.

    tickwork run examples/large_values.py:report

`rows` gives some megabytes. Nothing in this file says so, and nothing has to.
"""

import tickwork as tw


@tw.task
def rows(count: int) -> list[str]:
    return [f"row {number} of a table that nobody wants to see in a terminal" for number in range(count)]


@tw.task
def summary(lines: list[str]) -> str:
    return f"{len(lines)} rows, {sum(map(len, lines))} characters"


@tw.workflow
def report(count: int = 50_000) -> str:
    return summary(rows(count))
