"""API calls as plain values: requests are built and responses decoded without any network.

Both clients send these. A call that changes something carries an `Idempotency-Key`, the same for each try, so
that a retry after a lost response is safe. A call that the server cannot recognize by its key is retried only
if it was certainly not executed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from tickwork.core.base.errors import OutcomeUnknown, Refused, TickworkError, Unavailable
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import duration_text, instant_ms
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Catalog
from tickwork.sdk.authoring.mailboxes import declared_in
from tickwork.sdk.authoring.options import duration, listed_tags
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client.connection import error_of
from tickwork.sdk.client.submission_options import Options, refuse_ambiguous
from tickwork.sdk.values.encode import plain
from tickwork.system.uuids import SharedUuids

if TYPE_CHECKING:
    from tickwork.sdk.authoring.app_loader import App

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")

BATCH_MAX = 1_000
UPDATE_WAIT_MS_MAX = 20_000  # of one call; a client with more patience calls again
ENDED = frozenset(("completed", "failed", "cancelled"))

_encode = msgspec.json.Encoder().encode


class RunFailed(TickworkError):
    """A run did not complete; `run` has its state."""

    code = "run_failed"

    def __init__(self, run: wire.Run) -> None:
        reason = f": {run.error}" if run.error else ""
        end = "\n" if "\n" in reason else "; "  # an error with lines of code keeps them to itself
        super().__init__(f"the run {run.id} of {run.workflow} is {run.state}{reason}{end}see why({run.id!r})")
        self.run = run


class StillRunning(Unavailable):
    """The time limit for waiting was reached before the run ended. The run continues."""

    code = "still_running"


class UpdateRefused(Refused):
    """The durable function refused an update, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__("update_refused", reason)
        self.reason = reason


class NoReply(Unavailable):
    """An update has no reply so far. It waits in the run: asking again with the same key gets the reply."""

    code = "no_reply"

    def __init__(self, run_id: str, key: str) -> None:
        super().__init__(f"the run {run_id} has not replied yet; ask again with key={key!r}", retry_after_ms=0)
        self.key = key


class BatchRefused(Refused):
    """Some submissions of a batch were refused; the others stand. `handles` has None where one was refused."""

    def __init__(self, handles: "list[Handle[Any] | None]", rejected: dict[int, wire.Rejected]) -> None:
        at, first = next(iter(rejected.items()))
        why = f"{first.path}: {first.detail}" if first.path else first.detail
        text = f"{len(rejected)} of {len(handles)} were refused, the first: {why}"
        super().__init__(first.code, text, path=f"[{at}]")
        self.handles = handles
        self.rejected = rejected


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A submitted run. `duplicate`: it was there already, under the same key. `warnings` names tasks that no connected
    worker is large enough for."""

    id: str
    duplicate: bool = False
    workflow: "Workflow[..., R] | None" = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.id


RunLike = str | Handle[Any] | wire.Run


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T_co]):
    """One request, and the type of its answer."""

    method: str
    path: str
    answer: Any
    query: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    terms: dict[str, str] = field(default_factory=dict)  # further headers
    once: bool = False  # done twice it does something twice, and no key prevents it
    look: str = ""  # how to find out whether it was done
    run: str = ""  # that it is about, where its path does not name it

    def headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", **self.terms}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.method != "GET":
            headers["Idempotency-Key"] = uuid4().hex
        return headers

    def unknown(self, error: Exception) -> Exception:
        """What the last error means where one of the tries may have arrived."""
        if self.method == "GET":
            return error
        look = self.look or ("read the state before you repeat it" if self.once else "repeating it does no harm")
        reason = str(error) or type(error).__name__
        return OutcomeUnknown(f"the outcome is unknown ({reason}); {look}", retry_after_ms=0)

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> T_co:
        """The answer, or the error that it stands for."""
        if status >= 300:
            raise error_of(status, headers, body)
        if self.answer is None:
            return None  # type: ignore[return-value]  # T is None here
        if self.answer is bytes:
            return body  # type: ignore[return-value]  # T is bytes here
        try:
            if isinstance(self.answer, tuple):
                return _listed(body, *self.answer)  # type: ignore[return-value]  # T is that list
            return msgspec.json.decode(body, type=self.answer)  # type: ignore[no-any-return]  # T is that type
        except msgspec.MsgspecError as error:
            raise Unavailable(
                f"the server's response to {self.path} cannot be decoded: {error}", retry_after_ms=0
            ) from None


_ids = SharedUuids()


def id_of(run: RunLike) -> str:
    return run if isinstance(run, str) else run.id


def submission(
    workflow: "Workflow[..., Any] | str",
    inputs: Mapping[str, Any] | None,
    values: Mapping[str, Any],
    *,
    key: str = "",
    id: str = "",  # noqa: A002 - the field's name
    delay: str | timedelta | None = None,
    start_at: datetime | str | None = None,
    priority: int | None = None,
    debounce: str = "",
    at_most: str | timedelta | None = None,
    app_version: str = "",
    tags: Sequence[str] = (),
    options: Options | None = None,
) -> wire.Submission:
    """Checked against the workflow's signature where it is at hand. Raises `Refused`."""
    if delay is not None and start_at is not None:
        raise Refused("bad_start", "give delay or start_at, not both")
    given = {**(inputs or {}), **values}
    named: dict[str, Any] = {
        "key": key,
        "id": id,
        "delay": delay,
        "start_at": start_at,
        "priority": priority,
        "debounce": debounce,
    }
    named |= {"at_most": at_most, "app_version": app_version, "tags": tags, "options": options}
    refuse_ambiguous(workflow, given, named)
    start = "" if start_at is None else str(plain(start_at, what="start_at"))
    if start:
        instant_ms(start, path="start_at")
    return wire.Submission(
        workflow=workflow if isinstance(workflow, str) else workflow.name,
        inputs=plain(given, what="inputs") if isinstance(workflow, str) else workflow.checked_inputs(given),
        id=id or ("" if key else _ids.new()),  # chosen here, so that a retry creates no second run
        key=key,
        start_at=start,
        delay_ms=None if delay is None else duration(delay, path="delay"),
        debounce=debounce,
        at_most_ms=None if at_most is None else duration(at_most, path="at_most"),
        priority=priority,
        version=app_version,
        tags=listed_tags(tags),
        **({} if options is None else options.terms()),
    )


