"""Watch a run: each change as it happens, its history, and what it waits for."""

from collections.abc import AsyncIterator
from hashlib import blake2b

from tickwork.api.http.request import Request
from tickwork.api.http.response import EVENTS, Response, StreamingResponse, as_json, json_encoder, nothing
from tickwork.api.http.route import ResponseSpec, Route
from tickwork.api.http.sse import COMMENT, NO_BUFFERING, event, until_closing
from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import instant_text
from tickwork.core.explain.blockers import BlockReason
from tickwork.core.explain.run_history_text import entry_text
from tickwork.core.explain.why_not import WhyNot
from tickwork.protocol import http_models as wire

STEPS_MAX = 2_000


async def events(request: Request) -> Response | StreamingResponse:
    """Every event holds the whole run, so a returning reader needs only the last one; its id is its digest."""
    changes = request.engine.queries.changes(request.run_id)
    first = await anext(changes)
    assert first is not None, "the first view comes at once"
    seen = first.ended_at is not None and request.header(b"last-event-id") == _id(json_encoder.encode(first))
    if seen or request.scope["method"] == "HEAD":
        await changes.aclose()  # type: ignore[attr-defined]  # it is a generator
        return nothing() if seen else Response(200, b"", EVENTS)  # 204 tells a browser not to come back
    return StreamingResponse(until_closing(request, _changes_as_events(request, first, changes)), EVENTS, *NO_BUFFERING)


async def _changes_as_events(
    request: Request, first: wire.Run, changes: AsyncIterator[wire.Run | None]
) -> AsyncIterator[bytes]:
    try:
        last = request.header(b"last-event-id")
        view: wire.Run | None = first
        while True:
            if view is None:
                yield COMMENT
            else:
                data = json_encoder.encode(view)
                if _id(data) != last:
                    last = _id(data)
                    yield event("run", data, event_id=last)
            view = await anext(changes)
    except StopAsyncIteration:
        return
    finally:
        await changes.aclose()  # type: ignore[attr-defined]  # it is a generator


def _id(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


async def why(request: Request) -> Response:
    run_id = request.run_id
    story = await request.engine.queries.why(run_id)
    if story is None:
        raise Refused("unknown_run", f"there is no run {run_id!a}", path="run")
    held = request.engine.queries.why_not(run_id)
    return as_json(
        wire.Why(
            run=run_id,
            state=story.state.lower(),
            steps=tuple(
                wire.Step(at=instant_text(entry.at_ms), seq=entry.seq, text=entry_text(entry))
                for entry in story.entries[-STEPS_MAX:]
            ),
            waiting_for=tuple(_obstacles(held)) if held is not None else (),
        )
    )


def _obstacles(held: WhyNot) -> list[str]:
    lines = [_words(obstacle) for obstacle in held.obstacles]
    for node in held.nodes:
        name = f"{node.node}[{node.child}]" if node.child >= 0 else node.node
        lines += [f"{name}: {_words(obstacle)}" for obstacle in node.obstacles]
    return lines


def _words(reason: BlockReason) -> str:
    return f"{reason.text}. {reason.remedy}" if reason.remedy else reason.text


ROUTES = (
    Route(
        method="GET",
        path="/v1/runs/{run}/events",
        routed_to="run",
        handler=events,
        summary="Stream a run as `run` server-sent events, one for each change, until it has ended.",
        tag="runs",
        headers=(("Last-Event-ID", "The last event that the reader has seen; it is not sent again."),),
        responses={
            200: ResponseSpec(None, (EVENTS,), "Events with a `Run` as data."),
            204: ResponseSpec(None, (), "The run has ended, and the reader has seen its last event."),
        },
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/why",
        routed_to="run",
        handler=why,
        summary="Explain a run: the decisions about it, from the journal, and what it waits for now.",
        tag="runs",
        responses={200: ResponseSpec(wire.Why)},
        refusals=(404,),
    ),
)
