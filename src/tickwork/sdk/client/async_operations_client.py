"""The part of `AsyncClient` for operators: versions, workers, queues, the cluster, assets, and many runs at once."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from tickwork.protocol import http_models as wire
from tickwork.sdk.assets import Asset, Partition, partition_text
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import calls
from tickwork.sdk.client import schedule_requests as requests
from tickwork.sdk.client import selection_requests as selections
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.client.selection_requests import Search, search_of

T = TypeVar("T")


class AsyncOperationsClient:
    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        """Send a call to the server: the client that inherits this class implements it."""
        raise NotImplementedError

    async def list_application_versions(self, application: str = "") -> Sequence[wire.AppVersion]:
        """List the versions of all applications or of one, newest first."""
        return await self._send(calls.versions(application))

    async def latest_application_version(self, application: str = "") -> wire.AppVersion:
        """Return the version that new and scheduled runs use. `application` is optional if there is only one."""
        return await self._send(calls.latest_version(application))

    async def set_latest_application_version(self, version: str, *, application: str = "") -> wire.AppVersion:
        """Make a version the latest: from now on, the application uses its definitions and schedules."""
        return await self._send(calls.set_latest_version(version, application))

    async def workers(self) -> Sequence[wire.Worker]:
        """List the workers that the server knows."""
        return await self._send(calls.workers())

    async def queues(self) -> Sequence[wire.Queue]:
        """List the queues, with their waiting and running tasks."""
        return await self._send(calls.queues())

    async def put_queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        rate: int | None = None,
        per: str | timedelta = "1s",
        burst: int | None = None,
        window: str = "bucket",
    ) -> None:
        """Declare a queue, or replace its limits: `limit` concurrent tasks, and `rate` starts per `per`. With
        `window="sliding"`, no period has more starts; a token bucket allows `burst` starts after an idle time."""
        await self._send(calls.put_queue(name, limit, rate, per, burst, window))

    async def pause_queue(self, name: str, *, reason: str = "") -> None:
        """Pause a queue: start none of its tasks."""
        await self._send(calls.queue_action(name, "pause", reason))

    async def resume_queue(self, name: str) -> None:
        """Resume a paused queue."""
        await self._send(calls.queue_action(name, "resume"))

    async def partition(self, partition: int) -> wire.PartitionHead:
        """Return the head of a partition: its last row, its epoch, and whether it is paused."""
        return await self._send(calls.partition(partition))

    async def pause_partition(self, partition: int, *, reason: str = "") -> None:
        """Pause a partition: give none of its tasks to workers. Running tasks continue."""
        await self._send(calls.partition_action(partition, "pause", reason))

    async def resume_partition(self, partition: int) -> None:
        """Resume a paused partition."""
        await self._send(calls.partition_action(partition, "resume"))

    async def status(self) -> wire.Status:
        """Return the status of the engine."""
        return await self._send(calls.status())

    async def confirm_clock(self) -> None:
        """Confirm the server's wall clock: adopt a clock step that is held back (`status().clock`)."""
        await self._send(calls.confirm_clock())

    async def cluster(self) -> wire.Cluster:
        """Return the nodes, the partitions and their owners."""
        return await self._send(calls.cluster())

    async def spread(self, partitions: int) -> None:
        """Spread new runs over this number of partitions. The number can only grow."""
        await self._send(calls.spread(partitions))

    async def held_runs(self) -> wire.HeldRuns:
        """List runs that were accepted while their partition had no owner, and that it refuses. They are kept."""
        return await self._send(calls.held_runs())

    async def remove_from_inbox(self, run_id: str) -> None:
        """Remove a refused run from the inbox for good."""
        await self._send(calls.remove_from_inbox(run_id))

    async def webhooks(self) -> Sequence[wire.Webhook]:
        """List the webhooks that the server receives, with the event that each becomes. Secrets are not shown."""
        return await self._send(requests.webhooks())

    async def assets(self) -> Sequence[wire.Asset]:
        """List the assets: what tasks make and schedules listen to, with the last update of each."""
        return await self._send(requests.assets())

    async def asset(self, name: Asset | str) -> wire.Asset:
        """Show an asset: what makes it, what listens to it, and its latest updates."""
        return await self._send(requests.asset(str(name)))

    async def update_asset(
        self,
        name: Asset | str,
        *,
        partition: Partition | None = None,
        details: Mapping[str, Any] | None = None,
        id: str = "",  # noqa: A002 - the field's name
    ) -> wire.AssetHeard:
        """Say that an asset has new data. With an `id`, a repeated update does nothing for a day."""
        return await self._send(
            requests.update_asset(str(name), partition=partition_text(partition), details=details, id=id)
        )

    async def list(
        self, workflow: Workflow[..., Any] | str = "", /, *, page_size: int = 100, **search: Unpack[Search]
    ) -> AsyncIterator[wire.Run]:
        """Iterate over runs, newest first; further pages are fetched as needed.

        `client.list("import", state="failed", tag="nightly", where={"customer": "ed"}, ended_from="24h")`: each filter
        narrows the list. `Search` has all of them.
        """
        chosen, cursor = search_of(workflow, search), ""
        while True:
            page = await self._send(selections.page_of(chosen, cursor, page_size))
            for run in page.runs:
                yield run
            if not page.next:
                return
            cursor = page.next

    async def preview_bulk(
        self, action: str, workflow: Workflow[..., Any] | str = "", /, **search: Unpack[Search]
    ) -> wire.BulkPreview:
        """Freeze the runs that fit now: their number, a sample, and the selection for `start_bulk`.

        `action` is cancel, pause, resume, retry or rerun. Nothing is done yet.
        """
        return await self._send(selections.preview(action, search_of(workflow, search)))

    async def start_bulk(
        self, preview: wire.BulkPreview, *, reason: str = "", per_second: int = 50
    ) -> wire.BulkOperation:
        """Act on the runs of a preview, so many a second. Runs that came later are left alone."""
        request = wire.BulkRequest(
            action=preview.action, search=preview.search, selection=preview.selection, reason=reason,
            per_second=per_second,
        )  # fmt: skip
        return await self._send(selections.start(request))

    async def bulk_operation(self, operation: str) -> wire.BulkOperation:
        """Return the report of a bulk operation."""
        return await self._send(selections.show(operation))

    async def bulk_operations(self) -> Sequence[wire.BulkOperation]:
        """List bulk operations, the latest first."""
        return (await self._send(selections.jobs())).operations

    async def cancel_bulk(self, operation: str, *, reason: str = "") -> None:
        """End a bulk operation before its next run. What is done stays done."""
        await self._send(selections.cancel(operation, reason))
