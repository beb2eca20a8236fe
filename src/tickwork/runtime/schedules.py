"""Schedules: what is asked of them and about them.

What is put is checked before anything is posted, so that an application is accepted whole or not at all; the machine
checks again, because it decides. Views are read from the state, fates also from what the store keeps of them.
"""

from collections.abc import Mapping
from itertools import islice

import msgspec

from tickwork.core import inputs as ask
from tickwork.core import preview as told
from tickwork.core.backfills import window_end_ms
from tickwork.core.effects import FindRuns
from tickwork.core.errors import Refused
from tickwork.core.evolve.schedules import anchored, is_held, occurrence_id, rhythm_of
from tickwork.core.model import Schedule, Tenant
from tickwork.core.names import check_name
from tickwork.core.plan import Plan
from tickwork.core.schedule import Fate, Range
from tickwork.core.schedulerows import LiveBackfill
from tickwork.core.schedules import check_advice, check_put, is_same, schedule_of
from tickwork.core.timetext import duration_ms, instant_ms
from tickwork.core.zones import in_zone
from tickwork.ports import wire
from tickwork.ports.schedulewords import in_words, length_ms, reading_ms, when_of
from tickwork.runtime import scheduleviews as views
from tickwork.runtime.endpointwords import is_endpoint
from tickwork.runtime.ground import TENANT, Ground
from tickwork.runtime.patience import patiently
from tickwork.runtime.schedulewords import put_of
from tickwork.runtime.words import instant

PAGE_MAX = 1_000
TIMES_SHOWN = 10
IDS_SHOWN = 10_000
LATE_COUNTED = 1_000_000
FATES_READ = 10_000
HINT_TTL_MS = 60 * 60_000  # where nothing is said; of one for a time, from that time on

_decode_backfill = msgspec.msgpack.Decoder(LiveBackfill).decode


