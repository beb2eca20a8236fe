"""Crons and rules in zones against an oracle of their own: seasons, folds, gaps, both directions, every policy."""

import random
from datetime import datetime, timedelta

import pytest

from campaign import seeds
from core.calendar.zone_oracle import DAY_S, EPOCH, Due, changes, local, seconds
from tickwork.core.base.errors import Refused
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.system.zone_data import load_zones

CASES = 100  # of each seed
FIRST_YEAR, LAST_YEAR = 1993, 2044  # behind 2037 by the footer of the file
ZONES = [
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Pacific/Apia",
    "Asia/Pyongyang", "Europe/Dublin", "Africa/Cairo", "America/Havana", "America/Nuuk", "Asia/Beirut", "Asia/Gaza",
    "America/St_Johns", "Atlantic/Azores", "America/Asuncion", "Europe/Moscow", "America/Caracas", "Asia/Amman",
    "Antarctica/Troll", "Pacific/Kwajalein", "Asia/Tehran",
]  # fmt: skip
GAPS, OVERLAPS = ("auto", "shift", "skip", "end"), ("auto", "first", "second", "both")
EVERY = {"minutes": set(range(60)), "hours": set(range(24)), "days": set(range(1, 32)), "months": set(range(1, 13))}
COMPILED = load_zones()


class Case:
    """A schedule near a change of the clocks, and an instant near it at which it is asked."""

    def __init__(self, seed, number):
        chance = self.chance = random.Random(f"{seed} {number}")
        self.zone = chance.choice(ZONES)
        self.change_s = chance.choice(changes(self.zone, FIRST_YEAR, LAST_YEAR))
        # Times and days are those that the clock shows around the change, by either of the two offsets.
        self.near = [local(self.zone, self.change_s + 60 * minutes) for minutes in range(-150, 151, 5)]
        self.near += [moment + timedelta(hours=1) for moment in self.near]
        self.gap, self.overlap = chance.choice(GAPS), chance.choice(OVERLAPS)
        self.asked_s = self.change_s + chance.choice([
            chance.randint(-7_200, 7_200), 60 * chance.randint(-120, 120), chance.randint(-3, 3),
            chance.randint(-3 * DAY_S, 3 * DAY_S), chance.randint(-400 * DAY_S, 400 * DAY_S),
        ])  # fmt: skip

    def times(self):
        """Minutes and hours, each as the text of a field and as a set."""
        chance = self.chance
        step = chance.choice([5, 7, 15, 20, 30])
        some = {moment.minute for moment in chance.sample(self.near, chance.randint(1, 3))}
        minutes = chance.choice([
            (listed(some), some), (listed(some), some), (f"*/{step}", set(range(0, 60, step))),
            (f"10-50/{step}", set(range(10, 51, step))), (listed(EVERY["minutes"]), EVERY["minutes"]),
        ])  # fmt: skip
        hour = chance.choice(self.near).hour
        few = {moment.hour for moment in chance.sample(self.near, chance.randint(1, 2))}
        span = set(range(hour, min(24, hour + chance.randint(1, 6))))
        every = chance.randint(2, 6)
        hours = chance.choice([
            (listed(few), few), (listed(few), few), (f"{min(span)}-{max(span)}", span), ("*", EVERY["hours"]),
            (f"*/{every}", set(range(0, 24, every))), ("0-23", EVERY["hours"]),
        ])  # fmt: skip
        return minutes, hours

    def dates(self):
        """Days of the month, months and weekdays: also such that only this day of the year fits."""
        chance, moment = self.chance, self.chance.choice(self.near)
        days = chance.choice([
            ("*", EVERY["days"]), (str(moment.day), {moment.day}), (str(moment.day), {moment.day}),
            listing({moment.day, chance.randint(1, 28)}),
        ])  # fmt: skip
        span = set(range(max(1, moment.month - chance.randint(0, 4)), moment.month + 1))
        months = chance.choice([
            ("*", EVERY["months"]), (str(moment.month), {moment.month}), (f"{min(span)}-{max(span)}", span)
        ])  # fmt: skip
        of_week = moment.isoweekday() % 7
        weekdays = chance.choice([("*", set(range(7))), ("*", set(range(7))), (str(of_week), {of_week})])
        return days, months, weekdays

    def __repr__(self):
        return f"{self.zone} change {self.change_s} {local(self.zone, self.change_s)} asked {self.asked_s}"


def listed(values):
    return ",".join(map(str, sorted(values)))


def listing(values):
    return listed(values), values


