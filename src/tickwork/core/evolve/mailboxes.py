"""The part of `evolve` by which mailboxes are declared, and messages are kept and leave."""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.definition.model import InputField
from tickwork.core.evolve.indexes import clear_timer, set_timer
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import request_in
from tickwork.core.state.mailboxes import EXPIRED, FATES_KEPT_MAX, REFUSED, TAKEN, Mailbox, MailboxMessage
from tickwork.core.state.state import Run, State, Timer

read_fields = msgspec.json.Decoder(dict[str, InputField]).decode


def _on_put(state: State, event: ev.MailboxPut) -> None:
    request: Any = state.inputs[event.input]
    mailboxes = state.tenants[request.tenant].mailboxes
    fields = read_fields(request.fields)
    known = mailboxes.get(request.name)
    if known is None:
        mailboxes[request.name] = Mailbox(request.name, request.keep_ms, request.capacity, fields)
    else:
        known.keep_ms, known.capacity, known.fields = request.keep_ms, request.capacity, fields


def _on_removed(state: State, event: ev.MailboxRemoved) -> None:
    request: Any = state.inputs[event.input]
    mailbox = state.tenants[request.tenant].mailboxes.pop(request.name)
    for message in mailbox.ended:
        state.messages.remove(message.number)
        state.changed_messages.append(message.number)


def _on_kept(state: State, event: ev.MessageKept) -> None:
    mailbox, message = _arrived(state, event)
    due = state.tick + state.settings.clock.ticks(mailbox.keep_ms)
    message.due = set_timer(state, Timer.MESSAGE, message.number, due)
    mailbox.queues.setdefault(message.key, deque()).append(message)


def _on_refused(state: State, event: ev.MessageRefused) -> None:
    mailbox, message = _arrived(state, event)
    message.payload = None
    mailbox.refused += 1
    _end(state, mailbox, message, REFUSED)


def _arrived(state: State, event: ev.MessageKept | ev.MessageRefused) -> tuple[Mailbox, MailboxMessage]:
    request: Any = request_in(state.inputs[event.input], event.command)
    mailbox = state.tenants[request.tenant].mailboxes[request.event]
    state.next_number = event.message + 1
    message = MailboxMessage(
        event.message, request.tenant, request.event, request.key, request.payload, request.by, state.tick
    )
    state.messages.add(message.number, message)
    return mailbox, message


def _on_expired(state: State, event: ev.MessageExpired) -> None:
    message = state.messages[event.message]
    mailbox = _leave(state, message)
    mailbox.expired += 1
    _end(state, mailbox, message, EXPIRED)


def take_message(state: State, number: int, run: Run) -> MailboxMessage:
    """The message, with its payload, which the mailbox no longer holds."""
    message = state.messages[number]
    taken = msgspec.structs.replace(message)
    mailbox = _leave(state, message)
    mailbox.taken += 1
    message.run = run.id
    _end(state, mailbox, message, TAKEN)
    return taken


def _leave(state: State, message: MailboxMessage) -> Mailbox:
    """Out of its queue."""
    mailbox = state.tenants[message.tenant].mailboxes[message.mailbox]
    queue = mailbox.queues[message.key]
    queue.remove(message)
    if not queue:
        del mailbox.queues[message.key]
    clear_timer(state, Timer.MESSAGE, message.number, message.due)
    message.due, message.payload = 0, None
    return mailbox


def _end(state: State, mailbox: Mailbox, message: MailboxMessage, fate: str) -> None:
    message.fate, message.ended, message.order = fate, state.tick, state.next_order
    state.next_order += 1
    mailbox.ended.append(message)
    state.changed_messages.append(message.number)
    if len(mailbox.ended) > FATES_KEPT_MAX:
        forgotten = mailbox.ended.popleft().number
        state.messages.remove(forgotten)
        state.changed_messages.append(forgotten)


MAILBOX_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.MailboxPut: _on_put,
    ev.MailboxRemoved: _on_removed,
    ev.MessageKept: _on_kept,
    ev.MessageRefused: _on_refused,
    ev.MessageExpired: _on_expired,
}
