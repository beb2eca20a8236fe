"""The one document for all work, as values.

A definition is immutable and content-addressed. The SDK, YAML files and the HTTP API all
produce the same JSON document; `document.py` turns that document into these values, or
into a list of problems. Nothing here decides anything.

All times are integers in milliseconds, all other quantities integers too: the core has no floats.

A field `NAME_from` is a reference to the value that stands for `NAME` (or `NAME_ms`), resolved when the node begins.
"""

from enum import StrEnum
from typing import Any

import msgspec

FORMAT = 1  # of the document; raised when a field changes its meaning
NO_OUTPUT = "none"  # of a workflow that returns nothing
VALUE_HANDLER = "tickwork.value"  # of every application: gives back what it is given
MAP_LISTS_MAX = 16  # that one map goes over
ITERATIONS_MAX = 1_000_000  # turns of a repeat: one every 30 seconds for a year
PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = 0, 5, 9
HTTP_TIMEOUT_MS, ENDPOINT_TIMEOUT_MS_MAX = 30_000, 30 * 60_000  # of a request; for any http node, for an endpoint
HTTP_BODY_BYTES, HTTP_BODY_BYTES_MAX = 100_000, 1_000_000  # kept of an answer


class Trigger(StrEnum):
    """Which outcomes of its parents let a node start. An untaken parent is neutral."""

    ALL_SUCCEEDED = "all_succeeded"
    ALL_DONE = "all_done"
    ANY_FAILED = "any_failed"
    NONE_FAILED = "none_failed"
    ANY_SUCCEEDED = "any_succeeded"  # as soon as one has; the others go on
    ONE_DONE = "one_done"  # as soon as one has ended, however
    ALL_FAILED = "all_failed"


class Combine(StrEnum):
    """How a map makes its items of what it goes over."""

    EACH = "each"  # the items of one list
    ZIP = "zip"  # the first item of each list, then the second of each: lists of one length
    PRODUCT = "product"  # every combination of items; the last list changes fastest
    ENTRIES = "entries"  # [key, value] of one object; the result is an object with the same keys


class Overlap(StrEnum):
    """What becomes of a scheduled occurrence while an earlier run is still going."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Argument(_Part, frozen=True, kw_only=True):
    """Where an argument's value comes from: exactly one of the two.

    `source` is `inputs`, `inputs.NAME`, `nodes.ID`, and inside a body also `item`, `index`,
    `iteration` or `previous`; further dots walk into the value.
    """

    source: str | None = msgspec.field(name="from", default=None)
    value: Any = msgspec.UNSET


class RetryRule(_Part, frozen=True, kw_only=True):
    """What is different for one type of error and those derived from it; the first rule that names it counts."""

    error: str  # as the worker reports it, for example "TimeoutError"; "*" for any
    attempts: int | None = None
    delay_ms: int | None = None


class Retry(_Part, frozen=True, kw_only=True):
    attempts: int = 1  # in all, the first one included
    delay_ms: int = 1_000
    factor: int = 2
    delay_ms_max: int = 300_000
    jitter_percent: int = 10  # of the delay, added; from a hash, never drawn
    rules: tuple[RetryRule, ...] = ()


class Timeout(_Part, frozen=True, kw_only=True):
    queued_ms: int | None = None  # ready, but no worker took it
    running_ms: int | None = None  # one attempt
    silent_ms: int | None = None  # an attempt that reports neither progress nor checkpoint


class Resources(_Part, frozen=True, kw_only=True):
    """What one attempt takes from its worker."""

    slots: int = 1
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0


class Cache(_Part, frozen=True, kw_only=True):
    ttl_ms: int | None = None  # None: until the handler's version changes


class Sla(_Part, frozen=True, kw_only=True):
    """Counted from the run's scheduled time, or from its submission."""

    breach_ms: int
    warn_ms: int | None = None


class Second(StrEnum):
    """What becomes of a run whose concurrency key is taken."""

    WAIT = "wait"
    SKIP = "skip"  # it is cancelled
    REPLACE = "replace"  # the run that has the key is cancelled, and those that wait for it
    BUFFER_ONE = "buffer_one"  # one waits, those after it are cancelled


class Concurrency(_Part, frozen=True, kw_only=True):
    """At most `limit` runs of this workflow at a time for each value of `key`."""

    limit: int
    key: str = ""  # CEL over inputs; empty: one key for the whole workflow
    second: Second = Second.WAIT