def submit(submission: wire.Submission) -> ApiCall[wire.Submitted]:
    look = (
        f"repeat it with key={submission.key!r}"
        if submission.key
        else f"look for the run {submission.id}, or repeat it as id"
    )
    return ApiCall(
        "POST", "/v1/runs", wire.Submitted, body=_encode(submission), look=f"{look}: that creates no second run"
    )


def submit_batch(submissions: list[wire.Submission]) -> ApiCall[dict[str, list[dict[str, Any]]]]:
    # The two kinds of answer have no tag: an id tells the one, a code the other.
    return ApiCall(
        "POST", "/v1/runs/batch", dict[str, list[dict[str, Any]]], body=_encode(wire.Batch(runs=tuple(submissions)))
    )


def batch_answer(raw: dict[str, list[dict[str, Any]]]) -> list[wire.Submitted | wire.Rejected]:
    return [
        msgspec.convert(entry, wire.Submitted) if "id" in entry else msgspec.convert(entry, wire.Rejected)
        for entry in raw["runs"]
    ]


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH_MAX)):
        yield batch


def settle(answers: list[wire.Submitted | wire.Rejected], workflow: "Workflow[..., R] | str") -> "list[Handle[R]]":
    """Return the handles in order. Raises `BatchRefused` if a submission was refused."""
    known = None if isinstance(workflow, str) else workflow
    handles = [
        Handle(answer.id, answer.duplicate, known, answer.warnings) if isinstance(answer, wire.Submitted) else None
        for answer in answers
    ]
    rejected = {at: answer for at, answer in enumerate(answers) if isinstance(answer, wire.Rejected)}
    if rejected:
        raise BatchRefused(list(handles), rejected)
    return [handle for handle in handles if handle is not None]


def get(run: RunLike, *, attempts: int | None = None, attempts_before: int = 0) -> ApiCall[wire.RunDetail]:
    query = {} if attempts is None else {"attempts": str(attempts)}
    if attempts_before:
        query["attempts_before"] = str(attempts_before)
    return ApiCall("GET", _run(run), wire.RunDetail, query)


def history(run: RunLike) -> ApiCall[wire.FunctionHistory]:
    return ApiCall("GET", _run(run, "history"), wire.FunctionHistory)


def recorded(run: RunLike) -> ApiCall[bytes]:
    return ApiCall("GET", _run(run, "history"), bytes, terms={"Accept": "application/msgpack"})


