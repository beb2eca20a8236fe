"""Workflows that start automatically while a server is running:

    tickwork dev examples/schedule.py
    tickwork schedules

Times are in UTC unless a zone is given. A run knows when it was due, even if it starts later.
"""

from datetime import datetime

import tickwork as tw


@tw.task
def measure(due: datetime) -> str:
    return f"measured for {due:%H:%M:%S}"


@tw.task
def summarise(due: datetime) -> str:
    return f"summary of {due:%A}"


@tw.workflow(schedule=tw.every("2s"))
def pulse(scheduled_time: datetime) -> str:
    return measure(scheduled_time)


@tw.workflow(schedule=tw.cron("30 7 * * 1-5"), overlap="forbid")
def workdays(scheduled_time: datetime) -> str:
    """At half past seven from Monday to Friday, with at most one run at a time."""
    return summarise(scheduled_time)
