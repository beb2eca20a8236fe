"""Credit follows how long attempts take."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.worker.credit import CREDIT_MAX, Credit


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

    for _ in range(10):
        credit.waited(20, behind=200)
        credit.now(slots=8)
    assert credit.now(slots=8) == CREDIT_MAX
