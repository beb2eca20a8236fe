"""Commands on runs. Each returns when its tick is durable.

Errors that are detectable without the machine are refused here; the machine decides. Schedules and endpoints have
their own modules.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.names import NAME_CHARACTERS_MAX, TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.base.strict_json import check as check_plain
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value, pack
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.decide.commands.signals import DUPLICATE
from tickwork.core.definition.input_fields import SCHEDULED_TIME, check_inputs
from tickwork.core.definition.plan import Plan
from tickwork.core.definition.run_labels import Fields, fields_among
from tickwork.core.explain.resource_requests import unmet_requests
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.mailboxes import KEPT
from tickwork.core.state.state import NUMBER_BITS, Run, Task
from tickwork.ports.store import Payload, RunRow
from tickwork.protocol import http_models as wire
from tickwork.protocol.partition_messages import CommandBatch, CommandOutcome
from tickwork.protocol.task_commands import MarkUpdated, StartRun, decode_commands, started_run_id
from tickwork.runtime.context import EngineContext, refusal_of
from tickwork.runtime.maintenance.value_gc import named_in
from tickwork.runtime.services.assets import update_of
from tickwork.runtime.services.large_events import starts_of
from tickwork.runtime.services.mailboxes import MailboxService
from tickwork.runtime.services.workflows import WorkflowService
from tickwork.runtime.storage.payloads import APART, INPUT_BYTES_MAX, decode_value
from tickwork.runtime.storage.request_checks import check_terms, packed
from tickwork.runtime.storage.run_records import record_of
from tickwork.runtime.views.text import instant

if TYPE_CHECKING:
    from tickwork.runtime.services.queries import QueryService


_workflow_of: Callable[[wire.Submission], str] = attrgetter("workflow")
_run_id_of: Callable[[inp.Input], str] = attrgetter("run_id")


class RunService:
    """Commands about runs."""

    def __init__(
        self, context: EngineContext, workflows: WorkflowService, queries: "QueryService", mailboxes: MailboxService
    ) -> None:
        self._context, self._workflows, self._queries, self._mailboxes = context, workflows, queries, mailboxes

    async def submit(
        self,
        submissions: Sequence[wire.Submission],
        *,
        by: str,
        tenant: str = TENANT,
        new_id: Callable[[], str] | None = None,
    ) -> list[wire.Submitted | wire.Rejected]:
        """Submit all runs in one call; each is accepted or refused on its own. `new_id` makes ids for runs without
        one."""
        new_id = new_id or self._context.ids.new
        requests: list[inp.Input] = []
        payloads: list[Payload] = []
        refused: dict[int, wire.Rejected] = {}
        facts = False
        names = set(map(_workflow_of, submissions))
        bare = self._bare(names, tenant) if len(submissions) > 1 else {}
        workflow = submissions[0].workflow if submissions else ""
        alike = workflow in bare and submissions.count(bare[workflow]) == len(submissions)
        if alike:  # most batches
            requests = [inp.Submit(by, tenant, new_id(), workflow) for _ in submissions]
        for index, submission in enumerate(() if alike else submissions):
            if submission == bare.get(submission.workflow):
                requests.append(inp.Submit(by, tenant, new_id(), submission.workflow))
                continue
            try:
                command = await self._submission(submission, by, tenant, payloads, new_id)
            except Refused as error:
                refused[index] = wire.Rejected(code=error.code, detail=error.message, path=error.path)
                continue
            facts = facts or bool(submission.key or submission.id)
            requests.append(command)
        answers: dict[int, CommandResult] = {}
        if requests:
            batch = self._context.post(requests, payloads, facts=facts)
            await batch.done
            answers = batch.answers
        outcomes: list[wire.Submitted | wire.Rejected]
        if not refused and not answers:
            outcomes = [wire.Submitted(id=run_id) for run_id in map(_run_id_of, requests)]
        else:
            outcomes = _in_order(len(submissions), requests, answers, refused)
        return self._warned(submissions, names, outcomes, tenant)

    def _warned(
        self,
        submissions: Sequence[wire.Submission],
        names: set[str],
        outcomes: list[wire.Submitted | wire.Rejected],
        tenant: str,
    ) -> list[wire.Submitted | wire.Rejected]:
        """Name the tasks that wait for ever with the workers that are connected now."""
        state = self._context.state
        owner = state.tenants.get(tenant)
        plans = owner.plans if owner is not None else {}
        demanding = [plan for name in sorted(names) if (plan := plans.get(name)) is not None and plan.demanding]
        warnings = {plan.name: tuple(words) for plan in demanding if (words := unmet_requests(state, plan))}
        if not warnings:
            return outcomes
        return [
            msgspec.structs.replace(outcome, warnings=warnings.get(submission.workflow, ()))
            if isinstance(outcome, wire.Submitted)
            else outcome
            for submission, outcome in zip(submissions, outcomes, strict=True)
        ]

    def _bare(self, names: set[str], tenant: str) -> dict[str, wire.Submission]:
        """Of each workflow that needs nothing, the submission that says nothing but its name: most of a batch."""
        owner = self._context.state.tenants.get(tenant)
        plans = owner.plans if owner is not None else {}
        return {
            name: wire.Submission(workflow=name)
            for name in names
            if (plan := plans.get(name)) is not None and not plan.definition.inputs
        }

    async def _submission(
        self, submission: wire.Submission, by: str, tenant: str, payloads: list[Payload], new_id: Callable[[], str]
    ) -> inp.Submit:
        submission = self._timed(self._workflows.pin_submission(submission, tenant), tenant)
        inputs: Value = None
        fields: Fields = ()  # of inputs that the machine does not see
        if submission.inputs:
            inputs = packed(submission.inputs, "inputs")
            if len(inputs) > INLINE_BYTES_MAX:
                plan = self._context.plan(tenant, submission.workflow, submission.definition)
                inputs = await self._large_inputs(submission.inputs, plan, payloads)
                fields = fields_among(plan.definition, submission.inputs)
        workflow = submission.workflow
        if len(workflow) > NAME_CHARACTERS_MAX or not workflow.isascii():
            raise Refused("unknown_workflow", f"there is no workflow {shortened(workflow, 128)!a}", path="workflow")
        run_id = submission.id or new_id()
        if not (fields or _has_terms(submission)):
            return inp.Submit(by, tenant, run_id, submission.workflow, inputs)
        check_terms(submission)
        terms = inp.SubmitOptions(
            key=submission.key,
            body=_body(submission) if submission.key or submission.id else "",
            start_at_ms=instant_ms(submission.start_at, path="start_at") if submission.start_at else None,
            delay_ms=submission.delay_ms,
            debounce=submission.debounce,
            priority=submission.priority,
            definition=submission.definition,
            version=submission.version,
            at_most_ms=submission.at_most_ms,
            queue=submission.queue,
            own=_own_terms(submission, fields),
        )
        return inp.Submit(by, tenant, run_id, submission.workflow, inputs, terms)

    async def task_commands(
        self, data: bytes, task: Task, attempt: int, payloads: list[Payload]
    ) -> tuple[inp.TaskCommand, ...]:
        """Translate the commands of a task, which the machine decides with its result. Raises `Refused`."""
        run, node = task.run, task.run.plan.steps[task.step.index].id
        commands: list[inp.TaskCommand] = []
        for index, command in enumerate(decode_commands(data)):
            try:
                if isinstance(command, StartRun):
                    run_id = started_run_id(run.id, node, task.child, attempt, command.place or str(index))
                    commands.append(await self._start_of(command.submission, run, run_id, payloads))
                elif isinstance(command, MarkUpdated):
                    commands.append(self._update_of(command, run))
                else:
                    commands.append(await self._event_of(command.signal, run, payloads))
            except Refused as refused:
                path = f"commands[{index}].{refused.path}"
                raise Refused(refused.code, refused.message, path=path) from None
        return tuple(commands)

    async def _start_of(
        self, submission: wire.Submission, run: Run, run_id: str, payloads: list[Payload]
    ) -> inp.TaskCommand:
        """A run without a key begins in the partition of the task that starts it. Keys live at home."""
        by, tenant = run.by, run.tenant.id
        plain = msgspec.structs.replace(submission, id="")
        submit = await self._submission(plain, by, tenant, payloads, lambda: run_id)
        home = self._partitions_of(tenant)[0]
        elsewhere = bool(submission.key) and home != self._context.number
        return inp.TaskCommand(submit, (home,) if elsewhere else ())

    def _update_of(self, command: MarkUpdated, run: Run) -> inp.TaskCommand:
        """Assets live at home, with the schedules that listen to them."""
        home = self._partitions_of(run.tenant.id)[0]
        update = update_of(command.asset, command.update, by=run.by, tenant=run.tenant.id)
        return inp.TaskCommand(update, (home,) if home != self._context.number else ())

    async def _event_of(self, signal: wire.Signal, run: Run, payloads: list[Payload]) -> inp.TaskCommand:
        """Send an event to the waiting runs, which may be in any partition of the tenant."""
        partitions = self._partitions_of(run.tenant.id)
        ingest = await self._ingest(signal, run.by, run.tenant.id, payloads)
        return inp.TaskCommand(ingest, partitions if len(partitions) > 1 else ())

    def _partitions_of(self, tenant: str) -> tuple[int, ...]:
        neighbours = self._context.neighbours
        return (self._context.number,) if neighbours is None else neighbours.partitions_of(tenant)

    async def take_commands(self, batch: CommandBatch) -> list[CommandOutcome]:
        """Commands of tasks in another partition, in their order; each is decided once."""
        requests: list[inp.Input] = [
            inp.Delivered(batch.sender, command.number, command.request, command.origin) for command in batch.commands
        ]
        posted = self._context.post(requests, [], facts=True)
        await posted.done
        answers = [posted.answers[index] for index in range(len(requests))]
        return [CommandOutcome(answer.code, answer.message) for answer in answers]

    def _timed(self, submission: wire.Submission, tenant: str) -> wire.Submission:
        """Give a workflow with a scheduled-time parameter the current time, unless the caller gave one."""
        owner = self._context.state.tenants.get(tenant)
        plan = owner.plans.get(submission.workflow) if owner is not None else None
        if plan is None or SCHEDULED_TIME not in plan.definition.inputs or SCHEDULED_TIME in submission.inputs:
            return submission
        given = submission.inputs | {SCHEDULED_TIME: instant(self._context.now_ms())}
        return msgspec.structs.replace(submission, inputs=given)

    async def _large_inputs(self, inputs: dict[str, Any], plan: Plan, payloads: list[Payload]) -> Value:
        """Inputs that the machine will not look into are checked here."""
        data = packed(inputs, "inputs")
        if len(data) > INPUT_BYTES_MAX:
            raise Refused(
                "inputs_too_large",
                f"inputs have {len(data)} bytes, and at most {INPUT_BYTES_MAX} (16 MiB) can be submitted, because the "
                "server compares them with their types: put the data where tasks can read it, and submit its name",
                path="inputs",
            )
        problems = check_inputs(plan.definition, inputs)
        if problems:
            raise Refused(problems[0].code, problems[0].message, path=problems[0].path)
        return await self._context.payloads.take_any(data, payloads)

    async def cancel(self, run_id: str, *, by: str, reason: str = "", tenant: str = TENANT) -> None:
        await self._context.command(inp.Cancel(by, tenant, run_id, reason), facts=True)

    def is_live(self, task: int, *, tenant: str = TENANT) -> bool:
        """Whether this task has begun and not ended."""
        live = self._context.state.tasks.get(task)
        return live is not None and live.run.tenant.id == tenant

    async def cancel_task(self, task: int, *, by: str, reason: str = "", tenant: str = TENANT) -> None:
        """Fail one task that goes on. A durable function is the whole of its run, so its run is cancelled."""
        live = self._context.state.tasks.get(task)
        if live is not None and live.step.durable:
            await self.cancel(live.run.id, by=by, reason=reason, tenant=tenant)
        else:
            await self._context.command(inp.CancelTask(by, tenant, task, reason))

    async def retry_task(self, task: int, *, by: str, reason: str = "", tenant: str = TENANT) -> None:
        """Begin the next attempt of a task that waits for it."""
        await self._context.command(inp.RetryTask(by, tenant, task, reason))

    async def resolve(
        self,
        run_id: str,
        *,
        by: str,
        reason: str = "",
        decisions: dict[str, str] | None = None,
        values: dict[str, Any] | None = None,
        others_stay: bool = False,
        tenant: str = TENANT,
    ) -> None:
        if self._context.tenant(tenant).runs.get(run_id) is not None:
            raise Refused(
                "illegal_move", f"run {run_id[:128]} has not ended: only a failed run can be resolved", path="run_id"
            )
        row = await self._context.ended_row(tenant, run_id)
        if row is not None:
            await self.bring_back(row)
        payloads: list[Payload] = []
        given = {
            node: await self.stored_value(value, f"values.{node}", payloads) for node, value in (values or {}).items()
        }
        command = inp.Resolve(by, tenant, run_id, reason or "retry", decisions or {}, given, None, others_stay)
        await self._context.command(command, payloads, facts=True)

    async def stored_value(self, value: Any, path: str, payloads: list[Payload]) -> Value:
        """Store a value that a caller sends to a run, up to the size limit of inputs."""
        check_plain(value)
        data = packed(value, path)
        if len(data) > INPUT_BYTES_MAX:
            message = (
                f"the value has {len(data)} bytes, and at most {INPUT_BYTES_MAX} (16 MiB) can be sent: put the data "
                "where tasks can read it, and send its name"
            )
            raise Refused("value_too_large", message, path=path)
        return await self._context.payloads.take_any(data, payloads)

    async def _whole(self, record: inp.RunRecord, payloads: list[Payload]) -> inp.RunRecord:
        """With values of its own, for another run: what its children gave leaves with it for the archive."""
        inputs = await self._own_value(record.inputs, payloads)
        results = tuple([(step, await self._own_value(value, payloads)) for step, value in record.results])
        return msgspec.structs.replace(record, inputs=inputs, results=results)

    async def _own_value(self, value: Value, payloads: list[Payload]) -> Value:
        if isinstance(value, Ref) and value.place in APART:
            return await self._context.payloads.take_any(await self._context.payloads.bytes_of(value), payloads)
        if not await self._context.payloads.renewed(value):
            raise Corrupt("a value of this run is no longer stored")
        return value

    async def bring_back(self, row: RunRow) -> None:
        """A run that goes on: the values that it names are needed again, and what its children gave is in the store
        again."""
        archived = self._context.archives.opened(row.number)
        children = archived.children if archived is not None and archived.row.ended_ms == row.ended_ms else []
        named = sorted(named_in([row.record, row.output, *(child.value for child in children)]))
        await self._context.store.renew_payloads(named)
        await self._context.artifacts.renew(named)
        for child in children:
            self._context.live.write_behind.keep_child(child.run, child.step, child.child, decode_value(child.value))

    async def rerun_once(
        self, run_id: str, request: wire.RerunRequest, *, by: str, key: str, tenant: str = TENANT
    ) -> wire.Submitted:
        """Under the same key it is the same run: its id is made of the old one's and the key, so that it stays known as
        long as the run is, in whichever partition the old run lives."""
        new = rerun_id(run_id, key)
        if await self._queries.known([new], tenant=tenant) or await self._context.ended_row(tenant, new) is not None:
            return wire.Submitted(id=new, duplicate=True)
        try:
            return wire.Submitted(id=await self.rerun(run_id, request, by=by, new_id=new, tenant=tenant))
        except Refused as refused:
            if refused.code != "already_submitted":
                raise
            return wire.Submitted(id=new, duplicate=True)

    async def rerun(
        self, run_id: str, request: wire.RerunRequest, *, by: str, new_id: str = "", tenant: str = TENANT
    ) -> str:
        payloads: list[Payload] = []
        command = await self.rerun_command(run_id, request, payloads, by=by, new_id=new_id, tenant=tenant)
        await self._context.command(command, payloads)
        return command.run_id

    async def rerun_command(
        self,
        run_id: str,
        request: wire.RerunRequest,
        payloads: list[Payload],
        *,
        by: str,
        new_id: str = "",
        tenant: str = TENANT,
    ) -> inp.Rerun:
        """The input that repeats a run; the values that it needs are added to `payloads`."""
        row = await self._context.ended_row(tenant, run_id)
        if row is None or row.number >> NUMBER_BITS != self._context.number:
            if self._context.tenant(tenant).runs.get(run_id) is not None:
                raise Refused(
                    "illegal_move",
                    f"run {run_id[:128]} has not ended: only an ended run can be repeated",
                    path="run_id",
                )
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        record = await self._whole(record_of(row), payloads)
        inputs: Value = None
        fields: Fields = ()
        if request.inputs is not None:
            check_plain(request.inputs)
            inputs = packed(request.inputs, "inputs")
            if len(inputs) > INLINE_BYTES_MAX:
                plan = self._context.state.plans.get(request.definition or record.definition)
                if plan is None:
                    raise Refused("unknown_definition", "that version is unknown", path="definition")
                inputs = await self._large_inputs(request.inputs, plan, payloads)
                fields = fields_among(plan.definition, request.inputs)
        return inp.Rerun(
            by,
            tenant,
            new_id or self._context.ids.new(),
            record,
            request.from_node,
            request.definition,
            inputs,
            request.inputs is not None,
            request.from_start,
            fields,
        )

    async def decide(
        self,
        run_id: str,
        node: str,
        *,
        approve: bool,
        by: str,
        comment: str = "",
        values: dict[str, Any] | None = None,
        tenant: str = TENANT,
    ) -> None:
        packed_values = packed(values, "values") if values else None
        if packed_values is not None and len(packed_values) > INLINE_BYTES_MAX:
            raise Refused("value_too_large", f"an answer has at most {INLINE_BYTES_MAX} bytes", path="values")
        decide = inp.Decide(by, tenant, run_id, node, approve, comment, values=packed_values)
        await self._context.command(decide, facts=True)

    async def signal(self, signal: wire.Signal, *, by: str, key: str = "", tenant: str = TENANT) -> wire.Heard:
        """`key` tells repeated requests: it counts where an event starts runs."""
        if key and not signal.id and ("event", signal.event) in self._context.tenant(tenant).listeners:
            signal = msgspec.structs.replace(signal, id=key)
        payloads: list[Payload] = []
        command = await self._ingest(signal, by, tenant, payloads)
        # The message is "2 waiting", "kept", or empty where the signal went to one run.
        message = (await self._context.command(command, payloads)).message
        if message == DUPLICATE:
            return wire.Heard(detail=message, duplicate=True)
        given, _, heard = message.partition(", ")
        schedules = int(heard.partition(" ")[0]) if heard else 0
        if given == KEPT:
            return wire.Heard(detail=message, kept=True, schedules=schedules)
        return wire.Heard(detail=message, waiting=int(given.partition(" ")[0]) if given else 1, schedules=schedules)

    async def _ingest(self, signal: wire.Signal, by: str, tenant: str, payloads: list[Payload]) -> inp.Ingest:
        self._mailboxes.check(signal.event, signal.payload, tenant=tenant)
        payload = await self.stored_value(signal.payload, "payload", payloads) if signal.payload is not None else None
        ingest = inp.Ingest(by, tenant, signal.event, signal.key, signal.run, payload, signal.id)
        if payload is None or isinstance(payload, bytes) or signal.run:
            return ingest
        starts = [
            (schedule, source, await self.stored_value(inputs, "payload", payloads))
            for schedule, source, inputs in starts_of(self._context, ingest, signal.payload)
        ]
        return msgspec.structs.replace(ingest, starts=tuple(starts))


def _has_terms(submission: wire.Submission) -> bool:
    return bool(
        submission.key
        or submission.id
        or submission.start_at
        or submission.delay_ms is not None
        or submission.debounce
        or submission.priority is not None
        or submission.definition
        or submission.version
        or submission.at_most_ms is not None
        or submission.timeout_ms is not None
        or submission.queue
        or submission.retry is not None
        or submission.tags
    )


def _own_terms(submission: wire.Submission, fields: Fields) -> inp.RunTerms | None:
    if submission.timeout_ms is None and submission.retry is None and not submission.tags and not fields:
        return None
    return inp.RunTerms(submission.timeout_ms, submission.retry, submission.tags, fields)


def _body(submission: wire.Submission) -> str:
    """What a key stands for: the request without id and key."""
    return stable_digest(pack(msgspec.to_builtins(msgspec.structs.replace(submission, id="", key=""))))


def rerun_id(run_id: str, key: str) -> str:
    text = stable_digest(pack([run_id, key]))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _in_order(
    count: int, requests: list[inp.Input], answers: dict[int, CommandResult], refused: dict[int, wire.Rejected]
) -> list[wire.Submitted | wire.Rejected]:
    outcomes: list[wire.Submitted | wire.Rejected] = []
    posted = 0
    for position in range(count):
        if position in refused:
            outcomes.append(refused[position])
            continue
        request: Any = requests[posted]
        answer = answers.get(posted)
        posted += 1
        if answer is None:
            outcomes.append(wire.Submitted(id=request.run_id))
        elif answer.code:
            outcomes.append(_rejected(request, answer))
        else:
            outcomes.append(wire.Submitted(id=answer.run_id, duplicate=True))
    return outcomes


def _rejected(request: inp.Submit, answer: CommandResult) -> wire.Rejected:
    refused = refusal_of(answer)
    if refused.code == "key_reused" and (request.terms is None or not request.terms.key):
        message = f"the id {request.run_id} was used for a different request; choose another, or send the same again"
        return wire.Rejected(code=refused.code, detail=message, path="id")
    path = "id" if refused.path == "run_id" else refused.path  # as a submission calls it
    return wire.Rejected(code=refused.code, detail=refused.message, path=path)
