"""Inputs about mailboxes, and commands between partitions."""

from tickwork.core.state.inputs.base import InputStruct
from tickwork.core.state.inputs.runs import Ingest, Submit, UpdateAsset


class PutMailbox(InputStruct, frozen=True, tag=251):
    """Keep events of this name until a run takes them. Messages that are already kept stay."""

    by: str
    tenant: str
    name: str
    keep_ms: int
    capacity: int  # messages of one key
    fields: bytes = b"{}"  # JSON: what a payload has, as the inputs of a workflow


class RemoveMailbox(InputStruct, frozen=True, tag=252):
    """Refused while the mailbox keeps messages. Afterwards, events of this name that no run waits for are lost."""

    by: str
    tenant: str
    name: str


class Delivered(InputStruct, frozen=True, tag=150):
    """A command of a task in another partition. The commands of one sender are numbered without gaps."""

    sender: int  # partition
    number: int
    request: Submit | Ingest | UpdateAsset
    origin: str  # names the task and its run, for people


class Acknowledged(InputStruct, frozen=True, tag=151):
    """A fact: another partition has decided about a command of this one. With a `code`, it was refused."""

    partition: int
    number: int
    code: str = ""
    message: str = ""