def output(run: RunLike) -> ApiCall[Any]:
    return ApiCall("GET", f"{_run(run)}/output", Any)


def cancel(run: RunLike, reason: str) -> ApiCall[None]:
    return ApiCall("POST", _run(run, "cancel"), None, body=_encode(wire.Reason(reason=reason)))


def partition(number: int) -> ApiCall[wire.PartitionHead]:
    return ApiCall("GET", f"/v1/partitions/{number}", wire.PartitionHead)


def partition_action(partition: int, word: str, reason: str = "") -> ApiCall[None]:
    return ApiCall("POST", f"/v1/partitions/{partition}/{word}", None, body=_encode(wire.Reason(reason=reason)))


def pause(run: RunLike, reason: str, until: datetime | str | None) -> ApiCall[None]:
    text = "" if until is None else str(plain(until, what="until"))
    return ApiCall("POST", _run(run, "pause"), None, body=_encode(wire.PauseRequest(reason=reason, until=text)))


def resume(run: RunLike, reason: str) -> ApiCall[None]:
    return ApiCall("POST", _run(run, "resume"), None, body=_encode(wire.Reason(reason=reason)))


def retry(run: RunLike, reason: str) -> ApiCall[None]:
    return ApiCall("POST", _run(run, "retry"), None, body=_encode(wire.Reason(reason=reason)))


def task_action(run: RunLike, task: wire.Task, action: str, reason: str) -> ApiCall[None]:
    path = f"/v1/tasks/{quote(task.id, safe='')}/{action}"
    return ApiCall("POST", path, None, body=_encode(wire.Reason(reason=reason)), run=id_of(run))


def task_of(detail: wire.RunDetail, node: str) -> wire.Task:
    """Raises `Refused` for a node that the run does not have."""
    for task in detail.tasks:
        if task.node == node:
            return task
    names = shortened(", ".join(task.node for task in detail.tasks), 400)
    raise Refused("unknown_node", f"the run {detail.id} has no node {node!r}; it has {names}", path="node")


def resolve(run: RunLike, decisions: Mapping[str, str], values: Mapping[str, Any], reason: str) -> ApiCall[None]:
    sent = plain(dict(values), what="values")
    request = wire.ResolveRequest(decisions=dict(decisions), values=sent, reason=reason)
    return ApiCall("POST", _run(run, "resolve"), None, body=_encode(request))


def rerun(
    run: RunLike, from_node: str, definition: str, inputs: Mapping[str, Any] | None, *, from_start: bool
) -> ApiCall[wire.Submitted]:
    sent = None if inputs is None else plain(dict(inputs), what="inputs")
    request = wire.RerunRequest(from_node=from_node, definition=definition, inputs=sent, from_start=from_start)
    return ApiCall("POST", _run(run, "rerun"), wire.Submitted, body=_encode(request))


def decide(
    run: RunLike, node: str, *, approve: bool, comment: str, values: Mapping[str, Any] | None = None
) -> ApiCall[None]:
    sent = {name: plain(value, what=f"values.{name}") for name, value in (values or {}).items()}
    request = wire.Decision(approve=approve, comment=comment, values=sent)
    return ApiCall("POST", f"{_run(run, 'approvals')}/{quote(node, safe='')}", None, body=_encode(request))


def signal(event: str, payload: Any, *, key: str, run: RunLike | None, id: str) -> ApiCall[wire.Heard]:  # noqa: A002
    sent = plain(payload, what="payload")
    request = wire.Signal(event=event, key=key, run="" if run is None else id_of(run), payload=sent, id=id)
    return ApiCall("POST", "/v1/events", wire.Heard, body=_encode(request), once=not id, run=request.run)


def mailboxes() -> ApiCall[list[wire.Mailbox]]:
    return ApiCall("GET", "/v1/mailboxes", ("mailboxes", wire.Mailbox))


def delete_mailbox(mailbox: str) -> ApiCall[None]:
    return ApiCall("DELETE", f"/v1/mailboxes/{quote(mailbox, safe='')}", None)


def mailbox_messages(mailbox: str, key: str, fate: str, limit: int) -> ApiCall[list[wire.MailboxMessage]]:
    query = {"key": key, "fate": fate, "limit": str(limit)}
    path = f"/v1/mailboxes/{quote(mailbox, safe='')}/messages"
    return ApiCall("GET", path, ("messages", wire.MailboxMessage), {name: text for name, text in query.items() if text})


