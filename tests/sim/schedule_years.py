"""Years of schedules in minutes: thousands of them in many zones, with edits, pauses, backfills, stops and crashes.

`PYTHONPATH=tests python -m sim.schedule_years --seed 1 --size 10000 --days 731` drives one machine through virtual time
as fast as it goes. Workers answer in the next tick. The ledger watches every tick; at the end the schedule checker
says what became of each schedule. Commands and stops come half a minute past, where no schedule is due: what happens
at the same instant is for tests of single cases.
"""

import argparse
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.schedule_oracle import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Life,
    Policy,
    Rule,
    Seen,
    Span,
    Told,
    Verdict,
    check,
    nominal_of,
)
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.zones import Zones
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CommandResult, Dispatch, FindRuns
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.schedule import CATCH_UPS, CatchUp, Fate, FateRange, SchedulePolicy
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.system.zone_data import load_zones
from tickwork.testing.seeded_random import Chance

BY, TENANT = "years", "acme"
ORIGIN_MS = 1_798_761_600_000  # 2027-01-01T00:00:00Z
HALF_MS = 30_000
SETTLED_MS = 3 * HOUR_MS  # how long after a stop nobody gives commands
DOCUMENT = b'{"name": "work", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}'
ZONES = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Athens", "Europe/Chisinau",
    "Europe/Istanbul", "America/New_York", "America/Chicago", "America/Denver", "America/Phoenix",
    "America/Los_Angeles", "America/Anchorage", "America/St_Johns", "America/Havana", "America/Sao_Paulo",
    "America/Santiago", "America/Asuncion", "America/Nuuk", "America/Mexico_City", "Atlantic/Azores",
    "Africa/Casablanca", "Africa/Cairo", "Africa/Lagos", "Asia/Beirut", "Asia/Jerusalem", "Asia/Tehran",
    "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tokyo", "Asia/Shanghai", "Australia/Sydney", "Australia/Adelaide",
    "Australia/Lord_Howe", "Australia/Brisbane", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter",
    "Pacific/Kiritimati",
)  # fmt: skip
STOPS_MS = (5 * MINUTE_MS, 3 * HOUR_MS, 26 * HOUR_MS, 6 * DAY_MS)


@dataclass(frozen=True, slots=True)
class Deed:
    at_ms: int
    number: int
    asked: inp.Input


@dataclass(slots=True)
class Result:
    seed: int
    size: int
    verdict: Verdict
    differences: list[str]
    runs: int
    crashes: int
    stops: int
    ticks: int
    drove_s: float
    checked_s: float = 0.0
    fates: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.differences

    def __str__(self) -> str:
        verdict = self.verdict
        each = self.drove_s * 1e6 / max(1, verdict.expected)
        counts = f"{verdict.expected} occurrences, {self.runs} runs, {self.ticks} ticks"
        kinds = ("missed", "unexpected", "duplicate", "early", "late", "liars", "wrong_fates")
        lines = [
            f"seed {self.seed}: {self.size} schedules, {counts}, {self.stops} stops, {self.crashes} crashes",
            ", ".join(f"{kind} {getattr(verdict, kind)}" for kind in kinds),
            f"fates {self.fates}; {len(self.differences)} differences in the ledger",
            f"driven in {self.drove_s:.1f} s of CPU, {each:.1f} us an occurrence; checked in {self.checked_s:.1f} s",
            *verdict.examples,
            *self.differences[:10],
        ]
        return "\n".join(lines)


