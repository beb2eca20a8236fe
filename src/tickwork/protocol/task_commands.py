"""What the code of a task asks of the engine, on its way with the task's result.

Runs and events are requested with the models of the API. The commands of a task travel as one value, which is an
artifact if it is large, like a result.
"""

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.stable_hash import stable_digest
from tickwork.protocol.http_models import AssetUpdateRequest, Signal, Submission

COMMANDS_BYTES_MAX = 16 * 1024 * 1024  # of one task, together: a server reads them whole


class StartRun(msgspec.Struct, frozen=True, array_like=True, tag=1):
    submission: Submission
    place: str = ""  # of a step of a durable function: its position, a dot, and the number of the command in it


class GiveEvent(msgspec.Struct, frozen=True, array_like=True, tag=2):
    signal: Signal


class MarkUpdated(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A task has made new data of an asset."""

    asset: str
    update: AssetUpdateRequest


Command = StartRun | GiveEvent | MarkUpdated


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[Command, ...])


def encode_commands(commands: list[Command]) -> bytes:
    """Raises `Refused` where they are too large to travel."""
    data = _encode(commands)
    if len(data) > COMMANDS_BYTES_MAX:
        message = (
            f"what this task starts and signals has {len(data)} bytes, and at most {COMMANDS_BYTES_MAX} (16 MiB) can "
            "be sent with its result: put the data where tasks can read it, and send its name"
        )
        raise Refused("commands_too_large", message, path="commands")
    return data


def decode_commands(data: bytes) -> tuple[Command, ...]:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("bad_commands", f"the commands of the task cannot be read: {error}", path="commands") from None


def started_run_id(run_id: str, node: str, child: int, attempt: int, place: str) -> str:
    """The id of the run that a task's command begins: the same wherever it is computed. A UUID of version 8."""
    digest = stable_digest("start", run_id, node, str(child), str(attempt), place)
    return "-".join((digest[:8], digest[8:12], f"8{digest[13:16]}", f"8{digest[17:20]}", digest[20:32]))