class Schedules(Ground):
    # ---- what changes something

    async def put_schedule(
        self, name: str, wanted: wire.ScheduleRequest, *, by: str, new: bool = False, tenant: str = TENANT
    ) -> wire.SchedulePreview:
        """Create or replace one; with `new`, only create it."""
        put = put_of(name, wanted, by=by, tenant=tenant, new=new)
        self._check_no_endpoint(name, tenant)
        with in_words():
            check_put(self.state, put)
        await self._command(put)
        return self.preview_schedule(name, wanted, tenant=tenant)

    async def apply_schedules(self, wanted: wire.ScheduleSet, *, by: str, tenant: str = TENANT) -> list[wire.Schedule]:
        check_name(wanted.owner, path="owner", kind="owner")
        asked = self._set_of(wanted.owner, wanted.schedules, self._tenant(tenant).plans, by=by, tenant=tenant)
        await self._command(asked)
        held = self._tenant(tenant).schedules
        applied = (held.get(name) for name in sorted(wanted.schedules))
        return [views.schedule(one) for one in applied if one is not None and not one.archived]

    def _set_of(
        self,
        owner: str,
        wanted: Mapping[str, wire.ScheduleRequest],
        plans: Mapping[str, Plan],
        *,
        by: str,
        tenant: str,
        queues: frozenset[str] = frozenset(),
    ) -> ask.ApplySchedules:
        """A whole set, checked as the machine will check it."""
        puts = []
        for name, one in sorted(wanted.items()):
            path = f"schedules.{name}"
            put = put_of(name, one, by=by, tenant=tenant, owner=owner, path=path)
            self._check_no_endpoint(name, tenant, path=path)
            with in_words(path):
                check_put(self.state, put, plans=plans, queues=queues)
            puts.append(put)
        return ask.ApplySchedules(by, tenant, owner, puts)

    def _check_no_endpoint(self, name: str, tenant: str, *, path: str = "schedule") -> None:
        old = self._tenant(tenant).schedules.get(name)
        if old is not None and is_endpoint(old):
            raise Refused("name_taken", f"{name} is an endpoint; put it as one, or choose another name", path=path)

    async def remove_schedule(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        """Not an endpoint, which keeps its history: that is archived."""
        if is_endpoint(schedule_of(self.state, tenant, name)):
            raise Refused("illegal_move", f"{name} is an endpoint, which is archived and not deleted", path="schedule")
        await self._command(ask.RemoveSchedule(by, tenant, name))

    async def steer_schedule(self, name: str, deed: str, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.SteerSchedule(by, tenant, name, deed))

    async def advise(self, name: str, wanted: wire.HintRequest, *, by: str, tenant: str = TENANT) -> wire.Schedule:
        interval_ms = length_ms(wanted.interval, "interval")
        at_ms = instant_ms(wanted.at, path="at") if wanted.at else None
        now_ms = self._clock.wall_ms()
        ttl_ms = duration_ms(wanted.ttl, path="ttl") if wanted.ttl else HINT_TTL_MS + max(0, (at_ms or 0) - now_ms)
        asked = ask.Advise(by, tenant, name, interval_ms, at_ms, ttl_ms, wanted.reason, wanted.cost)
        with in_words():
            check_advice(self.state, asked, now_ms=now_ms)
        await self._command(asked)
        return self.schedule(name, tenant=tenant)

    async def clear_hints(self, name: str, *, by: str, tenant: str = TENANT) -> wire.Schedule:
        await self._command(ask.Advise(by, tenant, name, clear=True))
        return self.schedule(name, tenant=tenant)

    async def trigger(self, name: str, *, by: str, test: bool = False, tenant: str = TENANT) -> str:
        """Begin one run now; its id. What is in the archive begins nothing, also by hand."""
        if schedule_of(self.state, tenant, name).archived:
            raise Refused("illegal_move", f"{name} is in the archive; bring it back first", path="schedule")
        return (await self._command(ask.Trigger(by, tenant, name, test))).run_id

    async def put_holidays(self, name: str, dates: tuple[str, ...] | None, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.PutHolidays(by, tenant, name, dates))

    # ---- backfill

    async def backfill(
        self, name: str, wanted: wire.BackfillRequest, *, by: str, tenant: str = TENANT
    ) -> wire.Backfill:
        schedule = schedule_of(self.state, tenant, name)
        zone = self.state.zones.get(schedule.when.zone)
        from_ms, to_ms = (reading_ms(getattr(wanted, end), zone, path=end) for end in ("start", "end"))
        plan = self._backfill_plan(schedule, wanted, from_ms, to_ms)
        if wanted.preview:
            return plan
        answer = await self._command(
            ask.Backfill(
                by, tenant, name, from_ms, to_ms, wanted.concurrency, wanted.priority, wanted.newest_first,
                wanted.forced,
            )
        )  # fmt: skip
        again = f"-again-{answer.run_id}" if wanted.forced else ""
        ids = tuple(run_id + again for run_id in plan.run_ids)
        return msgspec.structs.replace(plan, number=int(answer.run_id), state="active", by=by, run_ids=ids)

    def _backfill_plan(
        self, schedule: Schedule, wanted: wire.BackfillRequest, from_ms: int, to_ms: int
    ) -> wire.Backfill:
        if schedule.rhythm is None or schedule.governing is not None:
            raise Refused("not_backfillable", schedule.broken or "an endpoint has no fixed times", path="schedule")
        end_ms = window_end_ms(schedule, to_ms, self.state.now_ms)
        if is_held(schedule):
            end_ms = min(to_ms, self.state.now_ms + 1)
        times = list(islice(schedule.rhythm.between(from_ms, end_ms), LATE_COUNTED))
        if wanted.newest_first:
            times.reverse()
        return wire.Backfill(
            number=0,
            schedule=schedule.name,
            state="preview",
            start=instant(from_ms),
            end=instant(max(end_ms, from_ms)),
            forced=wanted.forced,
            newest_first=wanted.newest_first,
            concurrency=wanted.concurrency,
            run_ids=tuple(occurrence_id(schedule.name, due_ms) for due_ms in times[:IDS_SHOWN]),
            count=len(times),
        )

    async def steer_backfill(self, number: int, deed: str, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.SteerBackfill(by, tenant, number, deed))

    async def backfills(self, *, tenant: str = TENANT, limit: int = 50) -> list[wire.Backfill]:
        """Those under way, then those that ended, newest first."""
        state = self.state
        live = [
            views.backfill(one.schedule.name, views.row_of(one))
            for _, one in sorted(state.backfills.items(), reverse=True)
            if one.schedule.tenant.id == tenant
        ]
        unwritten = self._live.books.left_backfills(tenant)
        stored = await self._store.list_backfills(tenant, limit=limit)
        known = frozenset(row.number for row in unwritten)
        ended = [*unwritten, *(row for row in stored if row.number not in known)]
        return (live + [views.backfill(row.schedule, _decode_backfill(row.data)) for row in ended])[:limit]

    async def find_known(self, effect: FindRuns) -> ask.RunsKnown:
        """Of the occurrences of a backfill's portion, those that have run: by their run, or by their fate."""
        tenant, name, books = effect.tenant, effect.schedule, self._live.books
        ids = {occurrence_id(name, due_ms): due_ms for due_ms in effect.dues_ms}
        known = {due_ms for run_id, due_ms in ids.items() if books.find_left(tenant, run_id) is not None}
        rows = await patiently(lambda: self.archives.find_runs(tenant, ids=list(ids)))
        known.update(ids[row.id] for row in rows)
        first_ms, last_ms = min(effect.dues_ms), max(effect.dues_ms)
        spans = await patiently(
            lambda: self._store.read_fates(tenant, name, from_ms=first_ms, to_ms=last_ms + 1, limit=FATES_READ)
        )
        backfill = self.state.backfills.get(effect.backfill)
        version = (backfill.schedule.number, backfill.schedule.version) if backfill is not None else (0, 0)
        for span in [*spans, *books.fates_of(tenant, name)]:
            # A range of an earlier version tells only of its ends: what lies between were other times.
            whole = (span.schedule, span.version) == version
            if span.fate == Fate.RAN:
                known.update(
                    due_ms
                    for due_ms in effect.dues_ms
                    if due_ms in (span.from_ms, span.to_ms) or (whole and span.from_ms < due_ms < span.to_ms)
                )
        return ask.RunsKnown(effect.backfill, tuple(due_ms for due_ms in effect.dues_ms if due_ms in known))

    # ---- what is read

    def schedule(self, name: str, *, tenant: str = TENANT) -> wire.Schedule:
        return views.whole_schedule(schedule_of(self.state, tenant, name))

    def schedules(
        self, *, tenant: str = TENANT, after: str = "", limit: int = PAGE_MAX, group: str = "", archived: bool = False
    ) -> wire.Schedules:
        """A page by name, those after `after`."""
        owner = self.state.tenants.get(tenant)
        found = [
            one for name, one in (owner.schedules.items() if owner is not None else ())
            if name > after and one.archived is archived and group in ("", one.terms.group)
        ][: limit + 1]  # fmt: skip
        shown = tuple(views.schedule(one) for one in found[:limit])
        return wire.Schedules(schedules=shown, next=found[limit - 1].name if len(found) > limit else None)

    def preview_schedule(
        self, name: str, wanted: wire.ScheduleRequest, *, tenant: str = TENANT
    ) -> wire.SchedulePreview:
        """What this schedule would do, without putting it."""
        state, owner = self.state, self._tenant(tenant)
        when = anchored(when_of(wanted), owner.schedules.get(name), state.now_ms)
        with in_words():
            rhythm = rhythm_of(state, owner, name, when)
        now_ms, zone = self._clock.wall_ms(), state.zones.get(when.zone)
        times = told.next_times(rhythm, zone, now_ms, TIMES_SHOWN)
        found = told.warnings(when, rhythm, state.zones, now_ms)
        return wire.SchedulePreview(
            says=told.describe(when, seed=f"{tenant}/{name}"),
            next=tuple(wire.Time(utc=instant(at_ms), local=local) for at_ms, local in times),
            warnings=tuple(wire.ScheduleWarning(code=one.code, text=one.text) for one in found),
            tzdata=state.zones.version,
        )

    def next_occurrences(
        self, *, days: int, tenant: str = TENANT, name: str = "", limit: int = 10_000
    ) -> list[wire.Due]:
        """What is expected within so many days, by time. Held schedules expect nothing."""
        now_ms, owner = self._clock.wall_ms(), self._tenant(tenant)
        end_ms = now_ms + days * 86_400_000
        found: list[tuple[int, str]] = []
        for one_name, one in owner.schedules.items():
            if is_held(one) or name not in ("", one_name):
                continue
            if one.governing is not None or one.rhythm is None:
                times = [one.next_ms] if now_ms <= one.next_ms < end_ms else []
            else:
                times = list(islice(one.rhythm.between(max(now_ms, one.next_ms), end_ms), limit)) if one.next_ms else []
            found += [(at_ms, one_name) for at_ms in times]
        return [self._due(tenant, one_name, at_ms) for at_ms, one_name in sorted(found)[:limit]]

    def _due(self, tenant: str, name: str, at_ms: int) -> wire.Due:
        zone = self.state.zones.get(schedule_of(self.state, tenant, name).when.zone)
        return wire.Due(schedule=name, utc=instant(at_ms), local=in_zone(zone, at_ms))

    async def fates(
        self, name: str, *, start: str = "", end: str = "", tenant: str = TENANT, limit: int = 1_000
    ) -> list[wire.Occurrence]:
        """What became of a schedule's occurrences, oldest first; also of one that was removed."""
        await self._durable()
        from_ms = instant_ms(start, path="start") if start else 0
        to_ms = instant_ms(end, path="end") if end else self._clock.wall_ms() + 1
        fresh = self._live.books.fates_of(tenant, name)
        stored = await self._store.read_fates(tenant, name, from_ms=from_ms, to_ms=to_ms, limit=limit)
        spans: dict[tuple[int, int, int], Range] = {}
        for span in [*stored, *fresh]:  # what is fresh is as the store has it, or longer
            if span.from_ms < to_ms and span.to_ms >= from_ms:
                spans[span.from_ms, span.schedule, span.backfill] = span
        return [views.occurrence(spans[place]) for place in sorted(spans)][:limit]

    def catch_ups(self, *, policy: str = "", tenant: str = TENANT) -> list[wire.CatchUp]:
        """What is late now, and what would become of it under the schedules' own policies, or under another."""
        return views.catch_ups(self._tenant(tenant), self._clock.wall_ms(), policy)

    def zone_names(self) -> wire.ZoneNames:
        return wire.ZoneNames(zones=tuple(self.state.zones.names), tzdata=self.state.zones.version)

    def holidays(self, *, tenant: str = TENANT) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(dates)) for name, dates in sorted(self._tenant(tenant).holidays.items())}


def new_ones(owner: Tenant, whole: ask.ApplySchedules) -> list[ask.Input]:
    """Of schedules that belong to no application, those that are not there just so: putting one again moves it."""
    return [put for put in whole.puts if not is_same(owner.schedules.get(put.schedule), put)]
