"""An endpoint is a definition with one `http` node and a governed schedule of the same name.

This module converts a request to both of them, and both of them back to an endpoint.
"""

from typing import Any

import msgspec

from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.base.names import NAME_CHARACTERS_MAX, check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import duration_ms, duration_text
from tickwork.core.definition.model import ENDPOINT_TIMEOUT_MS_MAX, HTTP_TIMEOUT_MS, HttpNode, Retry
from tickwork.core.definition.plan import Plan
from tickwork.core.state.state import Schedule
from tickwork.protocol import http_models as wire
from tickwork.protocol.schedule_requests import request_field
from tickwork.runtime.views.schedules import schedule as schedule_view

PREFIX = "endpoint."  # prefix of the workflows of endpoints; reserved
NODE = "call"
NAME_MAX = NAME_CHARACTERS_MAX - len(PREFIX)
MAX_DURATION_MS = 5 * 60_000  # default, unless a declared attempt takes longer
RETRIES_MAX = 100
BODYLESS = frozenset(("GET", "HEAD", "DELETE", "OPTIONS"))

# What the parts of its schedule are called, in the words of the request.
_FIELDS = {"governor.min": "min_interval", "governor.max": "max_interval", "schedule": "endpoint"}
_IN_NODE = "nodes[0]."


def workflow_of(name: str) -> str:
    return PREFIX + name


def is_endpoint(schedule: Schedule) -> bool:
    return schedule.governing is not None and schedule.workflow == workflow_of(schedule.name)


def check_endpoint_name(name: str) -> str:
    check_name(name, path="endpoint", kind="endpoint")
    if len(name) > NAME_MAX:
        raise Refused("name_too_long", f"an endpoint name has at most {NAME_MAX} characters", path="endpoint")
    return name


# ---- from the request


def document_of(name: str, request: wire.EndpointRequest) -> bytes:
    timeout_ms = duration_ms(request.timeout, path="timeout", minimum_ms=1, maximum_ms=ENDPOINT_TIMEOUT_MS_MAX)
    if not 0 <= request.retries <= RETRIES_MAX:
        raise Refused("bad_retries", f"retries are 0 to {RETRIES_MAX}", path="retries")
    retry = Retry(attempts=request.retries + 1, delay_ms=duration_ms(request.retry_delay, path="retry_delay"))
    node: dict[str, Any] = {
        "kind": "http",
        "id": NODE,
        "url": request.url,
        "method": request.method,
        "headers": request.headers,
        "body_limit": request.body_limit,
        "timeout": {"running_ms": timeout_ms},
    }
    given = {"body": request.body, "success": request.success or None, "sign": request.sign or None}
    node |= {field: value for field, value in given.items() if value is not None}
    if request.retries:
        node["retry"] = {"attempts": retry.attempts, "delay_ms": retry.delay_ms}
    document = {
        "name": workflow_of(name),
        "description": f"calls {shortened(request.url, 200)}",
        "nodes": [node],
        "timeout_ms": _execution_ms(request, timeout_ms, retry),
    }
    return msgspec.json.encode(document)


def _execution_ms(request: wire.EndpointRequest, timeout_ms: int, retry: Retry) -> int:
    """Return the time limit of a run, after which it counts as failed even without a response of its worker."""
    if request.max_duration:
        found_ms = duration_ms(request.max_duration, path="max_duration", minimum_ms=1)
        if found_ms < timeout_ms:
            message = f"a run of at most {request.max_duration} ends before its timeout of {request.timeout}"
            raise Refused("bad_max_duration", f"{message}; make it as long at least", path="max_duration")
        return found_ms
    return max(MAX_DURATION_MS, _tries_ms(timeout_ms, retry))


def _tries_ms(timeout_ms: int, retry: Retry) -> int:
    """All tries with the longest rests between them, and a minute for a worker to come."""
    rests_ms, delay_ms = 0, retry.delay_ms
    for _ in range(retry.attempts - 1):
        rests_ms += min(delay_ms, retry.delay_ms_max) * (100 + retry.jitter_percent) // 100
        delay_ms *= retry.factor
    return timeout_ms * retry.attempts + rests_ms + 60_000


