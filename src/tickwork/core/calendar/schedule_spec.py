"""When a schedule is due: as data that travels and is stored, and as a rhythm that answers.

A `ScheduleSpec` says one of four things: a cron expression, an interval, one instant, or a recurrence rule; with a
zone, what to do when clocks are changed, which dates count, and from when to when. `compile_when` makes
it a rhythm or refuses it with the field that is wrong; what is equal is shared through `SpecCache`.

A time of day follows the clock on the wall: in a gap it is shifted, in a fold it counts once. What runs
every hour or more often follows elapsed time: a fold counts twice, and only what is tied to hours of the day is
shifted out of a gap. `auto` means that rule; any other policy is taken at its word.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar, cast

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.cron import Cron
from tickwork.core.calendar.cron_parser import parse_field, split_fields
from tickwork.core.calendar.dates import MS_END, MS_START, parse_date
from tickwork.core.calendar.local_time import ZonedRecurrence
from tickwork.core.calendar.recurrence import (
    BoundedRecurrence,
    Calendar,
    DateFilter,
    Interval,
    LocalDateFilter,
    LocalRecurrence,
    Never,
    Once,
    Recurrence,
)
from tickwork.core.calendar.rrule import parse_rrule
from tickwork.core.calendar.trigger_spec import TriggerSpec, check_trigger
from tickwork.core.calendar.zones import FOREVER_S, UTC, Zone, Zones

Gap = Literal["auto", "shift", "skip", "end"]
Overlap = Literal["auto", "first", "second", "both"]
DATES_MAX = 1_000
LISTS_MAX = 20
NO_HOLIDAYS: Mapping[str, frozenset[str]] = {}
Part = TypeVar("Part")


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    cron: str | None = None
    every_ms: int | None = None
    at_ms: int | None = None
    rrule: str | None = None
    anchor_ms: int | None = None  # where an interval counts from; the DTSTART of a rule that has none
    zone: str = "UTC"
    gap: Gap = "auto"
    overlap: Overlap = "auto"
    include: tuple[str, ...] = ()  # dates that count whatever the rest says
    exclude: tuple[str, ...] = ()  # dates that never count
    business_days: bool = False  # Monday to Friday only
    holidays: tuple[str, ...] = ()  # lists of dates that do not count, by name
    start_ms: int | None = None
    end_ms: int | None = None
    on: TriggerSpec | None = None  # updates that fire it too; without a time, they alone do

    @property
    def has_time(self) -> bool:
        """Whether it is due at times of its own."""
        return any(given is not None for given in (self.cron, self.every_ms, self.at_ms, self.rrule))

    @property
    def has_calendar(self) -> bool:
        return bool(self.include or self.exclude or self.business_days or self.holidays)

    @property
    def is_bare(self) -> bool:
        """Nothing but a cron expression with its zone."""
        bounded = self.start_ms is not None or self.end_ms is not None or self.on is not None
        return self.cron is not None and not self.has_calendar and not bounded


class SpecCache:
    """Compiled parts by their value, so that a million equal schedules hold one. For one owner, and never trimmed:
    drop it when the zones or many schedules change."""

    __slots__ = ("_kept", "_last_ms", "_last_query")

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}
        self._last_query: tuple[Recurrence | None, int] = (None, 0)
        self._last_ms: int | None = None

    def keep(self, key: object, make: Callable[[], Part]) -> Part:
        part = self._kept.get(key)
        if part is None:
            part = self._kept[key] = make()
        return cast("Part", part)

    def shared(self, value: Part) -> Part:
        """The first of all values that equal this one."""
        return cast("Part", self._kept.setdefault(value, value))

    def next_ms(self, rhythm: Recurrence, after_ms: int) -> int | None:
        """The next time of the rhythm. Schedules that share a rhythm are due together and repeat the same query."""
        last = self._last_query
        if last[0] is not rhythm or last[1] != after_ms:
            self._last_query, self._last_ms = (rhythm, after_ms), rhythm.next_ms(after_ms)
        return self._last_ms

    def when(self, when: "ScheduleSpec") -> "ScheduleSpec":
        """The one that stands for all equal ones, where many are likely to be: few share an anchor or a date."""
        return self.shared(when) if when.is_bare else when

    def __len__(self) -> int:
        return len(self._kept)


def compile_when(
    when: ScheduleSpec,
    zones: Zones,
    holidays: Mapping[str, frozenset[str]] = NO_HOLIDAYS,
    seed: str = "",
    *,
    path: str = "",
    parts: SpecCache | None = None,
) -> Recurrence:
    """The due times of a schedule. `seed` decides what `H` stands for: the same one, the same times."""
    parts = SpecCache() if parts is None else parts
    if when.is_bare and "H" not in (when.cron or "").upper():
        return parts.keep(("rhythm", when), lambda: _compile(when, zones, holidays, seed, path, parts))
    return _compile(when, zones, holidays, seed, path, parts)


def _compile(
    when: ScheduleSpec, zones: Zones, holidays: Mapping[str, frozenset[str]], seed: str, path: str, parts: SpecCache
) -> Recurrence:
    at = f"{path}." if path else ""
    _check(when, at)
    zone = zones.get(when.zone, path=f"{at}zone")
    if not when.has_time:
        return Never()
    if when.at_ms is not None:
        return Once(when.at_ms)
    calendar = _calendar(when, holidays, at, parts) if when.has_calendar else None
    if when.cron is not None:
        rhythm = _cron(when, calendar, zone, seed, at, parts)
    elif when.every_ms is not None:
        rhythm = _interval(when, calendar, zone, at)
    else:
        rhythm = _rule(when, calendar, zone, at)
    if when.start_ms is None and when.end_ms is None:
        return rhythm
    start_ms = MS_START if when.start_ms is None else when.start_ms
    return BoundedRecurrence(rhythm, start_ms, MS_END if when.end_ms is None else when.end_ms)


def policies(when: ScheduleSpec, pattern: LocalRecurrence) -> tuple[str, str]:
    """What happens in a gap and in a fold, with `auto` made plain."""
    gap = when.gap if when.gap != "auto" else "skip" if pattern.any_hour else "shift"
    overlap = when.overlap if when.overlap != "auto" else "both" if pattern.steady else "first"
    return gap, overlap


def _check(when: ScheduleSpec, at: str) -> None:
    kinds = [name for name in ("cron", "every_ms", "at_ms", "rrule") if getattr(when, name) is not None]
    if when.on is not None:
        check_trigger(when.on, f"{at}on")
        if not kinds:
            _check_no_time(when, at)
            return
    if len(kinds) != 1:
        given = " and ".join(kinds) if kinds else "none of them"
        message = f"say one of cron, every_ms, at_ms and rrule; there is {given}"
        raise Refused("schedule_kind", message, path=at.removesuffix("."))
    (kind,) = kinds
    if when.anchor_ms is not None and kind not in ("every_ms", "rrule"):
        raise Refused("schedule_anchor", "only an interval or a rule has an anchor", path=f"{at}anchor_ms")
    for name in ("gap", "overlap"):
        if kind in ("every_ms", "at_ms") and getattr(when, name) != "auto":
            message = "an interval and a single instant do not depend on the clock's changes; leave it out"
            raise Refused("schedule_clock_change", message, path=f"{at}{name}")
    if kind == "at_ms" and (when.has_calendar or when.start_ms is not None or when.end_ms is not None):
        message = "a single instant has no dates to leave out and no start or end"
        raise Refused("schedule_instant", message, path=f"{at}at_ms")
    for name in ("at_ms", "anchor_ms", "start_ms", "end_ms"):
        instant = getattr(when, name)
        if instant is not None and not MS_START <= instant < MS_END:
            message = "the instant is outside the years 0001 to 9999 in UTC"
            raise Refused("instant_range", message, path=f"{at}{name}")


def _check_no_time(when: ScheduleSpec, at: str) -> None:
    bare = ScheduleSpec(on=when.on, zone=when.zone)
    for name in ScheduleSpec.__struct_fields__:
        if getattr(when, name) != getattr(bare, name):
            message = "it is for times, and this schedule has none: only updates start its runs"
            raise Refused("bad_trigger", message, path=f"{at}{name}")


def _calendar(when: ScheduleSpec, holidays: Mapping[str, frozenset[str]], at: str, parts: SpecCache) -> Calendar:
    for name, most in (("include", DATES_MAX), ("exclude", DATES_MAX), ("holidays", LISTS_MAX)):
        if len(getattr(when, name)) > most:
            raise Refused("too_many_dates", f"at most {most} are allowed", path=f"{at}{name}")
    for index, name in enumerate(when.holidays):
        if name not in holidays:
            message = f"there is no list of holidays {name[:60]!a}; upload it first"
            raise Refused("unknown_holidays", message, path=f"{at}holidays[{index}]")
    both = sorted(set(when.include) & set(when.exclude))
    if both:
        raise Refused("date_twice", f"{both[0]} is both included and excluded", path=f"{at}include")
    lists = tuple(holidays[name] for name in when.holidays)

    def make() -> Calendar:
        return Calendar(
            business=when.business_days,
            included=[parse_date(text, path=f"{at}include[{i}]") for i, text in enumerate(when.include)],
            excluded=[parse_date(text, path=f"{at}exclude[{i}]") for i, text in enumerate(when.exclude)],
            holidays=[parse_date(date, path=f"{at}holidays") for dates in lists for date in sorted(dates)],
        )

    return parts.keep(("calendar", when.include, when.exclude, when.business_days, lists), make)


def _interval(when: ScheduleSpec, calendar: Calendar | None, zone: Zone, at: str) -> Recurrence:
    anchor_ms = when.anchor_ms if when.anchor_ms is not None else when.start_ms or 0
    interval = Interval.parse(when.every_ms, anchor_ms=anchor_ms, path=f"{at}every_ms")
    if calendar is None:
        return interval
    rhythm = DateFilter(interval, calendar, zone)
    if rhythm.next_ms(anchor_ms - 1) is None:
        raise Refused("never_due", "no time of this interval falls on a date that counts", path=f"{at}every_ms")
    return rhythm


def _cron(
    when: ScheduleSpec, calendar: Calendar | None, zone: Zone, seed: str, at: str, parts: SpecCache
) -> Recurrence:
    """Shared by text, and by what its fields with an H stand for: only those are read again for every seed."""
    text, path = when.cron, f"{at}cron"
    assert text is not None
    words = parts.keep(("words", text), lambda: split_fields(text, path=path))
    hashed = tuple(parse_field(word, seed=seed, path=path).plain for word in words if "H" in word.text.upper())
    cron = parts.keep(("cron", text, hashed), lambda: _parsed(text, seed, path, parts))
    if calendar is not None:
        cron = parts.keep(("counted", text, hashed, calendar), lambda: _counted(cron, calendar, at))
    key = ("zoned", text, hashed, calendar, zone, when.gap, when.overlap)
    return cron if zone is UTC else parts.keep(key, lambda: _zoned(when, cron, zone))


def _parsed(text: str, seed: str, path: str, parts: SpecCache) -> Cron:
    cron = Cron.parse(text, path=path, seed=seed)
    return replace(cron, days=parts.keep(cron.days, lambda: cron.days))


def _counted(cron: Cron, calendar: Calendar, at: str) -> Cron:
    counted = cron.on(calendar)
    if not counted.days.possible():
        raise Refused("never_due", "no day of this expression is a business day", path=f"{at}cron")
    return counted


def _rule(when: ScheduleSpec, calendar: Calendar | None, zone: Zone, at: str) -> Recurrence:
    assert when.rrule is not None
    given_ms = when.anchor_ms if when.anchor_ms is not None else when.start_ms
    rule = parse_rrule(when.rrule, zone=zone, start_ms=given_ms, path=f"{at}rrule")
    start_ms, end_ms = rule.start_at_s * 1000, (rule.until_at_s + 1) * 1000
    if (count := rule.count) is not None and zone is not UTC:
        # What counts are instants, and how many a reading has is known only here.
        rule = replace(rule, until_s=FOREVER_S)
        end_ms = _counted_end_ms(_zoned(when, rule, zone), start_ms, count)
    pattern = rule if calendar is None else LocalDateFilter(rule, calendar)
    if pattern.next_s(rule.from_s - 1) is None:
        raise Refused("never_due", "no time of this rule falls on a date that counts", path=f"{at}rrule")
    return pattern if zone is UTC else BoundedRecurrence(_zoned(when, pattern, zone), start_ms, end_ms)


def _counted_end_ms(rhythm: Recurrence, start_ms: int, count: int) -> int:
    last_ms = start_ms - 1
    for _ in range(count):
        due_ms = rhythm.next_ms(last_ms)
        if due_ms is None:
            break
        last_ms = due_ms
    return last_ms + 1


def _zoned(when: ScheduleSpec, pattern: LocalRecurrence, zone: Zone) -> Recurrence:
    if zone is UTC:
        return pattern
    gap, overlap = policies(when, pattern)
    return ZonedRecurrence(pattern=pattern, zone=zone, gap=gap, overlap=overlap)
