"""Whole lives of endpoints, hints, expiry, pauses, long runs and failures, against an oracle of its own."""

import random

import pytest

from campaign import seeds
from core.decide.governor_oracle import MINUTE, Endpoint
from driver import BY, Driver, T, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.schedule import GovernorLimits

LIVES, STEPS = 16, 40  # of each seed
LENGTHS = [30_000, MINUTE, 2 * MINUTE, 3 * MINUTE, 5 * MINUTE, 20 * MINUTE, 180 * MINUTE]


class Life:
    def __init__(self, seed):
        self.chance = random.Random(f"endpoint {seed}")
        self.driver = Driver()
        self.driver.define("call", task("a"))
        self.read = len(self.driver.rows)
        self.seen = {"ran": 0, "decided": 0}
        self.oracle = Endpoint(None, None)
        self.put()

    # ---- what happens

    def step(self):
        driver, oracle = self.driver, self.oracle
        if oracle.next is not None and driver.now_ms < oracle.next <= driver.now_ms + 5:
            self.pass_time(10)  # it begins before anything else happens
        deeds = [self.pass_time] * 3 + [self.hint] * 2 + [self.clear, self.pause, self.reset, self.put]
        if oracle.started is not None:
            deeds += [self.end] * 8
        else:
            deeds += [self.until_due] * 6
        if oracle.paused:
            deeds += [self.resume] * 3
        self.chance.choice(deeds)()
        self.check()

    def pass_time(self, length=None):
        self.driver.advance(length or self.chance.choice([*LENGTHS, self.chance.randint(1, 10 * MINUTE)]))
        self.heard()

    def until_due(self):
        """Often exactly to the time, sometimes into the middle of a run."""
        due = self.oracle.next
        if due is not None:
            self.driver.advance(max(due - self.driver.now_ms, 1) + self.chance.choice([0, 1, 40_000]))
            self.heard()

    def put(self):
        chance = self.chance
        every, minutes = (chance.choice(LENGTHS[:6]), None) if chance.random() < 0.6 else (None, chance.randint(2, 9))
        least = chance.choice([None, None, 45_000, 4 * MINUTE])
        most = chance.choice([None, None, 6 * MINUTE, 30 * MINUTE])
        when = ScheduleSpec(every_ms=every) if every else ScheduleSpec(cron=f"*/{minutes} * * * *")
        asked = inp.PutSchedule(BY, T, "s", "call", when, governing=GovernorLimits(least, most))
        self.do(asked, lambda now: self.oracle.put(now, every, minutes, least, most))

    def end(self):
        (run,) = [run for run in self.driver.state.runs.values() if run.schedule == "s"]
        outcome = self.chance.choice(["completed", "completed", "failed", "failed", "cancelled"])
        if outcome == "cancelled":
            asked = inp.Cancel(BY, T, run.id)
        else:
            (attempt,) = self.driver.running.values()
            kind = inp.Succeeded if outcome == "completed" else inp.Failed
            more = () if outcome == "completed" else ("ValueError",)
            asked = kind(attempt.task, attempt.attempt, *more)
            self.driver.running.clear()
        self.do(asked, lambda now: self.oracle.end(now, outcome))
        self.driver.running = {
            number: one for number, one in self.driver.running.items() if number in self.driver.state.tasks
        }

    def hint(self):
        chance, now = self.chance, self.driver.now_ms
        every = chance.choice([None, *LENGTHS])
        ttl = chance.choice([10_000, MINUTE, 7 * MINUTE, 60 * MINUTE])
        soonest = -MINUTE if self.oracle.ended is None else 0
        at = now + chance.randint(soonest, ttl) if every is None or chance.random() < 0.4 else None
        asked = inp.Advise(BY, T, "s", interval_ms=every, at_ms=at, ttl_ms=ttl)
        self.do(asked, lambda now: self.oracle.hint(now, every, at, ttl))

    def clear(self):
        self.do(inp.Advise(BY, T, "s", clear=True), self.oracle.clear)

    def reset(self):
        self.do(inp.SteerSchedule(BY, T, "s", "reset_failures"), self.oracle.reset)

    def pause(self):
        until = self.driver.now_ms + self.chance.choice(LENGTHS) if self.chance.random() < 0.6 else None
        if self.oracle.paused and (until or 0) == self.oracle.paused_until:
            return
        asked = inp.Pause(BY, "schedule", T, "s", "", until)
        self.do(asked, lambda now: self.oracle.pause(now, until or 0))

    def resume(self):
        if self.oracle.paused:
            self.do(inp.Resume(BY, "schedule", T, "s"), self.oracle.resume)

    def do(self, asked, told):
        """The oracle hears of it with the time at which it was decided."""
        self.driver.expect(asked)
        at = self.driver.now_ms
        self.driver.quiet()
        decided = [tick for tick, _, events in self.new_rows() if has(events, ev.ScheduleDecided)]
        self.seen["decided"] += len(decided)
        told(self.driver.settings.clock.ms_of(decided[-1]) if decided else at)
        self.heard()

    # ---- what became of it

    def new_rows(self):
        return self.driver.rows[self.read :]

    def heard(self):
        for tick, _, events in self.new_rows():
            at = self.driver.settings.clock.ms_of(tick)
            for event in events:
                if isinstance(event, ev.ScheduleResumed) and self.oracle.paused and self.oracle.paused_until <= at:
                    if self.oracle.started is not None or self.oracle.paused_until != self.oracle.next:
                        self.oracle.paused = False
                elif isinstance(event, ev.RunScheduled):
                    self.seen["ran"] += 1
                    found = (event.due_ms, self.driver.state.runs[event.run].decided)
                    assert found == (self.oracle.next, self.oracle.source), f"{found} at another time: {self.oracle}"
                    assert 0 <= at - event.due_ms <= 5, "it is not called when it is due"
                    self.oracle.begin(at)
        self.read = len(self.driver.rows)

    def check(self):
        one = self.driver.state.tenants[T].schedules.get("s")
        found = (one.next_ms or None, str(one.decision.source) if one.decision is not None else "")
        expected = (self.oracle.next, self.oracle.source)
        assert bool(one.active) == (self.oracle.started is not None), f"a run goes on, or none: {self.oracle}"
        if one.paused and not one.paused_until_ms:
            assert expected == (None, ""), f"{expected} in a pause: {self.oracle}"
        else:
            assert found == expected, f"{found} is not {expected} at {self.driver.now_ms}: {self.oracle}"
        if not one.ended:  # in a pause the Governor has not heard of that run yet
            assert one.failures == self.oracle.failures, f"{one.failures} failures: {self.oracle}"


def has(events, kind):
    return any(isinstance(event, kind) for event in events)


@pytest.mark.proves("S003-26", "S003-34", "S003-36", "S003-43", "S003-52", "S003-57", "S003-64", "S003-66", "S003-85")
@pytest.mark.parametrize("seed", seeds(1, few=25, many=450))
def test_an_endpoint_is_called_through_its_whole_life_as_the_oracle_says(seed):
    ran = 0
    for number in range(LIVES):
        life = Life(f"{seed} {number}")
        for _ in range(STEPS):
            life.step()
        ran += life.seen["ran"]

    assert ran > LIVES
