"""The schedule checker: did every schedule do what it was told, found out without any of the product's time rules?

Cron and zones are its own, slow and plain: each local day is asked whether it fits, each time of day of the expression
is turned into instants by the standard library over the tzdata package. Policies are applied to what these give. Runs
are compared twice: by the time in their id, and by their starts alone, so that ids that lie are found as well.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
EPOCH = datetime(1970, 1, 1)
JITTER_MS_MAX = 10_000
RUN, SKIPPED, COALESCED = "ran", "skipped", "coalesced"


@dataclass(frozen=True, slots=True)
class Rule:
    """When: a cron expression of five fields in a zone, or an interval."""

    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    anchor_ms: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    catch_up: str = "last"
    length_ms: int = 0
    cap: int = 1_000
    grace_ms: int = 60_000
    jitter: bool = False
    makes_up: bool = False  # for paused time as well


@dataclass(frozen=True, slots=True)
class Told:
    """What a schedule was told at a moment; no rule: it was removed."""

    at_ms: int
    rule: Rule | None
    policy: Policy = Policy()


@dataclass(slots=True)
class Life:
    """Everything that happened to one schedule from outside."""

    name: str
    told: list[Told] = field(default_factory=list)
    pauses: list[tuple[int, int]] = field(default_factory=list)  # from, to before
    backfills: list[tuple[int, int, int]] = field(default_factory=list)  # asked at; from, to before


@dataclass(frozen=True, slots=True)
class Seen:
    """A run that ended: the nominal time in its id, its start, and whether it ended as a run should."""

    nominal_ms: int
    start_ms: int
    ended_well: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """Fates as the product keeps them."""

    from_ms: int
    to_ms: int
    count: int
    fate: str


@dataclass(frozen=True, slots=True)
class Expected:
    nominal_ms: int
    fate: str
    earliest_ms: int
    latest_ms: int


@dataclass(slots=True)
class Verdict:
    """Counts over all schedules, with a few examples of each."""

    expected: int = 0
    must_run: int = 0
    missed: int = 0
    unexpected: int = 0
    duplicate: int = 0
    early: int = 0
    late: int = 0
    liars: int = 0  # windows without a start that no id called missed
    wrong_fates: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.missed or self.unexpected or self.duplicate or self.early or self.late or self.liars) and (
            not self.wrong_fates
        )

    def note(self, kind: str, words: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {words}")

    def rates(self) -> dict[str, float]:
        """Per 1,000 nominal times."""
        kinds = ("missed", "unexpected", "duplicate", "early", "late")
        return {kind: 1_000 * getattr(self, kind) / max(1, self.expected) for kind in kinds}


# ---- when: the slow way


@cache
def zone_info(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


@cache
def members(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        area, _, step = part.partition("/")
        first, _, last = area.partition("-")
        start = low if first == "*" else int(first)
        end = high if first == "*" or (step and not last) else int(last or first)
        found.update(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def due_times(rule: Rule, after_ms: int, until_ms: int) -> list[int]:
    """Every instant after the first bound, up to and including the second."""
    if rule.every_ms:
        first = after_ms + rule.every_ms - (after_ms - rule.anchor_ms) % rule.every_ms
        return list(range(first, until_ms + 1, rule.every_ms))
    minutes, hours, days, months, weekdays = rule.cron.split()
    clock = [(h, m) for h in sorted(members(hours, 0, 23)) for m in sorted(members(minutes, 0, 59))]
    of_month, in_months = members(days, 1, 31), members(months, 1, 12)
    of_week = frozenset(day % 7 for day in members(weekdays, 0, 7))
    either = not days.startswith("*") and not weekdays.startswith("*")
    any_hour = hours.startswith("*") or len(members(hours, 0, 23)) == 24
    steady = any_hour or minutes.startswith("*") or "/" in minutes or len(members(minutes, 0, 59)) == 60
    zone = zone_info(rule.zone)
    day = _date(after_ms) - timedelta(days=2)
    found: set[int] = set()
    while day <= _date(until_ms) + timedelta(days=2):
        fits_month, fits_week = day.day in of_month, day.isoweekday() % 7 in of_week
        if day.month in in_months and (fits_month or fits_week if either else fits_month and fits_week):
            for hour, minute in clock:
                shown = datetime(day.year, day.month, day.day, hour, minute)
                found.update(instants(shown, zone, steady=steady, any_hour=any_hour))
        day += timedelta(days=1)
    return sorted(time_ms for time_ms in found if after_ms < time_ms <= until_ms)


def instants(shown: datetime, zone: ZoneInfo, *, steady: bool, any_hour: bool) -> tuple[int, ...]:
    """When the clock shows this. PEP 495: before a change `fold` 0 reads the old offset, 1 the new one."""
    old, new = shown.replace(tzinfo=zone).utcoffset(), shown.replace(tzinfo=zone, fold=1).utcoffset()
    assert old is not None and new is not None
    first, second = _ms(shown - old), _ms(shown - new)
    if old == new:
        return (first,)
    if old > new:  # the clock was set back: it shows this twice
        return (first, second) if steady else (first,)
    # Set forward: it never shows this. By the old offset it is what the clock shows later by the length of the gap.
    return () if any_hour else (first,)


def _ms(utc: datetime) -> int:
    since = utc - EPOCH
    return since.days * DAY_MS + since.seconds * 1_000


def _date(time_ms: int) -> date:
    return (EPOCH + timedelta(milliseconds=time_ms)).date()


def nominal_of(run_id: str, name: str) -> int:
    """The time that a run's id names."""
    said = datetime.fromisoformat(run_id.removeprefix(f"sched-{name}-"))
    return _ms(said.astimezone(UTC).replace(tzinfo=None))


