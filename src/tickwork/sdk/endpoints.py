"""Endpoints through the clients: the same deeds, waited for or awaited.

What is asked is built once; the two halves differ only in how they wait.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from tickwork.ports import wire
from tickwork.sdk.calls import Ask
from tickwork.sdk.plain import plain

T = TypeVar("T")
Length = str | timedelta
Moment = str | datetime

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
    max_execution: Length
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


def page(*, group: str, archived: bool, cursor: str) -> Ask[wire.EndpointPage]:
    query = {"group": group, "cursor": cursor, "archived": "true" if archived else ""}
    return Ask("GET", _ALL, wire.EndpointPage, _given(query))


def show(name: str) -> Ask[wire.Endpoint]:
    return Ask("GET", _path(name), wire.Endpoint)


def put(name: str, wanted: wire.EndpointRequest) -> Ask[wire.EndpointPreview]:
    return Ask("PUT", _path(name), wire.EndpointPreview, body=_encode(wanted))


def put_all(wanted: Mapping[str, wire.EndpointRequest]) -> Ask[wire.EndpointPreviews]:
    return Ask("PUT", _ALL, wire.EndpointPreviews, body=_encode(wire.EndpointSet(endpoints=dict(wanted))))


def archive(name: str) -> Ask[None]:
    return Ask("DELETE", _path(name), None)


def trigger(name: str, *, test: bool) -> Ask[wire.Triggered]:
    return Ask("POST", _path(name, "test" if test else "run"), wire.Triggered, body=_encode(wire.Reason()))


def pause(name: str, reason: str, until: Moment | None) -> Ask[None]:
    wanted = wire.PauseRequest(reason=reason, until=_moment(until))
    return Ask("POST", _path(name, "pause"), None, body=_encode(wanted))


def deed(name: str, word: str) -> Ask[None]:
    """resume or reset_failures."""
    return Ask("POST", _path(name, word), None, body=_encode(wire.Reason()))


def hint(name: str, *, interval: Length, at: Moment | None, ttl: Length, reason: str, cost: int) -> Ask[wire.Endpoint]:
    wanted = wire.HintRequest(interval=_length(interval), at=_moment(at), ttl=_length(ttl), reason=reason, cost=cost)
    return Ask("PUT", _path(name, "hints"), wire.Endpoint, body=_encode(wanted))


def clear_hints(name: str) -> Ask[wire.Endpoint]:
    return Ask("DELETE", _path(name, "hints"), wire.Endpoint)


def runs(name: str, *, states: tuple[str, ...], cursor: str, limit: int) -> Ask[wire.EndpointRuns]:
    query = {"state": ",".join(states), "cursor": cursor, "limit": str(limit)}
    return Ask("GET", _path(name, "runs"), wire.EndpointRuns, _given(query))


def _path(name: str, part: str = "") -> str:
    path = f"{_ALL}/{quote(name, safe='')}"
    return f"{path}/{part}" if part else path


def _given(query: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _length(value: Length) -> str:
    return value if isinstance(value, str) else f"{value // timedelta(milliseconds=1)}ms"


def _moment(value: Moment | None) -> str:
    return "" if value is None else str(plain(value, what="time"))


def _states(state: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(one for one in ((state,) if isinstance(state, str) else state) if one)


# ---- the two halves


class Endpoints:
    """What a `Client` can ask about endpoints."""

    def _ask(self, ask: Ask[T], *, within_s: float | None = None) -> T:
        raise NotImplementedError

    def endpoints(self, *, group: str = "", archived: bool = False) -> Iterator[wire.Endpoint]:
        """All endpoints by name, or those of a group; further pages are fetched on the way."""
        cursor = ""
        while True:
            found = self._ask(page(group=group, archived=archived, cursor=cursor))
            yield from found.endpoints
            if not found.next:
                return
            cursor = found.next

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

    def pause_endpoint(self, name: str, *, reason: str = "", until: Moment | None = None) -> None:
        """Does not call it, until `until` or until it is resumed."""
        self._ask(pause(name, reason, until))

    def resume_endpoint(self, name: str) -> None:
        """Lets it be called again."""
        self._ask(deed(name, "resume"))

    def reset_endpoint(self, name: str) -> None:
        """Forgets its failures, and so its backoff."""
        self._ask(deed(name, "reset_failures"))

    def hint_endpoint(
        self, name: str, *, interval: Length = "", at: Moment | None = None, ttl: Length = "1h", reason: str = "",
        cost: int = 0,
    ) -> wire.Endpoint:  # fmt: skip
        """Advises its Governor: an interval, one time, or both, for as long as `ttl`."""
        return self._ask(hint(name, interval=interval, at=at, ttl=ttl, reason=reason, cost=cost))

    def clear_endpoint_hints(self, name: str) -> wire.Endpoint:
        """Takes its hints back."""
        return self._ask(clear_hints(name))

    def endpoint_runs(
        self, name: str, *, state: str | Iterable[str] = (), page_size: int = 20
    ) -> Iterator[wire.EndpointRun]:
        """Its calls, newest first, with what came back; further pages are fetched on the way."""
        cursor = ""
        while True:
            found = self._ask(runs(name, states=_states(state), cursor=cursor, limit=page_size))
            yield from found.runs
            if not found.next:
                return
            cursor = found.next


class AsyncEndpoints:
    """What an `AsyncClient` can ask about endpoints."""

    async def _ask(self, ask: Ask[T], *, within_s: float | None = None) -> T:
        raise NotImplementedError

    async def endpoints(self, *, group: str = "", archived: bool = False) -> AsyncIterator[wire.Endpoint]:
        """All endpoints by name, or those of a group; further pages are fetched on the way."""
        cursor = ""
        while True:
            found = await self._ask(page(group=group, archived=archived, cursor=cursor))
            for one in found.endpoints:
                yield one
            if not found.next:
                return
            cursor = found.next

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

    async def pause_endpoint(self, name: str, *, reason: str = "", until: Moment | None = None) -> None:
        """Does not call it, until `until` or until it is resumed."""
        await self._ask(pause(name, reason, until))

    async def resume_endpoint(self, name: str) -> None:
        """Lets it be called again."""
        await self._ask(deed(name, "resume"))

    async def reset_endpoint(self, name: str) -> None:
        """Forgets its failures, and so its backoff."""
        await self._ask(deed(name, "reset_failures"))

    async def hint_endpoint(
        self, name: str, *, interval: Length = "", at: Moment | None = None, ttl: Length = "1h", reason: str = "",
        cost: int = 0,
    ) -> wire.Endpoint:  # fmt: skip
        """Advises its Governor: an interval, one time, or both, for as long as `ttl`."""
        return await self._ask(hint(name, interval=interval, at=at, ttl=ttl, reason=reason, cost=cost))

    async def clear_endpoint_hints(self, name: str) -> wire.Endpoint:
        """Takes its hints back."""
        return await self._ask(clear_hints(name))

    async def endpoint_runs(
        self, name: str, *, state: str | Iterable[str] = (), page_size: int = 20
    ) -> AsyncIterator[wire.EndpointRun]:
        """Its calls, newest first, with what came back; further pages are fetched on the way."""
        cursor = ""
        while True:
            found = await self._ask(runs(name, states=_states(state), cursor=cursor, limit=page_size))
            for one in found.runs:
                yield one
            if not found.next:
                return
            cursor = found.next
