"""Events of mailboxes, and of commands that tasks send to other partitions."""

from tickwork.core.state.events.base import EventStruct


class MailboxPut(EventStruct, frozen=True, tag=251):
    input: int


class MailboxRemoved(EventStruct, frozen=True, tag=255):
    """With the fates that it knew."""

    input: int


class MessageKept(EventStruct, frozen=True, tag=252):
    """An event that came for a mailbox has this number. If somebody waits for it, it is taken next."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class MessageExpired(EventStruct, frozen=True, tag=253):
    message: int


class MessageRefused(EventStruct, frozen=True, tag=254):
    """The queue of its key was full."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class CommandQueued(EventStruct, frozen=True, tag=240):
    """A command of a task is for another partition. It is sent there until that partition acknowledges it."""

    input: int
    command: int
    partition: int
    number: int  # counted for each partition, without gaps


class CommandAcknowledged(EventStruct, frozen=True, tag=241):
    input: int


class CommandReceived(EventStruct, frozen=True, tag=242):
    """A command of a task in another partition was decided upon; it is never decided again. A code: it was refused."""

    input: int
    code: str = ""
    message: str = ""
