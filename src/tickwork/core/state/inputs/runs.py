"""Inputs about runs and their tasks, and events and updates for them."""

from tickwork.core.base.values import Value
from tickwork.core.definition.model import Retry
from tickwork.core.state.history import HistoryRecord
from tickwork.core.state.inputs.base import BulkPlace, InputStruct, KnownRun
from tickwork.core.state.messages import RunMessages


class RunTerms(InputStruct, frozen=True):
    """Values of one submission that override those of its workflow."""

    timeout_ms: int | None = None  # of the whole run
    retry: Retry | None = None  # for nodes that have no retry of their own
    tags: tuple[str, ...] = ()  # beside those of its workflow
    fields: tuple[tuple[str, str], ...] = ()  # searchable inputs, where the inputs are not inline


class SubmitOptions(InputStruct, frozen=True):
    """Options that few submissions use."""

    key: str = ""
    body: str = ""  # digest of the request; two bodies under one key are refused
    start_at_ms: int | None = None
    delay_ms: int | None = None
    debounce: str = ""  # a later submission under this key replaces the inputs and restarts the delay
    priority: int | None = None
    definition: str = ""  # hash of a definition; "": the latest
    known: KnownRun | None = None
    version: str = ""  # of an application: only workers of this version may execute the run
    at_most_ms: int | None = None  # a debounced run starts no later than this after its first submission
    queue: str = ""  # for nodes that name none
    own: RunTerms | None = None


class Submit(InputStruct, frozen=True, tag=10):
    by: str
    tenant: str
    run_id: str
    workflow: str
    inputs: Value = None
    terms: SubmitOptions | None = None


class Cancel(InputStruct, frozen=True, tag=11):
    by: str
    tenant: str
    run_id: str
    reason: str = ""
    left_as: int | None = None  # a fact: the state in which this run left memory
    bulk: BulkPlace | None = None


class RunRecord(InputStruct, frozen=True):
    """A run that has left memory, as its rows hold it: a fact added to a request that brings it back."""

    number: int
    run_id: str
    definition: str
    state: int
    inputs: Value
    by: str
    source: str
    submitted: int
    started: int
    priority: int
    phases: bytes
    results: tuple[tuple[int, Value], ...]  # by node
    key: str = ""
    body: str = ""
    scheduled_ms: int = 0
    schedule: str = ""
    queue: str = ""
    backfill: int = 0
    decided: str = ""
    pin: str = ""
    tried: int = 0  # its highest attempt so far
    history: HistoryRecord | None = None  # of its durable function
    messages: RunMessages | None = None
    own: RunTerms | None = None


class Resolve(InputStruct, frozen=True, tag=12):
    """An operator's decisions about a FAILED run: node to retry, accept or skip. Empty: retry all failed nodes."""

    by: str
    tenant: str
    run_id: str
    reason: str
    decisions: dict[str, str] = {}
    values: dict[str, Value] = {}
    record: RunRecord | None = None
    others_stay: bool = False  # nodes without a decision stay failed, so the run fails again
    bulk: BulkPlace | None = None


class CancelTask(InputStruct, frozen=True, tag=272):
    """Fail this task, whatever its state. The run continues by the rules of its workflow."""

    by: str
    tenant: str
    task: int
    reason: str = ""


class RetryTask(InputStruct, frozen=True, tag=273):
    """Start the next attempt of a waiting task now."""

    by: str
    tenant: str
    task: int
    reason: str = ""


class Redrive(InputStruct, frozen=True, tag=13):
    """Retry dead letters in bulk, at most `per_second`."""

    by: str
    tenant: str
    reason: str
    per_second: int
    records: list[RunRecord] = []


class DropDeadLetters(InputStruct, frozen=True, tag=324):
    """End failed runs as cancelled, for this reason: nobody will bring them back."""

    by: str
    tenant: str
    reason: str
    records: list[RunRecord] = []


class Rerun(InputStruct, frozen=True, tag=14):
    """Start a new run that keeps the results of an old one, except from one node on."""

    by: str
    tenant: str
    run_id: str
    record: RunRecord
    from_node: str = ""
    definition: str = ""  # another version; "": the same
    inputs: Value = None
    change_inputs: bool = False
    from_start: bool = False  # no result is kept
    fields: tuple[tuple[str, str], ...] = ()  # searchable inputs, where the new ones are not inline
    bulk: BulkPlace | None = None


class Decide(InputStruct, frozen=True, tag=15):
    by: str
    tenant: str
    run_id: str
    node: str
    approve: bool
    comment: str = ""
    left_as: int | None = None  # as in `Pause`
    values: Value = None  # of the fields of a form


class Ingest(InputStruct, frozen=True, tag=16):
    """An event from outside, for one run or for all runs that wait for this name and key."""

    by: str
    tenant: str
    event: str
    key: str = ""
    run_id: str = ""
    payload: Value = None
    id: str = ""  # its sender's; an event with an id that came before is the same event
    # A fact, where the payload is not inline: schedules that listen to it, the source that it is an update of, and the
    # inputs of the run that it starts.
    starts: tuple[tuple[str, int, Value], ...] = ()


class UpdateAsset(InputStruct, frozen=True, tag=360):
    """New data of an asset: a task has made it, or somebody says so."""

    by: str
    tenant: str
    asset: str
    partition: str = ""  # which part of it is new; "": all
    details: Value = None
    id: str = ""  # as in `Ingest`


class SendUpdate(InputStruct, frozen=True, tag=250):
    """A message to the durable function of a run, which replies exactly once."""

    by: str
    tenant: str
    run_id: str
    name: str
    key: str  # idempotency key: the same key is the same update
    body: str  # digest of name and payload
    payload: Value = None


class CacheAnswered(InputStruct, frozen=True, tag=27):
    """A fact, the result of a `LookUpCache` effect: the cached value of a task, if there is one."""

    task: int
    found: bool
    value: Value = None


class Extracted(InputStruct, frozen=True, tag=65):
    """A fact, the result of a `ReadExtract` effect: what conditions read of a large value, or an error code."""

    run: int
    source: int
    key: str
    value: bytes | None = None
    code: str = ""
    message: str = ""
