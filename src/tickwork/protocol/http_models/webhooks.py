"""Models of webhooks: the signed requests that a server receives, by name."""

from tickwork.protocol.http_models.base import Model


class Webhook(Model, frozen=True, kw_only=True):
    """A webhook of the server: who may send it, and the event that it becomes. Secrets are never shown."""

    name: str
    path: str  # where its sender posts it
    event: str
    key: str = ""  # the CEL expression over `event`, the payload, that gives the key of the event
    window: str  # how far the time of a signature may be from the server's
    secrets: tuple[str, ...]  # names of the secrets that count
    readable: int  # how many of them this server can read now


class Webhooks(Model, frozen=True, kw_only=True):
    webhooks: tuple[Webhook, ...]