class Over(StrEnum):
    """What becomes of a run that comes when its rate is used up."""

    WAIT = "wait"
    DROP = "drop"  # it is cancelled
    LAST = "last"  # one waits, and a later one takes its place


class RunRate(_Part, frozen=True, kw_only=True):
    """For each value of `key`, `limit` runs of this workflow begin in `per_ms`; unused ones add up to `limit`."""

    limit: int
    per_ms: int
    key: str = ""  # CEL over inputs; empty: one key for the whole workflow
    over: Over = Over.WAIT

    @property
    def interval_us(self) -> int:
        return max(1, self.per_ms * 1_000 // self.limit)


class Exit(_Part, frozen=True, kw_only=True):
    """Ends the run early when `when` holds. Looked at before every step."""

    when: str
    outcome: str = "completed"  # or "cancelled"
    reason: str = ""


class FollowUp(_Part, frozen=True, kw_only=True):
    """A run that begins when a run of this workflow has ended. `input` gets the report of how it ended; "": none."""

    workflow: str
    input: str = ""


class InputField(_Part, frozen=True, kw_only=True):
    type: str = "any"  # string, integer, number, boolean, array, object, datetime, any
    required: bool = True
    default: Any = msgspec.UNSET
    secret: bool = False  # takes only a reference `secret:name`
    enum: tuple[Any, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    max_length: int | None = None
    description: str = ""


class Teardown(_Part, frozen=True, kw_only=True):
    """Makes a node the teardown of a set-up: it runs where that succeeded, whatever became of the work between them."""

    of: str  # the node that sets up; one of `needs`
    fail: bool = False  # the run fails where the teardown does; otherwise its failure is a warning


class Node(_Part, frozen=True, kw_only=True, tag_field="kind"):
    """What every kind has. `id` is empty exactly for the body of a map or repeat."""

    id: str = ""
    needs: tuple[str, ...] = ()
    trigger: Trigger = Trigger.ALL_SUCCEEDED
    when: str | None = None  # CEL; false means not taken
    policy: tuple[str, ...] = ()  # names of policies evaluated before this step, after those of the workflow
    sla: Sla | None = None
    description: str = ""
    teardown: Teardown | None = None


class WorkNode(Node, frozen=True, kw_only=True):
    """A node that a worker runs."""

    args: dict[str, Argument] = {}
    retry: Retry | None = None
    timeout: Timeout | None = None
    queue: str | None = None
    labels: dict[str, str] = {}  # the worker must have all of them
    resources: Resources | None = None
    priority: int | None = None
    cache: Cache | None = None
    dependency: str | None = None  # what it calls upon; shares one retry budget
    on_worker_loss: str = "retry"  # or "fail": an attempt that may have begun is never followed by another by itself
    queue_from: str | None = None  # a reference; instead of `queue`
    labels_from: dict[str, str] = {}  # references, beside `labels`
    produces: tuple[str, ...] = ()  # assets of which its code makes new data; for people, it says so with its result


class TaskNode(WorkNode, frozen=True, kw_only=True, tag="task"):
    handler: str  # the name under which workers know the function
    handler_version: str = ""
    durable: bool = False  # the only node of its workflow: a function that records its steps and may suspend
    budget: int = 0  # what its steps may cost until the run is paused; 0: no limit


class HttpNode(WorkNode, frozen=True, kw_only=True, tag="http"):
    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    success: str | None = None  # CEL over status and body; None: any 2xx
    body_limit: int = HTTP_BODY_BYTES  # bytes of the answer that are kept
    sign: str | None = None  # name of a secret of the worker; None: not signed


class ShellNode(WorkNode, frozen=True, kw_only=True, tag="shell"):
    argv: tuple[str, ...]
    env: dict[str, str] = {}


class SendNode(WorkNode, frozen=True, kw_only=True, tag="send"):
    channel: str
    action: dict[str, Any]


class WaitNode(Node, frozen=True, kw_only=True, tag="wait"):
    """Exactly one of the three."""

    duration_ms: int | None = None
    until: str | None = None  # an instant, or a reference to one: `inputs.NAME`, `nodes.ID`
    duration_from: str | None = None  # a reference


class BranchCase(_Part, frozen=True, kw_only=True):
    when: str
    to: tuple[str, ...]


class BranchNode(Node, frozen=True, kw_only=True, tag="branch"):
    """The first case that holds is taken; the nodes of the others are recorded as not taken."""

    cases: tuple[BranchCase, ...]
    default: tuple[str, ...]


class EventNode(Node, frozen=True, kw_only=True, tag="event"):
    event: str
    key: str | None = None  # a reference; only events with this key count
    timeout_ms: int | None = None
    on_timeout: str = "fail"  # or "continue"
    timeout_from: str | None = None  # a reference; instead of `timeout_ms`


class ApprovalNode(Node, frozen=True, kw_only=True, tag="approval"):
    approvers: tuple[str, ...] = ()  # empty: anybody who may approve in this tenant
    four_eyes: bool = False  # not by the person who submitted the run
    timeout_ms: int | None = None
    on_timeout: str = "fail"  # or "continue"
    message: str = ""  # for people; `${inputs.NAME}` and `${nodes.ID}` stand for values
    timeout_from: str | None = None  # a reference; instead of `timeout_ms`
    fields: dict[str, InputField] = {}  # makes it a form: what the person fills in, and its result
    default: dict[str, Any] = {}  # its values where the time runs out and it continues


class WorkflowNode(Node, frozen=True, kw_only=True, tag="workflow"):
    workflow: str
    args: dict[str, Argument] = {}
    retry: Retry | None = None
    on_cancel: str = "cancel"  # or "abandon": a child run goes on if the run around it ends first


class FirstNode(Node, frozen=True, kw_only=True, tag="first"):
    """Ends with the first of these that ends, and with its result. The others are cancelled."""

    of: tuple[str, ...]  # some of `needs`


class MapNode(Node, frozen=True, kw_only=True, tag="map"):
    over: str  # a reference to a list, or to an object for the entries of it
    body: TaskNode | HttpNode | ShellNode | SendNode | WorkflowNode
    max_parallel: int | None = None
    tolerate: int = 0  # failed children that still let the map succeed
    max_parallel_from: str | None = None  # a reference; instead of `max_parallel`
    combine: Combine = Combine.EACH
    others: tuple[str, ...] = ()  # references to further lists, for `zip` and `product`

    @property
    def sources(self) -> tuple[str, ...]:
        """Everything that it goes over."""
        return (self.over, *self.others)


class RepeatNode(Node, frozen=True, kw_only=True, tag="repeat"):
    body: TaskNode | HttpNode | ShellNode | SendNode | WorkflowNode
    until: str  # CEL; sees `iteration` and `last`, the latest result
    max_iterations: int
    delay_ms: int = 0
    on_max: str = "fail"  # or "continue"; the same where its time runs out
    timeout_ms: int | None = None  # all turns and rests together
    timeout_from: str | None = None  # a reference; instead of `timeout_ms`
    tolerate: int = 0  # failed turns in a row after which the next one still begins


AnyNode = (
    TaskNode
    | HttpNode
    | ShellNode
    | SendNode
    | WaitNode
    | BranchNode
    | EventNode
    | ApprovalNode
    | WorkflowNode
    | MapNode
    | RepeatNode
    | FirstNode
)


class Defaults(_Part, frozen=True, kw_only=True):
    """For every node of the workflow that does not say otherwise."""

    queue: str = "default"
    priority: int = PRIORITY_DEFAULT
    retry: Retry = Retry()
    timeout: Timeout = Timeout()
    labels: dict[str, str] = {}


class Definition(_Part, frozen=True, kw_only=True):
    name: str
    nodes: tuple[AnyNode, ...]
    format: int = FORMAT
    description: str = ""
    inputs: dict[str, InputField] = {}
    defaults: Defaults = Defaults()
    exits: tuple[Exit, ...] = ()
    overlap: Overlap = Overlap.ALLOW
    concurrency: Concurrency | None = None
    rate: RunRate | None = None
    timeout_ms: int | None = None  # the whole run
    sla: Sla | None = None
    policy: tuple[str, ...] = ()
    output: str | None = None  # a reference, or NO_OUTPUT; None: the result of the last node
    on_failure: FollowUp | None = None  # also after a time-out of the whole run, and each time that a retry fails
    on_success: FollowUp | None = None
    tags: tuple[str, ...] = ()  # of every run
    search: tuple[str, ...] = ()  # inputs by whose values runs are found
    publish: dict[str, tuple[str, ...]] = {}  # by name: references; the last one that has a value is read