# ---- what must become of each


def expectations(life: Life, stops: Sequence[tuple[int, int]], end_ms: int, slack_ms: int) -> list[Expected]:
    """Each nominal time with its fate, by what the schedule was told when. A stop: its last tick and the next."""
    found: list[Expected] = []
    for told, after in zip(life.told, [*(one.at_ms for one in life.told[1:]), end_ms], strict=True):
        if told.rule is not None:
            found += _in_force(life, told, due_times(told.rule, told.at_ms, after), stops, slack_ms)
    return sorted(found, key=lambda one: one.nominal_ms)


def _in_force(
    life: Life, told: Told, times: list[int], stops: Sequence[tuple[int, int]], slack_ms: int
) -> Iterable[Expected]:
    policy = told.policy
    rest_ms = (JITTER_MS_MAX if policy.jitter else 0) + slack_ms
    groups: dict[int, list[int]] = {}  # what is only looked at later: by when
    for time_ms in times:
        pause = next((one for one in life.pauses if one[0] <= time_ms < one[1]), None)
        if pause is not None and not policy.makes_up:
            yield Expected(time_ms, SKIPPED, 0, 0)
            continue
        looked_ms = _looked_at(pause[1] if pause is not None else time_ms, stops)
        if looked_ms == time_ms:
            yield Expected(time_ms, RUN, time_ms, time_ms + rest_ms)
        else:
            groups.setdefault(looked_ms, []).append(time_ms)
    for looked_ms, late in groups.items():
        spread_ms = policy.length_ms if policy.catch_up == "spread" else 0
        latest_ms = looked_ms + spread_ms + rest_ms
        for time_ms, fate in zip(late, _caught_up(policy, late, looked_ms), strict=True):
            yield Expected(time_ms, fate, looked_ms, latest_ms)


def _looked_at(time_ms: int, stops: Sequence[tuple[int, int]]) -> int:
    place = bisect_left(stops, (time_ms, 0)) - 1
    return stops[place][1] if place >= 0 and stops[place][0] < time_ms < stops[place][1] else time_ms


def _caught_up(policy: Policy, late: list[int], now_ms: int) -> list[str]:
    if policy.makes_up:
        return _newest(late, 0, policy.cap)
    if len(late) == 1 and now_ms - late[0] <= policy.grace_ms:
        return [RUN]
    before = len(late) - 1
    match policy.catch_up:
        case "none":
            return [SKIPPED] * before + [RUN if now_ms - late[-1] <= policy.grace_ms else SKIPPED]
        case "last":
            return [SKIPPED] * before + [RUN]
        case "coalesce":
            return [COALESCED] * before + [RUN]
        case "window":
            return _newest(late, now_ms - policy.length_ms, policy.cap)
        case _:
            return _newest(late, 0, policy.cap)


