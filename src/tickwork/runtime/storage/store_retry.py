"""Repeats a call to the store until it succeeds, for work that must outlast an outage of the store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tickwork.core.base.errors import Unavailable

RETRY_S, RETRY_S_MAX = 0.02, 1.0
T = TypeVar("T")


async def retry_until_available(ask: Callable[[], Awaitable[T]]) -> T:
    """Call until the store responds, and return the result. The caller may cancel."""
    wait = RETRY_S
    while True:
        try:
            return await ask()
        except Unavailable:
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_S_MAX)
