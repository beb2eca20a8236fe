"""Mailboxes: declare them, and keep what comes for them."""

from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Value, decode
from tickwork.core.calendar.durations import duration_text
from tickwork.core.decide.tick_context import TickContext, tenant_of
from tickwork.core.definition.input_fields import check_declaration, check_value
from tickwork.core.definition.model import InputField
from tickwork.core.definition.problems import Problems, join
from tickwork.core.evolve.mailboxes import read_fields
from tickwork.core.state import inputs
from tickwork.core.state.events import MailboxPut, MailboxRemoved
from tickwork.core.state.mailboxes import Mailbox

KEEP_MS_MIN, KEEP_MS_MAX = 1_000, 366 * 86_400_000
CAPACITY_MAX = 10_000  # messages of one key
FIELDS_MAX = 200
MAILBOXES_MAX = 1_000  # of one tenant


def put_mailbox(turn: TickContext, position: int, request: inputs.PutMailbox) -> None:
    tenant = tenant_of(turn.state, request.tenant)
    check_name(request.name, path="mailbox", kind="mailbox")
    if not KEEP_MS_MIN <= request.keep_ms <= KEEP_MS_MAX:
        limits = f"{duration_text(KEEP_MS_MIN)} to {duration_text(KEEP_MS_MAX)}"
        raise Refused("bad_keep", f"a mailbox keeps messages for {limits}", path="keep")
    if not 1 <= request.capacity <= CAPACITY_MAX:
        raise Refused("bad_capacity", f"a mailbox keeps 1 to {CAPACITY_MAX} messages of one key", path="max")
    if request.name not in tenant.mailboxes and len(tenant.mailboxes) >= MAILBOXES_MAX:
        raise Refused("too_many_mailboxes", f"at most {MAILBOXES_MAX} mailboxes", path="mailbox")
    _check_fields(request.fields)
    turn.emit(MailboxPut(position))


def remove_mailbox(turn: TickContext, position: int, request: inputs.RemoveMailbox) -> None:
    mailbox = tenant_of(turn.state, request.tenant).mailboxes.get(request.name)
    if mailbox is None:
        raise Refused("unknown_mailbox", f"there is no mailbox {shortened(request.name, 128)!r}", path="mailbox")
    if mailbox.queues:
        message = f"the mailbox {request.name} keeps {mailbox.kept} messages: wait until they are taken or expire"
        raise Refused("mailbox_not_empty", message, path="mailbox")
    turn.emit(MailboxRemoved(position))


def _check_fields(data: bytes) -> None:
    try:
        fields = read_fields(data)
    except msgspec.DecodeError as error:
        raise Refused("bad_fields", f"the fields of a mailbox cannot be read: {error}", path="fields") from None
    problems = Problems()
    problems.count("fields", len(fields), high=FIELDS_MAX, what="fields")
    for name, field in fields.items():
        check_declaration(name, field, problems, path=join("fields", name), kind="field")
    _raise_first(problems)


def check_payload(mailbox: Mailbox, payload: Value) -> None:
    """Raises `Refused` where an inline payload does not fit. A larger one is checked where it is stored."""
    if mailbox.fields and (payload is None or isinstance(payload, bytes)):
        check_plain_payload(mailbox, {} if payload is None else decode(payload, what="payload"))


def check_plain_payload(mailbox: Mailbox, payload: Any) -> None:
    fields: dict[str, InputField] = dict(mailbox.fields)
    if not isinstance(payload, dict):
        known = ", ".join(fields)
        message = f"a message of {mailbox.name} is a map with the fields {known}, not {type(payload).__name__}"
        raise Refused("bad_payload", message, path="payload")
    problems = Problems()
    for name in payload:
        if name not in fields:
            message = f"messages of {mailbox.name} have no such field; known: {', '.join(fields)}"
            problems.add(join("payload", name), "unknown_field", message)
    for name, field in fields.items():
        path = join("payload", name)
        if name in payload:
            check_value(payload[name], field, path, problems)
        elif field.required and field.default is msgspec.UNSET:
            problems.add(path, "missing_field", f"messages of {mailbox.name} have this field; give it a value")
    _raise_first(problems)


def _raise_first(problems: Problems) -> None:
    for problem in problems.listed()[:1]:
        raise Refused(problem.code, problem.message, path=problem.path)
