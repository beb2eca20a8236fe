"""What the owners of two partitions say to each other: commands of tasks, and what became of them."""

import msgspec

from tickwork.core.state.state import QueuedCommand


class CommandBatch(msgspec.Struct, frozen=True, array_like=True):
    """Commands of the tasks of one partition for another, in their order."""

    sender: int
    commands: tuple[QueuedCommand, ...]


class CommandOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of a command. A code: it was refused."""

    code: str = ""
    message: str = ""


encode = msgspec.msgpack.Encoder().encode
batch_decoder = msgspec.msgpack.Decoder(CommandBatch)
outcomes_decoder = msgspec.msgpack.Decoder(list[CommandOutcome])
