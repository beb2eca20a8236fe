"""Time zones: offsets from UTC by versioned data, not by what a machine has installed.

A zone is a row of periods with one offset each. They are read from a file in the format TZif (RFC 8536);
behind its last change its footer goes on, and since the calendar repeats every 400 years, no table is longer.
All times are in seconds: `utc_s` since 1970, `local_s` the same count on the zone's own clock.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.calendar.dates import (
    CYCLE_DAYS,
    DAY_S,
    HOUR_S,
    MINUTE_S,
    civil,
    day_number,
    is_leap,
    local_text,
    month_length,
    weekday,
)

# ---- The last line of a zone's file: in which way its clocks change every year from then on.


_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET = r"([+-]?[0-9]{1,3}(?::[0-9]{1,2}){0,2})"
_DAY = r"(J[0-9]{1,3}|[0-9]{1,3}|M[0-9]{1,2}\.[1-5]\.[0-6])"
_RULE = re.compile(rf"{_NAME}{_OFFSET}(?:{_NAME}{_OFFSET}?,{_DAY}(?:/{_OFFSET})?,{_DAY}(?:/{_OFFSET})?)?")


@dataclass(frozen=True, slots=True)
class Transition:
    """On which day of a year, and how many seconds after its midnight."""

    day: str
    time_s: int

    def local_s(self, year: int) -> int:
        return self._day_in(year) * DAY_S + self.time_s

    def _day_in(self, year: int) -> int:
        if self.day[0] == "M":
            month, week, day_of_week = (int(part) for part in self.day[1:].split("."))
            first = day_number(year, month, 1)
            day = 1 + (day_of_week - weekday(first)) % 7 + (week - 1) * 7
            return first + (day if day <= month_length(year, month) else day - 7) - 1
        start = day_number(year, 1, 1)
        if self.day[0] == "J":  # 29 February is never counted
            day = int(self.day[1:])
            return start + day - 1 + (is_leap(year) and day >= 60)
        return start + int(self.day)


@dataclass(frozen=True, slots=True)
class PosixRule:
    standard_s: int
    summer_s: int = 0
    begins: Transition | None = None
    ends: Transition | None = None

    def changes(self, year: int) -> list[tuple[int, int]]:
        """When the clocks change in this year, in UTC, and the offset from then on."""
        if self.begins is None or self.ends is None:
            return []
        begins = (self.begins.local_s(year) - self.standard_s, self.summer_s)
        ends = (self.ends.local_s(year) - self.summer_s, self.standard_s)
        return [begins, ends] if begins[0] < ends[0] else [ends, begins]


def parse_rule(text: str) -> PosixRule:
    """Parse a POSIX TZ rule. Raises ValueError if the text is not one."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a rule for a zone")
    standard, summer, begins, begins_time, ends, ends_time = match.groups()
    standard_s = -_seconds(standard)  # POSIX counts towards the west
    if begins is None:
        return PosixRule(standard_s)
    summer_s = -_seconds(summer) if summer else standard_s + HOUR_S
    return PosixRule(
        standard_s, summer_s, Transition(begins, _time_s(begins_time)), Transition(ends, _time_s(ends_time))
    )


def _time_s(text: str | None) -> int:
    return _seconds(text) if text else 2 * HOUR_S


def _seconds(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (HOUR_S, MINUTE_S, 1), strict=False))


FOREVER_S = 1 << 60
OFFSET_S_MAX = 26 * 3_600  # no clock is further from UTC than RFC 8536 allows
CYCLE_S = CYCLE_DAYS * DAY_S
YEARS_AT_ONCE = 40  # of the footer, when the table grows
NO_LINKS: Mapping[str, str] = MappingProxyType({})


class Period(NamedTuple):
    """One offset, from `start_s` to before `end_s`, and those of its neighbours."""

    start_s: int
    end_s: int
    offset_s: int
    before_s: int  # the offset before it
    after_s: int  # the offset after it


class Gap(NamedTuple):
    """Readings that do not exist: from `start_s` to before `end_s` on the clock, which is changed at `at_s` in UTC."""

    start_s: int
    end_s: int
    at_s: int


