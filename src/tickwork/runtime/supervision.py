"""Supervises loops that must not end: a failed loop raises an alarm and is restarted.

A loop that renews leases, sends heartbeats or detects lost workers is missed only when it is needed. So any end that
its owner did not cause restarts it, with an alarm.
"""

import asyncio
from collections.abc import Awaitable, Callable

RESTART_S = 1.0


def is_cancelled() -> bool:
    """Whether the present task is to end. If not, a `CancelledError` is that of something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def supervised(job: Callable[[], Awaitable[None]], *, name: str, on_alarm: Callable[[str, str], None]) -> None:
    """Until `job` returns by itself, or this task is cancelled."""
    while True:
        try:
            return await job()
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            on_alarm("loop_restarted", f"{name}: something that it waited for was cancelled")
        except Exception as error:
            on_alarm("loop_restarted", f"{name}: {type(error).__name__}: {error}")
        await asyncio.sleep(RESTART_S)
