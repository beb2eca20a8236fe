"""Messages between a pool and the processes that run user code.

Jobs travel in packets on a socket that all children of a pool read: a free child takes the next. A packet has one
attempt, or several that are known to be short. A child's messages come back on its own stream as frames: four bytes of
length, then a MessagePack array of messages. Before a child runs an attempt, it marks it in shared memory
(`child_shared_memory`), so that if it dies, the pool knows which attempt died with it.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import (
    ArtifactArgument,
    AttemptJob,
    Checkpointed,
    Continued,
    DeclaredMailbox,
    DeclaredSchedule,
    Failed,
    NodeSpec,
    Progressed,
    StepsRecorded,
    Succeeded,
    Suspended,
)

IN_FILE: Final = "file"  # `place` of a `Ref` to a value that a child has put into a file: its digest is the path
PARKED_VARIABLE: Final = "TICKWORK_PARKED_FUNCTIONS"  # how many suspended functions a child keeps in memory
READ_VARIABLE: Final = "TICKWORK_READ_SOCKET"  # path of the socket at which the agent answers what tasks read
PACKET_BYTES_MAX: Final = 100_000  # what is larger travels as a file
FRAME_HEAD: Final = 4
PLAIN, LARGE = b"\0", b"\1"  # what follows the heads of a packet: an array of `AttemptJob`, or one `LargeAttemptJob`


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---- pool to child, on the shared socket


class LargeAttemptJob(_Message, frozen=True):
    """An attempt whose values are files."""

    work: AttemptJob
    args_file: str = ""  # where the arguments are too large for a packet
    checkpoint_file: str = ""
    fetched: tuple[tuple[str, str], ...] = ()  # digest, file: every artifact that `work.fetch` names


# ---- pool to child, on its own stream


class CheckpointDurable(_Message, frozen=True, tag=1):
    """The checkpoint is durable."""

    task: int
    attempt: int


class Cancel(_Message, frozen=True, tag=2):
    task: int
    attempt: int


class Retire(_Message, frozen=True, tag=3):
    """Take nothing more: one attempt does not end although it was called off, and the others may end in peace."""


ControlMessage = CheckpointDurable | Cancel | Retire


# ---- child to pool


class AppLoaded(_Message, frozen=True, tag=21):
    """The application is loaded. `handlers`: name and how it is run (process, thread, async)."""

    pid: int
    handlers: tuple[tuple[str, str], ...] = ()
    documents: tuple[bytes, ...] = ()
    schedules: tuple[DeclaredSchedule, ...] = ()
    application: str = ""
    version: str = ""
    mailboxes: tuple[DeclaredMailbox, ...] = ()


class LoadFailed(_Message, frozen=True, tag=22):
    """The application cannot be loaded; `message` names the user's line."""

    error: str
    message: str


class SpilledResult(_Message, frozen=True, tag=23):
    """A result or checkpoint that is too large for a message is in a file; so may be the commands of its code."""

    task: int
    attempt: int
    path: str
    size: int
    items: int | None = None
    checkpoint: bool = False
    started_ms: int = 0
    ended_ms: int = 0
    value: bytes | None = None  # the result, where `path` is empty
    commands: bytes | None = None
    commands_path: str = ""  # where they are in a file


class OutputLine(_Message, frozen=True):
    task: int
    attempt: int
    stream: str
    text: str
    at_ms: int
    number: int = -1  # of a piece, counted in its attempt


class OutputLines(_Message, frozen=True, tag=24):
    lines: tuple[OutputLine, ...]


class WorkDirCreated(_Message, frozen=True, tag=25):
    """The attempt has made a folder for itself; it is removed when the attempt has ended."""

    task: int
    attempt: int


class PacketDone(_Message, frozen=True, tag=26):
    """It is done with a packet: the ends of the first `ran` of it were said, the others have not begun and will not.
    Not said where a packet has one attempt and that has ended."""

    packet: int
    ran: int
    took_us: int = 0