class Zone:
    __slots__ = ("_changes", "_footer_s", "_grown_year", "_offsets", "_periods", "_rule", "_turn_s", "name")

    def __init__(self, name: str, changes: Sequence[int], offsets: Sequence[int], rule: PosixRule | None) -> None:
        assert len(offsets) == len(changes) + 1, "an offset before, between and after the changes"
        self.name = name
        self._changes: list[int] = []
        self._offsets: list[int] = [offsets[0]]
        self._periods: dict[int, Period] = {}
        self._rule = rule if rule is not None and rule.begins is not None else None
        for at_s, offset_s in zip(changes, offsets[1:], strict=True):
            self._append(at_s, offset_s)
        # The footer counts behind the last change of the file, even where that one left the offset as it was.
        self._footer_s = changes[-1] if changes else -FOREVER_S
        last_s = changes[-1] if changes else 0
        self._grown_year = civil(last_s // DAY_S)[0] - 1  # the footer is used up to the end of this year
        # From here on a year's changes come from the footer alone, and so do those 400 years later.
        self._turn_s = day_number(self._grown_year + 3, 1, 1) * DAY_S
        if rule is not None and rule.begins is None:
            self._append(last_s, rule.standard_s)

    def offset_s(self, utc_s: int) -> int:
        return self.period(utc_s).offset_s

    def period(self, utc_s: int) -> Period:
        """The period that holds this instant."""
        if self._rule is not None and utc_s >= self._turn_s + CYCLE_S:
            turns_s = (utc_s - self._turn_s) // CYCLE_S * CYCLE_S
            start_s, end_s, *offsets = self._period(utc_s - turns_s)
            return Period(start_s + turns_s, end_s + turns_s, *offsets)
        return self._period(utc_s)

    def periods(self, from_s: int, until_s: int) -> Iterator[Period]:
        """Every period with an instant of this stretch, both ends included."""
        period = self.period(from_s)
        yield period
        while period.end_s <= until_s:
            period = self.period(period.end_s)
            yield period

    def instants(self, local_s: int) -> tuple[int, ...]:
        """When the zone's clock shows this, in UTC: never in a gap, twice in a fold."""
        near = self.periods(local_s - OFFSET_S_MAX, local_s + OFFSET_S_MAX)
        return tuple(
            local_s - period.offset_s for period in near if period.start_s <= local_s - period.offset_s < period.end_s
        )

    def gap(self, local_s: int) -> Gap | None:
        """The gap that this reading falls into, if it does."""
        for period in self.periods(local_s - OFFSET_S_MAX, local_s + OFFSET_S_MAX):
            start_s, end_s = period.start_s + period.before_s, period.start_s + period.offset_s
            if start_s <= local_s < end_s and not self.instants(local_s):
                return Gap(start_s, end_s, period.start_s)
        return None

    def first_s(self, local_s: int) -> int:
        """When the clock shows this for the first time, or jumps over it."""
        instants = self.instants(local_s)
        return instants[0] if instants else self._jump_s(local_s)

    def last_s(self, local_s: int) -> int:
        """When the clock shows this for the last time, or jumps over it."""
        instants = self.instants(local_s)
        return instants[-1] if instants else self._jump_s(local_s)

    def _jump_s(self, local_s: int) -> int:
        gap = self.gap(local_s)
        assert gap is not None, "a reading that never comes lies in a gap"
        return gap.at_s

    def _period(self, utc_s: int) -> Period:
        changes = self._changes
        index = bisect_right(changes, utc_s)
        # The last known period has an end only when the table has grown behind it.
        while index == len(changes) and self._rule is not None:
            self._grow(self._rule)
            index = bisect_right(changes, utc_s)
        period = self._periods.get(index)
        if period is None:
            period = self._periods[index] = self._made(index)
        return period

    def _made(self, index: int) -> Period:
        changes, offsets = self._changes, self._offsets
        before_s = offsets[index - 1] if index else offsets[0]
        if index == len(changes):
            return Period(changes[-1] if changes else -FOREVER_S, FOREVER_S, offsets[index], before_s, offsets[index])
        start_s = changes[index - 1] if index else -FOREVER_S
        return Period(start_s, changes[index], offsets[index], before_s, offsets[index + 1])

    def _grow(self, rule: PosixRule) -> None:
        first = self._grown_year + 1
        self._grown_year += YEARS_AT_ONCE
        for year in range(first, self._grown_year + 1):
            for at_s, offset_s in rule.changes(year):
                if at_s > self._footer_s:
                    self._append(at_s, offset_s)

    def _append(self, at_s: int, offset_s: int) -> None:
        """Only changes of the offset count: a new name for the same time of day is none."""
        if self._changes and self._changes[-1] == at_s:
            self._changes.pop()
            self._offsets.pop()
        if self._offsets[-1] != offset_s:
            self._changes.append(at_s)
            self._offsets.append(offset_s)


UTC = Zone("UTC", (), (0,), None)


def in_zone(zone: Zone, at_ms: int) -> str:
    """As the zone's clock shows it: `2026-03-29T03:30:00+02:00`."""
    at_s, ms = divmod(at_ms, 1000)
    offset_s = zone.offset_s(at_s)
    text = local_text(at_s + offset_s) + (f".{ms:03}" if ms else "")
    if zone is UTC:
        return f"{text}Z"
    sign, minutes = "-" if offset_s < 0 else "+", abs(offset_s) // MINUTE_S
    seconds = f":{abs(offset_s) % 60:02}" if offset_s % 60 else ""
    return f"{text}{sign}{minutes // 60:02}:{minutes % 60:02}{seconds}"


def parse_zone(name: str, data: bytes) -> Zone:
    """The bytes of a TZif file of version 2 or later."""
    try:
        return _read(name, data)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"the data of time zone {name} cannot be read: {error}") from None


