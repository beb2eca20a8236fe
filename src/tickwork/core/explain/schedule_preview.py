"""What a schedule means: in words, as its next times, with warnings; and how two sets of times differ.

Nothing here decides anything. A warning never refuses a schedule; it says what a person may not have meant.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from tickwork.core.calendar.cron import Cron, Days
from tickwork.core.calendar.dates import DAY_S, local_text, members
from tickwork.core.calendar.describe import day_words, joined, time_words
from tickwork.core.calendar.describe_rrule import rule_words
from tickwork.core.calendar.durations import duration_text, instant_text
from tickwork.core.calendar.local_time import ZonedRecurrence
from tickwork.core.calendar.recurrence import BoundedRecurrence, LocalDateFilter, LocalRecurrence, Recurrence
from tickwork.core.calendar.rrule import Rule
from tickwork.core.calendar.schedule_spec import ScheduleSpec, policies
from tickwork.core.calendar.zones import Zone, Zones, in_zone
from tickwork.core.state.schedule import SchedulePolicy

AHEAD_MS = 2 * 366 * DAY_S * 1000  # how far ahead a gap is looked for
PILE_UP_HOURS = (0, 1, 2, 3, 6, 8, 9, 12, 18)  # at which everybody starts something
GAP_CHANGES_MAX = 12
_HASHED = re.compile(r"(?<![A-Z@])H(?![A-Z])")  # not the one of THU or @hourly


class Warning(msgspec.Struct, frozen=True):  # noqa: A001 - the word for it; the built-in one is for programmers
    code: str
    text: str


class Difference(msgspec.Struct, frozen=True):
    """One time that only one of two sides has: `sign` is - for the first side and + for the second."""

    sign: str
    key: str
    at_ms: int


def describe(when: ScheduleSpec, *, seed: str = "", rhythm: Recurrence | None = None) -> str:
    """The meaning in words, of a schedule that compiles with this seed, and to this rhythm: a rule says what its start
    adds to it."""
    if when.on is not None:
        times = describe(msgspec.structs.replace(when, on=None), seed=seed, rhythm=rhythm) if when.has_time else ""
        return f"{times}; or {when.on.words}" if times else when.on.words
    words = [_main(when, seed, rhythm)]
    if when.business_days:
        words.append("business days only")
    if when.holidays:
        words.append(f"not on holidays of {joined(list(when.holidays))}")
    if when.exclude:
        words.append(f"never on {_dates(when.exclude)}")
    if when.include:
        words.append(f"in any case on {_dates(when.include)}")
    if when.start_ms is not None:
        words.append(f"from {instant_text(when.start_ms)}")
    if when.end_ms is not None:
        words.append(f"until {instant_text(when.end_ms)}")
    if when.every_ms is None and when.at_ms is None:
        words.append(zone_words(when.zone))
    return ", ".join(words)


def _main(when: ScheduleSpec, seed: str, rhythm: Recurrence | None) -> str:
    if when.at_ms is not None:
        return f"once at {instant_text(when.at_ms)}"
    if when.every_ms is not None:
        anchor = f", counted from {instant_text(when.anchor_ms)}" if when.anchor_ms is not None else ""
        return f"every {duration_text(when.every_ms)}{anchor}"
    if when.rrule is not None:
        rule = _rule(rhythm)
        if rule is not None:
            return rule_words(rule)
        return f"by the rule {when.rrule.strip().splitlines()[-1].removeprefix('RRULE:')}"
    assert when.cron is not None
    cron = Cron.parse(when.cron, path="cron", seed=seed)
    return f"{time_words(cron.hours, cron.minutes, cron.seconds)}{day_words(cron.days)}"


def _rule(rhythm: Recurrence | None) -> Rule | None:
    pattern = _pattern(rhythm) if rhythm is not None else None
    pattern = pattern.pattern if isinstance(pattern, LocalDateFilter) else pattern
    return pattern if isinstance(pattern, Rule) else None


def _dates(dates: tuple[str, ...]) -> str:
    shown = joined(list(dates[:3]))
    return shown if len(dates) <= 3 else f"{', '.join(dates[:3])} and {len(dates) - 3} more"


def zone_words(name: str) -> str:
    return "UTC" if name in ("UTC", "Etc/UTC") else f"{name.rpartition('/')[2].replace('_', ' ')} time"


# ---- next times


def next_times(rhythm: Recurrence, zone: Zone, after_ms: int, n: int) -> list[tuple[int, str]]:
    """The next times, each also as the zone's clock shows it: `2026-03-29T03:30:00+02:00`."""
    times: list[tuple[int, str]] = []
    due_ms = rhythm.next_ms(after_ms)
    while due_ms is not None and len(times) < n:
        times.append((due_ms, in_zone(zone, due_ms)))
        due_ms = rhythm.next_ms(due_ms)
    return times


# ---- warnings


def warnings(when: ScheduleSpec, rhythm: Recurrence, zones: Zones, now_ms: int) -> list[Warning]:
    """What a person may not have meant, most serious first."""
    pattern = _pattern(rhythm)
    result = [*_never(when, rhythm, now_ms)]
    if pattern is not None:
        result += _in_gap(when, pattern, zones.get(when.zone), now_ms)
    if when.cron is not None and isinstance(pattern, Cron):
        result += [*_confused(when.cron, pattern), *_either_day(pattern.days), *_pile_up(when.cron, pattern)]
    return result


def without_pile_up(all_warnings: Iterable[Warning], terms: SchedulePolicy) -> list[Warning]:
    """Drop the pile-up warnings if the schedule has a jitter, which is what they recommend."""
    return [warning for warning in all_warnings if warning.code != "pile_up" or not terms.jitter]


