"""Endpoints: URLs that are called when the Governor says so, without any code of users.

An endpoint is a workflow and a schedule (`views.endpoints`); both are put in one go and checked before, so there is
never one without the other. What became of its calls is read from its runs, newest first, a page at a time.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.base.strict_json import loads
from tickwork.core.base.values import Value
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.decide.schedules.schedule_commands import check_put, is_same
from tickwork.core.definition.model import HttpNode
from tickwork.core.definition.plan import new_plan
from tickwork.core.state import inputs as inp
from tickwork.core.state.state import Schedule, Tenant
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.schedule_requests import put_of
from tickwork.runtime.services.schedules import PAGE_MAX, TIMES_SHOWN, ScheduleService
from tickwork.runtime.storage.request_checks import shown
from tickwork.runtime.views import endpoints as words
from tickwork.runtime.views.text import instant

if TYPE_CHECKING:
    from tickwork.runtime.services.queries import QueryService

ENDPOINTS_MAX = 1_000  # in one set
PAGE_BYTES_MAX = 4 * 1024 * 1024  # of bodies in one page of runs
LAST_LOOKED_AT = 20  # runs, to find the last that is no test


class EndpointService:
    """Endpoints, and the calls that their runs made."""

    def __init__(self, context: EngineContext, schedules: ScheduleService, queries: "QueryService") -> None:
        self._context, self._schedules, self._queries = context, schedules, queries

    # ---- what changes something

    async def put(
        self, name: str, request: wire.EndpointRequest, *, by: str, tenant: str = TENANT
    ) -> wire.EndpointPreview:
        await self._put_endpoints({name: request}, by=by, tenant=tenant)
        return self._endpoint_preview(name, request, tenant)

    async def put_set(
        self, requests: Mapping[str, wire.EndpointRequest], *, by: str, tenant: str = TENANT
    ) -> dict[str, wire.EndpointPreview]:
        """Put all of them or none. Other endpoints stay as they are."""
        if len(requests) > ENDPOINTS_MAX:
            raise Refused("too_many", f"a set has at most {ENDPOINTS_MAX} endpoints", path="endpoints")
        await self._put_endpoints(requests, by=by, tenant=tenant, path="endpoints")
        return {name: self._endpoint_preview(name, request, tenant) for name, request in sorted(requests.items())}

    async def _put_endpoints(
        self, endpoints: Mapping[str, wire.EndpointRequest], *, by: str, tenant: str, path: str = ""
    ) -> None:
        owner = self._context.tenant(tenant)
        requests: list[inp.Input] = []
        for name, request in sorted(endpoints.items()):
            try:
                requests += self._endpoint_inputs(owner, name, request, by)
            except Refused as refused:
                raise words.in_words_of_request(refused, f"{path}.{name}" if path else "") from None
        await self._context.command_all(requests)

    def _endpoint_inputs(self, owner: Tenant, name: str, request: wire.EndpointRequest, by: str) -> list[inp.Input]:
        """Return the required inputs; none for an identical endpoint: putting a schedule again would move it."""
        words.check_endpoint_name(name)
        document = words.document_of(name, request)
        plan = new_plan(document)
        put = _endpoint_put(name, request, by=by, tenant=owner.id)
        old, latest = owner.schedules.get(name), owner.plans.get(plan.name)
        if old is not None and not words.is_endpoint(old):
            raise Refused("name_taken", f"{name} is a schedule of {old.workflow}; choose another name", path="endpoint")
        check_put(self._context.state, put, plans=owner.plans | {plan.name: plan})
        requests: list[inp.Input] = []
        if latest is None or latest.hash != plan.hash:
            requests.append(inp.PutDefinition(by, owner.id, document))
        if not is_same(old, put):
            requests.append(put)
        if old is not None and old.archived:
            requests.append(inp.SteerSchedule(by, owner.id, name, "restore"))
        return requests

    def _endpoint_preview(self, name: str, request: wire.EndpointRequest, tenant: str) -> wire.EndpointPreview:
        schedule = self._endpoint_of(name, tenant)
        preview = self._schedules.preview_of(name, words.schedule_request(name, request), schedule, tenant, owner="")
        view = words.endpoint_view(schedule, self._context.plan(tenant, schedule.workflow))
        times = preview.next
        if schedule.when.every_ms is not None and view.next_at is not None:
            # The intervals of an endpoint count from the start of its runs: these are the times if each is shorter.
            first_ms, every_ms = instant_ms(view.next_at, path="next_at"), schedule.when.every_ms
            ticks = [instant(first_ms + number * every_ms) for number in range(TIMES_SHOWN)]
            times = tuple(wire.Time(utc=at, local=at) for at in ticks)
        return wire.EndpointPreview(
            says=view.says,
            next=times,
            warnings=(*preview.warnings, *words.warnings_of(request)),
            tzdata=preview.tzdata,
            next_at=view.next_at,
            source=view.source,
        )

    async def archive(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        """It begins no more runs and keeps its history; putting it again brings it back."""
        if not self._endpoint_of(name, tenant).archived:
            await self._schedules.steer(name, "archive", by=by, tenant=tenant)
        await self._context.until_durable()

    def check(self, name: str, *, tenant: str = TENANT) -> None:
        """Raises `Refused` where there is none of this name."""
        self._endpoint_of(name, tenant)

    # ---- queries

    async def get(self, name: str, *, tenant: str = TENANT) -> wire.Endpoint:
        schedule = self._endpoint_of(name, tenant)
        last = await self._last_run(name, tenant)
        view = words.endpoint_view(schedule, self._context.plan(tenant, schedule.workflow), last=last)
        await self._context.until_durable()
        return view

    async def page(
        self, *, tenant: str = TENANT, after: str = "", limit: int = PAGE_MAX, group: str = "", archived: bool = False
    ) -> wire.EndpointPage:
        """Return a page by name, beginning after `after`."""
        owner = self._context.tenant(tenant)
        schedules = [
            schedule for name, schedule in owner.schedules.items()
            if name > after and schedule.archived is archived and group in ("",
            schedule.terms.group) and words.is_endpoint(schedule)
        ][: limit + 1]  # fmt: skip
        shown_ones = tuple(
            words.endpoint_view(endpoint, owner.plans[endpoint.workflow]) for endpoint in schedules[:limit]
        )
        await self._context.until_durable()
        return wire.EndpointPage(
            endpoints=shown_ones, next=schedules[limit - 1].name if len(schedules) > limit else None
        )

    async def runs(
        self, name: str, *, tenant: str = TENANT, before: int = 0, limit: int = 20, states: tuple[str, ...] = ()
    ) -> tuple[list[wire.EndpointRun], int]:
        """Return the endpoint's calls, newest first, and the number before which the next page begins (0: none)."""
        workflow = self._endpoint_of(name, tenant).workflow
        query = self._queries.filter(
            workflow=workflow, schedule=name, states=states, before=before, limit=limit, tenant=tenant
        )
        heads, following = await self._queries.runs(query)
        calls: list[wire.EndpointRun] = []
        size, last = 0, 0
        for head in heads:
            call, number, length = await self._call(head, tenant)
            if calls and size + length > PAGE_BYTES_MAX:
                return calls, last
            calls.append(call)
            size, last = size + length, number
        return calls, following

    async def _last_run(self, name: str, tenant: str) -> wire.EndpointRun | None:
        query = self._queries.filter(schedule=name, limit=LAST_LOOKED_AT, tenant=tenant)
        heads, _ = await self._queries.runs(query)
        head = next((head for head in heads if head.source != "test"), None)
        if head is None:
            return None
        call, _, _ = await self._call(head, tenant)
        return msgspec.structs.replace(call, body=None)

    async def _call(self, head: wire.Run, tenant: str) -> tuple[wire.EndpointRun, int, int]:
        """A run as one call, its number, and about how many bytes its body has."""
        draft = await self._queries.draft(tenant, head.id)
        # Definitions are kept as long as their runs, so the node exists.
        task: dict[str, Any] = {"attempts": (), "id": "0"}
        value: Value = None
        if draft is not None and draft.tasks:
            task, value = draft.tasks[0]
        attempt: wire.Attempt | None = task["attempts"][-1] if task["attempts"] else None
        broke = attempt is not None and head.state != "completed"
        answer, size = await self._answer(value)
        if answer is None:
            answer = self._refused_answer(head, attempt, tenant)
        run = wire.EndpointRun(
            id=head.id,
            source=head.decided or head.source,
            by=head.by,
            state=head.state,
            attempt=attempt.attempt if attempt is not None else 0,
            status=answer.get("status"),
            duration_ms=answer.get("duration_ms"),
            body=answer.get("body"),
            cut=bool(answer.get("cut")),
            error=attempt.error if attempt is not None and broke else "",
            message=(attempt.message if attempt is not None and broke else "") or head.error,
            scheduled_at=head.scheduled_at,
            started_at=head.started_at,
            ended_at=head.ended_at,
        )
        return run, int(task["id"]), size

    async def _answer(self, value: Value) -> tuple[dict[str, Any] | None, int]:
        if value is None:
            return None, 0
        data = await self._context.payloads.bytes_of(value)
        answer = shown(data)
        return (answer, len(data)) if isinstance(answer, dict) else (None, 0)

    def _refused_answer(self, head: wire.Run, attempt: wire.Attempt | None, tenant: str) -> dict[str, Any]:
        """Return what the report of a failed attempt holds: the status, and as much of the body as the message has."""
        if attempt is None:
            return {}
        answer: dict[str, Any] = {"status": attempt.exit_code, "duration_ms": _lasted_ms(attempt)}
        plan = self._context.tenant(tenant).versions.get(head.definition)
        node = plan.steps[0].node if plan is not None else None
        if isinstance(node, HttpNode) and attempt.error == "HttpStatus":
            prefix = f"{node.method} {node.url} answered {attempt.exit_code}: "
            answer["body"] = _plain(attempt.message.removeprefix(prefix))
        return answer

    def _endpoint_of(self, name: str, tenant: str) -> Schedule:
        schedule = self._context.tenant(tenant).schedules.get(name)
        if schedule is None or not words.is_endpoint(schedule):
            raise Refused("unknown_endpoint", f"there is no endpoint {shortened(name, 128)!r}", path="endpoint")
        return schedule


def _lasted_ms(attempt: wire.Attempt) -> int | None:
    if attempt.ended_at is None:
        return None
    begun = attempt.started_at or attempt.dispatched_at
    return max(0, instant_ms(attempt.ended_at, path="ended_at") - instant_ms(begun, path="started_at"))


def _plain(text: str) -> Any:
    """As data where it is whole; a message is cut after so many characters, and then it is text."""
    try:
        return loads(text.encode())
    except (Refused, UnicodeEncodeError):
        return text


def _endpoint_put(name: str, request: wire.EndpointRequest, *, by: str, tenant: str) -> inp.PutSchedule:
    if bool(request.cron) == bool(request.every):
        given = "both" if request.cron else "neither"
        raise Refused("bad_schedule", f"an endpoint has cron or every: exactly one; there is {given}", path="cron")
    return put_of(name, words.schedule_request(name, request), by=by, tenant=tenant)
