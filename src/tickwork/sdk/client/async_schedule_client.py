"""Schedules, as `AsyncClient` asks about them; what it asks is in `schedule_requests`."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeVar, Unpack

from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.schedules import Day, Duration, Instant, Policies
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import schedule_requests as asks
from tickwork.sdk.client.calls import ApiCall
from tickwork.sdk.client.connection import Backoff

T = TypeVar("T")


class AsyncSchedulesClient:
    async def _ask(self, ask: ApiCall[T], *, within_s: float | None = None) -> T:
        """The client's own way to the server."""
        raise NotImplementedError

    async def schedules(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Schedule]:
        """All schedules by name, or those of a group; `archived`: those instead of the others."""
        schedules: list[wire.Schedule] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._ask(asks.schedules(group, archived, cursor))
            schedules += page.schedules
            cursor = page.next
        return schedules

    async def schedule(self, name: str) -> wire.Schedule:
        """One schedule: its terms, its times, and how its occurrences ended."""
        return await self._ask(asks.schedule(name))

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
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """Makes a schedule, or replaces it. The answer says what it will do."""
        when = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor, "timezone": timezone}
        return await self._ask(asks.put(name, asks.request(workflow, {**when, **policies})))

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
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """Makes a schedule. Raises `Conflict` where there is one of this name."""
        when = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor, "timezone": timezone}
        return await self._ask(asks.put(name, asks.request(workflow, {**when, **policies}), new=True))

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
        **policies: Unpack[Policies],
    ) -> wire.SchedulePreview:
        """What a schedule would do; nothing is made."""
        when = {"cron": cron, "every": every, "at": at, "rrule": rrule, "anchor": anchor, "timezone": timezone}
        return await self._ask(asks.preview(name, asks.request(workflow, {**when, **policies})))

    async def apply_schedules(
        self, owner: str, schedules: Mapping[str, wire.ScheduleRequest], *, dry_run: bool = False
    ) -> Sequence[wire.Schedule]:
        """All schedules of an owner, all or none; what it had and the set lacks is removed. `dry_run` only checks."""
        return await self._ask(asks.apply(owner, schedules, dry_run=dry_run))

    async def delete_schedule(self, name: str) -> None:
        """Removes a schedule; runs that it began go on, and what became of its occurrences is kept."""
        await self._ask(asks.delete(name))

    async def pause_schedule(self, name: str, *, reason: str = "", until: Instant | None = None) -> None:
        """Begins nothing more until it is resumed, or `until` has come."""
        await self._ask(asks.pause(name, reason, until))

    async def resume_schedule(self, name: str) -> None:
        """Goes on, from now."""
        await self._ask(asks.deed(name, "resume"))

    async def archive_schedule(self, name: str) -> None:
        """Puts a schedule away, with its history."""
        await self._ask(asks.deed(name, "archive"))

    async def restore_schedule(self, name: str) -> None:
        """Takes a schedule back from the archive."""
        await self._ask(asks.deed(name, "restore"))

    async def reset_failures(self, name: str) -> None:
        """Counts its failures from zero."""
        await self._ask(asks.deed(name, "reset_failures"))

    async def trigger_schedule(self, name: str, *, test: bool = False) -> str:
        """Begins a run now; its id. With `test` the schedule stays as it is: nothing counts the run."""
        return (await self._ask(asks.trigger(name, test=test))).run_id

    async def pause_group(self, name: str, *, reason: str = "") -> None:
        """Lets no schedule of a group begin anything."""
        await self._ask(asks.group_deed(name, "pause", reason))

    async def resume_group(self, name: str) -> None:
        """Lets the schedules of a group go on, from now."""
        await self._ask(asks.group_deed(name, "resume"))

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
        """Advises the Governor of an endpoint, for `ttl`: an hour; of one for a time, an hour after it."""
        return await self._ask(asks.hint(name, interval, at, ttl, reason, cost))

    async def clear_hints(self, name: str) -> wire.Schedule:
        """Takes all advice back."""
        return await self._ask(asks.clear_hints(name))

    async def occurrences(
        self, name: str, *, start: Instant | None = None, end: Instant | None = None
    ) -> Sequence[wire.Occurrence]:
        """What became of a schedule's occurrences, oldest first."""
        occurrences: list[wire.Occurrence] = []
        page = await self._ask(asks.occurrences(name, start, end))
        while fresh := list(asks.new_in(page, occurrences)):
            occurrences += fresh
            if page.next is None:
                break
            page = await self._ask(asks.occurrences(name, page.next, end))
        return occurrences

    async def upcoming(self, *, days: int = 30, schedule: str = "", limit: int | None = None) -> Sequence[wire.Due]:
        """What is expected in the days to come, by time; at most `limit` (1 to 10,000) of it, where that is given."""
        dues: list[wire.Due] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._ask(asks.upcoming(days, schedule, cursor, limit))
            dues += page.occurrences
            cursor = page.next if limit is None else None
        return dues

    async def catch_ups(self, *, policy: str = "") -> Sequence[wire.CatchUp]:
        """What is late, and what would run: under each schedule's own policy, or under another."""
        return await self._ask(asks.catch_ups(policy))

    async def backfill_schedule(
        self,
        name: str,
        start: Instant | date,
        end: Instant | date,
        *,
        preview: bool = False,
        order: asks.Order = "oldest",
        concurrency: int = 10,
        priority: int | None = None,
        forced: bool = False,
    ) -> wire.Backfill:
        """Runs what a schedule had from `start` up to `end`, in its own zone where they have none. `run_ids` are those
        of live runs: what has run is not repeated, unless `forced`."""
        return await self._ask(
            asks.backfill(
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
        """Those under way, then those that ended, newest first."""
        return await self._ask(asks.backfills())

    async def wait_backfill(self, number: int, *, timeout: float | None = None) -> wire.Backfill:
        """The backfill when it has ended. Raises `StillRunning` after `timeout` seconds."""
        patience = Backoff(now_s=time.monotonic(), within_s=timeout)
        while True:
            backfill = asks.backfill_in(await self.backfills(), number)
            if backfill.state in asks.BACKFILL_ENDED:
                return backfill
            pause = patience.pause_s(time.monotonic(), cap_s=1.0)
            if pause is None:
                raise asks.still_filling(backfill)
            await asyncio.sleep(pause)

    async def pause_backfill(self, number: int) -> None:
        """Begins no more of its runs until it is resumed."""
        await self._ask(asks.backfill_deed(number, "pause"))

    async def resume_backfill(self, number: int) -> None:
        """Goes on with a paused backfill."""
        await self._ask(asks.backfill_deed(number, "resume"))

    async def cancel_backfill(self, number: int) -> None:
        """Begins no more of its runs; those that run go on."""
        await self._ask(asks.backfill_deed(number, "cancel"))

    async def put_holidays(self, name: str, dates: Iterable[Day]) -> None:
        """Uploads a list of dates that schedules may leave out by its name, or replaces it."""
        await self._ask(asks.put_holidays(name, dates))

    async def holidays(self) -> Mapping[str, tuple[str, ...]]:
        """All lists, by name."""
        return (await self._ask(asks.holidays())).lists

    async def delete_holidays(self, name: str) -> None:
        """Removes a list that no schedule names."""
        await self._ask(asks.delete_holidays(name))

    async def zones(self) -> wire.ZoneNames:
        """The time zones that a schedule may name."""
        return await self._ask(asks.zones())
