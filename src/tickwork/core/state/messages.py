"""What reaches a run from outside while it goes on, and what it says to the outside.

An event or an update for a run waits in its inbox (`Run.signals`) until a node or a durable function takes it. An
update has a key and gets one reply: a value or a refusal. The latest replies are kept, so that a repeated key gets the
same one. Published values are for readers outside; the run itself never reads them.
"""

import msgspec

from tickwork.core.base.values import Value, pack

NO_PAYLOAD = pack({})  # the result of an event without payload; None is the result of a time-out


class ReceivedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event or an update that came for a run."""

    name: str
    key: str
    payload: Value
    tick: int
    used: bool = False  # an event node has taken it
    update: str = ""  # key of an update; "": an event, without a reply
    body: str = ""  # digest of the update


class UpdateReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a durable function says to an update, in its report."""

    update: str
    value: Value = None
    refused: bool = False
    reason: str = ""  # of a refusal


class OpenUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update that the function has received and not replied to."""

    update: str
    name: str
    body: str


class UpdateOutcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    update: str
    name: str
    body: str
    value: Value
    refused: bool
    reason: str
    tick: int


class PublishedValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    digest: str  # the worker compares it with what its code publishes
    value: Value


class RunMessages(msgspec.Struct, array_like=True, gc=False):
    """Updates that were received, and values that were published, by one run."""

    open: list[OpenUpdate] = []  # in the order in which they were received
    outcomes: list[UpdateOutcome] = []  # the latest, oldest first
    published: dict[str, PublishedValue] = {}

    def outcome_of(self, update: str) -> UpdateOutcome | None:
        return next((outcome for outcome in self.outcomes if outcome.update == update), None)

    def open_update(self, update: str) -> OpenUpdate | None:
        return next((request for request in self.open if request.update == update), None)
