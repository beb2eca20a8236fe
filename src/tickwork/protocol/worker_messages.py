"""What a worker and a server say to each other.

One call carries a sequence number, reports, credit and, where the two may differ, the attempts held; its reply
brings work. A repeated call gets the same reply. A call with reports is answered when the commit that
took them is durable, so a worker forgets a report only then. A newer call of the same session ends an
older one that still waits. Encoded as MessagePack arrays: fields are added at the end only.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from tickwork.core.base.errors import Conflict, Refused, Unavailable
from tickwork.core.base.values import Ref
from tickwork.protocol.http_models import MailboxRequest, ScheduleRequest

PROTOCOL = 1  # raised when something changes that the other side must know of; new fields at the end need not be
OLDEST = 1  # the earliest that is still spoken: that of the version before, so that they can be replaced one by one
VALUE_BYTES_MAX = 64 * 1024  # larger values are artifacts, named by their digest


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---- worker to server


class Succeeded(_Message, frozen=True, tag=1):
    task: int
    attempt: int
    value: bytes | Ref | None = None  # MessagePack, or an artifact that is stored already
    started_ms: int = 0  # the worker's wall clock, for people
    ended_ms: int = 0
    commands: bytes | Ref | None = None  # the commands of its code, as in `task_commands`


class Failed(_Message, frozen=True, tag=2):
    task: int
    attempt: int
    error: str  # its type
    message: str = ""
    permanent: bool = False  # retrying cannot help
    exit_code: int | None = None
    started_ms: int = 0
    ended_ms: int = 0
    position: int = -1  # of the recorded failure that left a durable function uncaught
    bases: tuple[str, ...] = ()  # more general types of the error, the nearest first
    skip: bool = False  # the task says that there is nothing to do: it is not taken


class Started(_Message, frozen=True, tag=3):
    """Sent for an attempt that goes on for a while, not for each."""

    task: int
    attempt: int
    started_ms: int = 0


class Checkpointed(_Message, frozen=True, tag=4):
    """A checkpoint. The reply says that it is durable."""

    task: int
    attempt: int
    value: bytes | Ref


class HandedBack(_Message, frozen=True, tag=5):
    """Handed back unfinished, not to be counted against its retries."""

    task: int
    attempt: int
    begun: bool = False  # its code ran for a while, or may have


class Progressed(_Message, frozen=True, tag=6):
    """For people only; kept in memory while the attempt runs."""

    task: int
    attempt: int
    done: int
    total: int
    message: str = ""


class Taken(_Message, frozen=True, tag=7):
    """This attempt came by a lane. Unless the reply says that it is fenced, it is this worker's from then on."""

    task: int
    attempt: int


class StepEntry(_Message, frozen=True):
    """A step that ended. `position` counts the calls of a function on its context."""

    position: int
    name: str
    digest: str  # of its arguments
    value: bytes | Ref | None = None
    error: str = ""  # type of the failure; "": it succeeded
    message: str = ""
    at_ms: int = 0  # the worker's wall clock at its end
    took_ms: int = 0
    tries: int = 1
    # Where it may be tried again: retries, delay_ms, delay_max_ms, factor in percent.
    retry: tuple[int, int, int, int] | None = None
    cost: int = 0  # that it reports


class Await(_Message, frozen=True):
    """What a durable function waits for: a sleep, an event, a call, an approval or a message."""

    position: int
    kind: str
    name: str
    digest: str
    delay_ms: int = -1  # of a sleep, or the time-out of an event, approval or message; -1: none
    until_ms: int = 0  # of a sleep with a fixed end
    key: str = ""  # of an event
    value: bytes | Ref | None = None  # MessagePack map: inputs of a call; message, approvers, four_eyes of an approval
    line: str = ""  # file and line of the user's code
    names: tuple[str, ...] = ()  # of the messages that it receives


class UpdateReply(_Message, frozen=True):
    """What a durable function says to an update."""

    update: str  # its key
    value: bytes | Ref | None = None
    refused: bool = False
    reason: str = ""  # of a refusal


class PublishedValue(_Message, frozen=True):
    name: str
    digest: str
    value: bytes | Ref | None = None


