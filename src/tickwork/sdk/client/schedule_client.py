"""Schedules, as `Client` asks about them; what it asks is in `schedule_requests`."""

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


class SchedulesClient:
    def _ask(self, ask: ApiCall[T], *, within_s: float | None = None) -> T:
        """The client's own way to the server."""
        raise NotImplementedError

    def schedules(self, *, group: str = "", archived: bool = False) -> Sequence[wire.Schedule]:
        """All schedules by name, or those of a group; `archived`: those instead of the others."""
        schedules: list[wire.Schedule] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self._ask(asks.schedules(group, archived, cursor))
            schedules += page.schedules
            cursor = page.next
        return schedules

    def schedule(self, name: str) -> wire.Schedule:
        """One schedule: its terms, its times, and how its occurrences ended."""
        return self._ask(asks.schedule(name))

    def put_schedule(
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
        return self._ask(asks.put(name, asks.request(workflow, {**when, **policies})))

    def create_schedule(
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
        return self._ask(asks.put(name, asks.request(workflow, {**when, **policies}), new=True))

    def preview_schedule(
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
        return self._ask(asks.preview(name, asks.request(workflow, {**when, **policies})))

    def apply_schedules(
        self, owner: str, schedules: Mapping[str, wire.ScheduleRequest], *, dry_run: bool = False
    ) -> Sequence[wire.Schedule]:
        """All schedules of an owner, all or none; what it had and the set lacks is removed. `dry_run` only checks."""
        return self._ask(asks.apply(owner, schedules, dry_run=dry_run))

    def delete_schedule(self, name: str) -> None:
        """Removes a schedule; runs that it began go on, and what became of its occurrences is kept."""
        self._ask(asks.delete(name))

    def pause_schedule(self, name: str, *, reason: str = "", until: Instant | None = None) -> None:
        """Begins nothing more until it is resumed, or `until` has come."""
        self._ask(asks.pause(name, reason, until))

    def resume_schedule(self, name: str) -> None:
        """Goes on, from now."""
        self._ask(asks.deed(name, "resume"))

    def archive_schedule(self, name: str) -> None:
        """Puts a schedule away, with its history."""
        self._ask(asks.deed(name, "archive"))

    def restore_schedule(self, name: str) -> None:
        """Takes a schedule back from the archive."""
        self._ask(asks.deed(name, "restore"))

    def reset_failures(self, name: str) -> None:
        """Counts its failures from zero."""
        self._ask(asks.deed(name, "reset_failures"))

    def trigger_schedule(self, name: str, *, test: bool = False) -> str:
        """Begins a run now; its id. With `test` the schedule stays as it is: nothing counts the run."""
        return self._ask(asks.trigger(name, test=test)).run_id

    def pause_group(self, name: str, *, reason: str = "") -> None:
        """Lets no schedule of a group begin anything."""
        self._ask(asks.group_deed(name, "pause", reason))

    def resume_group(self, name: str) -> None:
        """Lets the schedules of a group go on, from now."""
        self._ask(asks.group_deed(name, "resume"))

    def hint(
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
        return self._ask(asks.hint(name, interval, at, ttl, reason, cost))

    def clear_hints(self, name: str) -> wire.Schedule:
        """Takes all advice back."""
        return self._ask(asks.clear_hints(name))

    def occurrences(
        self, name: str, *, start: Instant | None = None, end: Instant | None = None
    ) -> Sequence[wire.Occurrence]:
        """What became of a schedule's occurrences, oldest first."""
        occurrences: list[wire.Occurrence] = []
        page = self._ask(asks.occurrences(name, start, end))
        while fresh := list(asks.new_in(page, occurrences)):
            occurrences += fresh
            if page.next is None:
                break
            page = self._ask(asks.occurrences(name, page.next, end))
        return occurrences

    def upcoming(self, *, days: int = 30, schedule: str = "", limit: int | None = None) -> Sequence[wire.Due]:
        """What is expected in the days to come, by time; at most `limit` (1 to 10,000) of it, where that is given."""
        dues: list[wire.Due] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self._ask(asks.upcoming(days, schedule, cursor, limit))
            dues += page.occurrences
            cursor = page.next if limit is None else None
        return dues

    def catch_ups(self, *, policy: str = "") -> Sequence[wire.CatchUp]:
        """What is late, and what would run: under each schedule's own policy, or under another."""
        return self._ask(asks.catch_ups(policy))

    def backfill_schedule(
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
        return self._ask(
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

    def backfills(self) -> Sequence[wire.Backfill]:
        """Those under way, then those that ended, newest first."""
        return self._ask(asks.backfills())

    def wait_backfill(self, number: int, *, timeout: float | None = None) -> wire.Backfill:
        """The backfill when it has ended. Raises `StillRunning` after `timeout` seconds."""
        patience = Backoff(now_s=time.monotonic(), within_s=timeout)
        while True:
            backfill = asks.backfill_in(self.backfills(), number)
            if backfill.state in asks.BACKFILL_ENDED:
                return backfill
            pause = patience.pause_s(time.monotonic(), cap_s=1.0)
            if pause is None:
                raise asks.still_filling(backfill)
            time.sleep(pause)

    def pause_backfill(self, number: int) -> None:
        """Begins no more of its runs until it is resumed."""
        self._ask(asks.backfill_deed(number, "pause"))

    def resume_backfill(self, number: int) -> None:
        """Goes on with a paused backfill."""
        self._ask(asks.backfill_deed(number, "resume"))

    def cancel_backfill(self, number: int) -> None:
        """Begins no more of its runs; those that run go on."""
        self._ask(asks.backfill_deed(number, "cancel"))

    def put_holidays(self, name: str, dates: Iterable[Day]) -> None:
        """Uploads a list of dates that schedules may leave out by its name, or replaces it."""
        self._ask(asks.put_holidays(name, dates))

    def holidays(self) -> Mapping[str, tuple[str, ...]]:
        """All lists, by name."""
        return self._ask(asks.holidays()).lists

    def delete_holidays(self, name: str) -> None:
        """Removes a list that no schedule names."""
        self._ask(asks.delete_holidays(name))

    def zones(self) -> wire.ZoneNames:
        """The time zones that a schedule may name."""
        return self._ask(asks.zones())