def of_terms(terms: SchedulePolicy, left: int) -> Iterator[Warning]:
    """What its policies do together that a person may not have meant; `left`: how many runs it may still have."""
    if left < 1:
        yield Warning("never_due", f"it is not due again: it has had its {terms.runs_max} runs")
    policy = "automatic_backfill" if terms.automatic_backfill else f"catch_up {terms.catch_up}"
    many = terms.automatic_backfill or terms.catch_up in ("all", "window", "spread")
    consequence = {
        "forbid": "only the first of what is late runs, because the others come while it goes on",
        "replace": "of what is late only the last goes on, because each one replaces the one before",
        "buffer_one": "only the first two of what is late run, because one waits and no more",
    }.get(terms.overlap)
    if many and consequence is not None:
        yield Warning("late_and_overlap", f"with {policy} and overlap {terms.overlap}, {consequence}")


def of_name(when: ScheduleSpec, name: str, owner: str) -> Iterator[Warning]:
    """What its name, or whose it was, makes of it."""
    if not name and when.cron is not None and _HASHED.search(when.cron.upper()):
        yield Warning("hashed", "H stands for other times with every name; these are those without one")
    if owner:
        yield Warning("owned", f"it belongs to {owner}, which sets it back when it is published or applied next")


def _pattern(rhythm: Recurrence) -> LocalRecurrence | None:
    match rhythm:
        case BoundedRecurrence(rhythm=inner):
            return _pattern(inner)
        case ZonedRecurrence(pattern=pattern):
            return pattern
        case LocalRecurrence():
            return rhythm
    return None


def _never(when: ScheduleSpec, rhythm: Recurrence, now_ms: int) -> Iterator[Warning]:
    if not when.has_time:
        return  # updates start it
    if when.start_ms is not None and when.end_ms is not None and when.end_ms <= when.start_ms:
        yield Warning("end_before_start", "it ends before it starts, and is never due")
    elif rhythm.next_ms(now_ms) is None:
        last_ms = rhythm.prev_ms(now_ms + 1)
        last = f"; the last time was {instant_text(last_ms)}" if last_ms is not None else ""
        yield Warning("never_due", f"it is not due again{last}")


def _in_gap(when: ScheduleSpec, pattern: LocalRecurrence, zone: Zone, now_ms: int) -> Iterator[Warning]:
    """The first time in two years that clocks jump over, and what becomes of it."""
    gap, _ = policies(when, pattern)
    if pattern.any_hour and when.gap == "auto":
        return  # nothing is lost: every hour that exists is due
    now_s = max(now_ms, when.start_ms if when.start_ms is not None else now_ms) // 1000
    end_s = min(now_ms + AHEAD_MS, when.end_ms if when.end_ms is not None else now_ms + AHEAD_MS) // 1000
    for period in islice(zone.periods(now_s, end_s), 1, GAP_CHANGES_MAX):
        start_s, after_s = period.start_s + period.before_s, period.start_s + period.offset_s
        reading = pattern.next_s(start_s - 1)
        if reading is not None and reading < after_s and period.start_s < end_s:
            what = {"skip": "is left out", "end": f"becomes {local_text(after_s)[11:16]}"}
            what["shift"] = f"becomes {local_text(reading + after_s - start_s)[11:16]}"
            shown = local_text(reading)
            text = f"{shown[11:16]} does not exist on {shown[:10]}, when clocks are changed; it {what[gap]}"
            yield Warning("in_gap", text)
            return


def _confused(text: str, cron: Cron) -> Iterator[Warning]:
    if text.strip().startswith("@"):
        return
    *seconds, minute, hour, day, month, weekday = text.split()
    rest = f"{day} {month} {weekday}"
    if seconds == ["*"] and minute != "*":
        yield Warning("second_and_minute", "six fields begin with the seconds, and * is every one; write 0 for once")
    elif minute == "*" and hour != "*" and seconds in ([], ["0"]):
        hours = len(members(cron.hours))
        each = f"{60 * hours} times a day" if hours > 1 else f"every minute from {hour}:00 to {hour}:59"
        yield Warning("minute_and_hour", f"this is {each}; for once an hour write 0 for the minutes")
    elif hour == "*" and minute.isdigit() and 1 <= int(minute) <= 23 and int(minute) not in (5, 10, 15, 20):
        example = f"{'0 ' if seconds else ''}0 {minute} {rest}"
        yield Warning("minute_and_hour", f"this is every hour at minute {minute}; for {minute} o'clock write {example}")


def _either_day(days: Days) -> Iterator[Warning]:
    if days.either:
        text = "both day fields are set, so a day that fits either of them is due; put * in one to use the other alone"
        yield Warning("either_day", text)


def _pile_up(text: str, cron: Cron) -> Iterator[Warning]:
    busy = [hour for hour in members(cron.hours) if hour in PILE_UP_HOURS]
    if cron.minutes == 1 and cron.seconds & 1 and busy and not _HASHED.search(text.upper()):
        tip = "write H in the minute field or set a jitter to spread the load"
        yield Warning("pile_up", f"many schedules start at the full hour; {tip}")


# ---- differences


def difference(first: Iterable[tuple[str, int]], second: Iterable[tuple[str, int]]) -> Iterator[Difference]:
    """What only one of two streams of (key, time) has. Both rise by (time, key); neither is held in memory."""
    left, right = iter(first), iter(second)
    before, after = next(left, None), next(right, None)
    while before is not None or after is not None:
        if after is None or (before is not None and _order(before) < _order(after)):
            assert before is not None
            yield Difference("-", *before)
            before = next(left, None)
        elif before is None or _order(after) < _order(before):
            yield Difference("+", *after)
            after = next(right, None)
        else:
            before, after = next(left, None), next(right, None)


def _order(entry: tuple[str, int]) -> tuple[int, str]:
    key, at_ms = entry
    return at_ms, key
