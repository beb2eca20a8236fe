"""Models of runs: submissions, runs with their tasks and attempts, explanations, logs, and decisions about a run."""

from typing import Any

from tickwork.core.definition.model import Retry
from tickwork.protocol.http_models.base import Model, Reason, RequestModel


class Attempt(Model, frozen=True, kw_only=True):
    attempt: int
    worker: str
    state: str  # running, succeeded, failed, lost, returned, timed_out, cancelled
    dispatched_at: str
    started_at: str | None = None  # as the worker's clock has it
    ended_at: str | None = None
    error: str = ""
    message: str = ""
    exit_code: int | None = None
    progress: tuple[int, int] | None = None  # done, total
    progress_message: str = ""
    log: str = ""  # path of its lines


class Task(Model, frozen=True, kw_only=True):
    """A node of a run, or one child of a map."""

    id: str  # run number and node, unique; logs are found by it
    node: str
    kind: str
    state: str  # pending, ready, running, waiting, succeeded, failed, skipped …
    child: int | None = None
    attempts: tuple[Attempt, ...] = ()
    children: dict[str, int] = {}  # of a map: counts by state
    reason: str = ""  # why it cannot start: no connected worker is large enough
    due_at: str | None = None  # a wait, a retry
    result: Any = None  # where it is small enough to show; see `result_size`
    result_size: int = 0
    message: str = ""  # of an approval: what it asks, with the values of the run
    fields: dict[str, Any] = {}  # of a form, as its document declares them: type, enum, default …
    dedupe_key: str = ""  # of work: what `ctx.idempotency_key` is in each of its attempts
    priority: int | None = None  # of work
    lease_ends_at: str | None = None  # of a running task: its worker counts as lost if it is silent until then
    attempts_earlier: int = 0  # before those in `attempts`; `?attempts_before=` shows them


class Run(Model, frozen=True, kw_only=True):
    id: str
    number: str = ""  # counts runs and tasks of its partition
    workflow: str
    definition: str
    state: str  # pending, active, waiting, paused, completed, failed, cancelled
    source: str
    by: str
    submitted_at: str
    started_at: str | None = None
    ended_at: str | None = None
    scheduled_at: str | None = None
    schedule: str = ""
    decided: str = ""  # of an endpoint: why it ran then, as its Governor said
    key: str = ""
    priority: int | None = None
    error: str = ""
    reason: str = ""  # of a pause
    tags: tuple[str, ...] = ()  # those of its workflow first
    tasks_total: int = 0
    tasks_ended: int = 0
    version: str = ""  # `application@version`: workers of it have its tasks, or if there is none, others
    pinned: bool = False  # only workers of that version may have them


class RecordedStep(Model, frozen=True, kw_only=True):
    """A recorded outcome of a durable function: a step, a sleep, an event, a call, an approval or a message."""

    node: str
    position: int  # counts the calls of the function on its context
    kind: str  # step, retry, sleep, event, call, approval, receive, withdrawn
    name: str
    state: str  # succeeded, failed, timed_out, retrying, withdrawn
    at: str | None = None
    took_ms: int = 0
    tries: int = 1
    attempt: int = 0  # that reported it
    error: str = ""
    message: str = ""
    value: Any = None  # where it is small enough to show; see `value_size`
    value_size: int = 0
    cost: int = 0  # as the step reported it


class FunctionAwait(Model, frozen=True, kw_only=True):
    """What a suspended function waits for."""

    node: str
    position: int
    kind: str  # sleep, event, call, approval, receive, retry
    name: str
    key: str = ""  # of an event
    since: str
    due_at: str | None = None  # end of a sleep, or time limit
    run: str = ""  # id of the run that a call started
    message: str = ""  # of an approval
    approvers: tuple[str, ...] = ()
    fields: dict[str, Any] = {}  # of a form
    line: str = ""  # file and line of the code that waits


class FunctionHistory(Model, frozen=True, kw_only=True):
    """Everything that a durable function has recorded since it began, or last continued as new."""

    run: str
    workflow: str
    base: int = 0  # its first position
    steps: tuple[RecordedStep, ...] = ()
    awaits: tuple[FunctionAwait, ...] = ()
    versions: dict[str, int] = {}
    cost: int = 0  # of its steps since the run began


class RunDetail(Run, frozen=True, kw_only=True):
    sla_deadline: str | None = None  # when its workflow's service level is broken, had it not ended by then
    inputs: Any = None
    output: Any = None
    output_size: int = 0
    tasks: tuple[Task, ...] = ()
    steps: tuple[RecordedStep, ...] = ()  # of a durable function, the latest 200
    steps_total: int = 0
    awaits: tuple[FunctionAwait, ...] = ()
    published: dict[str, Any] = {}  # values of its function that are small enough to show; null where one is not


class RunSearch(RequestModel, frozen=True, kw_only=True):
    """Which runs: those that fit every field that is given. Times are RFC 3339, from the first to before the second."""

    workflow: str = ""
    state: tuple[str, ...] = ()  # one of these
    schedule: str = ""
    tag: tuple[str, ...] = ()  # all of these
    where: dict[str, str] = {}  # inputs that the workflow declares searchable, by name
    version: str = ""  # of an application, as `version` or `application@version`
    error: str = ""  # words that are all in the error
    submitted_from: str = ""
    submitted_to: str = ""
    started_from: str = ""
    started_to: str = ""
    ended_from: str = ""
    ended_to: str = ""


class Page(Model, frozen=True, kw_only=True):
    """`next` is the cursor of the following page; absent on the last."""

    runs: tuple[Run, ...]
    next: str = ""


