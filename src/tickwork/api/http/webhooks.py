"""Declared webhooks: which signed requests are let in, and which event each becomes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.webhook_signatures import is_signed
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.base.names import check_line
from tickwork.core.base.shortened import shortened
from tickwork.core.definition.cel import Condition, ConditionFailed

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
ID_CHARACTERS_MAX = 120  # the name of the webhook goes before it, and an id of an event has at most 255 characters
TIMESTAMP_DIGITS_MAX = 12
KEY_VARIABLES = ("event",)  # what the expression of the key sees


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    name: str
    event: str
    window_ms: int
    key: Condition | None  # None: its events have no key
    secrets: tuple[str, ...]  # names of secrets, never the secrets
    read: Callable[[], list[bytes]] = field(repr=False)  # the secrets that can be read now

    def verify(self, header: Callable[[bytes], str], body: bytes, *, now_ms: int) -> str:
        """Return the id of a message whose signature and time are right."""
        message_id, timestamp, signature = (_given(header, name) for name in (ID, TIMESTAMP, SIGNATURE))
        check_line(message_id, path=f"header.{ID}", kind="id of the message", characters_max=ID_CHARACTERS_MAX)
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= TIMESTAMP_DIGITS_MAX):
            raise _malformed("the time is a whole number of seconds since 1970", TIMESTAMP)
        secrets = self.read()
        if not secrets:
            message = f"no secret of the webhook {self.name} can be read at this server now"
            raise Unavailable(message, retry_after_ms=60_000)
        if not is_signed(signature, secrets, message_id=message_id, timestamp=timestamp, body=body):
            raise HttpRefused(
                401,
                "bad_signature",
                f"no signature fits the body, {ID}, {TIMESTAMP} and a secret of this webhook; sign the bytes that are "
                "sent, with the secret that this server has",
                path=f"header.{SIGNATURE}",
            )
        if abs(now_ms - int(timestamp) * 1_000) > self.window_ms:
            raise HttpRefused(
                401,
                "webhook_too_old",
                f"the message was signed more than {self.window_ms // 1_000} s before or after this server's time; "
                "send it again with the time of the new attempt, and compare the clocks",
                path=f"header.{TIMESTAMP}",
            )
        return message_id

    def key_of(self, payload: Any) -> str:
        if self.key is None:
            return ""
        try:
            return str(self.key.value({"event": payload}))
        except ConditionFailed as failed:
            message = f"the key of the webhook {self.name}, {self.key.text}, cannot be found in this body"
            raise Refused("bad_webhook_key", f"{message}: {failed.message}", path="body") from None


class Webhooks:
    """All webhooks of this server, by name."""

    def __init__(self, declared: Mapping[str, Webhook] | None = None) -> None:
        self._declared = dict(declared or {})

    def __iter__(self) -> Iterator[Webhook]:
        return iter(webhook for _, webhook in sorted(self._declared.items()))

    def get(self, name: str) -> Webhook:
        webhook = self._declared.get(name)
        if webhook is None:
            message = (
                f"this server has no webhook {shortened(name, 128)!a}; declare it in the file of its setting webhooks"
            )
            raise Refused("unknown_webhook", message, path="webhook")
        return webhook


def _given(header: Callable[[bytes], str], name: str) -> str:
    text = header(name.encode())
    if not text:
        raise _malformed("this header of Standard Webhooks is missing", name)
    return text


def _malformed(message: str, name: str) -> HttpRefused:
    return HttpRefused(400, "bad_webhook", message, path=f"header.{name}")
