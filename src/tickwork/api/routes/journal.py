"""The journal as one stream, for `tickwork replay` and for copies elsewhere."""

from collections.abc import AsyncIterator

from tickwork.api.http.request import Request
from tickwork.api.http.response import JOURNAL, StreamingResponse
from tickwork.api.http.route import QueryParam, ResponseSpec, Route
from tickwork.core.base.errors import Refused
from tickwork.journal import stream
from tickwork.journal.export import ExportHead, write_head
from tickwork.journal.record import GENESIS

ROWS_PER_READ = 256
AFTER = QueryParam("after", "Only rows after this seq.", int, 0)


async def export(request: Request) -> StreamingResponse:
    engine, after = request.engine, request.query["after"]
    last = (await engine.overview.status()).seq
    head = GENESIS
    if after:
        before = await engine.overview.journal(after=after - 1, limit=1)
        if not before or before[0].seq != after:
            raise Refused("unknown_seq", f"the journal has no seq {after}; its last one is {last}", path="query.after")
        head = before[0].hash
    end = head
    if last > after:
        end = (await engine.overview.journal(after=last - 1, limit=1))[0].hash
    return StreamingResponse(
        _pieces(request, ExportHead(await engine.overview.settings(), after, head, max(after, last), end), last),
        JOURNAL,
    )


async def _pieces(request: Request, head: ExportHead, last: int) -> AsyncIterator[bytes]:
    """Stream the rows that were durable at the time of the request, so that the stream ends."""
    yield write_head(head)
    seq = head.after
    while seq < last and not request.closing:
        rows = await request.engine.overview.journal(after=seq, limit=min(ROWS_PER_READ, last - seq))
        if not rows:
            return
        yield b"".join(stream.write(rows))
        seq = rows[-1].seq


ROUTES = (
    Route(
        method="GET",
        path="/v1/journal",
        handler=export,
        summary="Export the journal after a seq: a head with the settings and the last seq, then framed rows.",
        tag="server",
        query=(AFTER,),
        responses={200: ResponseSpec(None, (JOURNAL,), "Head and rows, as `tickwork.journal.export` reads them.")},
        refusals=(404,),
    ),
)
