"""Endpoints through the clients: the same deeds, waited for or awaited.

What is asked is built once; the two halves differ only in how they wait. Pauses, hints and failures of an endpoint are
those of its schedule: `pause_schedule`, `hint`, `reset_failures` and their likes take its name.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from tickwork.protocol import http_models as wire
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.values.encode import plain

T = TypeVar("T")
Length = str | timedelta

_ALL = "/v1/endpoints"
_encode = msgspec.json.Encoder().encode


# ---- what is asked


class Fields(TypedDict, total=False):
    """What an endpoint may have beside its URL; `wire.EndpointRequest` says what each is for."""

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


def put(name: str, request: wire.EndpointRequest) -> ApiCall[wire.EndpointPreview]:
    return ApiCall("PUT", _path(name), wire.EndpointPreview, body=_encode(request))


def put_all(requests: Mapping[str, wire.EndpointRequest]) -> ApiCall[wire.EndpointPreviews]:
    return ApiCall("PUT", _ALL, wire.EndpointPreviews, body=_encode(wire.EndpointSet(endpoints=dict(requests))))


def archive(name: str) -> ApiCall[None]:
    return ApiCall("DELETE", _path(name), None)


def trigger(name: str, *, test: bool) -> ApiCall[wire.Triggered]:
    return ApiCall("POST", _path(name, "test" if test else "run"), wire.Triggered, body=_encode(wire.Reason()))


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


def _states(state: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in ((state,) if isinstance(state, str) else state) if name)


# ---- the two halves


class EndpointsClient:
    """What a `Client` can ask about endpoints."""

    def _ask(self, ask: ApiCall[T], *, within_s: float | None = None) -> T:
        raise NotImplementedError

    def endpoints(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Endpoint]:
        """All endpoints by name, or those of a group; `archived`: those instead of the others."""
        endpoints: list[wire.Endpoint] = []
        cursor: str | None = ""
        while cursor is not None:
            part = self._ask(page(group=group, archived=archived, cursor=cursor))
            endpoints += part.endpoints
            cursor = part.next
        return endpoints

    def endpoint(self, name: str) -> wire.Endpoint:
        """One endpoint: what was asked for, when it is called next and why, and its last run."""
        return self._ask(show(name))

    def put_endpoint(self, name: str, url: str, **fields: Unpack[Fields]) -> wire.EndpointPreview:
        """Creates an endpoint or replaces it: `put_endpoint("shop", "https://…", every="5m", retries=2)`. The fields
        are those of `wire.EndpointRequest`; lengths are texts or timedeltas."""
        return self._ask(put(name, request(url, **fields)))

    def apply_endpoints(self, wanted: Mapping[str, wire.EndpointRequest]) -> dict[str, wire.EndpointPreview]:
        """Several endpoints, all or none. Others are left alone."""
        return self._ask(put_all(wanted)).endpoints

    def archive_endpoint(self, name: str) -> None:
        """It is called no more, its runs are kept; putting it again brings it back."""
        self._ask(archive(name))

    def run_endpoint(self, name: str) -> str:
        """Calls it now, beside its times; the id of the run."""
        return self._ask(trigger(name, test=False)).run_id

    def test_endpoint(self, name: str) -> str:
        """Calls it now as a test, which changes neither its times nor its failures; the id of the run."""
        return self._ask(trigger(name, test=True)).run_id

    def endpoint_runs(
        self, name: str, *, state: str | Iterable[str] = (), page_size: int = 20
    ) -> Iterator[wire.EndpointRun]:
        """Its calls, newest first, with what came back; further pages are fetched on the way."""
        cursor = ""
        while True:
            part = self._ask(runs(name, states=_states(state), cursor=cursor, limit=page_size))
            yield from part.runs
            if not part.next:
                return
            cursor = part.next


class AsyncEndpointsClient:
    """What an `AsyncClient` can ask about endpoints."""

    async def _ask(self, ask: ApiCall[T], *, within_s: float | None = None) -> T:
        raise NotImplementedError

    async def endpoints(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Endpoint]:
        """All endpoints by name, or those of a group; `archived`: those instead of the others."""
        endpoints: list[wire.Endpoint] = []
        cursor: str | None = ""
        while cursor is not None:
            part = await self._ask(page(group=group, archived=archived, cursor=cursor))
            endpoints += part.endpoints
            cursor = part.next
        return endpoints

    async def endpoint(self, name: str) -> wire.Endpoint:
        """One endpoint: what was asked for, when it is called next and why, and its last run."""
        return await self._ask(show(name))

    async def put_endpoint(self, name: str, url: str, **fields: Unpack[Fields]) -> wire.EndpointPreview:
        """Creates an endpoint or replaces it; the fields are those of `wire.EndpointRequest`, lengths are texts or
        timedeltas."""
        return await self._ask(put(name, request(url, **fields)))

    async def apply_endpoints(self, wanted: Mapping[str, wire.EndpointRequest]) -> dict[str, wire.EndpointPreview]:
        """Several endpoints, all or none. Others are left alone."""
        return (await self._ask(put_all(wanted))).endpoints

    async def archive_endpoint(self, name: str) -> None:
        """It is called no more, its runs are kept; putting it again brings it back."""
        await self._ask(archive(name))

    async def run_endpoint(self, name: str) -> str:
        """Calls it now, beside its times; the id of the run."""
        return (await self._ask(trigger(name, test=False))).run_id

    async def test_endpoint(self, name: str) -> str:
        """Calls it now as a test, which changes neither its times nor its failures; the id of the run."""
        return (await self._ask(trigger(name, test=True))).run_id

    async def endpoint_runs(
        self, name: str, *, state: str | Iterable[str] = (), page_size: int = 20
    ) -> AsyncIterator[wire.EndpointRun]:
        """Its calls, newest first, with what came back; further pages are fetched on the way."""
        cursor = ""
        while True:
            part = await self._ask(runs(name, states=_states(state), cursor=cursor, limit=page_size))
            for run in part.runs:
                yield run
            if not part.next:
                return
            cursor = part.next