def _read(name: str, data: bytes) -> Zone:
    version, counts = _header(data, 0)
    if version < b"2":
        raise ValueError("version 1 has no times after 2037")
    start = 44 + _body_length(counts, time_size=4)
    _, counts = _header(data, start)
    *_, times, types, _ = counts
    changes_at = start + 44
    changes = struct.unpack_from(f">{times}q", data, changes_at)
    kinds = data[changes_at + 8 * times : changes_at + 9 * times]
    types_at = changes_at + 9 * times
    offsets = [struct.unpack_from(">l", data, types_at + 6 * number)[0] for number in range(types)]
    footer = data[start + 44 + _body_length(counts, time_size=8) :]
    if not footer.startswith(b"\n") or not footer.endswith(b"\n"):
        raise ValueError("its footer is missing")
    text = footer[1:-1].decode("ascii")
    return Zone(name, changes, [offsets[0], *(offsets[kind] for kind in kinds)], parse_rule(text) if text else None)


def _header(data: bytes, at: int) -> tuple[bytes, tuple[int, ...]]:
    magic, version, *counts = struct.unpack_from(">4sc15x6l", data, at)
    if magic != b"TZif" or min(counts) < 0:
        raise ValueError("not a TZif file")
    return version, tuple(counts)


def _body_length(counts: tuple[int, ...], *, time_size: int) -> int:
    is_utc, is_standard, leaps, times, types, characters = counts
    return times * (time_size + 1) + types * 6 + characters + leaps * (time_size + 4) + is_standard + is_utc


class Zones:
    """The zones of one version of the data. Only names of its list are looked up, letter for letter."""

    def __init__(
        self, version: str, names: Sequence[str], read: Callable[[str], bytes], links: Mapping[str, str] = NO_LINKS
    ) -> None:
        self.version = version
        self._names = frozenset(names)
        self._read = read
        self._links = links
        self._zones = {"UTC": UTC}

    @property
    def names(self) -> list[str]:
        return sorted(self._names | {"UTC"})

    def get(self, name: str, *, path: str = "") -> Zone:
        zone = self._zones.get(name)
        if zone is None:
            if name not in self._names:
                raise Refused("unknown_zone", self._advice(name), path=path)
            zone = self._zones[name] = parse_zone(name, self._read(name))
        return zone

    def _advice(self, name: str) -> str:
        if name in self._links:
            return f"{name!a} is an old name of a time zone; use {self._links[name]}"
        alike = [zone for zone in self.names if zone.lower() == name.lower()[:80]]
        suggestion = f"use {alike[0]}" if alike else "use a name like Europe/Berlin, or UTC"
        return f"{name[:60]!a} is no time zone of the data of {self.version}; {suggestion}"


def _no_data(name: str) -> bytes:
    raise AssertionError(f"no list names {name}")


UTC_ONLY = Zones("none", (), _no_data)

_LINK = re.compile(r"^L (\S+) (\S+)$", re.MULTILINE)


def names_in_use(every: Sequence[str], source: str, table: str) -> tuple[list[str], dict[str, str]]:
    """Which names may be used, and for the old ones what to use instead. From the data's own list of names,
    its source (`tzdata.zi`) and its table of places (`zone.tab`).

    A link is in use where a country has the place in the table; other links are kept for old data only.
    """
    links = {link: target for target, link in _LINK.findall(source)}
    places = {line.split("\t")[2] for line in table.splitlines() if line and not line.startswith("#")}
    names = [name for name in every if name == "UTC" or ("/" in name and (name not in links or name in places))]
    kept = frozenset(names)
    return names, {link: links[link] for link in sorted(links) if link not in kept}
