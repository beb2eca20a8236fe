"""API calls about endpoints, as values; both clients send them.

Pauses, hints and failures of an endpoint are those of its schedule: `pause_schedule`, `hint`, `reset_failures` and the
other methods for schedules take its name.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import msgspec

from tickwork.protocol import http_models as wire
from tickwork.sdk.client.calls import ApiCall, if_match_terms
from tickwork.sdk.values.encode import plain

Length = str | timedelta

_ALL = "/v1/endpoints"
_encode = msgspec.json.Encoder().encode


class Fields(TypedDict, total=False):
    """The optional fields of an endpoint; `wire.EndpointRequest` describes them."""

    method: str
    headers: Mapping[str, str]
    body: Any
    timeout: Length
    body_limit: int
    success: str
    retries: int
    retry_delay: Length
    sign: str
    cron: str
    every: Length
    timezone: str
    min_interval: Length
    max_interval: Length
    max_duration: Length
    queue: str
    group: str
    description: str
    pause_after: int


def request(url: str, **fields: Unpack[Fields]) -> wire.EndpointRequest:
    given: dict[str, Any] = {
        name: _length(value) if isinstance(value, timedelta) else value for name, value in fields.items()
    }
    if "headers" in given:
        given["headers"] = dict(given["headers"])
    if "body" in given:
        given["body"] = plain(given["body"], what="body")
    return wire.EndpointRequest(url=url, **given)


def page(*, group: str, archived: bool, cursor: str) -> ApiCall[wire.EndpointPage]:
    query = {"group": group, "cursor": cursor, "archived": "true" if archived else ""}
    return ApiCall("GET", _ALL, wire.EndpointPage, _given(query))


def show(name: str) -> ApiCall[wire.Endpoint]:
    return ApiCall("GET", _path(name), wire.Endpoint)


def put(name: str, request: wire.EndpointRequest, *, if_match: str = "") -> ApiCall[wire.EndpointPreview]:
    return ApiCall("PUT", _path(name), wire.EndpointPreview, body=_encode(request), terms=if_match_terms(if_match))


def put_all(requests: Mapping[str, wire.EndpointRequest]) -> ApiCall[wire.EndpointPreviews]:
    return ApiCall("PUT", _ALL, wire.EndpointPreviews, body=_encode(wire.EndpointSet(endpoints=dict(requests))))


def archive(name: str) -> ApiCall[None]:
    return ApiCall("POST", _path(name, "archive"), None, body=_encode(wire.Reason()))


def restore(name: str) -> ApiCall[None]:
    return ApiCall("POST", _path(name, "restore"), None, body=_encode(wire.Reason()))


def trigger(name: str, *, test: bool) -> ApiCall[wire.Triggered]:
    return ApiCall("POST", _path(name, "test" if test else "trigger"), wire.Triggered, body=_encode(wire.Reason()))


def runs(name: str, *, states: tuple[str, ...], cursor: str, limit: int) -> ApiCall[wire.EndpointRuns]:
    query = {"state": ",".join(states), "cursor": cursor, "limit": str(limit)}
    return ApiCall("GET", _path(name, "runs"), wire.EndpointRuns, _given(query))


def _path(name: str, part: str = "") -> str:
    path = f"{_ALL}/{quote(name, safe='')}"
    return f"{path}/{part}" if part else path


def _given(query: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _length(value: Length) -> str:
    return value if isinstance(value, str) else f"{value // timedelta(milliseconds=1)}ms"


def states_of(state: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in ((state,) if isinstance(state, str) else state) if name)
