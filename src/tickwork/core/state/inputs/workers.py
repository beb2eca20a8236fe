"""Inputs from workers: what they offer, and how attempts go."""

from tickwork.core.base.values import Value
from tickwork.core.state.history import Await, StepEntry
from tickwork.core.state.inputs.base import InputStruct
from tickwork.core.state.inputs.runs import Ingest, Submit, UpdateAsset
from tickwork.core.state.messages import PublishedValue, UpdateReply


class Offer(InputStruct, frozen=True, tag=20):
    """A worker announces what it serves and how many attempts it can hold in total."""

    worker: str
    credit: int
    queues: tuple[str, ...] = ("default",)
    labels: dict[str, str] = {}
    slots: int = 0  # 0: as many as its credit
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0
    start: str = ""  # identifies this start of the worker: after a restart it holds none of its previous attempts
    process: str = ""  # identifies its operating system process, so that its host can prove that it has ended


class WorkerLost(InputStruct, frozen=True, tag=21):
    """A worker was silent for too long or its connection closed. `clean`: it announced its end."""

    worker: str
    clean: bool = False


class Started(InputStruct, frozen=True, tag=22):
    task: int
    attempt: int
    sender: str = ""  # as in `Succeeded`


class TaskCommand(InputStruct, frozen=True):
    """A command by the code of a task. It is applied if and only if the result that carries it is accepted."""

    request: Submit | Ingest | UpdateAsset
    partitions: tuple[int, ...] = ()  # a fact: where it goes; (): this partition


class Succeeded(InputStruct, frozen=True, tag=23):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # the reporting worker, where the attempt is held by another one as far as the broker knows
    commands: tuple[TaskCommand, ...] = ()


class Failed(InputStruct, frozen=True, tag=24):
    task: int
    attempt: int
    error: str  # its type
    message: str = ""
    permanent: bool = False
    sender: str = ""  # as in `Succeeded`
    position: int = -1  # of the recorded failure that ended a durable function
    bases: tuple[str, ...] = ()  # base types of the error, the nearest first: rules for them apply too
    skip: bool = False  # the task reports that there is nothing to do, and is skipped


class Checkpointed(InputStruct, frozen=True, tag=25):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`


class StepsRecorded(InputStruct, frozen=True, tag=110):
    """Steps that ended while their attempt goes on."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...]
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()
    commands: tuple[TaskCommand, ...] = ()  # of the code of these steps
    refused: tuple[str, str] | None = None  # code and message, if the commands can never be carried out


class Suspended(InputStruct, frozen=True, tag=111):
    """The attempt ends because its durable function waits for the outcome of an await."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...] = ()
    awaits: tuple[Await, ...] = ()  # new ones
    withdrawn: tuple[int, ...] = ()  # positions of abandoned awaits
    together: tuple[
        tuple[int, ...], ...
    ] = ()  # positions that must all have outcomes; any other await resumes the function alone
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Continued(InputStruct, frozen=True, tag=112):
    """A durable function restarts under the same run id, with these inputs and an empty history."""

    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`
    withdrawn: tuple[int, ...] = ()  # awaits that were abandoned before


class HandedBack(InputStruct, frozen=True, tag=26):
    task: int
    attempt: int
    worker: str = ""  # ignored if another worker holds the attempt by now: a broker may not know that yet
    begun: bool = False  # its code has run, or may have


class Taken(InputStruct, frozen=True, tag=29):
    """A worker received this attempt from a broker and claims it."""

    task: int
    attempt: int
    worker: str
