"""The part of `AsyncClient` about schedules; its calls are in `schedule_requests`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal, TypeVar, Unpack

from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.schedules import Day, Duration, Instant, ListenTo, Policies
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import schedule_requests as requests
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.client.connection import Backoff

T = TypeVar("T")


class AsyncSchedulesClient:
    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        """Send a call to the server: the client that inherits this class implements it."""
        raise NotImplementedError

    async def schedules(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Schedule]:
        """List all schedules by name, or those of a group. `archived`: list archived schedules instead."""
        schedules: list[wire.Schedule] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._send(requests.schedules(group, archived, cursor))
            schedules += page.schedules
            cursor = page.next
        return schedules

    async def schedule(self, name: str) -> wire.Schedule:
        """Return a schedule: its policies, its times, and the fates of its occurrences."""
        return await self._send(requests.schedule(name))

    async def put_schedule(
        self,
        name: str,
        workflow: Workflow[..., Any] | str,
        *,
        cron: str = "",
        every: Duration = "",
        at: Instant = "",
        rrule: str = "",
        anchor: Instant = "",
        timezone: str = "UTC",
        listen_to: ListenTo = (),
        updates: Literal["auto", "each", "coalesce"] = "auto",
        if_match: str = "",
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """Create or replace a schedule. The response describes what it will do. With `if_match`, the `etag` of a
        schedule that was read before, it raises `Conflict` if the schedule has changed since."""
        when: dict[str, Any] = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor}
        when |= {"timezone": timezone, "listen_to": listen_to, "updates": updates}
        request = requests.request(workflow, {**when, **policies})
        return await self._send(requests.put(name, request, if_match=if_match))

    async def create_schedule(
        self,
        name: str,
        workflow: Workflow[..., Any] | str,
        *,
        cron: str = "",
        every: Duration = "",
        at: Instant = "",
        rrule: str = "",
        anchor: Instant = "",
        timezone: str = "UTC",
        listen_to: ListenTo = (),
        updates: Literal["auto", "each", "coalesce"] = "auto",
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """Create a schedule. Raises `Conflict` if a schedule of this name exists."""
        when: dict[str, Any] = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor}
        when |= {"timezone": timezone, "listen_to": listen_to, "updates": updates}
        return await self._send(requests.put(name, requests.request(workflow, {**when, **policies}), new=True))

    async def preview_schedule(
        self,
        workflow: Workflow[..., Any] | str,
        *,
        name: str = "",
        cron: str = "",
        every: Duration = "",
        at: Instant = "",
        rrule: str = "",
        anchor: Instant = "",
        timezone: str = "UTC",
        listen_to: ListenTo = (),
        updates: Literal["auto", "each", "coalesce"] = "auto",
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """Return what a schedule would do, without storing it."""
        when: dict[str, Any] = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor}
        when |= {"timezone": timezone, "listen_to": listen_to, "updates": updates}
        return await self._send(requests.preview(name, requests.request(workflow, {**when, **policies})))

    async def apply_schedules(
        self, owner: str, schedules: Mapping[str, wire.ScheduleRequest], *, dry_run: bool = False
    ) -> Sequence[wire.Schedule]:
        """Replace all schedules of an owner, all or none; missing ones are removed. `dry_run` only checks."""
        return await self._send(requests.apply(owner, schedules, dry_run=dry_run))

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its runs continue, and the fates of its occurrences are kept."""
        await self._send(requests.delete(name))

    async def pause_schedule(self, name: str, *, reason: str = "", until: Instant | None = None) -> None:
        """Pause a schedule until it is resumed, or until `until`."""
        await self._send(requests.pause(name, reason, until))

    async def resume_schedule(self, name: str) -> None:
        """Resume a paused schedule, from now on."""
        await self._send(requests.action(name, "resume"))

    async def archive_schedule(self, name: str) -> None:
        """Archive a schedule with its history."""
        await self._send(requests.action(name, "archive"))

    async def restore_schedule(self, name: str) -> None:
        """Restore a schedule from the archive."""
        await self._send(requests.action(name, "restore"))

    async def reset_failures(self, name: str) -> None:
        """Reset the failure count of a schedule."""
        await self._send(requests.action(name, "reset_failures"))

    async def trigger_schedule(self, name: str, *, test: bool = False) -> str:
        """Start a run now and return its id. With `test`, the run has no effect on the schedule."""
        return (await self._send(requests.trigger(name, test=test))).run_id

    async def pause_group(self, name: str, *, reason: str = "") -> None:
        """Pause all schedules of a group."""
        await self._send(requests.group_action(name, "pause", reason))

    async def resume_group(self, name: str) -> None:
        """Resume the schedules of a group, from now on."""
        await self._send(requests.group_action(name, "resume"))

    async def hint(
        self,
        name: str,
        *,
        interval: Duration | None = None,
        at: Instant | None = None,
        ttl: Duration | None = None,
        reason: str = "",
        cost: int = 0,
    ) -> wire.Schedule:
        """Give the Governor of a schedule a hint. It expires after `ttl`: an hour, or with `at` an hour after that."""
        return await self._send(requests.hint(name, interval, at, ttl, reason, cost))

    async def clear_hints(self, name: str) -> wire.Schedule:
        """Withdraw all hints."""
        return await self._send(requests.clear_hints(name))

    async def occurrences(
        self, name: str, *, start: Instant | None = None, end: Instant | None = None
    ) -> Sequence[wire.Occurrence]:
        """List the fates of a schedule's occurrences, oldest first."""
        occurrences: list[wire.Occurrence] = []
        page = await self._send(requests.occurrences(name, start, end))
        while fresh := list(requests.new_in(page, occurrences)):
            occurrences += fresh
            if page.next is None:
                break
            page = await self._send(requests.occurrences(name, page.next, end))
        return occurrences

    async def upcoming(self, *, days: int = 30, schedule: str = "", limit: int | None = None) -> Sequence[wire.Due]:
        """List the occurrences expected in the next days, by time, with at most `limit` (1 to 10,000) entries."""
        dues: list[wire.Due] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._send(requests.upcoming(days, schedule, cursor, limit))
            dues += page.occurrences
            cursor = page.next if limit is None else None
        return dues

    async def catch_ups(self, *, policy: str = "") -> Sequence[wire.CatchUp]:
        """List late occurrences and what would run, under each schedule's own policy or under another one."""
        return await self._send(requests.catch_ups(policy))

    async def backfill_schedule(
        self,
        name: str,
        start: Instant | date,
        end: Instant | date,
        *,
        preview: bool = False,
        order: requests.Order = "oldest",
        concurrency: int = 10,
        priority: int | None = None,
        forced: bool = False,
    ) -> wire.Backfill:
        """Run the occurrences of a schedule from `start` up to `end`; times without a zone are in the schedule's.
        Occurrences that have run, with the ids in `run_ids`, are not repeated unless `forced`."""
        return await self._send(
            requests.backfill(
                name,
                start,
                end,
                preview=preview,
                order=order,
                concurrency=concurrency,
                priority=priority,
                forced=forced,
            )
        )

    async def backfills(self) -> Sequence[wire.Backfill]:
        """List active backfills, then those that ended, newest first."""
        return await self._send(requests.backfills())

    async def wait_backfill(self, number: int, *, timeout: float | None = None) -> wire.Backfill:
        """Wait until the backfill has ended. Raises `StillRunning` after `timeout` seconds."""
        patience = Backoff(now_s=asyncio.get_running_loop().time(), within_s=timeout)
        while True:
            backfill = requests.backfill_in(await self.backfills(), number)
            if backfill.state in requests.BACKFILL_ENDED:
                return backfill
            pause = patience.pause_s(asyncio.get_running_loop().time(), cap_s=1.0)
            if pause is None:
                raise requests.still_filling(backfill)
            await asyncio.sleep(pause)

    async def pause_backfill(self, number: int) -> None:
        """Pause a backfill: start no more of its runs until it is resumed."""
        await self._send(requests.backfill_action(number, "pause"))

    async def resume_backfill(self, number: int) -> None:
        """Resume a paused backfill."""
        await self._send(requests.backfill_action(number, "resume"))

    async def cancel_backfill(self, number: int) -> None:
        """Cancel a backfill: start no more of its runs. Active runs continue."""
        await self._send(requests.backfill_action(number, "cancel"))

    async def put_holidays(self, name: str, dates: Iterable[Day]) -> None:
        """Create or replace a named list of dates that schedules can leave out."""
        await self._send(requests.put_holidays(name, dates))

    async def holidays(self) -> Mapping[str, tuple[str, ...]]:
        """Return all lists of holidays, by name."""
        return (await self._send(requests.holidays())).lists

    async def delete_holidays(self, name: str) -> None:
        """Delete a list that no schedule names."""
        await self._send(requests.delete_holidays(name))

    async def zones(self) -> wire.ZoneNames:
        """Return the time zones that a schedule can use."""
        return await self._send(requests.zones())
