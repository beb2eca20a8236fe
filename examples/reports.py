"""A schedule in a time zone, with a context, that makes up for what it missed; and a backfill of days long past:

    tickwork dev examples/reports.py
    python examples/reports.py

The time at which a run was due comes first, on the clock of the schedule's zone; the context second.
"""

from datetime import date, datetime
from typing import Any

import tickwork as tw


@tw.task
def write(day: datetime, settings: dict[str, Any]) -> str:
    return f"{settings['title']} for {day:%A}, {day.isoformat()}"


@tw.workflow(
    schedule=tw.cron(
        "0 9 * * MON-FRI",
        tz="America/New_York",
        context={"title": "Opening report"},
        automatic_backfill=True,
        overlap="buffer_all",
    )
)
def opening(day: datetime, settings: dict[str, Any]) -> str:
    return write(day, settings)


if __name__ == "__main__":
    with tw.Client() as client:
        # In this week of 2026 the clocks of New York are put forward; nine o'clock stays nine o'clock.
        begun = client.backfill_schedule("opening", date(2026, 3, 6), date(2026, 3, 11))
        client.wait_backfill(begun.number, timeout=30)
        for run_id in begun.run_ids:
            print(client.result(run_id))
