"""Events of bulk operations. A refused request of a job is an `InputRefused`, which counts for the job as well."""

from tickwork.core.state.events.base import EventStruct


class BulkStarted(EventStruct, frozen=True, tag=340):
    input: int


class BulkActed(EventStruct, frozen=True, tag=341):
    """The action of a job was done on its next run."""

    input: int


class BulkCancelled(EventStruct, frozen=True, tag=342):
    input: int
