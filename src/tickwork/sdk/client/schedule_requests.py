"""Requests about schedules as plain values, like those of `calls`. Both clients send them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_text
from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.options import duration
from tickwork.sdk.authoring.schedules import Day, Duration, Instant, fitted, request_of
from tickwork.sdk.client.calls import ApiCall, StillRunning, if_match_terms
from tickwork.sdk.values.encode import plain

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow

Order = Literal["oldest", "newest"]
ORDERS: tuple[Order, ...] = ("oldest", "newest")
BACKFILL_ENDED = frozenset(("done", "cancelled"))

_encode = msgspec.json.Encoder().encode


# ---- schedules


def request(workflow: "Workflow[..., Any] | str", given: Mapping[str, Any]) -> wire.ScheduleRequest:
    """Build a request. The parameters of a given workflow object show which receive the scheduled time and context."""
    if isinstance(workflow, str):
        return request_of(workflow, given)
    return fitted(request_of(workflow.name, given), workflow)


def schedules(group: str, archived: bool, cursor: str) -> ApiCall[wire.Schedules]:
    query = {"group": group, "archived": "true" if archived else "", "cursor": cursor}
    return ApiCall("GET", "/v1/schedules", wire.Schedules, {name: value for name, value in query.items() if value})


def schedule(name: str) -> ApiCall[wire.Schedule]:
    return ApiCall("GET", _path(name), wire.Schedule)


def put(
    name: str, request: wire.ScheduleRequest, *, new: bool = False, if_match: str = ""
) -> ApiCall[wire.SchedulePreview]:
    terms = {"If-None-Match": "*"} if new else if_match_terms(if_match)
    return ApiCall("PUT", _path(name), wire.SchedulePreview, body=_encode(request), terms=terms)


def apply(owner: str, requests: Mapping[str, wire.ScheduleRequest], *, dry_run: bool) -> ApiCall[list[wire.Schedule]]:
    body = _encode(wire.ScheduleSet(owner=owner, schedules=dict(requests), dry_run=dry_run))
    return ApiCall("PUT", "/v1/schedules", ("schedules", wire.Schedule), body=body)


def preview(name: str, request: wire.ScheduleRequest) -> ApiCall[wire.SchedulePreview]:
    fields = {field: getattr(request, field) for field in request.__struct_fields__}
    body = _encode(wire.PreviewRequest(name=name, **fields))
    return ApiCall("POST", "/v1/schedules/preview", wire.SchedulePreview, body=body)


def delete(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path(name), None)


def pause(name: str, reason: str, until: Instant | None) -> ApiCall[None]:
    ends = "" if until is None else _instant(until, "until")
    return ApiCall("POST", _path(name, "pause"), None, body=_encode(wire.PauseRequest(reason=reason, until=ends)))


def action(name: str, word: str) -> ApiCall[None]:
    """resume, archive, restore or reset_failures."""
    return ApiCall("POST", _path(name, word), None, body=_encode(wire.Reason()))


def trigger(name: str, *, test: bool) -> ApiCall[wire.Triggered]:
    return ApiCall("POST", _path(name, "test" if test else "trigger"), wire.Triggered, body=_encode(wire.Reason()))


def group_action(name: str, word: str, reason: str = "") -> ApiCall[None]:
    body = _encode(wire.Reason(reason=reason))
    return ApiCall("POST", f"/v1/groups/{quote(name, safe='')}/{word}", None, body=body)


def hint(
    name: str, interval: Duration | None, at: Instant | None, ttl: Duration | None, reason: str, cost: int
) -> ApiCall[wire.Schedule]:
    request = wire.HintRequest(
        interval="" if interval is None else _length(interval, "interval"),
        at="" if at is None else _instant(at, "at"),
        ttl="" if ttl is None else _length(ttl, "ttl"),
        reason=reason,
        cost=cost,
    )
    return ApiCall("PUT", _path(name, "hints"), wire.Schedule, body=_encode(request))


def clear_hints(name: str) -> ApiCall[wire.Schedule]:
    return ApiCall("DELETE", _path(name, "hints"), wire.Schedule)


# ---- occurrences


def occurrences(name: str, start: Instant | None, end: Instant | None) -> ApiCall[wire.Occurrences]:
    given = {"start": start, "end": end}
    query = {key: _instant(value, key) for key, value in given.items() if value is not None}
    return ApiCall("GET", _path(name, "occurrences"), wire.Occurrences, query)


def new_in(page: wire.Occurrences, before: Sequence[wire.Occurrence]) -> Iterator[wire.Occurrence]:
    """Yield the entries of a page that earlier pages did not have: pages overlap."""
    known = {(span.from_at, span.fate, span.cause, span.backfill) for span in before}
    return (
        occurrence
        for occurrence in page.occurrences
        if (occurrence.from_at, occurrence.fate, occurrence.cause, occurrence.backfill) not in known
    )


def upcoming(days: int, schedule: str, cursor: str, limit: int | None) -> ApiCall[wire.Upcoming]:
    query = {"days": str(days), "schedule": schedule, "cursor": cursor, "limit": "" if limit is None else str(limit)}
    return ApiCall("GET", "/v1/occurrences", wire.Upcoming, {name: value for name, value in query.items() if value})


def catch_ups(policy: str) -> ApiCall[list[wire.CatchUp]]:
    return ApiCall("GET", "/v1/catchup", ("schedules", wire.CatchUp), {"policy": policy} if policy else {})


def zones() -> ApiCall[wire.ZoneNames]:
    return ApiCall("GET", "/v1/zones", wire.ZoneNames)


# ---- backfills


def backfill(
    name: str,
    start: Instant | date,
    end: Instant | date,
    *,
    preview: bool,
    order: Order,
    concurrency: int,
    priority: int | None,
    forced: bool,
) -> ApiCall[wire.Backfill]:
    if order not in ORDERS:
        raise Refused("bad_option", f"order is {' or '.join(ORDERS)}", path="order")
    request = wire.BackfillRequest(
        start=_reading(start, "start"),
        end=_reading(end, "end"),
        concurrency=concurrency,
        priority=priority,
        newest_first=order == "newest",
        forced=forced,
        preview=preview,
    )
    return ApiCall("POST", _path(name, "backfills"), wire.Backfill, body=_encode(request), once=forced and not preview)


def backfills() -> ApiCall[list[wire.Backfill]]:
    return ApiCall("GET", "/v1/backfills", ("backfills", wire.Backfill))


def backfill_action(number: int, word: str) -> ApiCall[None]:
    """pause, resume or cancel."""
    return ApiCall("POST", f"/v1/backfills/{number}/{word}", None, body=_encode(wire.Reason()))


def backfill_in(backfills: Iterable[wire.Backfill], number: int) -> wire.Backfill:
    for backfill in backfills:
        if backfill.number == number:
            return backfill
    raise Refused("unknown_backfill", f"there is no backfill {number}", path="number")


def still_filling(backfill: wire.Backfill) -> StillRunning:
    message = (
        f"the backfill {backfill.number} of {backfill.schedule} is {backfill.state} after the time limit for waiting"
    )
    return StillRunning(message, retry_after_ms=0)


# ---- holidays


def put_holidays(name: str, dates: Iterable[Day]) -> ApiCall[None]:
    texts = tuple(day if isinstance(day, str) else day.isoformat() for day in dates)
    return ApiCall("PUT", _holidays(name), None, body=_encode(wire.HolidaysRequest(dates=texts)))


def holidays() -> ApiCall[wire.Holidays]:
    return ApiCall("GET", "/v1/holidays", wire.Holidays)


def delete_holidays(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _holidays(name), None)


def _holidays(name: str) -> str:
    return f"/v1/holidays/{quote(name, safe='')}"


def _path(name: str, part: str = "") -> str:
    path = f"/v1/schedules/{check_name(name, path='schedule', kind='schedule')}"
    return f"{path}/{part}" if part else path


def _length(value: Duration, path: str) -> str:
    return value if isinstance(value, str) else duration_text(duration(value, path=path))


def _instant(value: Instant, path: str) -> str:
    return value if isinstance(value, str) else str(plain(value, what=path))


def _reading(value: Instant | date, path: str) -> str:
    """Return an instant as text. Without a zone, the server reads it in the schedule's zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(plain(value, what=path))
    return value if isinstance(value, str) else value.isoformat()


# ---- what schedules listen to: webhooks, which become events, and assets


def webhooks() -> ApiCall[list[wire.Webhook]]:
    return ApiCall("GET", "/v1/webhooks", ("webhooks", wire.Webhook))


def assets() -> ApiCall[list[wire.Asset]]:
    return ApiCall("GET", "/v1/assets", ("assets", wire.Asset))


def asset(name: str) -> ApiCall[wire.Asset]:
    return ApiCall("GET", f"/v1/assets/{quote(name, safe='')}", wire.Asset)


def update_asset(
    name: str,
    *,
    partition: str,
    details: Mapping[str, Any] | None,
    id: str,  # noqa: A002 - the field's name
) -> ApiCall[wire.AssetHeard]:
    sent = plain(dict(details or {}), what="details")
    request = wire.AssetUpdateRequest(partition=partition, details=sent, id=id)
    return ApiCall("PUT", f"/v1/assets/{quote(name, safe='')}", wire.AssetHeard, body=_encode(request))
