"""Schedules: commands that change them and queries about them.

Requests are checked before any input is posted, so that an application is accepted as a whole or not at all. The
machine checks again, because it decides. Views are read from the state; fates also from the store.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.core.calendar.durations import duration_ms, instant_ms
from tickwork.core.calendar.zones import in_zone
from tickwork.core.decide.schedules.backfill import window_end_ms
from tickwork.core.decide.schedules.schedule_commands import check_advice, check_put, is_same, schedule_of
from tickwork.core.definition.plan import Plan
from tickwork.core.evolve.schedules import anchored, is_held, rhythm_of
from tickwork.core.evolve.versions import pinned
from tickwork.core.explain import schedule_preview
from tickwork.core.explain.upcoming import left_of, upcoming
from tickwork.core.snapshot.schedule_rows import LiveBackfill
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import FindRuns
from tickwork.core.state.run_ids import occurrence_id
from tickwork.core.state.schedule import Fate, FateRange, check_terms
from tickwork.core.state.state import Schedule, Tenant
from tickwork.protocol import http_models as wire
from tickwork.protocol.schedule_requests import in_words, length_ms, reading_ms, terms_of, when_of
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.schedule_requests import put_of
from tickwork.runtime.storage.store_retry import retry_until_available
from tickwork.runtime.views import schedules as views
from tickwork.runtime.views.endpoints import is_endpoint
from tickwork.runtime.views.text import instant

PAGE_MAX = 1_000
DAY_MS = 86_400_000
CURSOR_DIGITS_MAX = 18
TIMES_SHOWN = 10
IDS_SHOWN = 10_000
COUNTED_MAX = 1_000_000
PORTION = 1_000
FATES_READ = 10_000
HINT_TTL_MS = 60 * 60_000  # where nothing is said; of one for a time, from that time on
COMPARED_MAX = 100_000
NOBODYS = "preview"  # a name that no schedule can have

_decode_backfill = msgspec.msgpack.Decoder(LiveBackfill).decode


class ScheduleService:
    """Schedules, their occurrences, backfills and holidays."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    # ---- what changes something

    async def put(
        self, name: str, request: wire.ScheduleRequest, *, by: str, new: bool = False, tenant: str = TENANT
    ) -> wire.SchedulePreview:
        """Create or replace one; with `new`, only create it."""
        put = self._with_pin(put_of(name, request, by=by, tenant=tenant, new=new))
        self._check_no_endpoint(name, tenant)
        self._check_ends(put)
        with in_words():
            check_put(self._context.state, put)
        old = self._context.tenant(tenant).schedules.get(name)
        owner = "" if old is None else old.owner
        await self._context.command(put)
        return self.preview_of(name, request, self._context.tenant(tenant).schedules.get(name), tenant, owner)

    async def apply(self, request: wire.ScheduleSet, *, by: str, tenant: str = TENANT) -> list[wire.Schedule]:
        check_name(request.owner, path="owner", kind="owner")
        command = self.set_of(
            request.owner, request.schedules, self._context.tenant(tenant).plans, by=by, tenant=tenant
        )
        if not request.dry_run:
            await self._context.command(command)
        held = self._context.tenant(tenant).schedules
        applied = (held.get(name) for name in sorted(request.schedules))
        return [views.schedule(schedule) for schedule in applied if schedule is not None and not schedule.archived]

    def set_of(
        self,
        owner: str,
        requests: Mapping[str, wire.ScheduleRequest],
        plans: Mapping[str, Plan],
        *,
        by: str,
        tenant: str,
        queues: frozenset[str] = frozenset(),
    ) -> inp.ApplySchedules:
        """A whole set, checked as the machine will check it."""
        puts = []
        for name, request in sorted(requests.items()):
            path = f"schedules.{name}"
            put = self._with_pin(put_of(name, request, by=by, tenant=tenant, owner=owner, path=path), path=path)
            self._check_no_endpoint(name, tenant, path=path)
            self._check_ends(put, path=f"{path}.listen_to")
            with in_words(path):
                check_put(self._context.state, put, plans=plans, queues=queues)
            puts.append(put)
        return inp.ApplySchedules(by, tenant, owner, puts)

    def _with_pin(self, put: inp.PutSchedule, *, path: str = "") -> inp.PutSchedule:
        """A version may be given without its application, where only one has it. The machine wants it in full."""
        if not put.terms.version:
            return put
        with in_words(path):
            pin, _ = pinned(self._context.tenant(put.tenant), put.workflow, put.terms.version)
        return msgspec.structs.replace(put, terms=msgspec.structs.replace(put.terms, version=pin))

    def _check_no_endpoint(self, name: str, tenant: str, *, path: str = "schedule") -> None:
        old = self._context.tenant(tenant).schedules.get(name)
        if old is not None and is_endpoint(old):
            raise Refused("name_taken", f"{name} is an endpoint; put it as one, or choose another name", path=path)

    def _check_ends(self, put: inp.PutSchedule, *, path: str = "listen_to") -> None:
        """A schedule is in the home of its tenant, and hears only the ends of runs there."""
        neighbours, on = self._context.neighbours, put.when.on
        if on is None or neighbours is None or len(neighbours.partitions_of(put.tenant)) < 2:
            return
        if any(source.ended for source in on.sources):
            message = (
                f"the runs of {put.tenant} are spread over several partitions, and a schedule is in one: it would "
            )
            raise Refused("trigger_spread", f"{message}not hear the end of a run in the others", path=path)

    async def remove(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        """Not an endpoint, which keeps its history: that is archived."""
        if is_endpoint(schedule_of(self._context.state, tenant, name)):
            raise Refused("illegal_move", f"{name} is an endpoint, which is archived and not deleted", path="schedule")
        await self._context.command(inp.RemoveSchedule(by, tenant, name))

    async def steer(self, name: str, action: str, *, by: str, tenant: str = TENANT) -> None:
        await self._context.command(inp.SteerSchedule(by, tenant, name, action))

    async def advise(self, name: str, request: wire.HintRequest, *, by: str, tenant: str = TENANT) -> wire.Schedule:
        interval_ms = length_ms(request.interval, "interval")
        at_ms = instant_ms(request.at, path="at") if request.at else None
        now_ms = self._context.now_ms()
        ttl_ms = duration_ms(request.ttl, path="ttl") if request.ttl else HINT_TTL_MS + max(0, (at_ms or 0) - now_ms)
        command = inp.Advise(by, tenant, name, interval_ms, at_ms, ttl_ms, request.reason, request.cost)
        with in_words():
            check_advice(self._context.state, command, now_ms=now_ms)
        await self._context.command(command)
        return self.get(name, tenant=tenant)

    async def clear_hints(self, name: str, *, by: str, tenant: str = TENANT) -> wire.Schedule:
        await self._context.command(inp.Advise(by, tenant, name, clear=True))
        return self.get(name, tenant=tenant)

    async def trigger(self, name: str, *, by: str, test: bool = False, key: str = "", tenant: str = TENANT) -> str:
        """Start a run now and return its id. An archived schedule starts nothing. The same key returns the same run for
        24 hours."""
        if schedule_of(self._context.state, tenant, name).archived:
            raise Refused("illegal_move", f"{name} is in the archive; restore it first", path="schedule")
        return (await self._context.command(inp.Trigger(by, tenant, name, test, key), facts=bool(key))).run_id

    async def put_holidays(self, name: str, dates: tuple[str, ...] | None, *, by: str, tenant: str = TENANT) -> None:
        await self._context.command(inp.PutHolidays(by, tenant, name, dates))

    # ---- backfill

    async def backfill(
        self, name: str, request: wire.BackfillRequest, *, by: str, tenant: str = TENANT
    ) -> wire.Backfill:
        schedule = schedule_of(self._context.state, tenant, name)
        zone = self._context.state.zones.get(schedule.when.zone)
        from_ms, to_ms = (reading_ms(getattr(request, end), zone, path=end) for end in ("start", "end"))
        plan, dues_ms = await self._backfill_plan(schedule, request, from_ms, to_ms)
        if request.preview:
            return plan if request.forced else await self._without_known(plan, schedule, dues_ms)
        answer = await self._context.command(
            inp.Backfill(
                by, tenant, name, from_ms, to_ms, request.concurrency, request.priority, request.newest_first,
                request.forced,
            )
        )  # fmt: skip
        again = f"-again-{answer.run_id}" if request.forced else ""
        ids = tuple(run_id + again for run_id in plan.run_ids)
        return msgspec.structs.replace(plan, number=int(answer.run_id), state="active", by=by, run_ids=ids)

    async def _backfill_plan(
        self, schedule: Schedule, request: wire.BackfillRequest, from_ms: int, to_ms: int
    ) -> tuple[wire.Backfill, list[int]]:
        """Return the runs that it can start, and the times of the listed ones."""
        rhythm = schedule.rhythm
        if rhythm is None or schedule.governing is not None:
            raise Refused("not_backfillable", schedule.broken or "an endpoint has no fixed times", path="schedule")
        if from_ms >= to_ms:
            raise Refused("bad_window", "a window must begin before it ends", path="start")
        end_ms = window_end_ms(schedule, to_ms, self._context.state.now_ms)
        if is_held(schedule):
            end_ms = min(to_ms, self._context.state.now_ms + 1)
        walk = rhythm.back_between if request.newest_first else rhythm.between
        times, dues_ms, count = walk(from_ms, end_ms), list[int](), 0
        while portion := list(islice(times, PORTION)):
            dues_ms += portion[: IDS_SHOWN - len(dues_ms)]
            count += len(portion)
            if count > COUNTED_MAX:
                break
            await asyncio.sleep(0)  # others have their turn: a window may hold a million times
        plan = wire.Backfill(
            number=0,
            schedule=schedule.name,
            state="preview",
            start=instant(from_ms),
            end=instant(max(end_ms, from_ms)),
            forced=request.forced,
            newest_first=request.newest_first,
            concurrency=request.concurrency,
            run_ids=tuple(occurrence_id(schedule.name, due_ms) for due_ms in dues_ms),
            count=min(count, COUNTED_MAX),
            more=count > COUNTED_MAX,
        )
        return plan, dues_ms

    async def _without_known(self, plan: wire.Backfill, schedule: Schedule, dues_ms: list[int]) -> wire.Backfill:
        """Return the listed runs that have not run yet, and the number of those that have."""
        known: set[int] = set()
        for at in range(0, len(dues_ms), PORTION):
            known |= await self._ran(schedule.tenant.id, schedule, schedule.name, dues_ms[at : at + PORTION])
        missing = tuple(occurrence_id(schedule.name, due_ms) for due_ms in dues_ms if due_ms not in known)
        return msgspec.structs.replace(plan, run_ids=missing, known=len(known))

    async def steer_backfill(self, number: int, action: str, *, by: str, tenant: str = TENANT) -> None:
        await self._context.command(inp.SteerBackfill(by, tenant, number, action))

    async def backfills(self, *, tenant: str = TENANT, limit: int = 50) -> list[wire.Backfill]:
        """Return the backfills under way, then those that ended, newest first."""
        state = self._context.state
        live = [
            views.backfill(backfill.schedule.name, views.row_of(backfill))
            for _, backfill in sorted(state.backfills.items(), reverse=True)
            if backfill.schedule.tenant.id == tenant
        ]
        unwritten = self._context.live.write_behind.left_backfills(tenant)
        stored = await self._context.store.list_backfills(tenant, limit=limit)
        known = frozenset(row.number for row in unwritten)
        ended = [*unwritten, *(row for row in stored if row.number not in known)]
        return (live + [views.backfill(row.schedule, _decode_backfill(row.data)) for row in ended])[:limit]

    async def find_known(self, effect: FindRuns) -> inp.RunsKnown:
        backfill = self._context.state.backfills.get(effect.backfill)
        schedule = backfill.schedule if backfill is not None else None
        known = await self._ran(effect.tenant, schedule, effect.schedule, effect.dues_ms)
        return inp.RunsKnown(effect.backfill, tuple(due_ms for due_ms in effect.dues_ms if due_ms in known))

    async def _ran(self, tenant: str, schedule: Schedule | None, name: str, dues_ms: Sequence[int]) -> set[int]:
        """Of these occurrences, those that have run: by their run, or by their fate."""
        known = await self._begun(tenant, name, dues_ms)
        left = [due_ms for due_ms in dues_ms if due_ms not in known]
        if not left:
            return known
        stored = await self._stored_fates(tenant, name, min(left), max(left) + 1)
        spans = [
            span for span in [*stored, *self._context.live.write_behind.fates_of(tenant, name)] if span.fate == Fate.RAN
        ]
        known.update(due_ms for span in spans for due_ms in left if due_ms in (span.from_ms, span.to_ms))
        inside = [
            (span, within)
            for span in spans
            if (within := [due_ms for due_ms in left if span.from_ms < due_ms < span.to_ms])
        ]
        ends = await self._begun(
            tenant, name, sorted({end for span, _ in inside for end in (span.from_ms, span.to_ms)})
        )
        for span, within in inside:
            # Where the runs of a range are still here, each speaks for itself: what has none is a date that did not
            # count then. Where they are gone, the range alone is left to tell.
            if not {span.from_ms, span.to_ms} <= ends and _has_times_of(span, schedule):
                known.update(within)
        return known

    async def _begun(self, tenant: str, name: str, dues_ms: Sequence[int]) -> set[int]:
        """Return the times that have a run: here, in the store or in the archive. The lookups follow the order in which
        runs move, and the last one covers a run that came back meanwhile."""
        owner, write_behind = self._context.tenant(tenant), self._context.live.write_behind
        ids = {occurrence_id(name, due_ms): due_ms for due_ms in dues_ms}

        def here() -> set[str]:
            return {
                run_id
                for run_id in ids
                if owner.runs.get(run_id) is not None or write_behind.find_left(tenant, run_id) is not None
            }

        known = here()
        if ids:
            known |= await retry_until_available(lambda: self._context.archives.known(tenant, list(ids)))
        return {ids[run_id] for run_id in known | here()}

    async def _stored_fates(self, tenant: str, name: str, from_ms: int, to_ms: int) -> list[FateRange]:
        """All of them, however many; some may come twice."""
        ranges: list[FateRange] = []
        while True:
            read = partial(self._context.store.read_fates, tenant, name, from_ms=from_ms, to_ms=to_ms, limit=FATES_READ)
            page = await retry_until_available(read)
            ranges += page
            if len(page) < FATES_READ or page[-1].from_ms <= from_ms:
                return ranges
            from_ms = page[-1].from_ms

    # ---- queries

    def get(self, name: str, *, tenant: str = TENANT) -> wire.Schedule:
        return views.whole_schedule(schedule_of(self._context.state, tenant, name))

    def page(
        self, *, tenant: str = TENANT, after: str = "", limit: int = PAGE_MAX, group: str = "", archived: bool = False
    ) -> wire.Schedules:
        """Return a page by name, beginning after `after`."""
        owner = self._context.state.tenants.get(tenant)
        schedules = [
            schedule for name, schedule in (owner.schedules.items() if owner is not None else ())
            if name > after and schedule.archived is archived and group in ("", schedule.terms.group)
        ][: limit + 1]  # fmt: skip
        shown = tuple(views.schedule(schedule) for schedule in schedules[:limit])
        return wire.Schedules(schedules=shown, next=schedules[limit - 1].name if len(schedules) > limit else None)

    def preview(self, name: str, request: wire.ScheduleRequest, *, tenant: str = TENANT) -> wire.SchedulePreview:
        """What this schedule would do, without putting it. One that names a workflow is checked as if it were put."""
        old = self._context.tenant(tenant).schedules.get(name)
        with in_words():
            check_terms(terms_of(request))
            if request.workflow:
                put = self._with_pin(put_of(name or "any", request, by="", tenant=tenant))
                check_put(self._context.state, put if name else msgspec.structs.replace(put, schedule=NOBODYS))
        return self.preview_of(name, request, old, tenant, owner="" if old is None else old.owner)

    def preview_of(
        self, name: str, request: wire.ScheduleRequest, old: Schedule | None, tenant: str, owner: str
    ) -> wire.SchedulePreview:
        state = self._context.state
        when = anchored(when_of(request), old, state.now_ms)
        with in_words():
            rhythm = rhythm_of(state, self._context.tenant(tenant), name, when)
        now_ms, zone, left = self._context.now_ms(), state.zones.get(when.zone), left_of(request.max_runs, old)
        times, terms = schedule_preview.next_times(rhythm, zone, now_ms, min(TIMES_SHOWN, left)), terms_of(request)
        warnings = [
            *schedule_preview.without_pile_up(schedule_preview.warnings(when, rhythm, state.zones, now_ms), terms),
            *schedule_preview.of_terms(terms, left),
            *schedule_preview.of_name(when, name, owner),
        ]
        return wire.SchedulePreview(
            says=schedule_preview.describe(when, seed=f"{tenant}/{name}", rhythm=rhythm),
            next=tuple(wire.Time(utc=instant(at_ms), local=local) for at_ms, local in times),
            warnings=tuple(wire.ScheduleWarning(code=warning.code, text=warning.text) for warning in warnings),
            tzdata=state.zones.version,
        )

    def next_occurrences(
        self, *, days: int, tenant: str = TENANT, name: str = "", after: str = "", limit: int = 10_000
    ) -> wire.Upcoming:
        """Return a page of the occurrences that are due within so many days, by time, beginning after `after`."""
        now_ms, owner = self._context.now_ms(), self._context.tenant(tenant)
        every = (schedule for schedule_name, schedule in owner.schedules.items() if name in ("", schedule_name))
        times = upcoming(every, now_ms, now_ms + days * DAY_MS, _position_of(after) if after else (0, ""))
        occurrences = list(islice(times, limit + 1))
        more = f"{occurrences[limit - 1][0]}-{occurrences[limit - 1][1]}" if len(occurrences) > limit else None
        return wire.Upcoming(
            occurrences=tuple(self._due(tenant, schedule_name, at_ms) for at_ms, schedule_name in occurrences[:limit]),
            next=more,
        )

    def _due(self, tenant: str, name: str, at_ms: int) -> wire.Due:
        zone = self._context.state.zones.get(schedule_of(self._context.state, tenant, name).when.zone)
        return wire.Due(schedule=name, utc=instant(at_ms), local=in_zone(zone, at_ms))

    async def fates(
        self, name: str, *, start: str = "", end: str = "", tenant: str = TENANT, limit: int = 1_000
    ) -> wire.Occurrences:
        """Return what became of a schedule's occurrences, oldest first. A removed schedule still has them."""
        await self._context.until_durable()
        from_ms = instant_ms(start, path="start") if start else 0
        to_ms = instant_ms(end, path="end") if end else self._context.now_ms() + 1
        fresh = self._context.live.write_behind.fates_of(tenant, name)
        stored = await self._context.store.read_fates(tenant, name, from_ms=from_ms, to_ms=to_ms, limit=limit + 1)
        spans: dict[tuple[int, int, int], FateRange] = {}
        for span in [*stored, *fresh]:  # an unstored range equals the stored one, or extends it
            if span.from_ms < to_ms and span.to_ms >= from_ms:
                spans[span.from_ms, span.schedule, span.backfill] = span
        occurrences = [views.occurrence(spans[span]) for span in sorted(spans)]
        more = occurrences[limit - 1].from_at if len(occurrences) > limit else None
        return wire.Occurrences(occurrences=tuple(occurrences[:limit]), next=more)

    def catch_ups(self, *, policy: str = "", tenant: str = TENANT) -> list[wire.CatchUp]:
        """List what is late now, and its result under the schedules' own policies or another one."""
        return views.catch_ups(self._context.tenant(tenant), self._context.now_ms(), policy)

    def holidays(self, *, tenant: str = TENANT) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(dates)) for name, dates in sorted(self._context.tenant(tenant).holidays.items())}


def _has_times_of(span: FateRange, schedule: Schedule | None) -> bool:
    """Are the times of the range those that the schedule has in it today? Of an earlier version, as far as their number
    and the two ends tell."""
    if schedule is None or (span.schedule, span.version) == (schedule.number, schedule.version):
        return schedule is not None
    if schedule.rhythm is None or span.count > COMPARED_MAX:
        return False
    times = list(islice(schedule.rhythm.between(span.from_ms, span.to_ms + 1), span.count + 1))
    return len(times) == span.count and (times[0], times[-1]) == (span.from_ms, span.to_ms)


def _position_of(cursor: str) -> tuple[int, str]:
    """Return where the page before ended: the time and the name of its last occurrence."""
    at, _, name = cursor.partition("-")
    if not at.isdecimal() or len(at) > CURSOR_DIGITS_MAX:
        raise Refused("bad_cursor", "a cursor is `next` of the previous page", path="query.cursor")
    return int(at), name


def new_ones(owner: Tenant, whole: inp.ApplySchedules) -> list[inp.Input]:
    """Return the schedules without an application that differ from the stored ones: putting one again would move it."""
    return [put for put in whole.puts if not is_same(owner.schedules.get(put.schedule), put)]
