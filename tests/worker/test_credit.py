"""Credit follows how long attempts take."""

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.worker.credit import AHEAD_MS, CREDIT_MAX, Credit


def after(ms: int, *, slots: int = 4, calls: int = 40, each: int = 50) -> list[int]:
    credit, seen = Credit(), []
    for _ in range(calls):
        seen.append(credit.now(slots=slots))
        for _ in range(each):
            credit.ran(ms)
    return seen


def test_a_worker_that_has_run_nothing_asks_for_its_slots():
    assert Credit().now(slots=4) == 4


@pytest.mark.parametrize(
    ("ms", "credit"),
    [
        (0, CREDIT_MAX),  # too short to be measured
        (1, 4 + 400),  # four slots for a tenth of a second
        (10, 4 + 40),
        (100, 4 + 4),
        (1_000, 4),
    ],
)
def test_a_worker_asks_for_what_it_ends_in_a_tenth_of_a_second(ms, credit):
    assert after(ms)[-1] == credit


def test_waiting_for_a_busy_server_does_not_make_it_smaller():
    credit = Credit()
    for _ in range(20):
        for _ in range(50):
            credit.ran(0)
        high = credit.now(slots=4)

    assert [credit.now(slots=4) for _ in range(10)] == [high] * 10


def test_credit_rises_step_by_step_and_falls_with_the_first_slow_attempts():
    seen = after(0)
    assert all(later <= 3 * earlier + 4 for earlier, later in pairwise(seen))

    credit = Credit()
    for _ in range(20):
        for _ in range(50):
            credit.ran(0)
        credit.now(slots=4)
    credit.ran(1_000)
    assert credit.now(slots=4) < 40


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5_000)), max_size=50), st.integers(1, 500))
def test_credit_is_never_below_the_slots_nor_above_the_most(steps, slots):
    credit = Credit()
    for count, ms in steps:
        for _ in range(count):
            credit.ran(ms)

        assert slots <= credit.now(slots=slots) <= CREDIT_MAX


def test_attempts_that_wait_longer_than_expected_are_requested_later():
    credit = Credit()
    for _ in range(20):
        credit.ran(0, attempts=50)
        most = credit.now(slots=8)

    credit.waited(1_000, behind=2_000)  # two in a millisecond: 200 of them take a tenth of a second
    assert (most, credit.now(slots=8)) == (CREDIT_MAX, 8 + 200)

    for behind in (200, 400, 800, 1_600):
        credit.waited(behind // 40, behind=behind)  # forty in a millisecond
        credit.now(slots=8)
    assert credit.now(slots=8) == CREDIT_MAX


def test_a_short_wait_behind_few_attempts_does_not_allow_many():
    credit = Credit()
    for _ in range(20):
        credit.ran(0, attempts=50)
        credit.now(slots=8)
    credit.waited(1_000, behind=2_000)

    for behind in (0, 1, 20, 90):
        credit.waited(0, behind=behind)
        assert credit.now(slots=8) == 8 + 200


@pytest.mark.parametrize("per_ms", [0.2, 2.0, 15.0])
def test_the_wait_is_as_long_as_meant_whatever_attempts_say_they_take(per_ms):
    """Attempts that take no time by their own account, of which so many end in a millisecond."""
    rng, credit, held, waits = random.Random(7), Credit(), 0, []
    for _ in range(400):
        credit.ran(0, attempts=50)
        held = max(held, credit.now(slots=8))
        wait_ms = round(held / per_ms * rng.uniform(0.5, 1.5))
        credit.waited(wait_ms, behind=held)
        if rng.random() < 0.2:  # the server was busy, and the next attempt came alone
            credit.waited(0, behind=rng.randrange(10))
        held = 0
        waits.append(wait_ms)

    assert max(waits[20:]) < 4 * AHEAD_MS
    assert statistics.median(waits[20:]) > AHEAD_MS // 4, "both sides are kept busy"