def plain(case, *, any_hour, often):
    """What `auto` means, by the table of the page."""
    gap = case.gap if case.gap != "auto" else "skip" if any_hour else "shift"
    overlap = case.overlap if case.overlap != "auto" else "both" if any_hour or often else "first"
    return {"gap": gap, "overlap": overlap}


def compare(ours, oracle, asked_s, words):
    """Some times on, some times back, and at the instants themselves."""
    found, expected = [], []
    for walk, walked in ((ours.next_ms, oracle.next_s), (ours.prev_ms, oracle.prev_s)):
        at_s = asked_s
        for _ in range(3):
            due_s = walked(at_s)
            due_ms = walk(at_s * 1000)
            found.append(None if due_ms is None else due_ms / 1000)
            expected.append(due_s)
            if due_s is None or due_ms != due_s * 1000:
                break
            at_s = due_s
    assert found == expected, words


@pytest.mark.proves("B10", "I21", "S004-81")
@pytest.mark.parametrize("seed", seeds(1, few=12, many=700))
def test_a_cron_near_a_change_of_the_clocks_is_due_as_the_oracle_says(seed):
    for number in range(CASES):
        case = Case(f"cron {seed}", number)
        (minute, minutes), (hour, hours) = case.times()
        (day, days), (month, months), (weekday, weekdays) = case.dates()
        text = f"{minute} {hour} {day} {month} {weekday}"
        oracle = Due(
            case.zone, minutes, hours, days, months, weekdays, either=day != "*" and weekday != "*",
            **plain(case, any_hour=hour[0] == "*" or len(hours) == 24,
                    often=minute[0] == "*" or "/" in minute or len(minutes) == 60),
        )  # fmt: skip
        ours = compile_when(ScheduleSpec(cron=text, zone=case.zone, gap=case.gap, overlap=case.overlap), COMPILED)

        compare(ours, oracle, case.asked_s, f"{case} {text!r} gap={case.gap} overlap={case.overlap}")


@pytest.mark.proves("B10", "I21")
@pytest.mark.parametrize("seed", seeds(1, few=8, many=500))
def test_a_rule_near_a_change_of_the_clocks_is_due_as_the_oracle_says(seed):
    for number in range(CASES):
        case = Case(f"rule {seed}", number)
        chance = case.chance
        (_, minutes), (_, hours) = case.times()
        (_, days), (_, months), _ = case.dates()
        hourly = chance.random() < 0.4
        parts = [f"FREQ={'HOURLY' if hourly else 'DAILY'}", f"BYMINUTE={listed(minutes)}", "BYSECOND=0",
                 f"BYMONTH={listed(months)}", f"BYMONTHDAY={listed(days)}"]  # fmt: skip
        if hourly and chance.random() < 0.5:
            hours = EVERY["hours"]
        if len(hours) < 24 or not hourly:
            parts.append(f"BYHOUR={listed(hours)}")
        oracle = Due(case.zone, minutes, hours, days, months, set(range(7)),
                     **plain(case, any_hour=hourly and len(hours) == 24, often=hourly))  # fmt: skip
        oracle.start_s = case.change_s + chance.choice([60 * chance.randint(-120, 120), -900 * DAY_S])
        start = f"DTSTART:{(EPOCH + timedelta(seconds=oracle.start_s)):%Y%m%dT%H%M%S}Z"
        match chance.choice(["", "", "until", "count"]):
            case "until":
                oracle.until_s = oracle.start_s + 60 * chance.randint(0, 240)
                parts.append(f"UNTIL={(EPOCH + timedelta(seconds=oracle.until_s)):%Y%m%dT%H%M%SZ}")
            case "count":
                count = chance.randint(1, 9)
                oracle = oracle.counted(count)
                parts.append(f"COUNT={count}")
        text = f"{start}\nRRULE:{';'.join(parts)}"
        try:
            ours = compile_when(ScheduleSpec(rrule=text, zone=case.zone, gap=case.gap, overlap=case.overlap), COMPILED)
        except Refused:
            assert oracle.next_s(oracle.start_s - 1) is None, text
            continue

        compare(ours, oracle, case.asked_s, f"{case} {text!r} gap={case.gap} overlap={case.overlap}")


def test_every_zone_of_the_oracle_is_near_a_fold_and_a_gap():
    for zone in ZONES:
        jumps = [local(zone, at) - local(zone, at - 1) for at in changes(zone, FIRST_YEAR, LAST_YEAR)]
        assert min(jumps) < timedelta(0) or max(jumps) > timedelta(seconds=1), zone
    assert seconds(datetime(1970, 1, 2)) == DAY_S
