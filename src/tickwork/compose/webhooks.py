"""The file of the setting `webhooks`: what is declared in it, checked when a server starts."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tickwork.api.http.webhook_signatures import secret_bytes
from tickwork.api.http.webhooks import KEY_VARIABLES, Webhook, Webhooks
from tickwork.compose.settings import BadSettings, Settings, read_toml
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.definition.cel import Condition
from tickwork.executors.secrets import SecretMissing, Secrets, variable_of

WINDOW_MS_MIN, WINDOW_MS_MAX = 1_000, 12 * 3_600_000  # ids are known for 24 hours, and time may be ahead or behind
SECRETS_MAX = 10


class _Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the file."""

    event: str = ""  # "": the name of the webhook
    key: str = ""  # CEL over `event`, the payload
    secrets: tuple[str, ...] = ()  # (): one with the name of the webhook
    window: str = "5m"


def webhooks_of(settings: Settings, env: Mapping[str, str] = os.environ) -> Webhooks:
    """Raises `BadSettings` where a webhook could never be received."""
    if not settings.webhooks:
        return Webhooks()
    path = Path(settings.webhooks)
    if not path.is_file():
        raise BadSettings("missing_file", f"{path.name} is not there", path="webhooks")
    secrets = Secrets(env, folder=Path(settings.secrets) if settings.secrets else None)
    declared: dict[str, Webhook] = {}
    for name, table in read_toml(path).items():
        try:
            declared[name] = _webhook(name, table, secrets)
        except Refused as refused:
            where = f"webhooks.{name}.{refused.path}" if refused.path else f"webhooks.{name}"
            raise BadSettings("bad_setting", f"{refused.message}, in {path.name}", path=where) from None
    return Webhooks(declared)


def _webhook(name: str, table: Any, secrets: Secrets) -> Webhook:
    check_name(name, path="", kind="webhook")
    try:
        given = msgspec.convert(table, _Declaration)
    except msgspec.ValidationError as error:
        raise Refused("bad_setting", str(error)) from None
    names = given.secrets or (name,)
    if len(names) > SECRETS_MAX:
        raise Refused("bad_setting", f"at most {SECRETS_MAX} secrets", path="secrets")
    for secret in names:
        _read(secrets, secret)
    return Webhook(
        name=name,
        event=check_name(given.event or name, path="event", kind="event"),
        window_ms=duration_ms(given.window, path="window", minimum_ms=WINDOW_MS_MIN, maximum_ms=WINDOW_MS_MAX),
        key=Condition.compile(given.key, path="key", allowed=KEY_VARIABLES) if given.key else None,
        secrets=names,
        read=_reader(secrets, names),
    )


def _reader(secrets: Secrets, names: tuple[str, ...]) -> Callable[[], list[bytes]]:
    """Secrets are read for each request, so that a changed file counts at once."""
    return partial(_readable, secrets, names)


def _readable(secrets: Secrets, names: tuple[str, ...]) -> list[bytes]:
    keys = []
    for name in names:
        try:
            keys.append(_read(secrets, name))
        except Refused:  # it was there when the server started; the others still count
            continue
    return keys


def _read(secrets: Secrets, name: str) -> bytes:
    try:
        text = secrets.get(name)
    except SecretMissing:
        message = f"the secret {name} is missing; set {variable_of(name)}, or put a file {name} into the folder of the "
        raise Refused("bad_setting", f"{message}setting secrets", path="secrets") from None
    try:
        return secret_bytes(text.decode())
    except ValueError as error:
        raise Refused("bad_setting", f"the secret {name} {error}", path="secrets") from None
