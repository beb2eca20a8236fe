"""When rows are written: soon at rest, seldom under load, and ended runs in between."""

import math

import pytest

from tickwork.runtime.partition.pacing import (
    ENDED_MANY,
    ENDED_S,
    ENDED_SOON_S,
    FEW_TICKS,
    RESTED_S,
    TAIL_EVENTS_MAX,
    WHOLE_S,
    FlushPolicy,
)

BEGUN = 100.0


def pace(*, events: int = 10) -> FlushPolicy:
    made = FlushPolicy()
    made.ticked(BEGUN, events=events)
    return made


def test_at_rest_all_rows_are_written_soon():
    one = pace()

    assert one.wait_s(BEGUN, ticks=1, ended=0) == pytest.approx(RESTED_S)
    assert not one.is_whole(BEGUN) and one.is_whole(BEGUN + RESTED_S + 0.001)


def loaded(now: float, **more: int) -> FlushPolicy:
    """It has been busy since it began, and ticked just now."""
    one = pace()
    one.ticked(now, events=more.pop("events", 10))
    return one


@pytest.mark.parametrize(
    ("ticks", "ended", "wait_s"),
    [
        (FEW_TICKS, 0, WHOLE_S),  # nothing has ended: only what lives, and that seldom
        (FEW_TICKS, 1, ENDED_S),
        (FEW_TICKS, ENDED_MANY - 1, ENDED_S),
        (FEW_TICKS, ENDED_MANY, ENDED_SOON_S),
    ],
)
def test_under_load_ended_runs_are_written_now_and_then_and_the_rest_seldom(ticks, ended, wait_s):
    one, now = pace(), BEGUN
    while (left := one.wait_s(now, ticks=ticks, ended=ended)) > 0:
        now += min(left, RESTED_S / 2)  # it never rests
        one.ticked(now, events=10)

    assert now - BEGUN == pytest.approx(wait_s, abs=RESTED_S)
    assert one.is_whole(now) is (wait_s == WHOLE_S)


def test_ended_runs_alone_do_not_put_the_rest_off():
    one = loaded(BEGUN + 4)
    one.wrote(BEGUN + 4, whole=False)

    assert one.wait_s(BEGUN + 4, ticks=FEW_TICKS, ended=5) == pytest.approx(RESTED_S)
    one.ticked(BEGUN + WHOLE_S, events=10)
    assert one.is_whole(BEGUN + WHOLE_S)
    one.wrote(BEGUN + WHOLE_S, whole=True)
    assert not one.is_whole(BEGUN + WHOLE_S)


def test_the_journal_behind_the_watermark_stays_short_enough_to_be_folded():
    one = loaded(BEGUN + 1, events=TAIL_EVENTS_MAX)

    assert one.wait_s(BEGUN + 1, ticks=FEW_TICKS, ended=0) == 0 and one.is_whole(BEGUN + 1)
    one.wrote(BEGUN + 1, whole=True)
    assert 0 < one.wait_s(BEGUN + 1, ticks=FEW_TICKS, ended=0) < math.inf
