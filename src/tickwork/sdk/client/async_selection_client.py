"""The part of `AsyncClient` that finds many runs."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar, Unpack

from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import calls
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.client.run_searches import Search, search_of

T = TypeVar("T")


class AsyncSelectionsClient:
    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        """Send a call to the server: the client that inherits this class implements it."""
        raise NotImplementedError

    async def list(
        self, workflow: Workflow[..., Any] | str = "", /, *, page_size: int = 100, **search: Unpack[Search]
    ) -> AsyncIterator[wire.Run]:
        """Iterate over runs, newest first; further pages are fetched as needed.

        `client.list("import", state="failed", tag="nightly", where={"customer": "ed"}, ended_from="24h")`: each filter
        narrows the list. `Search` has all of them.
        """
        chosen, cursor = search_of(workflow, search), ""
        while True:
            page = await self._send(calls.page_of(chosen, cursor, page_size))
            for run in page.runs:
                yield run
            if not page.next:
                return
            cursor = page.next
