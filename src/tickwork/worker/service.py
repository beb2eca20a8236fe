"""A worker as a process of its own: it runs until a signal asks it to end.

The first SIGTERM or SIGINT drains: no new work, what has not begun is handed back, what runs may end within the time
given. The second ends it at once, and everything is handed back.
"""

import asyncio
import signal

from tickwork.worker.agent import Agent

GRACE_S = 30.0


async def serve(agent: Agent, *, grace_s: float = GRACE_S) -> None:
    """Raises `Refused` where the server does not serve this worker, or its application cannot be loaded."""
    loop = asyncio.get_running_loop()
    drains: list[asyncio.Task[None]] = []

    def asked() -> None:
        drains.append(loop.create_task(agent.drain(grace_s=0 if drains else grace_s)))

    signals = (signal.SIGTERM, signal.SIGINT)
    for one in signals:
        loop.add_signal_handler(one, asked)
    try:
        await agent.run()
        await asyncio.gather(*drains)
    finally:
        for one in signals:
            loop.remove_signal_handler(one)
