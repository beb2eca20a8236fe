"""Mailboxes: declared ones, what they keep, and what became of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import duration_ms, duration_text
from tickwork.core.decide.commands.mailboxes import check_plain_payload
from tickwork.core.evolve.mailboxes import read_fields
from tickwork.core.state.inputs import PutMailbox, RemoveMailbox
from tickwork.core.state.mailboxes import KEPT, Mailbox, MailboxMessage
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.views.runs import shown
from tickwork.runtime.views.text import instant, instant_or_none

if TYPE_CHECKING:
    from tickwork.runtime.services.queries import QueryService


class MailboxService:
    def __init__(self, context: EngineContext, queries: "QueryService") -> None:
        self._context, self._queries = context, queries

    def puts(self, declared: Mapping[str, wire.MailboxRequest], *, by: str, tenant: str = TENANT) -> list[PutMailbox]:
        """Declarations that change something. Raises `Refused` where the runs of a tenant are spread."""
        neighbours = self._context.neighbours
        if declared and neighbours is not None and len(neighbours.partitions_of(tenant)) > 1:
            message = f"the runs of {tenant} are spread over several partitions, and a mailbox is in one: it would not "
            raise Refused("mailbox_spread", f"{message}reach the runs of the others", path="mailboxes")
        known = self._context.tenant(tenant).mailboxes
        puts = []
        for name, request in declared.items():
            keep_ms = duration_ms(request.keep, path=f"mailboxes.{name}.keep")
            fields = msgspec.json.encode(request.fields, order="deterministic")
            put = PutMailbox(by, tenant, name, keep_ms, request.max, fields)
            if name not in known or not _is_declared_by(known[name], put):
                puts.append(put)
        return puts

    async def remove(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        await self._context.command(RemoveMailbox(by, tenant, name))

    def check(self, event: str, payload: Any, *, tenant: str = TENANT) -> None:
        """Raises `Refused` where a payload does not fit its mailbox: the machine only reads small ones."""
        mailbox = self._context.tenant(tenant).mailboxes.get(event)
        if mailbox is not None and mailbox.fields:
            check_plain_payload(mailbox, {} if payload is None else payload)

    async def mailboxes(self, *, tenant: str = TENANT) -> wire.Mailboxes:
        views = tuple(_view(mailbox) for _, mailbox in sorted(self._context.tenant(tenant).mailboxes.items()))
        await self._context.until_durable()
        return wire.Mailboxes(mailboxes=views)

    async def messages(
        self, name: str, *, key: str = "", fate: str = "", limit: int = 100, tenant: str = TENANT
    ) -> wire.MailboxMessages:
        mailbox = self._context.tenant(tenant).mailboxes.get(name)
        if mailbox is None:
            raise Refused("unknown_mailbox", f"there is no mailbox {shortened(name, 128)!r}", path="mailbox")
        queues = [mailbox.queues.get(key, ())] if key else mailbox.queues.values()
        kept = sorted((message for queue in queues for message in queue), key=lambda message: message.number)
        ended = [message for message in reversed(mailbox.ended) if not key or message.key == key]
        chosen = [message for message in (*kept, *ended) if not fate or message.fate == fate][:limit]
        views = tuple([await self._message(message) for message in chosen])
        await self._context.until_durable()
        return wire.MailboxMessages(messages=views)

    async def _message(self, message: MailboxMessage) -> wire.MailboxMessage:
        clock = self._context.state.settings.clock
        return wire.MailboxMessage(
            id=str(message.number),
            key=message.key,
            fate=message.fate,
            by=message.by,
            came_at=instant(clock.ms_of(message.came)),
            expires_at=instant_or_none(clock.ms_of(message.due) if message.fate == KEPT else 0),
            ended_at=instant_or_none(clock.ms_of(message.ended) if message.fate != KEPT else 0),
            run=message.run,
            payload=await self._queries.plain(message.payload),
            payload_size=shown(message.payload),
        )


def _is_declared_by(mailbox: Mailbox, put: PutMailbox) -> bool:
    if (mailbox.keep_ms, mailbox.capacity) != (put.keep_ms, put.capacity):
        return False
    try:
        return dict(mailbox.fields) == read_fields(put.fields)
    except msgspec.DecodeError:  # the machine says what is wrong
        return False


def _view(mailbox: Mailbox) -> wire.Mailbox:
    return wire.Mailbox(
        name=mailbox.name,
        keep=duration_text(mailbox.keep_ms),
        max=mailbox.capacity,
        fields=msgspec.to_builtins(dict(mailbox.fields)),
        kept=mailbox.kept,
        keys=len(mailbox.queues),
        taken=mailbox.taken,
        expired=mailbox.expired,
        refused=mailbox.refused,
    )
