"""The part of `AsyncClient` about endpoints; its calls are in `endpoint_requests`."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TypeVar, Unpack

from tickwork.protocol import http_models as wire
from tickwork.sdk.client import endpoint_requests as requests
from tickwork.sdk.client.calls import ApiCall

T = TypeVar("T")


class AsyncEndpointsClient:
    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        """Send a call to the server: the client that inherits this class implements it."""
        raise NotImplementedError

    async def endpoints(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Endpoint]:
        """List all endpoints by name, or those of a group. `archived`: list archived endpoints instead."""
        endpoints: list[wire.Endpoint] = []
        cursor: str | None = ""
        while cursor is not None:
            part = await self._send(requests.page(group=group, archived=archived, cursor=cursor))
            endpoints += part.endpoints
            cursor = part.next
        return endpoints

    async def endpoint(self, name: str) -> wire.Endpoint:
        """Return an endpoint: its request, the time and reason of its next call, and its last run."""
        return await self._send(requests.show(name))

    async def put_endpoint(
        self, name: str, url: str, *, if_match: str = "", **fields: Unpack[requests.Fields]
    ) -> wire.EndpointPreview:
        """Create or replace an endpoint: `put_endpoint("shop", "https://…", every="5m", retries=2)`. The fields
        are those of `wire.EndpointRequest`; durations are strings or timedeltas. With `if_match`, an `etag` that was
        read before, it raises `Conflict` if the endpoint has changed since."""
        return await self._send(requests.put(name, requests.request(url, **fields), if_match=if_match))

    async def apply_endpoints(self, wanted: Mapping[str, wire.EndpointRequest]) -> dict[str, wire.EndpointPreview]:
        """Create or replace several endpoints, all or none. Other endpoints do not change."""
        return (await self._send(requests.put_all(wanted))).endpoints

    async def archive_endpoint(self, name: str) -> None:
        """Archive an endpoint: it is no longer called, and its runs are kept."""
        await self._send(requests.archive(name))

    async def restore_endpoint(self, name: str) -> None:
        """Restore an endpoint from the archive. `put_endpoint` restores it, too."""
        await self._send(requests.restore(name))

    async def trigger_endpoint(self, name: str) -> str:
        """Call an endpoint now, in addition to its times. Return the id of the run."""
        return (await self._send(requests.trigger(name, test=False))).run_id

    async def test_endpoint(self, name: str) -> str:
        """Call an endpoint now as a test, without effect on its times and failures. Return the id of the run."""
        return (await self._send(requests.trigger(name, test=True))).run_id

    async def endpoint_runs(
        self, name: str, *, state: str | Iterable[str] = (), page_size: int = 20
    ) -> AsyncIterator[wire.EndpointRun]:
        """Iterate over its calls with their responses, newest first; further pages are fetched as needed."""
        cursor = ""
        while True:
            part = await self._send(
                requests.runs(name, states=requests.states_of(state), cursor=cursor, limit=page_size)
            )
            for run in part.runs:
                yield run
            if not part.next:
                return
            cursor = part.next
