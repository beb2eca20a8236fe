"""Failure under control: only some errors are tried again, and somebody is told of a run that failed.

    tickwork run examples/failure.py:nightly_load
    tickwork run examples/failure.py:nightly_load --input broken=true
    tickwork run examples/failure.py:nightly_load --input day=sunday

The handler is a run of its own: it has retries, logs and a history, and `tickwork why` of the failed run names it.
"""

import tickwork as tw


@tw.task(retries=3, retry_delay="100ms", retry_on=(ConnectionError, TimeoutError))
def extract(broken: bool, day: str) -> list[int]:
    if broken:
        raise tw.Permanent("the shop has closed for good")
    if tw.context().attempt == 1:
        raise ConnectionResetError("the shop did not answer")
    return [120, 20, 75] if day != "sunday" else []


@tw.task
def check(rows: list[int]) -> list[int]:
    if not rows:
        raise tw.Skip("the shop was closed")  # no failure: there is nothing to load
    return rows


@tw.task
def load(rows: list[int]) -> str:
    return f"{len(rows)} rows loaded"


@tw.task(retries=5, retry_delay="10s")
def alert(failure: tw.Failure) -> None:
    print("ALERT", failure)  # or a message to whoever is on call


@tw.workflow(on_failure=alert, timeout="10m")
def nightly_load(broken: bool = False, day: str = "monday") -> str:
    return load(check(extract(broken, day)))
