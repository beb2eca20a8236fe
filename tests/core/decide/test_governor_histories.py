"""Endpoints under whatever people ask of them: the promises hold after every step, and none is silenced for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.decide.test_schedule_regressions import HOUR, MINUTE, flow, put
from driver import BY, T
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunScheduled
from tickwork.core.state.governor import BACKOFF_FAILURES_MAX
from tickwork.core.state.schedule import GovernorLimits

LONGEST = 10 * MINUTE  # of the intervals below

edits = st.builds(
    lambda every_ms, limits, group: put(every_ms=every_ms, governing=GovernorLimits(*limits), group=group),
    st.sampled_from([MINUTE, 3 * MINUTE, LONGEST]),
    st.sampled_from([(None, None), (2 * MINUTE, None), (None, 5 * MINUTE)]),
    st.sampled_from(["", "g"]),
)
steer = st.sampled_from(["archive", "restore", "reset_failures"]).map(lambda deed: inp.SteerSchedule(BY, T, "s", deed))
plain = st.sampled_from([
    inp.Trigger(BY, T, "s", True), inp.Resume(BY, "schedule", T, "s"),
    inp.Pause(BY, "schedule", T, "s"), inp.Pause(BY, "group", T, "g"), inp.Resume(BY, "group", T, "g"),
    inp.Advise(BY, T, "s", clear=True), inp.Advise(BY, T, "s", interval_ms=30_000, ttl_ms=HOUR),
    inp.Advise(BY, T, "s", interval_ms=HOUR, ttl_ms=2 * HOUR),
])  # fmt: skip
by_hand = st.just(inp.Trigger(BY, T, "s"))
timed = st.tuples(st.sampled_from(["pause", "at"]), st.integers(1, 20))
steps = st.one_of(edits, by_hand, steer, plain, timed, st.sampled_from(["finish", "fail"]), st.integers(1, 15 * MINUTE))


def take(driver, step):
    match step:
        case int():
            driver.advance(step)
        case "finish":
            driver.finish_all()
        case "fail":
            for run in list(driver.state.runs.values()):
                driver.fail(run.id, "a")
        case ("pause", minutes):
            driver.send(inp.Pause(BY, "schedule", T, "s", "", driver.now_ms + minutes * MINUTE))
        case ("at", minutes):
            driver.send(inp.Advise(BY, T, "s", at_ms=driver.now_ms + minutes * MINUTE, ttl_ms=HOUR))
        case _:
            driver.send(step)  # some are refused, which is right too
    driver.quiet()


def watched():
    """Beside the ledger and the invariants: whatever is due begins at its time, alone, and not in a pause."""
    driver = flow()
    true = driver._apply

    def apply(tick, asked):
        one = driver.state.tenants[T].schedules.get("s")
        held = one is not None and (
            one.archived or (one.paused and one.paused_until_ms > driver.settings.clock.ms_of(tick))
        )
        busy = one is not None and bool(one.active)
        outcome = true(tick, asked)
        began = [event for event in outcome.events if isinstance(event, RunScheduled) and event.way == "due"]
        assert not began or asked or not (held or busy), "it began in a pause, or beside another run"
        assert all(event.due_ms <= driver.now_ms for event in began), "it began before its time"
        return outcome

    driver._apply = apply
    return driver


@pytest.mark.proves("S003-52", "S003-63", "S003-77")
@given(st.lists(steps, min_size=10, max_size=30))
def test_an_endpoint_keeps_its_promises_and_is_called_again_whatever_was_asked_of_it(asked):
    driver = watched()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()))
    for step in asked:
        take(driver, step)
    one = driver.state.tenants[T].schedules.get("s")
    for deed in (inp.SteerSchedule(BY, T, "s", "restore"), inp.Resume(BY, "schedule", T, "s"),
                 inp.Resume(BY, "group", T, "g")):  # fmt: skip
        driver.send(deed)
    driver.finish_all()
    twin = Machine(restore(*capture(driver.state)))
    fired = one.fired
    driver.advance(LONGEST << BACKOFF_FAILURES_MAX)

    assert one.fired > fired, "nothing holds it, and it is never called again"
    for tick, inputs, events in driver.rows:
        if tick > twin.state.tick:
            assert twin.apply(tick, inputs).events == events
    assert digest(twin.state) == digest(driver.state)
