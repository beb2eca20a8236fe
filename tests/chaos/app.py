"""What the workers run. Each start is one line in a file, written by the task itself: what began is known outside the
product. A line: dedupe key, attempt, process of the agent, own process, nanoseconds.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

import tickwork as tw

_ledger = os.open(Path(__file__).with_name("ledger"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


_bank_down = Path(__file__).with_name("bank-down")


class NotYet(Exception):
    """Raised by the first attempt of what must be tried again."""


class Down(Exception):
    """Raised by everybody who needs the bank."""


def began(ctx: tw.Context) -> None:
    words = (ctx.idempotency_key, ctx.attempt, os.getppid(), os.getpid(), time.time_ns())
    os.write(_ledger, (" ".join(map(str, words)) + "\n").encode())


@tw.task(retries=20, retry_delay="50ms")
async def quick(ctx: tw.Context) -> int:
    began(ctx)
    return 1


@tw.task(retries=20, retry_delay="50ms")
async def brief(before: int, ctx: tw.Context) -> int:
    began(ctx)
    await asyncio.sleep(0.02)
    return before + 1


@tw.task(retries=20, retry_delay="50ms")
async def slow(ctx: tw.Context) -> int:
    began(ctx)
    await asyncio.sleep(1.5)
    return 1


@tw.task(retries=20, retry_delay="50ms")
async def flaky(ctx: tw.Context) -> int:
    began(ctx)
    if ctx.attempt == 1:
        raise NotYet
    return 1


@tw.task(retries=20, retry_delay="50ms")
async def total(numbers: list[int], ctx: tw.Context) -> int:
    began(ctx)
    return sum(numbers)


@tw.task(retries=30, retry_delay="50ms", dependency="bank")
async def pay(ctx: tw.Context) -> int:
    began(ctx)
    if _bank_down.exists():
        raise Down
    return 1


@tw.task(retries=2, retry_delay="50ms")
async def kills(ctx: tw.Context) -> None:
    """Takes the process with it that runs it."""
    began(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tw.task(retries=20, retry_delay="50ms", queue="carried")
async def by_broker(ctx: tw.Context) -> int:
    began(ctx)
    return 1


@tw.workflow
def carried() -> int:
    return by_broker()


@tw.workflow
def one() -> int:
    return quick()


@tw.workflow
def chain() -> int:
    return brief(brief(quick()))


@tw.workflow
def fan(numbers: list[int] = [1, 2, 3, 4, 5]) -> int:  # noqa: B006 - it becomes part of a document
    return total(brief.map(numbers))


@tw.workflow
def long() -> int:
    return slow()


@tw.workflow
def stormy() -> int:
    return pay()


@tw.workflow
def poison() -> None:
    return kills()


@tw.workflow
def again() -> int:
    return flaky()


@tw.workflow
def later() -> int:
    first = quick()
    tw.wait("1s")
    return brief(first)
