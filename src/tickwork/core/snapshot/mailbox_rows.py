"""A message of a mailbox as one row, and back; likewise an asset, and the id of an event.

Such rows lie beside those of schedules, in one table: both are what a tenant has beside its runs. The first field tells
them apart.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.evolve.mailboxes import read_fields
from tickwork.core.state.mailboxes import KEPT, Mailbox, MailboxMessage
from tickwork.core.state.state import EventId, State, Tenant, Timer
from tickwork.core.state.timing_wheel import mark_of
from tickwork.core.state.updates import Asset, AssetUpdate


class LiveMessage(msgspec.Struct, array_like=True, gc=False, tag="message"):
    number: int
    tenant: str
    mailbox: str
    key: str
    payload: Value
    by: str
    came: int
    due: int
    fate: str
    run: str
    ended: int
    order: int


class LiveEventId(msgspec.Struct, array_like=True, gc=False, tag="event_id"):
    number: int
    tenant: str
    id: str
    came: int


class LiveAsset(msgspec.Struct, array_like=True, gc=False, tag="asset"):
    number: int
    tenant: str
    name: str
    count: int
    latest: tuple[AssetUpdate, ...]
    partitions: tuple[tuple[str, int], ...]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(LiveMessage).decode
_decode_asset = msgspec.msgpack.Decoder(LiveAsset).decode
_decode_id = msgspec.msgpack.Decoder(LiveEventId).decode


def _head(of: type[msgspec.Struct], tag: str) -> bytes:
    return bytes([0x90 + 1 + len(of.__struct_fields__)]) + msgspec.msgpack.encode(tag)


_HEAD, _ID_HEAD, _ASSET_HEAD = (
    _head(LiveMessage, "message"),
    _head(LiveEventId, "event_id"),
    _head(LiveAsset, "asset"),
)


def is_message(row: bytes) -> bool:
    return row.startswith(_HEAD)


def is_event_id(row: bytes) -> bool:
    return row.startswith(_ID_HEAD)


def is_asset(row: bytes) -> bool:
    return row.startswith(_ASSET_HEAD)


def encode_asset(asset: Asset) -> bytes:
    return _encode(LiveAsset(*(getattr(asset, name) for name in LiveAsset.__struct_fields__)))


def add_assets(state: State, rows: Iterable[bytes]) -> None:
    for data in rows:
        row = _decode_asset(data)
        asset = Asset(*(getattr(row, name) for name in LiveAsset.__struct_fields__))
        state.assets.add(asset.number, asset)
        state.tenants[asset.tenant].assets[asset.name] = asset


def encode_event_id(kept: EventId) -> bytes:
    return _encode(LiveEventId(kept.number, kept.tenant, kept.id, kept.came))


def add_event_ids(state: State, rows: Iterable[bytes]) -> None:
    """By number, that is in the order in which they came."""
    for data in rows:
        row = _decode_id(data)
        kept = EventId(row.number, row.tenant, row.id, row.came)
        state.event_ids.add(kept.number, kept)
        state.tenants[kept.tenant].event_ids[kept.id] = kept


def encode_message(message: MailboxMessage) -> bytes:
    return _encode(LiveMessage(*(getattr(message, name) for name in LiveMessage.__struct_fields__)))


def add_messages(state: State, rows: Iterable[bytes], timers: list[int]) -> None:
    """By number; mailboxes are there already. Call `order_fates` when all are read."""
    for data in rows:
        row = _decode(data)
        message = MailboxMessage(*(getattr(row, name) for name in LiveMessage.__struct_fields__))
        state.messages.add(message.number, message)
        mailbox = state.tenants[message.tenant].mailboxes[message.mailbox]
        if message.fate == KEPT:
            mailbox.queues.setdefault(message.key, deque()).append(message)
            timers.append(mark_of(message.due, Timer.MESSAGE, message.number))
        else:
            mailbox.ended.append(message)


def order_fates(state: State) -> None:
    for tenant in state.tenants.values():
        for mailbox in tenant.mailboxes.values():
            mailbox.ended = deque(sorted(mailbox.ended, key=lambda message: message.order))


def mailbox_rows(tenant: Tenant) -> list[tuple[Any, ...]]:
    """For the header."""
    return [
        (
            name, mailbox.keep_ms, mailbox.capacity, msgspec.json.encode(mailbox.fields, order="deterministic"),
            mailbox.taken, mailbox.expired, mailbox.refused,
        )
        for name, mailbox in sorted(tenant.mailboxes.items())
    ]  # fmt: skip


def add_mailboxes(tenant: Tenant, rows: Iterable[tuple[Any, ...]]) -> None:
    for name, keep_ms, capacity, fields, *counts in rows:
        tenant.mailboxes[name] = Mailbox(name, keep_ms, capacity, read_fields(fields), *counts)
