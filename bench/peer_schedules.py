"""A thousand schedules of a peer that are due at one instant: lateness, memory and threads of its one process.

`schedules.py` starts this with the peer, the number of schedules and of instants a minute apart; 0: one instant, as
soon as may be. DBOS keeps its schedules in SQLite and runs each one in a thread of its own; its starts are spread over
a tenth of the period and it polls its queue, both by its design. APScheduler keeps them in memory, its default, with
ten worker threads; nothing of it is durable.
"""

import importlib.metadata
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STARTED: list[float] = []  # seconds of the machine's clock; appending is atomic
PATIENCE_S = 30.0


def fields(at_s: int, instants: int) -> list[str]:
    """Second, minute, hour, day, month, weekday."""
    at = datetime.fromtimestamp(at_s, UTC)
    if instants:
        return ["0", "*", "*", "*", "*", "*"]
    return [str(at.second), str(at.minute), str(at.hour), str(at.day), str(at.month), "*"]


def dbos(count: int, words: list[str]) -> None:
    from dbos import DBOS

    @DBOS.workflow()
    def started(_at: datetime, _context: Any) -> None:
        STARTED.append(time.time())

    DBOS(
        config={
            "name": "bench",
            "system_database_url": "sqlite:///schedules.sqlite",
            "run_admin_server": False,
            "log_level": "ERROR",
            "scheduler_polling_interval_sec": 1.0,  # in its favour: it looks for new schedules every 30 s otherwise
        }
    )
    DBOS.launch()
    cron = " ".join(words)
    DBOS.apply_schedules(
        [{"schedule_name": f"s{place}", "workflow_fn": started, "schedule": cron} for place in range(count)]
    )


def apscheduler(count: int, words: list[str]) -> None:
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    def started() -> None:
        STARTED.append(time.time())

    settings = {"misfire_grace_time": 300}  # or it drops what its threads do not get to within a second
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(10)}, job_defaults=settings, timezone=UTC)
    names = ("second", "minute", "hour", "day", "month", "day_of_week")
    when = dict(zip(names, words, strict=True))
    for place in range(count):
        scheduler.add_job(started, "cron", id=f"s{place}", **when)
    scheduler.start()


def counted(first_s: float) -> list[float]:
    """Not those of a minute before the first instant that is looked at."""
    return [at_s for at_s in list(STARTED) if at_s >= first_s]


def main() -> None:
    peer, count, instants = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    now_s = int(time.time())
    times_s = [(now_s // 60 + 2 + minute) * 60 for minute in range(instants)] or [now_s + 9]
    {"dbos": dbos, "apscheduler": apscheduler}[peer](count, fields(times_s[0], instants))
    assert time.time() < times_s[0], "they are there before they are due"
    deadline = times_s[-1] + PATIENCE_S
    while len(counted(times_s[0])) < count * len(times_s) and time.time() < deadline:
        time.sleep(0.05)
    # Every start belongs to the last instant before it.
    found = sorted((at_s - max(due for due in times_s if due <= at_s)) * 1e3 for at_s in counted(times_s[0]))
    print(
        json.dumps(
            {
                "version": importlib.metadata.version(peer),
                "late_p50_ms": found[len(found) // 2],
                "late_p95_ms": found[int(len(found) * 0.95)],
                "started": len(found),
                "expected": count * len(times_s),
                "memory_mb": int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6,
                "threads": len(list(Path("/proc/self/task").iterdir())),
            }
        ),
        flush=True,
    )
    os._exit(0)  # a thousand threads of the peer would be waited for


if __name__ == "__main__":
    main()
