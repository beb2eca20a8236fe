"""A coroutine that has begun: its first step is taken at once, not when the event loop comes round to it.

What that step sends is on its way while the caller goes on. Only for coroutines that do not ask in whose task they are.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def begun(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(end.value)
        return done
    except Exception as error:
        failed: asyncio.Future[T] = loop.create_future()
        failed.set_exception(error)
        return failed
    task = loop.create_task(_finished(coroutine, waits_for))
    task.add_done_callback(lambda _: coroutine.close())  # cancelled before it went on, it lets go of what it holds
    return task


async def _finished(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> T:
    return await _Rest(coroutine, waits_for)


class _Rest(Generic[T]):
    """Everything behind the first step."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    yield waits_for
                except BaseException as error:  # it was cancelled: the coroutine says what comes of it
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
