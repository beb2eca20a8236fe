"""Logs: chunks in, lines out; as one answer, or followed while they grow."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol
from urllib.parse import unquote

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import EVENTS, JSON, Response, StreamingResponse, as_json, json_encoder, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.http.sse import COMMENT, NO_BUFFERING, event, until_closing
from tickwork.api.routes.action_specs import DONE
from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import INSTANT_MS_MAX, INSTANT_MS_MIN, instant_text
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import LogPiece
from tickwork.runtime.storage.logs import CHUNK_BYTES_MAX, Line, Piece

NDJSON = "application/x-ndjson"
LINES_MAX = 10_000  # of one response; a follower gets all
ATTEMPTS_TRIED = 20  # of a task whose number leads to no run
ATTEMPT_MAX = 1_000_000
CHUNK_MAX = 1_000_000_000  # stores keep it in 32 bits
IDLE_S = 15.0
NAME_CHARACTERS_MAX = 300  # of the sending worker; a longer name cannot hold an attempt
POSITION_CHARACTERS_MAX = 4_000
DEAD = frozenset(("failed", "lost", "handed_back", "returned", "timed_out", "cancelled"))  # states of attempts
SETTLE_S = 0.5  # a worker sends its last lines beside its result


class ReadLog(Protocol):
    """`LogStore.read`, or `read_pieces`."""

    def __call__(self, task: int, attempt: int, *, after: int = -1) -> AsyncIterator[tuple[int, Sequence[object]]]: ...


class LogAddress(msgspec.Struct, frozen=True):
    """One log."""

    task: int
    node: str
    attempt: int


async def of_run(request: Request) -> Response | StreamingResponse:
    run, node = await request.engine.queries.run(request.run_id), request.query["node"]
    if node and not any(task.node == node for task in run.tasks):
        raise Refused("unknown_node", f"run {run.id!r} has no node {shortened(node, 128)!r}", path="query.node")
    if not request.query["follow"]:
        return as_json(await _page(request, list(_places(request, run))))
    if run.ended_at is not None and await _has_seen_all(request, run, request.engine.context.logs.read):
        return nothing()  # tells a browser not to come back
    return StreamingResponse(until_closing(request, _follow(request)), EVENTS, *NO_BUFFERING)


async def of_task(request: Request) -> Response:
    task, attempt = request.number("task"), request.query["attempt"]
    request.engine.queries.check_number(task)
    attempts = [attempt] if attempt else await _attempts(request, task)
    return as_json(await _page(request, [LogAddress(task, "", attempt) for attempt in attempts]))


async def _attempts(request: Request, task: int) -> Sequence[int]:
    """Return the attempts to read. The number of an ended map child leads to no task; then try the first few."""
    try:
        run = await request.engine.queries.run_of_task(task)
    except Refused:
        return range(1, ATTEMPTS_TRIED + 1)
    return list(
        dict.fromkeys(attempt.attempt for entry in run.tasks if entry.id == str(task) for attempt in entry.attempts)
    )


async def append(request: Request) -> Response:
    request.kind()
    task, attempt = request.number("task"), request.number("attempt")
    if attempt > ATTEMPT_MAX:
        raise Refused("unknown_attempt", f"attempts are counted up to {ATTEMPT_MAX}", path="attempt")
    query = request.query
    piece = LogPiece(
        task,
        attempt,
        query["chunk"],
        query["first"],
        await request.data(),
        query["run"],
        unquote(request.header(b"x-tickwork-worker"))[:NAME_CHARACTERS_MAX],
        request.header(b"x-tickwork-session")[:NAME_CHARACTERS_MAX],
        request.header(b"x-tickwork-store")[:NAME_CHARACTERS_MAX],
    )
    await request.engine.logs.append(piece)
    return nothing()


def _places(request: Request, run: wire.RunDetail) -> Iterator[LogAddress]:
    """Return each attempt once, even if a failed run was retried and its attempts are counted from 1 again."""
    node, attempt = request.query["node"], request.query["attempt"]
    for task in run.tasks:
        if node and task.node != node:
            continue
        for fromkey in dict.fromkeys(attempt.attempt for attempt in task.attempts):
            if not attempt or fromkey == attempt:
                yield LogAddress(int(task.id), task.node, fromkey)


async def _page(request: Request, places: list[LogAddress]) -> wire.Logs:
    stamped: list[tuple[int, wire.LogLine]] = []
    more = False
    for index in places:
        async for _, lines in request.engine.context.logs.read(index.task, index.attempt):
            stamped += [(line[0], _line(index, line)) for line in lines]
        if len(stamped) > 2 * LINES_MAX:
            stamped, more = sorted(stamped, key=_at)[-LINES_MAX:], True
    stamped.sort(key=_at)
    more = more or len(stamped) > LINES_MAX
    return wire.Logs(lines=tuple(line for _, line in stamped[-LINES_MAX:]), truncated=more)


def _at(pair: tuple[int, wire.LogLine]) -> int:
    return pair[0]


def _line(address: LogAddress, line: Line) -> wire.LogLine:
    at_ms, stream, text = line
    return wire.LogLine(
        at=instant_text(min(max(at_ms, INSTANT_MS_MIN), INSTANT_MS_MAX)),
        task=str(address.task),
        node=address.node,
        attempt=address.attempt,
        stream=stream,
        text=text,
    )


async def _has_seen_all(request: Request, run: wire.RunDetail, read: ReadLog) -> bool:
    """Whether a returning follower has already seen the last lines, or pieces, of an ended run."""
    seen = _chunks_of(request.header(b"last-event-id"))
    if not seen or await _any_behind(request, run, seen, read):
        return False
    await asyncio.sleep(SETTLE_S)
    return not await _any_behind(request, run, seen, read)


async def _any_behind(request: Request, run: wire.RunDetail, seen: dict[tuple[int, int], int], read: ReadLog) -> bool:
    for index in _places(request, run):
        pair = (index.task, index.attempt)
        async for _, lines in read(*pair, after=seen.get(pair, -1)):
            if lines:
                return True
    return False


async def _follow(request: Request) -> AsyncIterator[bytes]:
    """Yield new lines as they become readable, until the run has ended and its last lines were read."""
    engine, run_id = request.engine, request.run_id
    seen = _chunks_of(request.header(b"last-event-id"))
    loop = asyncio.get_running_loop()
    spoke = loop.time()
    settled = False
    while True:
        run = await engine.queries.run(run_id)
        for index in _places(request, run):
            pair = (index.task, index.attempt)
            async for chunk, lines in engine.context.logs.read(*pair, after=seen.get(pair, -1)):
                seen[pair] = chunk
                if lines:
                    spoke = loop.time()
                    yield _events(index, lines, _position(seen))
        if run.ended_at is not None:
            if settled:
                return
            settled = True
            await asyncio.sleep(SETTLE_S)
            continue
        if loop.time() - spoke > IDLE_S:
            spoke = loop.time()
            yield COMMENT
        await engine.context.logs.more(1.0)


async def stream(request: Request) -> Response | StreamingResponse:
    run = await request.engine.queries.run(request.run_id)
    if run.ended_at is not None and await _has_seen_all(request, run, request.engine.context.logs.read_pieces):
        return nothing()
    return StreamingResponse(until_closing(request, _follow_pieces(request)), EVENTS, *NO_BUFFERING)


async def _follow_pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield pieces as they become readable, and which attempts ended without a result, until the run has ended."""
    engine, run_id, loop = request.engine, request.run_id, asyncio.get_running_loop()
    seen = _chunks_of(request.header(b"last-event-id"))
    streamed = dict.fromkeys(seen)  # attempts of which the reader has a piece
    marked: dict[tuple[int, int], None] = {}  # those of them that were marked as dead for the reader
    spoke = loop.time()
    settled = False
    while True:
        run = await engine.queries.run(run_id)
        dead = _dead_attempts(run)
        for address in _places(request, run):
            pair = (address.task, address.attempt)
            async for chunk, pieces in engine.context.logs.read_pieces(*pair, after=seen.get(pair, -1)):
                seen[pair] = chunk
                if pieces:
                    streamed[pair] = None
                    spoke = loop.time()
                    position = _position({known: seen[known] for known in streamed})
                    yield _piece_events(address, pieces, position, dead=pair in dead)
            if pair in streamed and pair in dead and pair not in marked:
                marked[pair] = None
                at = instant_text(engine.context.now_ms())
                mark = wire.StreamPiece(
                    at=at, task=str(address.task), node=address.node, attempt=address.attempt, dead=True
                )
                yield event("piece", json_encoder.encode(mark))
        if run.ended_at is not None:
            if settled:
                return
            settled = True
            await asyncio.sleep(SETTLE_S)
            continue
        if loop.time() - spoke > IDLE_S:
            spoke = loop.time()
            yield COMMENT
        await engine.context.logs.more(1.0)


