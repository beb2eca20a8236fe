"""API calls of operators, as values; both clients send them: policies, limits, settings, dead letters, alarms."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from tickwork.core.calendar.durations import duration_text
from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.options import duration
from tickwork.sdk.client.calls import ApiCall, RunLike, id_of

Length = str | timedelta

_encode = msgspec.json.Encoder().encode


def policies() -> ApiCall[list[wire.Policy]]:
    return ApiCall("GET", "/v1/policies", ("policies", wire.Policy))


def put_policy(name: str, request: wire.PolicyRequest) -> ApiCall[None]:
    return ApiCall("PUT", _path("policies", name), None, body=_encode(request))


def policy_request(allow: str, reason: str, action: str, pause: Length | None) -> wire.PolicyRequest:
    return wire.PolicyRequest(allow=allow, reason=reason, action=action, pause=_length(pause, "pause"))


def delete_policy(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path("policies", name), None)


def test_policy(name: str, allow: str, workflow: str, limit: int) -> ApiCall[wire.PolicyTest]:
    request = wire.PolicyTestRequest(allow=allow, workflow=workflow, limit=limit)
    return ApiCall("POST", _path("policies", name, "test"), wire.PolicyTest, body=_encode(request))


def tenants() -> ApiCall[list[wire.Tenant]]:
    return ApiCall("GET", "/v1/tenants", ("tenants", wire.Tenant))


def put_tenant(name: str, request: wire.TenantRequest) -> ApiCall[None]:
    return ApiCall("PUT", _path("tenants", name), None, body=_encode(request))


def tenant_action(name: str, word: str, reason: str = "") -> ApiCall[None]:
    """pause or resume."""
    return ApiCall("POST", _path("tenants", name, word), None, body=_encode(wire.Reason(reason=reason)))


def put_mailbox(name: str, keep: Length, capacity: int, fields: Mapping[str, Any]) -> ApiCall[None]:
    request = wire.MailboxRequest(keep=_length(keep, "keep"), max=capacity, fields=dict(fields))
    return ApiCall("PUT", _path("mailboxes", name), None, body=_encode(request))


def tenant_request(
    weight: int,
    limit: int | None,
    rate: int | None,
    per: Length,
    burst: int | None,
    window: str,
    max_live_runs: int | None,
) -> wire.TenantRequest:
    return wire.TenantRequest(
        weight=weight, limit=limit, rate=rate, per=_length(per, "per"), burst=burst, window=window,
        max_live_runs=max_live_runs,
    )  # fmt: skip


def label_limits() -> ApiCall[list[wire.LabelLimit]]:
    return ApiCall("GET", "/v1/label-limits", ("limits", wire.LabelLimit))


def put_label_limit(label: str, value: str, limit: int) -> ApiCall[None]:
    body = _encode(wire.LabelLimitRequest(limit=limit))
    return ApiCall("PUT", _path("label-limits", label, value), None, body=body)


def delete_label_limit(label: str, value: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path("label-limits", label, value), None)


def settings() -> ApiCall[list[wire.Setting]]:
    return ApiCall("GET", "/v1/settings", ("settings", wire.Setting))


def put_settings(values: Mapping[str, int]) -> ApiCall[None]:
    return ApiCall("PUT", "/v1/settings", None, body=_encode(wire.SettingsRequest(settings=dict(values))))


def dead_letters(workflow: str, cursor: str, limit: int) -> ApiCall[wire.DeadLetters]:
    query = {"workflow": workflow, "cursor": cursor, "limit": str(limit)}
    return ApiCall("GET", "/v1/dead-letters", wire.DeadLetters, {name: text for name, text in query.items() if text})


def redrive(
    runs: Iterable[RunLike], workflow: str, per_second: int, reason: str, limit: int
) -> ApiCall[wire.DeadLetterResult]:
    ids = tuple(id_of(run) for run in runs)
    request = wire.RedriveRequest(runs=ids, workflow=workflow, per_second=per_second, reason=reason, limit=limit)
    return ApiCall("POST", "/v1/dead-letters/redrive", wire.DeadLetterResult, body=_encode(request))


def drop(runs: Iterable[RunLike], workflow: str, reason: str, limit: int) -> ApiCall[wire.DeadLetterResult]:
    ids = tuple(id_of(run) for run in runs)
    request = wire.DeadLetterRequest(runs=ids, workflow=workflow, reason=reason, limit=limit)
    return ApiCall("POST", "/v1/dead-letters/drop", wire.DeadLetterResult, body=_encode(request))


def delete_queue(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path("queues", name), None)


def delete_workflow(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path("workflows", name), None)


def workflow_action(name: str, word: str, reason: str = "") -> ApiCall[None]:
    """pause or resume."""
    return ApiCall("POST", _path("workflows", name, word), None, body=_encode(wire.Reason(reason=reason)))


def put_workflows(documents: Iterable[Mapping[str, Any]]) -> ApiCall[None]:
    request = wire.Publication(documents=tuple(dict(document) for document in documents))
    return ApiCall("PUT", "/v1/workflows", None, body=_encode(request))


def alarms() -> ApiCall[list[wire.Alarm]]:
    return ApiCall("GET", "/v1/alarms", ("alarms", wire.Alarm))


def tick(number: int, partition: int) -> ApiCall[wire.TickTrace]:
    return ApiCall("GET", f"/v1/partitions/{partition}/ticks/{number}", wire.TickTrace)


def run_ids(prefix: str) -> ApiCall[wire.RunIds]:
    return ApiCall("GET", "/v1/run-ids", wire.RunIds, {"prefix": prefix})


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _length(value: Length | None, path: str) -> str:
    return "" if value is None or value == "" else duration_text(duration(value, path=path))