def schedule_request(name: str, request: wire.EndpointRequest) -> wire.ScheduleRequest:
    return wire.ScheduleRequest(
        workflow=workflow_of(name),
        cron=request.cron,
        every=request.every,
        timezone=request.timezone,
        queue=request.queue,
        group=request.group,
        description=request.description,
        pause_after=request.pause_after,
        governor=wire.GovernorRequest(min=request.min_interval, max=request.max_interval),
    )


def in_words_of_request(error: Refused, path: str) -> Refused:
    """Return the same refusal, with the field names of the request."""
    at = f"{path}." if path else ""
    if isinstance(error, InvalidDefinition):
        problems = [
            msgspec.structs.replace(problem, path=at + problem.path.removeprefix(_IN_NODE))
            for problem in error.problems
        ]
        return InvalidDefinition(problems)
    word = request_field(error.path)
    return Refused(error.code, error.message, path=(at + _FIELDS.get(word, word)).rstrip("."))


# ---- warnings


def warnings_of(request: wire.EndpointRequest) -> list[wire.ScheduleWarning]:
    """Return warnings: settings that are allowed, but look like mistakes."""
    warnings: list[wire.ScheduleWarning] = []
    if request.body is not None and request.method in BODYLESS:
        warnings.append(_warning("body_not_sent", f"a {request.method} request has no body, so it is not sent"))
    if request.every:
        every_ms = duration_ms(request.every, path="every")
        low, high = request.min_interval, request.max_interval
        if low and every_ms < duration_ms(low, path="min_interval"):
            warnings.append(_warning("below_min", f"every {request.every} is below min_interval: it runs every {low}"))
        if high and every_ms > duration_ms(high, path="max_interval"):
            warnings.append(_warning("above_max", f"every {request.every} is above max_interval: it runs every {high}"))
    plain = [name for name in request.headers if name.lower() in ("authorization", "cookie", "x-api-key")]
    if plain:
        text = f"the header {plain[0]} is kept and shown as it stands; prefer `sign`, with a key that only workers have"
        warnings.append(_warning("plain_secret", text))
    return warnings


def _warning(code: str, text: str) -> wire.ScheduleWarning:
    return wire.ScheduleWarning(code=code, text=text)


# ---- back to the endpoint


def endpoint_view(schedule: Schedule, plan: Plan, *, last: wire.EndpointRun | None = None) -> wire.Endpoint:
    node, definition, seen = node_of(plan), plan.definition, schedule_view(schedule)
    retry, governed = node.retry or definition.defaults.retry, seen.governed
    assert governed is not None, "an endpoint is governed"
    running_ms = (node.timeout.running_ms if node.timeout is not None else None) or HTTP_TIMEOUT_MS
    return wire.Endpoint(
        name=schedule.name,
        url=node.url,
        method=node.method,
        headers=node.headers,
        body=node.body,
        timeout=duration_text(running_ms),
        body_limit=node.body_limit,
        success=node.success or "",
        retries=retry.attempts - 1,
        retry_delay=duration_text(retry.delay_ms),
        sign=node.sign or "",
        cron=schedule.when.cron or "",
        every=duration_text(schedule.when.every_ms) if schedule.when.every_ms is not None else "",
        timezone=schedule.when.zone,
        min_interval=governed.min,
        max_interval=governed.max,
        max_duration=duration_text(definition.timeout_ms or MAX_DURATION_MS),
        queue=schedule.terms.queue,
        group=schedule.terms.group,
        description=schedule.description,
        pause_after=schedule.terms.pause_after,
        says=_says(schedule, seen.says),
        workflow=schedule.workflow,
        next_at=seen.next_at,
        source=governed.source,
        candidates=governed.candidates,
        failures=schedule.failures,
        hints=governed.hints,
        running=bool(schedule.active),
        paused=seen.paused,
        pause_reason=seen.pause_reason,
        paused_until=seen.paused_until,
        archived=schedule.archived,
        last_fired_at=seen.last_fired_at,
        last_success_at=seen.last_success_at,
        fates=seen.fates,
        last=last,
    )


def _says(schedule: Schedule, rhythm: str) -> str:
    """An interval of an endpoint has no anchor: it counts from the start of each run."""
    every_ms = schedule.when.every_ms
    return rhythm if every_ms is None else f"{duration_text(every_ms)} after the start of each run"


def node_of(plan: Plan) -> HttpNode:
    node = plan.steps[0].node
    assert isinstance(node, HttpNode), "only endpoints publish under this name"
    return node