def _dead_attempts(run: wire.RunDetail) -> set[tuple[int, int]]:
    """Those that ended without a result. Where a resolved run has two of one number, the last counts."""
    states = {(int(task.id), attempt.attempt): attempt.state for task in run.tasks for attempt in task.attempts}
    return {pair for pair, state in states.items() if state in DEAD}


def _piece_events(address: LogAddress, pieces: list[Piece], position: str, *, dead: bool) -> bytes:
    last = len(pieces) - 1
    return b"".join(
        event(
            "piece", json_encoder.encode(_piece(address, piece, dead=dead)), event_id=position if index == last else ""
        )
        for index, piece in enumerate(pieces)
    )


def _piece(address: LogAddress, piece: Piece, *, dead: bool) -> wire.StreamPiece:
    at_ms, number, text = piece
    return wire.StreamPiece(
        at=instant_text(min(max(at_ms, INSTANT_MS_MIN), INSTANT_MS_MAX)),
        task=str(address.task),
        node=address.node,
        attempt=address.attempt,
        number=number,
        text=text,
        dead=dead,
    )


def _events(address: LogAddress, lines: list[Line], position: str) -> bytes:
    """Return events for a chunk. The position is after the chunk, so only its last line carries it."""
    last = len(lines) - 1
    return b"".join(
        event("log", json_encoder.encode(_line(address, line)), event_id=position if number == last else "")
        for number, line in enumerate(lines)
    )


