"""Inputs about bulk operations: one action on each run of a frozen selection."""

from tickwork.core.state.inputs.base import BulkPlace, InputStruct


class StartBulk(InputStruct, frozen=True, tag=340):
    """Begin a bulk operation. The shell sends its requests in order, each with its place in the selection."""

    by: str
    tenant: str
    bulk: str  # id, chosen by the sender: the same id is the same job
    action: str
    selection: str  # digest of the frozen selection
    count: int  # runs in it
    criteria: str  # the search that selected them, as JSON
    per_second: int
    reason: str = ""


class SkipInBulk(InputStruct, frozen=True, tag=341):
    """A run that the shell could not even ask for: it counts as refused with this code."""

    tenant: str
    run_id: str
    code: str
    message: str
    bulk: BulkPlace


class CancelBulk(InputStruct, frozen=True, tag=342):
    """End a bulk operation before its next run. What is done stays done."""

    by: str
    tenant: str
    bulk: str
    reason: str = ""