class StepsRecorded(_Message, frozen=True, tag=8):
    """Steps that ended in the middle of an attempt. The reply says that they are durable."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...]
    versions: tuple[tuple[str, int], ...] = ()
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()
    commands: bytes | Ref | None = None  # the commands of these steps, as in `task_commands`


class Suspended(_Message, frozen=True, tag=9):
    """A durable function can do nothing until one of its awaits is over: the attempt ends, and nothing is held."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...] = ()  # failed ones that are to be tried again
    awaits: tuple[Await, ...] = ()  # those that the server does not know yet
    withdrawn: tuple[int, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()  # each wakes the function when all are over or one has failed
    versions: tuple[tuple[str, int], ...] = ()
    started_ms: int = 0
    ended_ms: int = 0
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Continued(_Message, frozen=True, tag=10):
    """A durable function begins again with other inputs and without its history. Ends the attempt."""

    task: int
    attempt: int
    value: bytes | Ref
    started_ms: int = 0
    ended_ms: int = 0
    withdrawn: tuple[int, ...] = ()


Report = (
    Succeeded
    | Failed
    | Started
    | Checkpointed
    | HandedBack
    | Progressed
    | Taken
    | StepsRecorded
    | Suspended
    | Continued
)


LAST_REPORTS = frozenset((Succeeded, Failed, HandedBack, Suspended, Continued))  # each ends its attempt


class WorkerProfile(msgspec.Struct, frozen=True, array_like=True):
    """What a worker serves and has."""

    queues: tuple[str, ...] = ("default",)
    labels: dict[str, str] = {}
    slots: int = 0  # 0: as many as its credit
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0
    host: str = ""
    pid: int = 0
    version: str = ""
    protocol: int = PROTOCOL  # that it speaks
    process: str = ""  # names its operating system process, for a server on the same host


def protocol_mismatch(protocol: int, *, oldest: int = OLDEST, latest: int = PROTOCOL) -> str:
    """Return why a peer with this protocol cannot be served; "" if it can."""
    if oldest <= protocol <= latest:
        return ""
    older = protocol < oldest
    return (
        f"it speaks protocol {protocol}, here {oldest} to {latest} are spoken: "
        f"upgrade {'it' if older else 'the server first'}"
    )


class Call(msgspec.Struct, frozen=True, array_like=True):
    worker: str
    session: str  # new whenever the agent starts
    seq: int  # counts calls of the session from 1
    credit: int = 0  # attempts it is ready to hold in all
    wait_ms: int = 0  # how long the server may keep this call where there is no work
    reports: tuple[Report, ...] = ()
    held: tuple[tuple[int, int], ...] | None = None  # (task, attempt), all of them; None: as the server believes
    profile: WorkerProfile | None = None  # with the first call, and when it changes
    goodbye: bool = False  # it ends; nothing is held any more
    via: str = ""  # the node that stands for it, where it is not the worker itself who calls
    lost: bool = False  # of such a node: the worker is gone without a word
    share: bool = False  # of a worker that speaks to every owner by itself: its credit is what this one may have of it
    store: str = ""  # identity of the store whose attempts it holds and reports; "": it has met none yet


class Heartbeats(msgspec.Struct, frozen=True, array_like=True):
    """Of a node to an owner: these workers are here and live. One for all of them; nothing is said of the others."""

    via: str
    workers: tuple[str, ...]


# ---- server to worker


class NodeSpec(msgspec.Struct, frozen=True, array_like=True):
    """What all attempts of one node have in common; sent once per session, before the first of them."""

    id: int
    kind: str  # task, http, shell, send
    workflow: str
    node: str
    definition: str
    handler: str = ""
    handler_version: str = ""
    attempts_max: int = 1
    running_ms: int = 0  # 0: no limit
    silent_ms: int = 0
    document: bytes = b""  # the node as JSON, for http, shell and send
    budget: int = 0  # of a durable function: what its steps may cost until its run is paused


class ArtifactArgument(_Message, frozen=True):
    """An argument that is (part of) an artifact: `walk` leads from the artifact's value to the argument."""

    name: str
    digest: str
    walk: tuple[str, ...] = ()


class RecordedFunction(_Message, frozen=True):
    """What another version of the code needs to replay a function. The history has no artifacts."""

    tenant: str
    run_id: str
    task: int
    inputs: bytes
    history: bytes


class AttemptJob(_Message, frozen=True):
    task: int
    attempt: int
    spec: int
    tenant: str
    run_id: str
    args: bytes  # MessagePack: name -> value
    child: int = -1  # which child of a map
    checkpoint: bytes | Ref | None = None
    fetch: tuple[ArtifactArgument, ...] = ()
    scheduled_ms: int = 0
    submitted_ms: int = 0


class HistoryEntry(_Message, frozen=True):
    """A recorded outcome. `kind`: step, retry, sleep, event, call, approval, receive, withdrawn, cancel."""

    position: int  # -1: of the function as a whole
    kind: str
    name: str
    digest: str
    value: bytes | Ref | None = None  # of an approval: approved, by, comment. A `Ref` is an artifact
    error: str = ""  # "timeout" of an event or approval that did not come in time
    message: str = ""  # of what was received: its name, a space, and the key of an update
    at_ms: int = 0
    tries: int = 1


class FunctionHistory(_Message, frozen=True):
    """What was recorded of a function, in order: `AttemptJob.checkpoint`. None there: nothing yet."""

    started_ms: int
    base: int = 0  # its first position
    entries: tuple[HistoryEntry, ...] = ()
    awaits: tuple[tuple[int, str, str, str], ...] = ()  # without outcome: position, kind, name, digest
    versions: dict[str, int] = {}
    checkpoint: bytes | None = None  # of a plain task that recorded steps: its own checkpoint beside them
    open: tuple[str, ...] = ()  # keys of updates that it received and has not replied to
    published: tuple[tuple[str, str], ...] = ()  # name and digest
    cost: int = 0  # of its steps so far
    past: int = 0  # the attempt that ended in the last suspension


class Reply(msgspec.Struct, frozen=True, array_like=True):
    seq: int
    work: tuple[AttemptJob, ...] = ()
    specs: tuple[NodeSpec, ...] = ()
    stop: tuple[tuple[int, int], ...] = ()  # attempts whose result no longer counts: end them
    fenced: tuple[tuple[int, int], ...] = ()  # reports of this call that came too late
    resync: bool = False  # the server does not know this session: send profile and everything held
    refused: str = ""  # why this worker is not served: a name in use, an old protocol; it must end
    later: tuple[tuple[int, int], ...] = ()  # reports whose owner cannot be reached now: to be sent again
    waiting_tasks: int = (
        0  # to the gateway that divides a worker's credit: how many more tasks could be dispatched to it
    )
    store: str = ""  # identity of this server's store: in the reply to an introduction, and to a call for another store


def of_other_store(call: Call, store: str) -> Reply | None:
    """The reply to a call for another store than this one: nothing of it is taken. Task numbers of two stores are
    alike, so a result of one would be taken for a result of the other."""
    if call.store and store and call.store != store:
        return Reply(call.seq, resync=True, store=store)
    return None


class DeclaredSchedule(msgspec.Struct, frozen=True):
    """A schedule as an application declares it."""

    name: str
    wanted: ScheduleRequest
    place: str = ""  # the user's line


class DeclaredMailbox(msgspec.Struct, frozen=True):
    """A mailbox as an application declares it."""

    name: str
    wanted: MailboxRequest


class Catalog(msgspec.Struct, frozen=True):
    """The definitions (JSON documents) of an application and their schedules."""

    documents: tuple[bytes, ...] = ()
    schedules: tuple[DeclaredSchedule, ...] = ()
    handlers: tuple[str, ...] = ()
    application: str = ""  # its name: what it no longer declares ends. "": no application
    version: str = ""  # of its code
    mailboxes: tuple[DeclaredMailbox, ...] = ()


@contextmanager
def shown(schedules: Iterable[DeclaredSchedule]) -> Iterator[None]:
    """What is refused inside about a schedule shows the line where it is written; what is over in a moment is
    `Unavailable`."""
    try:
        yield
    except (Conflict, Refused) as refused:
        if refused.code == "catching_up":
            raise Unavailable(str(refused), retry_after_ms=1_000) from None
        if isinstance(refused, Conflict):
            raise
        for schedule in schedules:
            if schedule.place and f"{refused.path}.".startswith(f"schedules.{schedule.name}."):
                raise Refused(refused.code, f"{refused.message}\n    {schedule.place}", path=refused.path) from None
        raise


class LogPiece(msgspec.Struct, frozen=True, array_like=True):
    """One chunk of an attempt's log, and who sends it."""

    task: int
    attempt: int
    chunk: int  # counted from 0 by the worker
    first: int  # number of its first line
    lines: bytes  # JSON lines
    run: str = ""  # its id: a child of a map that has ended is not known by its number
    worker: str = ""
    session: str = ""  # of the worker that holds the attempt, or held it until it ended
    store: str = ""  # identity of the store that the attempt belongs to


class ReadRequest(msgspec.Struct, frozen=True):
    """What the code of a task wants to read of the API, with GET."""

    target: str  # path and query
    headers: tuple[tuple[str, str], ...] = ()


class Reading(msgspec.Struct, frozen=True):
    """What the API says to it."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Link(Protocol):
    """The way to the server, as a worker sees it. Raises `Unavailable` where it cannot be reached."""

    async def call(self, call: Call) -> Reply: ...

    async def fetch(self, digest: str) -> bytes: ...

    async def store(self, data: bytes) -> str: ...

    async def log(self, piece: LogPiece) -> None:
        """Repeating a chunk changes nothing. Raises `Refused` where its sender does not hold the attempt."""

    async def read(self, request: ReadRequest) -> Reading:
        """A request of the API that changes nothing, for the code of tasks."""

    async def publish(self, catalog: "Catalog") -> str:
        """What this worker's application declares. Returns the latest version of it; "": there is none."""


encoder = msgspec.msgpack.Encoder()
call_decoder = msgspec.msgpack.Decoder(Call)
reply_decoder = msgspec.msgpack.Decoder(Reply)
HISTORY_HEADS = frozenset(bytes([0x90 + count]) for count in range(16))  # first byte of a history, of no checkpoint
recorded_decoder = msgspec.msgpack.Decoder(RecordedFunction)
history_decoder = msgspec.msgpack.Decoder(FunctionHistory)
beats_decoder = msgspec.msgpack.Decoder(Heartbeats)