class Retired(_Message, frozen=True, tag=27):
    """It was ordered to take nothing more, and does not. Said by a process whose coroutines share one loop."""


ChildMessage = (
    Succeeded
    | Failed
    | Checkpointed
    | Progressed
    | StepsRecorded
    | Suspended
    | Continued
    | AppLoaded
    | LoadFailed
    | SpilledResult
    | OutputLines
    | WorkDirCreated
    | PacketDone
    | Retired
)

encoder = msgspec.msgpack.Encoder()
works_decoder = msgspec.msgpack.Decoder(list[AttemptJob])
job_decoder = msgspec.msgpack.Decoder(LargeAttemptJob)
spec_decoder = msgspec.msgpack.Decoder(NodeSpec)
order_decoder: msgspec.msgpack.Decoder[ControlMessage] = msgspec.msgpack.Decoder(ControlMessage)
sayings_decoder: msgspec.msgpack.Decoder[list[ChildMessage]] = msgspec.msgpack.Decoder(list[ChildMessage])


sizes = struct.Struct("<I")
_start = struct.Struct("<qI")  # of a packet: its number, the length of its heads


def frame(message: Any) -> bytes:
    data = encoder.encode(message)
    return sizes.pack(len(data)) + data


def head(spec: NodeSpec) -> bytes:
    """What stands in a packet for all attempts of a node: always the same bytes, so that a child knows by them what
    it has read before."""
    return frame(spec)


def packet(number: int, heads: bytes, works: list[AttemptJob]) -> bytes:
    """Of attempts without files: nearly all are. `heads` of all their specs, one after the other."""
    return _start.pack(number, len(heads)) + heads + PLAIN + encoder.encode(works)


def large_packet(number: int, heads: bytes, job: LargeAttemptJob) -> bytes:
    return _start.pack(number, len(heads)) + heads + LARGE + encoder.encode(job)


def number_of(data: bytes) -> int:
    number: int = _start.unpack_from(data)[0]
    return number


def opened(data: bytes) -> tuple[int, bytes, list[AttemptJob], LargeAttemptJob | None]:
    """Number, the specs as they were written, the attempts. A job with files is alone."""
    number, size = _start.unpack_from(data)
    at = _start.size + size
    heads = data[_start.size : at]
    if data[at] == 0:
        return number, heads, works_decoder.decode(data[at + 1 :]), None
    job = job_decoder.decode(data[at + 1 :])
    return number, heads, [job.work], job


def filled(data: bytes, fetch: tuple[ArtifactArgument, ...], read: Callable[[str], bytes]) -> bytes:
    """Arguments as MessagePack, with what lies in artifacts put in its place. `read` gives an artifact's bytes."""
    named = msgspec.msgpack.decode(data) if data else {}
    opened: dict[str, Any] = {}
    for artifact in fetch:
        if artifact.digest not in opened:
            opened[artifact.digest] = msgspec.msgpack.decode(read(artifact.digest))
        named[artifact.name] = _walked(opened[artifact.digest], artifact)
    return encoder.encode(named)


def _walked(value: Any, fetch: ArtifactArgument) -> Any:
    for step in fetch.walk:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            message = f"argument {fetch.name}: the value has no {step!r} at {'.'.join(fetch.walk)}"
            raise Refused("bad_reference", message) from None
    return value


class FrameDecoder:
    """Bytes as they come, cut into whole frames."""

    __slots__ = ("_rest", "fed")

    def __init__(self) -> None:
        self._rest = b""
        self.fed = 0  # bytes so far

    def feed(self, data: bytes) -> Iterator[bytes]:
        self.fed += len(data)
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end, size_at = 0, len(data), sizes.unpack_from
        while end - at >= FRAME_HEAD:
            after = at + FRAME_HEAD + size_at(data, at)[0]
            if after > end:
                break
            yield data[at + FRAME_HEAD : after]
            at = after
        if at < end:
            self._rest = data[at:]
