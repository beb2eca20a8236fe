"""Inputs from workers: what they offer, and how attempts go."""

from tickwork.core.base.values import Value
from tickwork.core.state.history import Await, StepEntry
from tickwork.core.state.inputs.base import InputStruct
from tickwork.core.state.inputs.messages import Ingest
from tickwork.core.state.inputs.runs import Submit
from tickwork.core.state.messages import PublishedValue, UpdateReply


class Offer(InputStruct, frozen=True, tag=20):
    """A worker says what it serves and how many attempts it is ready to hold in all."""

    worker: str
    credit: int
    queues: tuple[str, ...] = ("default",)
    labels: dict[str, str] = {}
    slots: int = 0  # 0: as many as its credit
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0
    start: str = ""  # which start of this worker it is: another one under the same name holds nothing of the first
    process: str = ""  # names its operating system process, so that the same host can prove that it has ended


class WorkerLost(InputStruct, frozen=True, tag=21):
    """Silent too long, or its connection closed without goodbye; `clean` where it said goodbye."""

    worker: str
    clean: bool = False


class Started(InputStruct, frozen=True, tag=22):
    task: int
    attempt: int
    sender: str = ""  # as in `Succeeded`


class TaskCommand(InputStruct, frozen=True):
    """What the code of a task asked for: it happens if the result that brings it is accepted, and only then."""

    request: Submit | Ingest
    partitions: tuple[int, ...] = ()  # a fact: those that it is for; (): this one


class Succeeded(InputStruct, frozen=True, tag=23):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # the worker that reports, where it is another one than holds the attempt, as far as is known
    commands: tuple[TaskCommand, ...] = ()


class Failed(InputStruct, frozen=True, tag=24):
    task: int
    attempt: int
    error: str  # its type
    message: str = ""
    permanent: bool = False
    sender: str = ""  # as in `Succeeded`
    position: int = -1  # of the recorded failure that ended a durable function
    bases: tuple[str, ...] = ()  # more general types of the error, the nearest first: rules for these count too
    skip: bool = False  # the task itself says that there is nothing to do: it is not taken


class Checkpointed(InputStruct, frozen=True, tag=25):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`


class StepsRecorded(InputStruct, frozen=True, tag=110):
    """Steps that ended in the middle of an attempt."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...]
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Suspended(InputStruct, frozen=True, tag=111):
    """A durable function cannot go on before something that it awaits has an outcome. The attempt ends."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...] = ()
    awaits: tuple[Await, ...] = ()  # new ones
    withdrawn: tuple[int, ...] = ()  # positions of awaits that it gave up
    together: tuple[tuple[int, ...], ...] = ()  # positions that it awaits all of; any other lets it go on alone
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Continued(InputStruct, frozen=True, tag=112):
    """A durable function starts again under the same run id, with these inputs and an empty history."""

    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`
    withdrawn: tuple[int, ...] = ()  # awaits that it gave up before


class HandedBack(InputStruct, frozen=True, tag=26):
    task: int
    attempt: int
    worker: str = ""  # only if it is still this worker's: a broker may not know yet that another took it
    begun: bool = False  # its code ran for a while, or may have


class Taken(InputStruct, frozen=True, tag=29):
    """A worker got this attempt from a lane, and asks to have it."""

    task: int
    attempt: int
    worker: str
