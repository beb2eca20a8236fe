"""Brokers: another way for dispatches to travel, where a company wants its broker to carry them.

A broker only carries messages; the store is the truth. If it loses, repeats, reorders or delays some, that costs time
and nothing else: before a worker runs what it received, the server must have confirmed that it is this worker's
(`Taken`), and only then is the message accepted at the broker. The promises are tests:
tests/conformance/broker_suite.py runs on every adapter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from itertools import combinations
from typing import Any, Protocol

import msgspec

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.core.base.stable_hash import stable_digest
from tickwork.protocol.worker_messages import AttemptJob, NodeSpec

REDELIVER_MS = 30_000  # what was received and not accepted for so long comes again, to anybody
DELIVERIES_MAX = 50  # what came so often and was never accepted is a dead letter
MESSAGE_BYTES_MAX = 900_000  # below the default limits of brokers
LABELS_MAX = 5  # of a worker that receives from a lane: it looks into every set of them
BANDS = 3
NAME_LENGTH_MAX = 100

Labels = tuple[tuple[str, str], ...]


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One dispatch under way. Fields are added at the end only."""

    tenant: str
    queue: str
    labels: Labels  # sorted; a worker that takes it has all of them
    priority: int
    task: int
    attempt: int
    key: str  # the same for every copy of this dispatch
    retries_left: int
    traceparent: str
    sent_ms: int
    body: bytes  # `DispatchBody`
    store: str = ""  # identity of the store that dispatched it


class DispatchBody(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs to run it."""

    work: AttemptJob
    spec: NodeSpec


class Delivery(msgspec.Struct, frozen=True):
    envelope: Envelope
    receipt: Any  # the adapter's own
    times: int = 1  # that it was delivered, as far as the broker counts


class DeadLetter(msgspec.Struct, frozen=True):
    reason: str
    data: bytes


class QueueDepth(msgspec.Struct, frozen=True):
    waiting: int  # published and not accepted
    dead: int
    identity: str = ""  # where it changes, the broker may have lost what it held


class UnreadableMessage(TickworkError):
    """Not a message of ours, or not any more. The text is the reason that its dead letter has."""

    code = "unreadable"


class Broker(Protocol):
    """Raises `Unavailable` where the broker cannot be reached; it is connected to again by itself."""

    async def open(self) -> None:
        """The broker need not be there yet. Raises `Refused` where its client is not installed."""

    async def close(self) -> None: ...

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Returns when the broker has confirmed all of them. Where it raises, some may be published."""

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        """What waits in these queues and asks for no other labels, important things first as far as the broker can;
        empty where nothing came in time. What cannot be read becomes a dead letter here and is not returned."""

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        """The broker may forget them: the server has decided whose they are. Accepting again changes nothing."""

    async def reject(self, delivery: Delivery, reason: str) -> None:
        """It goes to the dead letters, with the reason."""

    async def depth(self) -> QueueDepth: ...

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """The newest first."""


# ---- sealed, so that write access to the broker is not enough to make workers run something


class EnvelopeCodec:
    """Envelopes to bytes and back. A message that was made with another key, or none, is not read."""

    def __init__(self, key: str = "") -> None:
        self._key = blake2b(b"tickwork lane:" + key.encode(), digest_size=32).digest()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Envelope).decode

    def wrap(self, envelope: Envelope) -> bytes:
        body = self._encode(envelope)
        return _FORMAT + self._mark(body) + body

    def unwrap(self, data: bytes) -> Envelope:
        """Raises `UnreadableMessage`."""
        if data[:2] != _FORMAT[:2]:
            raise UnreadableMessage("it is not a tickwork message")
        if data[: len(_FORMAT)] != _FORMAT:
            raise UnreadableMessage(f"its format is {data[2 : len(_FORMAT)]!a}, and this program reads {_FORMAT[2:]!a}")
        mark, body = data[len(_FORMAT) : _BODY], data[_BODY:]
        if not compare_digest(mark, self._mark(body)):
            raise UnreadableMessage("its signature is invalid: it was changed, or signed with another token")
        try:
            return self._decode(body)
        except msgspec.MsgspecError as error:
            raise UnreadableMessage(f"it cannot be decoded: {error}") from None

    def _mark(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=_MARK_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """What every broker is given besides its address."""

    codec: EnvelopeCodec = field(default_factory=EnvelopeCodec)
    redeliver_ms: int = REDELIVER_MS
    deliveries_max: int = DELIVERIES_MAX

    @property
    def redeliver_s(self) -> float:
        return self.redeliver_ms / 1000


DEFAULTS = BrokerOptions()


_FORMAT, _MARK_BYTES = b"TW1", 32
_BODY = len(_FORMAT) + _MARK_BYTES


# ---- names at the broker


@lru_cache(maxsize=4_096)
def token(text: str) -> str:
    """A name as letters, digits and `-`, with everything else as `_` and its code: safe in a subject, a queue and a
    topic, and different for different names."""
    safe = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "-") else _code(letter) for letter in text
    )
    return safe if safe and len(safe) <= NAME_LENGTH_MAX else f"_h{stable_digest(text)}"


def _code(character: str) -> str:
    return "".join(f"_{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4_096)
def labels_token(labels: Labels) -> str:
    return token(",".join(f"{name}={value}" for name, value in labels)) if labels else "-"


def band(priority: int) -> int:
    """0 to 2, the most important first: where a broker knows no priorities, each band has a queue of its own."""
    return 0 if priority >= 7 else 1 if priority >= 4 else 2


def label_sets(labels: Mapping[str, str]) -> list[Labels]:
    """Every set of labels that a task may ask for and that this worker has, the largest first: others have fewer."""
    if len(labels) > LABELS_MAX:
        message = f"a worker that receives from a lane has at most {LABELS_MAX} labels, this one has {len(labels)}"
        raise Refused("too_many_labels", message, path="labels")
    pairs = sorted(labels.items())
    return [some for count in range(len(pairs), -1, -1) for some in combinations(pairs, count)]


def places(queues: Sequence[str], labels: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """Queue, labels and band, as tokens, in the order in which a worker looks into them."""
    sets = [labels_token(some) for some in label_sets(labels)]
    return [(token(queue), some, level) for level in range(BANDS) for queue in queues for some in sets]


def headers_of(envelope: Envelope) -> dict[str, str]:
    """What people and tools at the broker may read. Nothing here is trusted: the seal holds it all."""
    return {
        "tickwork-tenant": envelope.tenant,
        "tickwork-priority": str(envelope.priority),
        "tickwork-key": envelope.key,
        "tickwork-retries-left": str(envelope.retries_left),
        "traceparent": envelope.traceparent,
    }


def too_often(times: int) -> str:
    return f"it was delivered {times} times, and no worker accepted it"


def missing_extra(extra: str, what: str) -> Refused:
    message = f"the broker {what} needs the extra {extra!r}: pip install 'tickwork[{extra}]'"
    return Refused("missing_extra", message, path="lane")
