"""Server-sent events: encode events, and end a stream when the server stops or the reader hangs up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tickwork.api.http.request import Request
from tickwork.api.http.response import Header

NO_BUFFERING: tuple[Header, ...] = ((b"x-accel-buffering", b"no"),)
COMMENT = b": still here\n\n"


def event(name: str, data: bytes, *, event_id: str = "") -> bytes:
    """Return one event. `data` is JSON on one line, as msgspec writes it."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


async def until_closing(request: Request, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks until the server stops or the reader hangs up."""
    gone = asyncio.ensure_future(request.hung_up())
    ends = asyncio.ensure_future(request.closing.wait())
    following: asyncio.Future[bytes] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(pieces))
            await asyncio.wait((following, gone, ends), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            try:
                yield following.result()
            except StopAsyncIteration:
                return
    finally:
        for future in (following, gone, ends):
            if future is not None:
                future.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
                    await future
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()
