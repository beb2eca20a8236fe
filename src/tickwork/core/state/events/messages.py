"""Events of mailboxes, and of commands that tasks send to other partitions."""

from tickwork.core.state.events.base import EventStruct


class MailboxPut(EventStruct, frozen=True, tag=251):
    input: int


class MailboxRemoved(EventStruct, frozen=True, tag=255):
    """The mailbox is removed with the outcomes that it remembers."""

    input: int


class MessageKept(EventStruct, frozen=True, tag=252):
    """A mailbox keeps an event under this number. If a run waits for it, the run takes it next."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class MessageExpired(EventStruct, frozen=True, tag=253):
    message: int


class MessageRefused(EventStruct, frozen=True, tag=254):
    """The message is refused because the queue of its key is full."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class CommandQueued(EventStruct, frozen=True, tag=240):
    """A command of a task goes to another partition. It is sent repeatedly until that partition acknowledges it."""

    input: int
    command: int
    partition: int
    number: int  # counted for each partition, without gaps


class CommandAcknowledged(EventStruct, frozen=True, tag=241):
    input: int


class CommandReceived(EventStruct, frozen=True, tag=242):
    """A command of a task in another partition is decided, and never again. With a `code`, it is refused."""

    input: int
    code: str = ""
    message: str = ""


class UpdateHeard(EventStruct, frozen=True, tag=360):
    """An event counts for these schedules, each with the source that it is an update of."""

    input: int
    heard: tuple[tuple[int, int], ...]  # schedule, source
    command: int = -1  # as in `Duplicate`


class EventIdKept(EventStruct, frozen=True, tag=363):
    """The id of an event is known from now on."""

    input: int
    number: int


class AssetUpdated(EventStruct, frozen=True, tag=364):
    """An asset has new data, which counts for these schedules."""

    input: int
    asset: int  # its number
    heard: tuple[tuple[int, int], ...] = ()  # schedule, source
    command: int = -1  # as in `Duplicate`
