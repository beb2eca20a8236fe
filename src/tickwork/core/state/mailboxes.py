"""Mailboxes: events that are kept for a key until a run takes them.

A mailbox has a queue for each key, bounded in number and time. One run takes a message, in the order in which they
came. Every message has a fate, and the latest fates of each mailbox can be listed.
"""

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.definition.model import InputField

KEPT, TAKEN, EXPIRED, REFUSED = "kept", "taken", "expired", "refused"
FATES_KEPT_MAX = 1_000  # of one mailbox; older ones are in the journal


class MailboxMessage(msgspec.Struct, gc=False, eq=False):
    """A message that is kept, or that had its fate not long ago."""

    number: int
    tenant: str
    mailbox: str
    key: str
    payload: Value
    by: str
    came: int  # tick
    due: int = 0  # tick at which it expires; 0: it has its fate
    fate: str = KEPT
    run: str = ""  # id of the run that took it
    ended: int = 0  # tick of its fate
    order: int = 0  # of its fate, among all


class Mailbox(msgspec.Struct, eq=False):
    """What a tenant declared under this name, and what is in it. The queues follow from the messages."""

    name: str
    keep_ms: int
    capacity: int  # messages of one key
    fields: Mapping[str, InputField]  # none: any payload fits
    taken: int = 0
    expired: int = 0
    refused: int = 0
    queues: dict[str, deque[MailboxMessage]] = msgspec.field(default_factory=dict)  # kept ones, by key
    ended: deque[MailboxMessage] = msgspec.field(default_factory=deque)  # by order

    @property
    def kept(self) -> int:
        return sum(map(len, self.queues.values()))

    def first(self, key: str) -> MailboxMessage | None:
        """The message that is taken next."""
        queue = self.queues.get(key)
        return queue[0] if queue else None

    def messages(self) -> Iterator[MailboxMessage]:
        for queue in self.queues.values():
            yield from queue
        yield from self.ended