class Submitted(Model, frozen=True, kw_only=True, tag_field="outcome", tag="accepted"):
    id: str
    duplicate: bool = False  # accepted before under the same key or id
    warnings: tuple[str, ...] = ()  # tasks that no connected worker is large enough for


class Rejected(Model, frozen=True, kw_only=True, tag_field="outcome", tag="rejected"):
    code: str
    detail: str
    path: str = ""  # the field at fault


class BatchAnswer(Model, frozen=True, kw_only=True):
    """In the order of the request: an id where accepted, a problem where not."""

    runs: tuple[Submitted | Rejected, ...]


class Step(Model, frozen=True, kw_only=True):
    """One line of an explanation."""

    at: str
    seq: int
    text: str


class Why(Model, frozen=True, kw_only=True):
    run: str
    state: str
    steps: tuple[Step, ...] = ()  # what was decided, from the journal
    waiting_for: tuple[str, ...] = ()  # why it does not go on now


class LogLine(Model, frozen=True, kw_only=True):
    at: str
    task: str
    node: str
    attempt: int
    stream: str  # stdout, stderr, log
    text: str


class StreamPiece(Model, frozen=True, kw_only=True):
    """What a task streamed. Pieces of one attempt are numbered from 0; a number that is missing was lost. Without a
    number: the attempt has ended without a result, so whatever came of it does not count."""

    at: str
    task: str
    node: str
    attempt: int
    number: int | None = None
    text: str = ""
    dead: bool = False  # of an attempt that has ended without a result


class Logs(Model, frozen=True, kw_only=True):
    lines: tuple[LogLine, ...]
    truncated: bool = False  # there are more lines than one answer holds; these are the last of them


class Heard(Model, frozen=True, kw_only=True):
    """What became of an event."""

    detail: str = ""
    waiting: int = 0  # nodes that waited for it. For one run: 1, it has it or keeps it until it waits
    kept: bool = False  # its mailbox keeps it until a run takes it
    schedules: int = 0  # schedules that count it as an update
    duplicate: bool = False  # an event with its id came before, so nothing has happened


class Submission(RequestModel, frozen=True, kw_only=True):
    workflow: str
    inputs: dict[str, Any] = {}
    id: str = ""  # "": the server makes one
    key: str = ""  # the same key gives the same run for 24 h
    start_at: str = ""  # RFC 3339
    delay_ms: int | None = None
    debounce: str = ""  # until the run starts, a submission under this key replaces its inputs and restarts its delay
    priority: int | None = None
    definition: str = ""  # hash of another version than the latest
    version: str = ""  # of its application, as `version` or `application@version`: only workers of it run it
    at_most_ms: int | None = None  # a debounced run starts no later than this after its first submission
    timeout_ms: int | None = None  # of the whole run, instead of that of its workflow
    queue: str = ""  # for tasks that name none
    retry: Retry | None = None  # for tasks that have none of their own
    tags: tuple[str, ...] = ()  # beside those of the workflow


class Batch(RequestModel, frozen=True, kw_only=True):
    runs: tuple[Submission, ...]


class ResolveRequest(Reason, frozen=True, kw_only=True):
    """node -> retry, accept or skip; empty: retry everything that failed."""

    decisions: dict[str, str] = {}
    values: dict[str, Any] = {}


class RerunRequest(RequestModel, frozen=True, kw_only=True):
    """With neither a node nor `from_start`: what did not end well, and everything of a run that completed."""

    from_node: str = ""
    definition: str = ""
    inputs: dict[str, Any] | None = None
    from_start: bool = False


class Decision(RequestModel, frozen=True, kw_only=True):
    approve: bool
    comment: str = ""
    values: dict[str, Any] = {}  # of the fields of a form


class InboxEntry(Model, frozen=True, kw_only=True):
    """What waits for a person: an approval, a form, a paused run, or a failed run that nobody has resolved."""

    kind: str  # approval, form, paused or failed
    run: str
    workflow: str
    by: str  # who submitted the run
    submitted_at: str
    node: str = ""  # of an approval or a form
    message: str = ""  # the question; why the run is paused; its error
    approvers: tuple[str, ...] = ()  # none: anybody
    not_by: str = ""  # with four eyes: not by this one
    fields: dict[str, Any] = {}  # of a form, as its document declares them: type, enum, default …
    due_at: str | None = None  # a time limit, or the end of a pause


class Inbox(Model, frozen=True, kw_only=True):
    """Approvals and forms, then paused runs, then failed ones; of each kind the newest run first."""

    entries: tuple[InboxEntry, ...]
    more: bool = False  # there may be more than these


class Signal(RequestModel, frozen=True, kw_only=True):
    """An event from outside, for one run or for all that wait for its name and key."""

    event: str
    key: str = ""
    run: str = ""
    payload: Any = None
    id: str = ""  # another event with this id within a day is the same event; "": the `Idempotency-Key`


class UpdateRequest(RequestModel, frozen=True, kw_only=True):
    """A message to the durable function of a run, which replies to it once."""

    payload: Any = None
    key: str = ""  # the same key is the same update, and gets the same reply; "": the `Idempotency-Key`
    wait_ms: int = 10_000  # how long the call may take; 0 to 20000


class UpdateResult(Model, frozen=True, kw_only=True):
    """What became of an update so far."""

    run: str
    key: str
    state: str  # replied, refused or waiting
    value: Any = None  # the reply
    reason: str = ""  # of a refusal by the function
