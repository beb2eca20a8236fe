"""Large results: values above 64 KiB go to the artifact store automatically, and only a reference is sent.

    tickwork run examples/large_values.py:report

`rows` returns several megabytes. No code in this file has to handle that.
"""

import tickwork as tw


@tw.task
def rows(count: int) -> list[str]:
    return [f"row {number} of a table that is too long for a terminal" for number in range(count)]


@tw.task
def summary(lines: list[str]) -> str:
    return f"{len(lines)} rows, {sum(map(len, lines))} characters"


@tw.workflow
def report(count: int = 50_000) -> str:
    return summary(rows(count))
