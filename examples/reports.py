"""A schedule in a time zone, with a context, that runs what it missed; and a backfill of past days:

    tickwork dev examples/reports.py
    python examples/reports.py

The first argument is the time at which the run was due, in the zone of the schedule; the second is the context.
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
        # In this week of 2026 daylight saving time starts in New York; nine o'clock stays nine o'clock.
        backfill = client.backfill_schedule("opening", date(2026, 3, 6), date(2026, 3, 11))
        client.wait_backfill(backfill.number, timeout=30)
        for run_id in backfill.run_ids:
            print(client.result(run_id))