def read(run: RunLike, name: str) -> ApiCall[Any]:
    return ApiCall("GET", f"{_run(run, 'values')}/{quote(name, safe='')}", Any)


def update_request(payload: Any, values: Mapping[str, Any], key: str) -> wire.UpdateRequest:
    """Raises `Refused` where the payload cannot be sent."""
    if values and payload is not None and not isinstance(payload, Mapping):
        raise Refused("bad_payload", "a payload that is not a mapping has no further fields", path="payload")
    whole = {**(payload or {}), **values} if values else payload
    return wire.UpdateRequest(payload=plain(whole, what="payload"), key=key or str(_ids.new()))


def ask(run: RunLike, name: str, request: wire.UpdateRequest, *, left_s: float) -> ApiCall[wire.UpdateResult]:
    timed = msgspec.structs.replace(request, wait_ms=min(max(int(left_s * 1_000), 0), UPDATE_WAIT_MS_MAX))
    path = f"{_run(run, 'updates')}/{quote(name, safe='')}"
    look = f"ask again with key={request.key!r}: that is the same update"
    return ApiCall("POST", path, wire.UpdateResult, body=_encode(timed), look=look)


def reply_of(result: wire.UpdateResult) -> Any:
    """The reply. Raises `UpdateRefused` or `NoReply`."""
    if result.state == "refused":
        raise UpdateRefused(result.reason)
    if result.state == "waiting":
        raise NoReply(result.run, result.key)
    return result.value


def why(run: RunLike) -> ApiCall[wire.Why]:
    return ApiCall("GET", _run(run, "why"), wire.Why)


def workflows() -> ApiCall[list[wire.Workflow]]:
    return ApiCall("GET", "/v1/workflows", ("workflows", wire.Workflow))


def workflow(name: str) -> ApiCall[wire.WorkflowDetail]:
    return ApiCall("GET", f"/v1/workflows/{quote(name, safe='')}", wire.WorkflowDetail)


def published(things: "tuple[Workflow[..., Any] | App, ...]") -> Catalog:
    """A single application is published as itself: schedules that it no longer declares are removed."""
    workflows = [
        workflow for thing in things for workflow in ([thing] if isinstance(thing, Workflow) else thing.published())
    ]
    only = things[0] if len(things) == 1 else None
    return Catalog(
        documents=tuple(workflow.document() for workflow in workflows),
        schedules=tuple(table for workflow in workflows for table in workflow.timetables()),
        application="" if only is None or isinstance(only, Workflow) else only.name,
        mailboxes=declared_in(*workflows),
    )


def publish(catalog: Catalog) -> ApiCall[None]:
    request = wire.Publication(
        documents=tuple(msgspec.Raw(document) for document in catalog.documents),
        schedules={table.name: table.wanted for table in catalog.schedules},
        application=catalog.application,
        mailboxes={mailbox.name: mailbox.wanted for mailbox in catalog.mailboxes},
    )
    return ApiCall("PUT", "/v1/workflows", None, body=_encode(request))


def versions(application: str) -> ApiCall[list[wire.AppVersion]]:
    return ApiCall("GET", "/v1/versions", ("versions", wire.AppVersion), _of_application(application))


def latest_version(application: str) -> ApiCall[wire.AppVersion]:
    return ApiCall("GET", "/v1/versions/latest", wire.AppVersion, _of_application(application))


def set_latest_version(version: str, application: str) -> ApiCall[wire.AppVersion]:
    request = wire.LatestRequest(version=version, application=application)
    return ApiCall("PUT", "/v1/versions/latest", wire.AppVersion, body=_encode(request))


def _of_application(application: str) -> dict[str, str]:
    return {"application": application} if application else {}


def inbox(kinds: Sequence[str], workflow: str, person: str, limit: int) -> ApiCall[list[wire.InboxEntry]]:
    query = {"limit": str(limit), "kind": ",".join(kinds), "workflow": workflow, "person": person}
    given = {name: value for name, value in query.items() if value}
    return ApiCall("GET", "/v1/inbox", ("entries", wire.InboxEntry), given)


def workers() -> ApiCall[list[wire.Worker]]:
    return ApiCall("GET", "/v1/workers", ("workers", wire.Worker))


def queues() -> ApiCall[list[wire.Queue]]:
    return ApiCall("GET", "/v1/queues", ("queues", wire.Queue))


