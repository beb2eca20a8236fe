"""Pollers guard a task: a time of day, a file, a command. Each waits in its own way, and some give up.

Between two looks no worker is held. `timeout` limits the whole poll and `tolerate` the errors in a row. The poll for
the late delivery gives up without failing, and the node that depends on it is then not taken.

    tickwork run examples/programs/sensors.py:guarded -i folder=incoming
"""

from datetime import datetime
from pathlib import Path

import tickwork as tw


@tw.task
def exists(folder: str, name: str = "") -> bool:
    return (Path(folder) / name).exists()


@tw.task
def load(folder: str) -> str:
    return f"loaded {folder}"


@tw.task
def add_late_rows(loaded: str) -> str:
    return f"{loaded} and what came late"


@tw.task
def report(loaded: str, late: str | None) -> str:
    return late or f"{loaded}, nothing came late"


@tw.workflow
def guarded(
    folder: str = "incoming",
    opens_at: datetime = datetime.fromisoformat("2026-01-01T06:00:00+00:00"),
) -> str:
    opened = tw.wait(until=opens_at, barrier=False)
    arrived = tw.repeat(lambda: exists(folder), until=lambda there: there, delay="30s", timeout="2h")
    database = tw.repeat(
        lambda: tw.shell(["pg_isready"], timeout="10s"),
        until=lambda done: done["exit_code"] == 0,
        delay="1m",
        timeout="1h",
        tolerate=3,
    )
    loaded = load.using(after=[opened, arrived, database])(folder)
    came = tw.repeat(
        lambda: exists(folder, "late"), until=lambda there: there, delay="1m", timeout="10m", on_max="continue"
    )
    late = add_late_rows.using(when=came)(loaded)
    return report.using(on="none_failed")(loaded, late)