def _newest(late: list[int], from_ms: int, cap: int) -> list[str]:
    runs = min(cap, sum(time_ms >= from_ms for time_ms in late))
    return [SKIPPED] * (len(late) - runs) + [RUN] * runs


def backfilled(life: Life, expected: list[Expected], slack_ms: int) -> list[Expected]:
    """What backfills add: each time of the rule in force that has had no run, once."""
    ran = {one.nominal_ms for one in expected if one.fate == RUN}
    added: list[Expected] = []
    for asked_ms, from_ms, to_ms in life.backfills:
        rule = next(one.rule for one in reversed(life.told) if one.at_ms <= asked_ms)
        assert rule is not None, "nobody backfills what is removed"
        for time_ms in due_times(rule, from_ms - 1, min(to_ms - 1, asked_ms)):
            if time_ms not in ran:
                ran.add(time_ms)
                added.append(Expected(time_ms, RUN, asked_ms, asked_ms + slack_ms))
    return added


# ---- what did become of them


def check(
    life: Life,
    seen: Sequence[Seen],
    spans: Sequence[Span],
    stops: Sequence[tuple[int, int]],
    end_ms: int,
    verdict: Verdict,
    slack_ms: int = 60_000,
) -> None:
    """Add one schedule to the verdict. Its runs must all have ended by now."""
    expected = expectations(life, stops, end_ms, slack_ms)
    verdict.expected += len(expected)
    _check_fates(life, expected, spans, verdict)
    must = [one for one in expected if one.fate == RUN] + backfilled(life, expected, slack_ms)
    verdict.must_run += len(must)
    missed = _check_by_name(life, must, seen, verdict)
    _check_by_time(life, must, [one.start_ms for one in seen], missed, verdict)


def _check_by_name(life: Life, must: list[Expected], seen: Sequence[Seen], verdict: Verdict) -> set[int]:
    wanted = {one.nominal_ms: one for one in must}
    done: set[int] = set()
    for run in seen:
        at, one = f"{life.name} {_text(run.nominal_ms)}", wanted.get(run.nominal_ms)
        if run.start_ms < run.nominal_ms:
            verdict.note("early", f"{at} at {_text(run.start_ms)}")
        if one is None:
            verdict.note("unexpected", at)
        elif run.nominal_ms in done:
            verdict.note("duplicate", at)
        elif not one.earliest_ms <= run.start_ms <= one.latest_ms:
            verdict.note("late", f"{at} at {_text(run.start_ms)}")
        if run.ended_well:
            done.add(run.nominal_ms)
    missed = wanted.keys() - done
    for nominal_ms in sorted(missed):
        verdict.note("missed", f"{life.name} {_text(nominal_ms)}")
    return missed


def _check_by_time(life: Life, must: list[Expected], starts: list[int], missed: set[int], verdict: Verdict) -> None:
    """Ids ignored: each window takes the earliest start inside it that no other has taken."""
    left = sorted(starts)
    for one in sorted(must, key=lambda one: (one.latest_ms, one.earliest_ms)):
        place = bisect_left(left, one.earliest_ms)
        if place < len(left) and left[place] <= one.latest_ms:
            del left[place]
        elif one.nominal_ms not in missed:
            verdict.note("liars", f"{life.name} {_text(one.nominal_ms)} has a run by its id, and none by the clock")


def _check_fates(life: Life, expected: list[Expected], spans: Sequence[Span], verdict: Verdict) -> None:
    """Ranges cover what was expected, each once, with the fate that it has here."""
    times = [one.nominal_ms for one in expected]
    place = 0
    for span in sorted(spans, key=lambda one: one.from_ms):
        first, last = bisect_left(times, span.from_ms), bisect_right(times, span.to_ms)
        fates = {one.fate for one in expected[first:last]}
        if first != place or last - first != span.count or fates != {span.fate}:
            verdict.note("wrong_fates", f"{life.name} {span}: expected {last - first} from {first - place}, {fates}")
        place = last
    if place != len(times):
        verdict.note("wrong_fates", f"{life.name}: {len(times) - place} have none, from {_text(times[place])}")


def _text(time_ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat() + "Z"
