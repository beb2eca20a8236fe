"""Credit follows what a worker gets done."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.worker.credit import CREDIT_MAX, Credit


def after(rate: int, *, slots: int = 4, ms: int = 2_000, step_ms: int = 20) -> list[int]:
    credit, seen = Credit(), []
    for now_ms in range(0, ms, step_ms):
        seen.append(credit.at(now_ms, slots=slots))
        credit.ended(rate * step_ms // 1_000)
    return seen


def test_an_idle_worker_asks_for_its_slots():
    assert set(after(0)) == {4}


def test_a_worker_asks_for_what_it_ends_in_a_tenth_of_a_second():
    assert after(1_000)[-1] == pytest.approx(4 + 100, rel=0.02)
    assert after(10_000)[-1] == pytest.approx(4 + 1_000, rel=0.02)
    assert after(100_000)[-1] == CREDIT_MAX


def test_slow_tasks_are_not_hoarded():
    assert max(after(10, step_ms=200)) <= 5


def test_credit_rises_step_by_step_and_falls_when_nothing_ends():
    seen = after(20_000)
    assert all(later <= 2 * earlier + 4 for earlier, later in pairwise(seen))

    credit = Credit()
    for now_ms in range(0, 1_000, 20):
        high = credit.at(now_ms, slots=4)
        credit.ended(200)
    falling = [credit.at(now_ms, slots=4) for now_ms in range(1_020, 2_000, 20)]
    assert high > 900 and falling == sorted(falling, reverse=True) and falling[-1] < 10
    assert credit.at(10_000, slots=4) == 4


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 5_000)), max_size=50), st.integers(1, 500))
def test_credit_is_never_below_the_slots_nor_above_the_most(steps, slots):
    credit, now_ms = Credit(), 0
    for passed_ms, ended in steps:
        now_ms += passed_ms
        credit.ended(ended)

        assert slots <= credit.at(now_ms, slots=slots) <= CREDIT_MAX
