"""Mailboxes: declared ones, and the messages that they keep or kept."""

import msgspec

from tickwork.api.http.etags import IF_MATCH
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE
from tickwork.core.base.names import TENANT
from tickwork.core.state.mailboxes import EXPIRED, KEPT, REFUSED, TAKEN
from tickwork.protocol import http_models as wire


async def list_mailboxes(request: Request) -> Response:
    return as_json(await request.engine.mailboxes.mailboxes())


def _edited(request: Request) -> bytes | None:
    mailbox = request.engine.context.tenant(TENANT).mailboxes.get(request.name("mailbox"))
    if mailbox is None:
        return None
    return msgspec.json.encode((mailbox.keep_ms, mailbox.capacity, mailbox.fields), order="deterministic")


async def put(request: Request) -> Response:
    declared = {request.name("mailbox"): await request.body(wire.MailboxRequest)}
    if request.ways is None:
        await _declare(request, declared)
        return nothing()
    async with request.ways.node.order:  # not while the tenant is being spread
        await request.ways.node.routes.refresh()
        await _declare(request, declared)
    return nothing()


async def _declare(request: Request, declared: dict[str, wire.MailboxRequest]) -> None:
    await request.engine.context.command_all([*request.engine.mailboxes.puts(declared, by=request.by)])


async def remove(request: Request) -> Response:
    await request.engine.mailboxes.remove(request.name("mailbox"), by=request.by)
    return nothing()


async def messages(request: Request) -> Response:
    query = request.query
    return as_json(
        await request.engine.mailboxes.messages(
            request.name("mailbox"), key=query["key"], fate=query["fate"], limit=query["limit"]
        )
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/mailboxes",
        handler=list_mailboxes,
        summary="List mailboxes, with what each keeps and the number of each fate.",
        tag="events",
        responses={200: ResponseSpec(wire.Mailboxes)},
    ),
    Route(
        method="PUT",
        path="/v1/mailboxes/{mailbox}",
        edited=_edited,
        handler=put,
        summary="Declare a mailbox: from now on, events of this name are kept until a run takes them.",
        tag="events",
        body=BodySpec(wire.MailboxRequest, optional=True, bytes_max=1024 * 1024),
        headers=(IF_MATCH,),
        responses=DONE,
        refusals=(409, 412),
    ),
    Route(
        method="DELETE",
        path="/v1/mailboxes/{mailbox}",
        edited=_edited,
        handler=remove,
        summary="Remove a mailbox that keeps no message, with the fates that it lists.",
        tag="events",
        headers=(IF_MATCH,),
        responses=DONE,
        refusals=(404, 409, 412),
    ),
    Route(
        method="GET",
        path="/v1/mailboxes/{mailbox}/messages",
        handler=messages,
        summary="List the messages of a mailbox: kept ones in order, then the latest others, each with its fate.",
        tag="events",
        query=(
            QueryParam("key", "Only messages of this key."),
            QueryParam("fate", "Only messages with this fate.", choices=(KEPT, TAKEN, EXPIRED, REFUSED)),
            QueryParam("limit", "Maximum number of messages.", int, 100, 1, 1_000),
        ),
        responses={200: ResponseSpec(wire.MailboxMessages)},
        refusals=(404,),
    ),
)
