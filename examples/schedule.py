"""Workflows that start by themselves. Schedules are served for as long as a server runs:

    tickwork dev examples/schedule.py
    tickwork schedules

Times are in UTC unless a zone is named. A run knows when it was due, also where it starts later than that.
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
    """At half past seven from Monday to Friday, and never two at a time."""
    return summarise(scheduled_time)
