"""Inputs of a partition: commands and facts.

Commands are requests, with imperative names and their sender (`by`). Facts are observations: a result, a lost worker, a
row that the shell looked up. All of them are journalled in one order, and the machine knows nothing else about the
world.

Structs are encoded as arrays with an integer tag, so a field may only be added at the end and
a tag is never used again. Values over `values.INLINE_BYTES_MAX` come as references.
"""

from tickwork.core.state.inputs.base import BulkPlace as BulkPlace
from tickwork.core.state.inputs.base import KnownRun as KnownRun
from tickwork.core.state.inputs.bulk import *
from tickwork.core.state.inputs.messages import *
from tickwork.core.state.inputs.partition import *
from tickwork.core.state.inputs.runs import *
from tickwork.core.state.inputs.schedules import *
from tickwork.core.state.inputs.workers import *

Input = (
    PutDefinition
    | PutTenant
    | PutQueue
    | PutLabelLimit
    | PutPolicy
    | RemovePolicy
    | RemoveQueue
    | RemoveWorkflow
    | PutSettings
    | PutSchedule
    | RemoveSchedule
    | ApplySchedules
    | PutHolidays
    | PutMailbox
    | RemoveMailbox
    | Advise
    | Trigger
    | SteerSchedule
    | Backfill
    | SteerBackfill
    | RunsKnown
    | NewZones
    | ChooseCatchUp
    | RegisterVersion
    | SetLatestVersion
    | Pause
    | Resume
    | Submit
    | Cancel
    | Resolve
    | CancelTask
    | RetryTask
    | Redrive
    | DropDeadLetters
    | Rerun
    | Decide
    | Ingest
    | UpdateAsset
    | SendUpdate
    | Offer
    | WorkerLost
    | Started
    | Succeeded
    | Failed
    | Checkpointed
    | StepsRecorded
    | Suspended
    | Continued
    | HandedBack
    | Delivered
    | Acknowledged
    | CacheAnswered
    | Extracted
    | ClockGap
    | HoldTimers
    | Taken
    | StartBulk
    | SkipInBulk
    | CancelBulk
)


def request_in(item: Input, command: int) -> Input:
    """Return the request of an event: its input, or a task's command within it."""
    if command >= 0:
        assert isinstance(item, Succeeded | StepsRecorded), "only results and steps have commands"
        return item.commands[command].request
    return item.request if isinstance(item, Delivered) else item
