"""`tw.mailbox`: events of a name are kept for their key until a run takes them."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_text
from tickwork.core.definition.model import InputField
from tickwork.protocol.http_models import MailboxRequest
from tickwork.protocol.worker_messages import DeclaredMailbox
from tickwork.sdk.authoring.options import duration
from tickwork.sdk.values.input_fields import field_of

DECLARED: dict[tuple[str, str], "Mailbox"] = {}  # by module and name


class Mailbox:
    """A declared mailbox. It is published with the workflows of its module."""

    def __init__(self, name: str, request: MailboxRequest) -> None:
        self.name, self.request = name, request

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<mailbox {self.name}>"


def mailbox(
    name: str,
    /,
    *,
    keep: str | timedelta = "7d",
    max: int = 100,  # noqa: A002 - the field's name
    fields: Mapping[str, Any] | None = None,
) -> Mailbox:
    """Declares that an event of this name is kept for its key until one run takes it, for at most this time.

    `max` is the number of messages of one key; more are refused. `fields` says what a payload has, by type:
    `{"message": str, "kind": Literal["reply", "complaint"]}`; another payload is refused. Write it at the top of the
    module that has the workflows.
    """
    check_name(name, path="mailbox", kind="mailbox")
    if isinstance(max, bool) or not isinstance(max, int) or max < 1:
        raise Refused("bad_capacity", f"mailbox {name}: max is a number of messages from 1, not {max!r}", path="max")
    described = {field: _plain(field_of(annotation)) for field, annotation in (fields or {}).items()}
    request = MailboxRequest(keep=duration_text(duration(keep, path="keep")), max=max, fields=described)
    declared = Mailbox(name, request)
    DECLARED[sys._getframe(1).f_globals.get("__name__", ""), name] = declared
    return declared


def _plain(field: InputField) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(field)
    return plain


def declared_in(*workflows: Any, module: str = "") -> tuple[DeclaredMailbox, ...]:
    """The mailboxes of the modules of these workflows, and of this module."""
    modules = {module, *(getattr(getattr(workflow, "function", None), "__module__", "") for workflow in workflows)}
    declared = {name: mailbox for (where, name), mailbox in DECLARED.items() if where in modules}
    return tuple(DeclaredMailbox(name, mailbox.request) for name, mailbox in sorted(declared.items()))
