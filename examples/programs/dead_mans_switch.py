"""A dead man's switch: jobs ping; when one is silent for longer than its period and grace, one alert is sent.

Each ping submits the run that will raise the alarm, under the job's debounce key: it replaces the one that still waits,
so an outage begins only when no ping came in time. The next ping ends the outage and arms the switch again.

    tickwork run examples/programs/dead_mans_switch.py:outage -i job=backup --debounce backup --delay 70m --detach
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import tickwork as tw


@dataclass
class Job:
    period: timedelta
    grace: timedelta


JOBS = {
    "backup": Job(period=timedelta(hours=1), grace=timedelta(minutes=10)),
    "invoices": Job(period=timedelta(days=1), grace=timedelta(hours=2)),
}


class Service(Protocol):
    """What a ping needs of a client."""

    def submit(self, *args: Any, **options: Any) -> Any: ...
    def signal(self, *args: Any, **options: Any) -> Any: ...


def send(text: str) -> None:
    print(text)


@tw.durable
async def outage(ctx: tw.Durable, job: str) -> str:
    await ctx.step(send, f"{job} is silent")
    await ctx.event("ping", key=job)
    await ctx.step(send, f"{job} is back")
    return f"{job} was silent until {ctx.now():%H:%M}"


def ping(service: Service, job: str) -> None:
    patience = JOBS[job].period + JOBS[job].grace
    service.submit(outage, {"job": job}, debounce=job, delay=patience)
    service.signal("ping", key=job)


if __name__ == "__main__":
    with tw.Client() as client:
        ping(client, "backup")