def _position(seen: dict[tuple[int, int], int]) -> str:
    """Return where a follower resumes: the last chunk of each log. With too many logs there is no position, and the
    follower starts over."""
    text = ",".join(f"{task}.{attempt}.{chunk}" for (task, attempt), chunk in seen.items())
    return text if len(text) <= POSITION_CHARACTERS_MAX else ""


def _chunks_of(position: str) -> dict[tuple[int, int], int]:
    seen: dict[tuple[int, int], int] = {}
    for entry in position[:POSITION_CHARACTERS_MAX].split(","):
        parts = entry.split(".")
        if len(parts) == 3 and all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
            seen[int(parts[0]), int(parts[1])] = int(parts[2])
    return seen


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks/{task}/attempts/{attempt}/logs",
        routed_to="task",
        handler=append,
        summary="Store one chunk of an attempt's log. Only the worker that holds the attempt, or held it until it "
        "ended, may send it. Sending a chunk again changes nothing; a restarted log continues after the stored lines.",
        tag="tasks",
        query=(
            QueryParam(
                "chunk", "Number of the chunk; the worker counts from 0.", int, 0, high=CHUNK_MAX, required=True
            ),
            QueryParam("first", "Number of its first line.", int, 0, high=2**53, required=True),
            QueryParam("run", "Id of its run; needed to find the ended child of a map."),
        ),
        headers=(
            ("X-Tickwork-Worker", "The name of the worker, percent-encoded. Required."),
            ("X-Tickwork-Session", "The session of the worker. Required."),
            ("X-Tickwork-Store", "Identity of the store that the attempt belongs to, from the exchange."),
        ),
        body=BodySpec(
            None, (NDJSON, JSON), CHUNK_BYTES_MAX, summary='JSON lines `{"at": ms, "stream": "…", "text": "…"}`.'
        ),
        responses=DONE,
        refusals=(403, 404, 409),
    ),
    Route(
        method="GET",
        path="/v1/tasks/{task}/logs",
        routed_to="task",
        handler=of_task,
        summary="The log of a task: of one attempt, or of all. Of a child of a map that has ended it is that of the "
        "first "
        f"{ATTEMPTS_TRIED}.",
        tag="tasks",
        query=(QueryParam("attempt", "Only this attempt.", int, 0, 1, ATTEMPT_MAX),),
        responses={200: ResponseSpec(wire.Logs)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/logs",
        routed_to="run",
        handler=of_run,
        summary="Return the log lines of a run by time, or follow them as server-sent events until the run ends.",
        tag="runs",
        query=(
            QueryParam("follow", "Stream lines until the run has ended.", bool, False),
            QueryParam("node", "Only this node."),
            QueryParam("attempt", "Only this attempt.", int, 0, 1, ATTEMPT_MAX),
        ),
        headers=(("Last-Event-ID", "Continue after this event."),),
        responses={
            200: ResponseSpec(wire.Logs, (JSON, EVENTS), "The lines, or `log` events with a `LogLine` as data."),
            204: ResponseSpec(None, (), "The run has ended, and the follower has seen its last event."),
        },
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/stream",
        routed_to="run",
        handler=stream,
        summary="Follow what the tasks of a run stream, from the beginning, as server-sent events until the "
        "run has ended.",
        tag="runs",
        query=(
            QueryParam("node", "Only this node."),
            QueryParam("attempt", "Only this attempt.", int, 0, 1, ATTEMPT_MAX),
        ),
        headers=(("Last-Event-ID", "Continue after this event."),),
        responses={
            200: ResponseSpec(wire.StreamPiece, (EVENTS,), "Events `piece` whose data is a `StreamPiece`."),
            204: ResponseSpec(None, (), "The run has ended, and its last event was seen."),
        },
        refusals=(404,),
    ),
)
