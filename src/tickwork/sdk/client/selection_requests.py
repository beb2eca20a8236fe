"""Calls that search for runs and act on many: filters as a client writes them, as parameters of the API."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import duration_ms, instant_ms, instant_text
from tickwork.core.definition.run_labels import field_text
from tickwork.protocol import http_models as wire
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.values.encode import plain

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow

_encode = msgspec.json.Encoder().encode
Moment = datetime | timedelta | str


class Search(TypedDict, total=False):
    """Which runs. A time is a datetime, a text in RFC 3339, or how long ago: "24h", timedelta(days=1)."""

    state: str | Iterable[str]  # one of these
    schedule: str
    tag: str | Iterable[str]  # all of these
    where: Mapping[str, Any]  # inputs that the workflow declares searchable
    version: str  # of an application, as `version` or `application@version`
    error: str  # words that are all in the error
    submitted_from: Moment
    submitted_to: Moment
    started_from: Moment
    started_to: Moment
    ended_from: Moment
    ended_to: Moment


TIMES = tuple(f"{name}_{end}" for name in ("submitted", "started", "ended") for end in ("from", "to"))


def search_of(workflow: "Workflow[..., Any] | str", given: Mapping[str, Any]) -> wire.RunSearch:
    """Raises `Refused`."""
    for name in given:
        if name not in Search.__annotations__:
            raise Refused("bad_option", f"there is no filter {name!r}; known are {', '.join(Search.__annotations__)}")
    return wire.RunSearch(
        workflow=workflow if isinstance(workflow, str) else workflow.name,
        state=_texts(given.get("state", ())),
        schedule=given.get("schedule", ""),
        tag=_texts(given.get("tag", ())),
        where={name: _value(name, value) for name, value in given.get("where", {}).items()},
        version=given.get("version", ""),
        error=given.get("error", ""),
        **{name: moment_text(given[name], name) for name in TIMES if given.get(name)},
    )


def query_of(search: wire.RunSearch) -> dict[str, str]:
    """The parameters of `GET /v1/runs`."""
    query = {name: value for name in search.__struct_fields__ if isinstance(value := getattr(search, name), str)}
    query |= {"state": ",".join(search.state), "tag": ",".join(search.tag)}
    query["where"] = ",".join(f"{_escaped(name)}={_escaped(value)}" for name, value in search.where.items())
    return {name: value for name, value in query.items() if value}


def moment_text(value: Moment, path: str) -> str:
    """A time in RFC 3339: given as such, as a datetime, or as how long ago."""
    if isinstance(value, timedelta):
        return _ago(value // timedelta(milliseconds=1))
    text = str(plain(value, what=path))
    try:
        instant_ms(text, path=path)
    except Refused as refused:
        try:
            return _ago(duration_ms(text, path=path))
        except Refused:
            raise refused from None
    return text


def _ago(ms: int) -> str:
    return instant_text(round(datetime.now(UTC).timestamp() * 1_000) - ms)


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(None, (given,) if isinstance(given, str) else tuple(given)))


def _value(name: str, value: Any) -> str:
    text = field_text(plain(value, what=f"where.{name}"))
    if not text:
        raise Refused("bad_where", "an input is searched by a text, a number or a boolean", path=f"where.{name}")
    return text


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


# ---- calls


def page_of(search: wire.RunSearch, cursor: str, limit: int) -> ApiCall[wire.Page]:
    query = query_of(search) | ({"cursor": cursor} if cursor else {})
    return ApiCall("GET", "/v1/runs", wire.Page, query | {"limit": str(limit)})


def preview(action: str, search: wire.RunSearch) -> ApiCall[wire.BulkPreview]:
    body = wire.BulkPreviewRequest(action=action, search=search)
    return ApiCall("POST", "/v1/bulk/preview", wire.BulkPreview, body=_encode(body))


def start(request: wire.BulkRequest) -> ApiCall[wire.BulkOperation]:
    return ApiCall("POST", "/v1/bulk", wire.BulkOperation, body=_encode(request))


def jobs() -> ApiCall[wire.BulkOperations]:
    return ApiCall("GET", "/v1/bulk", wire.BulkOperations)


def show(job: str) -> ApiCall[wire.BulkOperation]:
    return ApiCall("GET", f"/v1/bulk/{quote(job, safe='')}", wire.BulkOperation)


def cancel(job: str, reason: str) -> ApiCall[None]:
    return ApiCall("POST", f"/v1/bulk/{quote(job, safe='')}/cancel", None, body=_encode(wire.Reason(reason=reason)))