class Years:
    def __init__(self, seed: int, *, size: int, days: int, zones: Zones | None = None) -> None:
        self.seed, self.size, self.days = seed, size, days
        self.end_ms = ORIGIN_MS + days * DAY_MS + HALF_MS
        self.chance = Chance(seed, "years")
        self.stops = self._stops()
        self.lives = [Life(f"s{number:05}") for number in range(size)]
        self.deeds = sorted(
            (deed for number in range(size) for deed in self._plan(number)), key=lambda one: (one.at_ms, one.number)
        )
        self.runs = [array("q") for _ in range(size)]  # nominal, start; nominal, start …
        self.bad: set[tuple[int, int]] = set()
        self.spans: list[list[FateRange]] = [[] for _ in range(size)]
        self.zones = load_zones() if zones is None else zones
        self.clock = LogicalClock(origin_ms=ORIGIN_MS - DAY_MS)
        self.machine = Machine(settings=Settings(clock=self.clock), zones=self.zones)
        self.ledger = Ledger(self.machine.state)
        self.differences: list[str] = []
        self.answers: list[inp.Input] = []
        self.crashes = self.ticks = 0

    # ---- what will happen

    def _stops(self) -> list[tuple[int, int]]:
        chance, found = self.chance.stream("stops"), []
        at_ms = ORIGIN_MS + 20 * DAY_MS
        while at_ms < self.end_ms - 30 * DAY_MS:
            at_ms = _half(at_ms + chance.between(8 * HOUR_MS, 40 * DAY_MS))
            to_ms = _half(at_ms + chance.pick(STOPS_MS) + chance.below(HOUR_MS))
            found.append((at_ms, to_ms))
            at_ms = to_ms + 2 * DAY_MS
        return found

    def _calm(self, at_ms: int) -> int:
        """The first moment from here on that is well away from every stop."""
        at_ms = _half(at_ms)
        for from_ms, to_ms in self.stops:
            if from_ms - 10 * MINUTE_MS <= at_ms <= to_ms + SETTLED_MS:
                at_ms = to_ms + SETTLED_MS + MINUTE_MS
        return at_ms

    def _plan(self, number: int) -> list[Deed]:
        chance, life = self.chance.stream(f"life/{number}"), self.lives[number]
        kind = chance.pick(KINDS)
        deeds: list[Deed] = []

        def put(at_ms: int, policy: Policy) -> None:
            rule = _rule(chance, kind, at_ms)
            life.told.append(Told(at_ms, rule, policy))
            deeds.append(Deed(at_ms, number, _put(life.name, rule, policy)))

        policy = _policy(chance)
        at_ms = self._calm(ORIGIN_MS + chance.below(20 * DAY_MS))
        put(at_ms, policy)
        for deed in chance.pick(STORIES[kind]):
            at_ms = self._calm(at_ms + chance.between(2 * HOUR_MS, self.days * DAY_MS // 4))
            if at_ms > self.end_ms - 60 * DAY_MS:
                break
            match deed:
                case "edit":
                    put(at_ms, policy)
                case "change":
                    policy = _policy(chance)
                    put(at_ms, policy)
                case "pause" | "pause, backfill":
                    to_ms = self._pause(chance, number, at_ms, deeds)
                    if deed == "pause, backfill" and to_ms < self.end_ms - 20 * DAY_MS:
                        asked_ms = self._calm(to_ms + HOUR_MS)
                        for again in (0, MINUTE_MS):  # the second one finds nothing to do
                            life.backfills.append((asked_ms + again, at_ms, to_ms))
                            asked = inp.Backfill(BY, TENANT, life.name, at_ms, to_ms, newest_first=chance.happens(0.5))
                            deeds.append(Deed(asked_ms + again, number, asked))
                        to_ms = asked_ms + HOUR_MS
                    at_ms = to_ms
                case _:
                    life.told.append(Told(at_ms, None))
                    deeds.append(Deed(at_ms, number, inp.RemoveSchedule(BY, TENANT, life.name)))
                    if deed == "remove":
                        break
                    at_ms = self._calm(at_ms + chance.between(HOUR_MS, 5 * DAY_MS))
                    put(at_ms, policy)
        return deeds

    def _pause(self, chance: Chance, number: int, at_ms: int, deeds: list[Deed]) -> int:
        life = self.lives[number]
        to_ms = _half(at_ms + chance.between(2 * HOUR_MS, 20 * DAY_MS))
        by_itself = chance.happens(0.5)  # also in the middle of a stop
        if not by_itself:
            to_ms = self._calm(to_ms)
            deeds.append(Deed(to_ms, number, inp.Resume(BY, "schedule", TENANT, life.name)))
        asked = inp.Pause(BY, "schedule", TENANT, life.name, "rest", to_ms if by_itself else None)
        deeds.append(Deed(at_ms, number, asked))
        life.pauses.append((at_ms, to_ms))
        return to_ms

    # ---- what does happen

    def run(self) -> Result:
        began = time.process_time()
        self._tick(0, [inp.PutTenant(BY, TENANT), inp.PutQueue(BY, "default"), inp.Offer("w", 100_000)])
        self._tick(0, [inp.PutDefinition(BY, TENANT, DOCUMENT)])
        crashes = iter(sorted(self._calm(ORIGIN_MS + one * self.days * DAY_MS // 12) for one in range(1, 12)))
        deeds, stops, crash_ms = iter([*self.deeds, None]), iter([*self.stops, None]), next(crashes)
        deed, stop = next(deeds), next(stops)
        while True:
            due = self.machine.next_tick()
            due_ms = self.end_ms if due is None else self.clock.ms_of(due)
            at_ms = min(due_ms, self.end_ms)
            if self.answers:
                self._tick(0, [])
            elif stop is not None and stop[0] <= at_ms and (deed is None or stop[0] < deed.at_ms):
                self._tick(stop[0], [])
                self._crash()
                self._tick(stop[1], [inp.ClockGap(*stop, "stopped")])
                stop = next(stops)
            elif crash_ms <= at_ms and (deed is None or crash_ms < deed.at_ms):
                self._crash()
                crash_ms = next(crashes, 1 << 62)
            elif deed is not None and deed.at_ms <= at_ms:
                self._tick(deed.at_ms, [deed.asked])
                deed = next(deeds)
            elif at_ms >= self.end_ms:
                break
            else:
                self._tick(due_ms, [])
        self._tick(self.end_ms, [])
        return self._result(time.process_time() - began)

    def _tick(self, at_ms: int, asked: list[inp.Input]) -> None:
        state = self.machine.state
        waiting = self.answers + asked
        self.answers = []
        while True:
            tick = max(state.tick + 1, self.clock.tick_at(at_ms))
            outcome = self.machine.apply(tick, waiting)
            self.ticks += 1
            self.ledger.observe(waiting[: outcome.taken], outcome.events)
            self.differences += self.ledger.take_found()
            for span in state.spans:
                if not span.backfill:
                    self.spans[int(span.name[1:])].append(span)
            for run in outcome.closed:
                self._note(run.id, run.schedule, self.clock.ms_of(run.started), run.state == RunState.COMPLETED)
            for effect in outcome.effects:
                match effect:
                    case Dispatch():
                        self.answers.append(inp.Succeeded(effect.task, effect.attempt))
                    case FindRuns():
                        ran = frozenset(self.runs[int(effect.schedule[1:])][::2])
                        known = tuple(one for one in effect.dues_ms if one in ran)
                        self.answers.append(inp.RunsKnown(effect.backfill, known))
                    case CommandResult() if effect.code:
                        raise AssertionError(f"{waiting[effect.input]} was refused: {effect.message}")
                    case _:
                        pass
            waiting = waiting[outcome.taken :]
            if not waiting:
                return

    def _note(self, run_id: str, name: str, start_ms: int, completed: bool) -> None:
        number, nominal_ms = int(name[1:]), nominal_of(run_id, name)
        self.runs[number].extend((nominal_ms, start_ms))
        if not completed:
            self.bad.add((number, nominal_ms))

    def _crash(self) -> None:
        """All that is left is what was stored."""
        self.crashes += 1
        self.machine = Machine(restore(*capture(self.machine.state), zones=self.zones))
        self.ledger = Ledger(self.machine.state)

    # ---- what became of it

    def _result(self, drove_s: float) -> Result:
        for schedule in self.machine.state.schedules.values():
            if schedule.span is not None:
                self.spans[int(schedule.name[1:])].append(schedule.span)
        began, verdict, fates = time.process_time(), Verdict(), dict.fromkeys((one.name.lower() for one in Fate), 0)
        for number, life in enumerate(self.lives):
            pairs = self.runs[number]
            seen = [Seen(pairs[place], pairs[place + 1], (number, pairs[place]) not in self.bad)
                    for place in range(0, len(pairs), 2)]  # fmt: skip
            spans = [Span(one.from_ms, one.to_ms, one.count, Fate(one.fate).name.lower()) for one in self.spans[number]]
            for span in spans:
                fates[span.fate] += span.count
            check(life, seen, spans, self.stops, self.end_ms, verdict)
        runs = sum(len(pairs) // 2 for pairs in self.runs)
        if not self.ledger.totals().even:
            self.differences.append("the balance at the end is not even")
        return Result(
            self.seed, self.size, verdict, self.differences, runs, self.crashes, len(self.stops), self.ticks, drove_s,
            time.process_time() - began, fates,
        )  # fmt: skip


KINDS = ("weekly",) * 66 + ("daily",) * 22 + ("monthly",) * 10 + ("hourly",) + ("interval",)
_MOST: tuple[tuple[str, ...], ...] = (
    (), ("edit",), ("pause",), ("pause", "edit"), ("pause, backfill",), ("change", "pause"), ("remove and put",),
    ("edit", "pause, backfill", "remove and put"), ("remove",),
)  # fmt: skip
STORIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "weekly": _MOST, "daily": _MOST, "monthly": _MOST, "interval": _MOST,
    "hourly": (("remove",), ("pause", "remove"), ("pause, backfill", "remove")),
}  # fmt: skip


def _half(at_ms: int) -> int:
    return at_ms - at_ms % MINUTE_MS + HALF_MS


def _rule(chance: Chance, kind: str, at_ms: int) -> Rule:
    zone = chance.pick(ZONES)
    minute = chance.pick((0, 15, 30, 45, chance.below(60)))
    hour = chance.below(5) if chance.happens(0.5) else chance.below(24)  # clocks are changed at night
    match kind:
        case "weekly":
            return Rule(f"{minute} {hour} * * {chance.pick((0, 0, 0, 6, 5, chance.below(8)))}", zone)
        case "daily":
            return Rule(f"{minute} {hour} * * {chance.pick(('*', '*', '1-5', '0,6'))}", zone)
        case "monthly":
            return Rule(
                f"{minute} {hour} {chance.pick(('1', '31', '1,15', '29'))} {chance.pick(('*', '3,10,11'))} *", zone
            )
        case "hourly":
            return Rule(f"{minute} {chance.pick(('*', '*/2', '1-4'))} * * *", zone)
        case _:
            return Rule(every_ms=chance.pick((6, 8, 25)) * HOUR_MS, anchor_ms=at_ms - at_ms % HOUR_MS)


def _policy(chance: Chance) -> Policy:
    catch_up = chance.pick(CATCH_UPS)
    length_ms = {"window": chance.pick((20, 70)) * HOUR_MS + 7_000, "spread": 90 * MINUTE_MS}.get(catch_up, 0)
    return Policy(
        catch_up, length_ms, chance.pick((1, 3, 1_000)), chance.pick((0, 60_000, 2 * HOUR_MS)), chance.happens(0.3),
        catch_up == "all" and chance.happens(0.4),
    )  # fmt: skip


def _put(name: str, rule: Rule, policy: Policy) -> inp.PutSchedule:
    if rule.every_ms:
        when = ScheduleSpec(every_ms=rule.every_ms, anchor_ms=rule.anchor_ms)
    else:
        when = ScheduleSpec(cron=rule.cron, zone=rule.zone)
    catch_up: CatchUp = next(one for one in CATCH_UPS if one == policy.catch_up)
    terms = SchedulePolicy(
        catch_up=catch_up, catch_up_ms=policy.length_ms, catch_up_cap=policy.cap, grace_ms=policy.grace_ms,
        jitter=policy.jitter, automatic_backfill=policy.makes_up,
    )  # fmt: skip
    return inp.PutSchedule(BY, TENANT, name, "work", when, terms)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sim.schedule_years", description="Years of schedules against their checker.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=10_000, help="how many schedules")
    parser.add_argument("--days", type=int, default=731, help="how much virtual time")
    known = parser.parse_args(words)
    result = Years(known.seed, size=known.size, days=known.days).run()
    sys.stdout.write(f"{result}\n")
    return 0 if result.ok else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
