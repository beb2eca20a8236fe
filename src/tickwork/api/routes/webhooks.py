"""Webhooks: requests of other services that authenticate themselves by a signature, and become events."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import JSON, Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.core.base import strict_json
from tickwork.core.calendar.durations import duration_text
from tickwork.protocol import http_models as wire

BODY_BYTES_MAX = 1024 * 1024


async def receive(request: Request) -> Response:
    """Verify the bytes as they came, and only then read them. The event is durable when the response is sent."""
    webhook = request.webhooks.get(request.text("webhook"))
    request.kind()
    body = await request.data()
    message_id = webhook.verify(request.header, body, now_ms=request.engine.context.clock.wall_ms())
    payload = strict_json.loads(body, bytes_max=BODY_BYTES_MAX)
    signal = wire.Signal(
        event=webhook.event, key=webhook.key_of(payload), payload=payload, id=f"{webhook.name}/{message_id}"
    )
    return as_json(await request.engine.runs.signal(signal, by=f"webhook {webhook.name}"))


async def list_webhooks(request: Request) -> Response:
    views = tuple(
        wire.Webhook(
            name=webhook.name,
            path=f"/v1/webhooks/{webhook.name}",
            event=webhook.event,
            key=webhook.key.text if webhook.key is not None else "",
            window=duration_text(webhook.window_ms),
            secrets=webhook.secrets,
            readable=len(webhook.read()),
        )
        for webhook in request.webhooks
    )
    return as_json(wire.Webhooks(webhooks=views))


ROUTES = (
    Route(
        method="GET",
        path="/v1/webhooks",
        routed_to="here",
        handler=list_webhooks,
        summary="List the webhooks that this server receives: the event that each becomes, and the names of its "
        "secrets, never the secrets.",
        tag="events",
        responses={200: ResponseSpec(wire.Webhooks)},
    ),
    Route(
        method="POST",
        path="/v1/webhooks/{webhook}",
        routed_to="any",
        handler=receive,
        summary="Receive a signed webhook, which becomes an event. The signature authenticates the request (Standard "
        "Webhooks), so it needs no token. A repeated `webhook-id` is the same event.",
        tag="events",
        body=BodySpec(kinds=(JSON,), bytes_max=BODY_BYTES_MAX, summary="The payload of the event, as it was signed."),
        headers=(
            ("Webhook-Id", "The id of the message: the same for each attempt to deliver it. Required."),
            ("Webhook-Timestamp", "When this attempt was signed, in seconds since 1970. Required."),
            ("Webhook-Signature", "`v1,<base64>`: HMAC-SHA256 of `id.timestamp.body`; several with spaces. Required."),
        ),
        open=True,
        responses={200: ResponseSpec(wire.Heard)},
        refusals=(404, 409, 429),
    ),
)
