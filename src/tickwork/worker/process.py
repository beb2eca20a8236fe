"""A worker as a process of its own: it runs until a signal ends it.

The first SIGTERM or SIGINT drains: no new work, attempts that have not started are handed back, running ones may end
within the time given. The second ends it at once, and everything is handed back.

A callback that fails is a defect of ours and leaves a state that is unsafe to continue with: ended attempts might be
held for ever, or started ones started again. The process then ends as if it had been killed: its attempts are lost,
and are tried again under new numbers.
"""

import asyncio
import logging
import os
import signal
from typing import Any

from tickwork.worker.agent import Agent

GRACE_S = 30.0
DEFECT = 70  # exit status: an error inside the program
log = logging.getLogger(__name__)


async def serve(agent: Agent, *, grace_s: float = GRACE_S) -> None:
    """Raises `Refused` where the server does not serve this worker, or its application cannot be loaded."""
    loop = asyncio.get_running_loop()
    drains: list[asyncio.Task[None]] = []

    def request_stop() -> None:
        drains.append(loop.create_task(agent.drain(grace_s=0 if drains else grace_s)))

    loop.set_exception_handler(_end_at_defect)
    signals = (signal.SIGTERM, signal.SIGINT)
    for signal_number in signals:
        loop.add_signal_handler(signal_number, request_stop)
    try:
        await agent.run()
        await asyncio.gather(*drains)
    finally:
        loop.set_exception_handler(None)
        for signal_number in signals:
            loop.remove_signal_handler(signal_number)


def _end_at_defect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "handle" not in context:  # of a broken connection, or of a task that has another supervisor
        loop.default_exception_handler(context)
        return
    log.critical(
        "the worker stops because of an internal error; its attempts are retried: %s",
        context["message"],
        exc_info=context.get("exception"),
    )
    logging.shutdown()
    os._exit(DEFECT)
