"""Events: the decisions of a partition, as its journal records them.

Only events change the state. An event never repeats its input: `input` is the position of that input in the tick, and
-1 means that no input caused the event. Runs and tasks are identified by number, a node by its run and index.

Events are encoded as arrays with an integer tag: a field is added at the end only, and a tag is never used again.
"""

from tickwork.core.state.events.bulk import *
from tickwork.core.state.events.functions import *
from tickwork.core.state.events.messages import *
from tickwork.core.state.events.partition import *
from tickwork.core.state.events.runs import *
from tickwork.core.state.events.schedules import *
from tickwork.core.state.events.tasks import *
from tickwork.core.state.events.workers import *

Event = (
    DefinitionPut
    | TenantPut
    | QueuePut
    | LabelLimitPut
    | PolicyPut
    | PolicyRemoved
    | QueueRemoved
    | WorkflowRemoved
    | SettingsPut
    | SchedulePut
    | ScheduleRemoved
    | SchedulePaused
    | ScheduleResumed
    | ScheduleDecided
    | HintsChanged
    | ScheduleStateChanged
    | CatchUpDecided
    | OccurrencesSettled
    | OccurrenceBuffered
    | OccurrencesCancelled
    | ScheduleMoved
    | HolidaysPut
    | MailboxPut
    | MailboxRemoved
    | MessageKept
    | MessageExpired
    | MessageRefused
    | UpdateHeard
    | AssetUpdated
    | RunEndHeard
    | UpdatesSettled
    | EventIdKept
    | ZonesChanged
    | CatchUpChosen
    | VersionPut
    | BackfillStarted
    | BackfillStateChanged
    | BackfillLookupStarted
    | BackfillLookupFinished
    | BackfillEnded
    | ScopePaused
    | ScopeResumed
    | InputRefused
    | Duplicate
    | StaleReport
    | ClockGapRecorded
    | TimersHeld
    | RunSubmitted
    | RunDebounced
    | RunScheduled
    | RunSpawned
    | RunRestored
    | RunRerun
    | RunGated
    | RunRated
    | RateKeysSwept
    | RunMoved
    | Visited
    | Deferred
    | EventStored
    | UpdateReceived
    | SlaReached
    | RunOverdue
    | RunEnding
    | StepCancelled
    | FollowUpStarted
    | RunDetached
    | GateTaken
    | RunDue
    | QueueChosen
    | TaskReady
    | TaskDispatched
    | VersionAbsent
    | ChildDispatched
    | AttemptStarted
    | TaskSucceeded
    | TaskRetrying
    | TaskDue
    | TaskRequeued
    | TaskTaken
    | TaskFailed
    | TaskSkipped
    | TaskChecking
    | CacheMissed
    | ExtractRequested
    | ExtractKept
    | TaskWaiting
    | WaitElapsed
    | TaskAnswered
    | IterationStarted
    | IterationDelayed
    | RepeatTimedOut
    | TaskStopped
    | FanOutEnded
    | StepEnded
    | FirstEnded
    | StepReset
    | StepAccepted
    | AttemptCheckpointed
    | CommandQueued
    | CommandAcknowledged
    | CommandReceived
    | StepsAppended
    | FunctionSuspended
    | StepRetrying
    | AwaitMet
    | FunctionWoken
    | FunctionContinued
    | FunctionCancelled
    | PolicyDecided
    | WorkerOffered
    | WorkerGone
    | QueueHeld
    | RateDue
    | LoadShed
    | BulkStarted
    | BulkActed
    | BulkCancelled
)