def put_queue(
    name: str, limit: int | None, rate: int | None, per: str | timedelta, burst: int | None, window: str = "bucket"
) -> ApiCall[None]:
    per_text = duration_text(duration(per, path="per"))
    request = wire.QueueRequest(limit=limit, rate=rate, per=per_text, burst=burst, window=window)
    return ApiCall("PUT", _queue(name), None, body=_encode(request))


def queue_action(name: str, word: str, reason: str = "") -> ApiCall[None]:
    """pause or resume."""
    return ApiCall("POST", f"{_queue(name)}/{word}", None, body=_encode(wire.Reason(reason=reason)))


def _queue(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def status() -> ApiCall[wire.Status]:
    return ApiCall("GET", "/v1/status", wire.Status)


def confirm_clock() -> ApiCall[None]:
    return ApiCall("POST", "/v1/clock/confirm", None)


def cluster() -> ApiCall[wire.Cluster]:
    return ApiCall("GET", "/v1/cluster", wire.Cluster)


def spread(partitions: int) -> ApiCall[None]:
    return ApiCall("PUT", "/v1/cluster/spread", None, body=msgspec.json.encode(wire.SpreadRequest(spread=partitions)))


def if_match_terms(etag: str) -> dict[str, str]:
    """The header of a change that counts only for what its sender has read."""
    return {"If-Match": etag} if etag else {}


def held_runs() -> ApiCall[wire.HeldRuns]:
    return ApiCall("GET", "/v1/cluster/inbox", wire.HeldRuns)


def remove_from_inbox(run_id: str) -> ApiCall[None]:
    return ApiCall("DELETE", f"/v1/cluster/inbox/{quote(run_id, safe='')}", None)


def events_path(run: RunLike) -> str:
    return _run(run, "events")


def logs_path(run: RunLike) -> str:
    return _run(run, "logs")


def stream_path(run: RunLike) -> str:
    return _run(run, "stream")


def log_lines(body: bytes) -> list[wire.LogLine]:
    """Decode a JSON list, an object with `lines`, or one JSON value per line."""
    text = body.strip()
    if not text:
        return []
    if text.startswith((b"[", b'{"lines"')):
        return _listed(text, "lines", wire.LogLine)
    return [msgspec.json.decode(line, type=wire.LogLine) for line in text.splitlines() if line.strip()]


def is_left_out(run: wire.RunDetail) -> bool:
    """Return whether the output is too large for the run's response, and must be read separately."""
    return run.state == "completed" and run.output is None and run.output_size > 1


def typed_output(run: wire.RunDetail, workflow: "Workflow[..., R] | None") -> R:
    """Return the output in the type that the workflow declares. Raises `RunFailed` if the run did not complete."""
    if run.state != "completed":
        raise RunFailed(run)
    if workflow is not None and not workflow.returns:
        return None  # type: ignore[return-value]  # R is None here
    output: Any = run.output if workflow is None else workflow.codec.result(run.output)
    return output  # type: ignore[no-any-return]  # R is what the workflow says


def _listed(body: bytes, name: str, kind: type[T]) -> list[T]:
    """Decode a list, bare or in a field."""
    raw = msgspec.json.decode(body)
    return msgspec.convert(raw.get(name, []) if isinstance(raw, dict) else raw, list[kind])  # type: ignore[valid-type]  # made of a value


def _run(run: RunLike, part: str = "") -> str:
    path = f"/v1/runs/{quote(id_of(run), safe='')}"
    return f"{path}/{part}" if part else path


def still_running(run: wire.Run) -> StillRunning:
    return StillRunning(f"the run {run.id} is {run.state} and the time limit for waiting is over", retry_after_ms=0)


def submissions(
    workflow: "Workflow[..., Any] | str",
    rows: Iterable[Mapping[str, Any]],
    keys: Iterable[str] | None,
    priority: int | None,
) -> Iterator[wire.Submission]:
    """Yield one submission per row. A row that does not fit is refused with its index."""
    names = iter(keys) if keys is not None else None
    for number, row in enumerate(rows):
        key = "" if names is None else next(names, "")
        try:
            yield submission(workflow, row, {}, key=key, priority=priority)
        except Refused as refused:
            raise Refused(
                refused.code, refused.message, path=f"[{number}]{'.' + refused.path if refused.path else ''}"
            ) from None


def logs(run: RunLike) -> ApiCall[bytes]:
    return ApiCall("GET", logs_path(run), bytes)
