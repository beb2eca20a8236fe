"""Inputs about mailboxes, events from outside, updates, and commands between partitions."""

from tickwork.core.base.values import Value
from tickwork.core.state.inputs.base import InputStruct
from tickwork.core.state.inputs.runs import Submit


class PutMailbox(InputStruct, frozen=True, tag=251):
    """From now on, events of this name are kept until a run takes them. Events that are kept already stay."""

    by: str
    tenant: str
    name: str
    keep_ms: int
    capacity: int  # messages of one key
    fields: bytes = b"{}"  # JSON: what a payload has, as the inputs of a workflow


class RemoveMailbox(InputStruct, frozen=True, tag=252):
    """Refused while it keeps messages. Events of its name are lost again where nobody waits for them."""

    by: str
    tenant: str
    name: str


class Ingest(InputStruct, frozen=True, tag=16):
    """An event from outside: for one run, or for all that wait for this name and key."""

    by: str
    tenant: str
    event: str
    key: str = ""
    run_id: str = ""
    payload: Value = None


class SendUpdate(InputStruct, frozen=True, tag=250):
    """A message to the durable function of a run, which replies to it once."""

    by: str
    tenant: str
    run_id: str
    name: str
    key: str  # repeated under it, it is the same update
    body: str  # digest of name and payload
    payload: Value = None


class Delivered(InputStruct, frozen=True, tag=150):
    """A command of a task in another partition. The commands of one sender are numbered without gaps."""

    sender: int  # partition
    number: int
    request: Submit | Ingest
    origin: str  # which task of which run


class Acknowledged(InputStruct, frozen=True, tag=151):
    """A fact: that partition has decided about a command of ours. A code says that it was refused."""

    partition: int
    number: int
    code: str = ""
    message: str = ""
