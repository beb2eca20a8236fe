"""Values on their way in and out: inline, as payloads, as artifacts, gathered from a map's children.

Going in, a value over the inline limit becomes a reference before the machine sees it, and its bytes
are committed with the row that names them. Coming out, a reference becomes bytes again: from memory where
it was seen lately, else from the store. Nothing here decides anything.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.base.values import INLINE_BYTES_MAX, EncryptedValue, Ref, Value, pack
from tickwork.ports.artifacts import Artifacts, digest_of
from tickwork.ports.store import Payload, Store
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX

INPUT_BYTES_MAX = 16 * 1024 * 1024  # of a run's inputs: a server reads them whole, to compare them with their types
KEPT_BYTES_MAX = 64 * 1024 * 1024
NIL = b"\xc0"
GATHERED_AT_ONCE = 5_000  # results of a map's children, before others have their turn
APART = ("gather", "arguments")  # places of values that are made of rows in the table of children
ARGUMENTS_STEP = -1  # in the table of children: not a result, but the inputs of a child run

value_encoder = msgspec.msgpack.Encoder(order="sorted")
value_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Value)
encode_value: Callable[[Value], bytes] = value_encoder.encode


def decode_value(data: bytes) -> Value:
    value: Value = value_decoder.decode(data)
    return value


def items_in(data: bytes) -> int | None:
    """The length of a MessagePack list, read from its first bytes; None for anything else."""
    first = data[0] if data else 0
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    if first == 0xDC:
        return int.from_bytes(data[1:3])
    if first == 0xDD:
        return int.from_bytes(data[1:5])
    return None


def list_head(count: int) -> bytes:
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def map_head(count: int) -> bytes:
    if count < 16:
        return bytes([0x80 | count])
    return b"\xde" + count.to_bytes(2) if count < 1 << 16 else b"\xdf" + count.to_bytes(4)


ReadChildren = Callable[[int, int], Awaitable[list[tuple[int, bytes]]]]


class PayloadStore:
    def __init__(self, store: Store, artifacts: Artifacts, *, children: ReadChildren | None = None) -> None:
        self._store = store
        self._read_children = children or store.read_children
        self._artifacts = artifacts
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._loading: dict[tuple[str, str], asyncio.Task[bytes]] = {}
        self.unwritten_children: Callable[[int, int], dict[int, Value]] = lambda _run, _step: {}
        self.keeping: dict[tuple[int, int], asyncio.Task[None]] = {}  # inputs of child runs that are being kept

    # ---- in

    def take(self, data: bytes, payloads: list[Payload]) -> Value:
        """A value of at most `VALUE_BYTES_MAX`; a payload that must be committed with it goes to `payloads`."""
        if len(data) <= INLINE_BYTES_MAX:
            return data
        assert len(data) <= VALUE_BYTES_MAX, "larger values are artifacts"
        digest = digest_of(data)
        payloads.append(Payload(digest, data))
        self._keep(digest, data)
        return Ref(digest, len(data), items_in(data), "payload")

    async def take_any(self, data: bytes, payloads: list[Payload]) -> Value:
        if len(data) <= VALUE_BYTES_MAX:
            return self.take(data, payloads)
        digest = await self._artifacts.put(data)
        return Ref(digest, len(data), items_in(data), "artifact")

    # ---- out

    def at_hand(self, value: Value) -> bytes | None:
        """Return the bytes of a value if no lookup is needed."""
        if isinstance(value, bytes):
            return value
        if value is None:
            return NIL
        return self._kept.get(value.digest) if isinstance(value, Ref) else None

    async def bytes_of(self, value: Value) -> bytes:
        """Return the whole value as MessagePack, wherever it is stored."""
        data = self.at_hand(value)
        if data is not None:
            return data
        assert not isinstance(value, EncryptedValue), "subject keys come with a later issue"
        assert isinstance(value, Ref)
        name = (value.place, value.digest)
        loading = self._loading.get(name)
        if loading is None:  # others ask for it before it has come: it is loaded once for all of them
            loading = self._loading[name] = asyncio.get_running_loop().create_task(self._load(value))
            loading.add_done_callback(lambda _: self._loading.pop(name))
        return await asyncio.shield(loading)

    async def _load(self, value: Ref) -> bytes:
        if value.place == "gather":
            return await self._gather(value)
        if value.place == "arguments":
            return await self._arguments(value)
        if value.place == "artifact":
            data = await self._artifacts.get(value.digest)
        else:
            data = (await self._store.read_payloads([value.digest])).get(value.digest)
        if data is None:
            raise Corrupt(f"the {value.place} {value.digest} is no longer stored")
        if len(data) <= VALUE_BYTES_MAX:
            self._keep(value.digest, data)
        return data

    async def _gather(self, ref: Ref) -> bytes:
        """The results of a map's children as one list or object; a child that failed and was tolerated is nil."""
        run, step = (int(part) for part in ref.digest.split("/"))
        # Read unwritten values before the store: those that are written meanwhile would be in neither.
        unwritten = self.unwritten_children(run, step)
        keys = ref.keys
        total = (ref.items or 0) if keys is None else len(keys)
        rows = await self._read_children(run, step) if len(unwritten) < total else []
        children: dict[int, Value] = {}
        for begin in range(0, len(rows), GATHERED_AT_ONCE):
            children |= {child: decode_value(data) for child, data in rows[begin : begin + GATHERED_AT_ONCE]}
            await asyncio.sleep(0)  # others have their turn between the portions of a wide map
        children |= unwritten
        parts = [list_head(total) if keys is None else map_head(total)]
        for begin in range(0, total, GATHERED_AT_ONCE):
            portion = range(begin, min(begin + GATHERED_AT_ONCE, total))
            for child in portion:
                if keys is not None:
                    parts.append(pack(keys[child]))
                parts.append(await self.bytes_of(children.get(child)))
            await asyncio.sleep(0)
        return b"".join(parts)

    async def _arguments(self, ref: Ref) -> bytes:
        """Inputs of a child run that its parent's arguments were too large for; kept apart when it was made."""
        task, child = (int(part) for part in ref.digest.split("/"))
        if (keeping := self.keeping.get((task, child))) is not None:
            await asyncio.wait([keeping])
        unwritten = self.unwritten_children(task, ARGUMENTS_STEP)
        if child in unwritten:
            kept = unwritten[child]
        else:
            rows = dict(await self._read_children(task, ARGUMENTS_STEP))
            kept = decode_value(rows[child]) if child in rows else None
        if kept is None:  # they could not be made, or were never kept
            raise Corrupt(f"the inputs of child {child} of task {task} are not there")
        return await self.bytes_of(kept)

    async def renewed(self, value: Value) -> bool:
        """Whether it is still kept. Then it is needed from now on."""
        if isinstance(value, Ref) and value.place == "payload":
            return value.digest in await self._store.renew_payloads([value.digest])
        if isinstance(value, Ref) and value.place == "artifact":
            return value.digest in await self._artifacts.renew([value.digest])
        return True

    async def as_artifact(self, data: bytes) -> str:
        return await self._artifacts.put(data)

    def _keep(self, digest: str, data: bytes) -> None:
        if digest in self._kept:
            self._kept.move_to_end(digest)
            return
        self._kept[digest] = data
        self._kept_bytes += len(data)
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)


def walk(value: Any, steps: Sequence[str]) -> Any:
    """Follow a reference into a plain value. Raises `LookupError` with the step that is not there."""
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value
