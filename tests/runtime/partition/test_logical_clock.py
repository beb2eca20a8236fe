"""Which steps of the wall clock are believed, when, and what logical time does meanwhile."""

import pytest

from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.runtime.partition.logical_clock import HOLD_MS, Gap, RealTime, TickClock

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
LOGICAL = LogicalClock(NOW_MS - HOUR_MS)


class Clocks:
    def __init__(self):
        self.wall, self.mono = NOW_MS, 50

    def wall_ms(self):
        return self.wall

    def mono_ms(self):
        return self.mono

    def pass_ms(self, ms):
        self.wall += ms
        self.mono += ms


def keeper_on(clocks, *, last_ms=0, **reference):
    last_tick = LOGICAL.tick_at(last_ms) if last_ms else 0
    return TickClock(RealTime(clocks, closest_to_ms=last_ms, **reference), LOGICAL, last_tick=last_tick)


@pytest.mark.proves("F17", "I16")
def test_a_wall_clock_that_is_an_hour_ahead_for_three_seconds_moves_nothing():
    clocks = Clocks()
    keeper = keeper_on(clocks)
    clocks.wall += HOUR_MS
    for _ in range(30):
        clocks.pass_ms(100)
        keeper.tick()
    clocks.wall -= HOUR_MS
    clocks.pass_ms(1_000)

    assert (keeper.now_ms(), keeper.take_gaps()) == (NOW_MS + 4_000, [])
    assert keeper.reading(clocks.wall_ms).state == "steady"


def test_a_step_that_persists_is_believed_after_the_hold_and_is_a_gap():
    clocks = Clocks()
    keeper = keeper_on(clocks)
    clocks.wall += HOUR_MS
    clocks.pass_ms(1)
    keeper.now_ms()
    clocks.pass_ms(HOLD_MS - 1)
    assert keeper.now_ms() == NOW_MS + HOLD_MS
    assert keeper.reading(clocks.wall_ms).adopted_in_ms == 1

    clocks.pass_ms(1)
    after_ms = NOW_MS + HOLD_MS + 1
    assert keeper.now_ms() == after_ms + HOUR_MS
    assert keeper.take_gaps() == [Gap(after_ms, after_ms + HOUR_MS, "clock_step")]


def test_a_second_step_begins_its_own_hold():
    clocks = Clocks()
    keeper = keeper_on(clocks)
    clocks.wall += HOUR_MS
    clocks.pass_ms(HOLD_MS - 10)
    keeper.now_ms()
    clocks.wall += HOUR_MS
    clocks.pass_ms(HOLD_MS // 2)

    assert keeper.now_ms() == NOW_MS + HOLD_MS - 10 + HOLD_MS // 2


@pytest.mark.parametrize(
    ("moved_ms", "independent", "believed"),
    [
        (HOUR_MS, True, True),  # the database saw the hour pass: the machine was suspended
        (HOUR_MS, False, True),
        (0, True, False),  # the database saw no hour: the wall clock is wrong
        (0, False, False),  # the boot clock cannot know; the hold decides
    ],
)
def test_the_reference_confirms_a_step_at_once_or_contradicts_it(moved_ms, independent, believed):
    clocks = Clocks()
    keeper = keeper_on(clocks, reference_ms=NOW_MS + 40, independent=independent)
    clocks.wall += HOUR_MS
    clocks.pass_ms(5_000)
    keeper.real.compare(NOW_MS + 40 + 5_000 + moved_ms)

    assert (keeper.now_ms() == NOW_MS + 5_000 + HOUR_MS) is believed
    assert keeper.real.contradicted is (independent and not believed)


def test_what_the_reference_contradicts_is_believed_only_when_a_person_confirms_it():
    clocks = Clocks()
    keeper = keeper_on(clocks, reference_ms=NOW_MS, independent=True)
    clocks.wall += HOUR_MS
    clocks.pass_ms(1_000)
    keeper.real.compare(NOW_MS + 1_000)
    clocks.pass_ms(10 * HOLD_MS)
    assert keeper.now_ms() == NOW_MS + 1_000 + 10 * HOLD_MS
    assert keeper.reading(clocks.wall_ms).adopted_in_ms is None

    assert keeper.real.confirm("ada") and not keeper.real.confirm("ada")
    assert keeper.now_ms() == clocks.wall
    assert [gap.by for gap in keeper.take_gaps()] == ["ada"]


def test_logical_time_that_is_ahead_stands_still_until_real_time_has_caught_up():
    clocks = Clocks()
    keeper = keeper_on(clocks, last_ms=NOW_MS + HOUR_MS)
    assert keeper.is_ahead() and keeper.now_ms() == NOW_MS + HOUR_MS
    assert keeper.seconds_until(LOGICAL.tick_at(NOW_MS + HOUR_MS + 1_000)) == 3_601

    clocks.pass_ms(HOUR_MS - 500)
    assert not keeper.is_ahead() and keeper.now_ms() == NOW_MS + HOUR_MS
    clocks.pass_ms(1_000)
    assert keeper.now_ms() == NOW_MS + HOUR_MS + 500 and keeper.take_gaps() == []


def test_ticks_creep_by_one_while_logical_time_is_ahead():
    clocks = Clocks()
    last = LOGICAL.tick_at(NOW_MS + HOUR_MS)
    keeper = keeper_on(clocks, last_ms=NOW_MS + HOUR_MS)

    assert keeper.creep(last) == last + 1
    assert keeper.tick() == last + 1


def test_a_step_back_is_held_and_then_timers_wait():
    clocks = Clocks()
    keeper = keeper_on(clocks)
    clocks.wall -= HOUR_MS
    clocks.pass_ms(1)
    keeper.now_ms()
    clocks.pass_ms(HOLD_MS - 1)
    assert not keeper.is_ahead()
    assert keeper.reading(clocks.wall_ms).state == "held"

    clocks.pass_ms(1)
    assert keeper.is_ahead()
    assert keeper.now_ms() == NOW_MS + HOLD_MS


@pytest.mark.parametrize(
    ("wall_ms", "reference_ms", "last_ms", "believed_ms"),
    [
        (HOUR_MS, 0, -5_000, 0),  # a node whose clock is ahead takes over
        (-HOUR_MS, 0, -5_000, 0),  # or one whose clock is behind
        (0, HOUR_MS, -5_000, 0),  # the database's clock is ahead
        (0, 300, -5_000, 0),  # they agree
        (0, None, -HOUR_MS, 0),  # nothing else is known: an outage
        (HOUR_MS, 0, None, 0),  # no last time: the earlier one, for nothing may be early
    ],
)
def test_at_the_start_the_reading_closest_to_the_last_tick_is_believed(wall_ms, reference_ms, last_ms, believed_ms):
    clocks = Clocks()
    clocks.wall += wall_ms
    reference = None if reference_ms is None else NOW_MS + reference_ms
    keeper = keeper_on(clocks, last_ms=0 if last_ms is None else NOW_MS + last_ms, reference_ms=reference)

    assert keeper.real.read() == NOW_MS + believed_ms
    assert (keeper.real.step_ms != 0) is (wall_ms != believed_ms)


def test_small_differences_are_slewed():
    clocks = Clocks()
    keeper = keeper_on(clocks)
    clocks.wall += 900
    clocks.pass_ms(1_000)
    assert keeper.now_ms() == NOW_MS + 1_050
    clocks.pass_ms(100_000)

    assert keeper.now_ms() == clocks.wall and keeper.take_gaps() == []
