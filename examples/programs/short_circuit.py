"""A false condition skips what follows; what only joins runs all the same.

tickwork run examples/programs/short_circuit.py:daily -i rows=0
"""

import tickwork as tw


@tw.task
def has_rows(rows: int) -> bool:
    return rows > 0


@tw.task
def load(rows: int) -> str:
    return f"loaded {rows}"


@tw.task
def publish(loaded: str) -> str:
    return f"{loaded}, published"


@tw.task
def clean_up(published: str | None) -> str:
    return published or "nothing to do"


@tw.workflow
def daily(rows: int = 3) -> str:
    there = has_rows(rows)
    published = publish(load.using(when=there)(rows))
    return clean_up.using(on="none_failed", after=[there])(published)
