"""Inputs about a whole partition: definitions, limits, pauses, and its clock."""

from tickwork.core.state.inputs.base import BulkPlace, InputStruct


class PutDefinition(InputStruct, frozen=True, tag=1):
    by: str
    tenant: str
    document: bytes  # JSON
    latest: bool = True  # False: known by its hash, for a version of an application to choose it


class PutTenant(InputStruct, frozen=True, tag=2):
    by: str
    tenant: str
    weight: int = 1
    limit: int | None = None  # attempts running at once
    rate_starts: int | None = None
    rate_ms: int = 1_000
    burst: int | None = None
    max_live_runs: int | None = None
    window: str = "bucket"  # or "sliding": exact, and without a burst


class PutQueue(InputStruct, frozen=True, tag=3):
    by: str
    queue: str
    limit: int | None = None
    rate_starts: int | None = None
    rate_ms: int = 1_000
    burst: int | None = None
    window: str = "bucket"  # as in PutTenant


class PutLabelLimit(InputStruct, frozen=True, tag=4):
    by: str
    label: str
    value: str
    limit: int | None = None


class PutPolicy(InputStruct, frozen=True, tag=5):
    """A condition that is evaluated before every step that names it. If `allow` is false, `action` follows."""

    by: str
    policy: str
    allow: str  # CEL
    reason: str
    action: str  # pause, fail, skip_with_log
    pause_ms: int = 0  # a pause that ends by itself; 0: it waits for a person


class RemovePolicy(InputStruct, frozen=True, tag=320):
    """Delete a policy. Refused while the latest version of a workflow names it: a missing policy denies."""

    by: str
    policy: str


class RemoveQueue(InputStruct, frozen=True, tag=321):
    """Delete a queue. Refused while the latest version of a workflow names it, or a task of it waits or runs."""

    by: str
    queue: str


class RemoveWorkflow(InputStruct, frozen=True, tag=322):
    """Start nothing more under this name. Unfinished runs go on, and ended ones keep their version."""

    by: str
    tenant: str
    workflow: str


class PutSettings(InputStruct, frozen=True, tag=323):
    """Change settings of the partition (`machine_settings.CHANGEABLE`); all others stay."""

    by: str
    values: dict[str, int]


class Pause(InputStruct, frozen=True, tag=8):
    """Pause a run, queue, workflow, tenant, schedule, group (of schedules) or partition, as `scope` says.

    Queues and partitions have no tenant; the name of a partition is its number. A paused partition dispatches nothing.
    """

    by: str
    scope: str
    tenant: str
    name: str
    reason: str = ""
    until_ms: int | None = None  # of a run, a schedule or a group
    left_as: int | None = None  # a fact: the state in which this run left memory
    bulk: BulkPlace | None = None


class Resume(InputStruct, frozen=True, tag=9):
    by: str
    scope: str
    tenant: str
    name: str
    left_as: int | None = None  # as in `Pause`
    bulk: BulkPlace | None = None


OUTAGE = "outage"  # the partition had no owner


class ClockGap(InputStruct, frozen=True, tag=28):
    """The clock jumped. Timers that were due in between are late for this reason."""

    from_ms: int
    to_ms: int
    cause: str  # outage, clock_step
    by: str = ""  # who confirmed a step; "": it was adopted without a person


class HoldTimers(InputStruct, frozen=True, tag=100):
    """Hold timers because logical time is ahead of real time, or release them. Other inputs are decided as usual."""

    held: bool
    reason: str = ""
