import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.stable_hash import spread, stable_hash

parts = st.lists(st.one_of(st.text(max_size=5), st.integers()), max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), 0xE4A6A0577479B2B4),
        ((3,), 0xFDD382FDA25A36F9),
        (("3",), 0x3D1BA96E39332466),
        (("run-1", 3), 0xDBFB5E2E79CC00C0),
    ],
)
def test_the_hash_is_the_same_in_every_release(parts, expected):
    assert stable_hash(*parts) == expected


@given(parts, parts)
def test_different_parts_have_different_hashes(one, other):
    assert (stable_hash(*one) == stable_hash(*other)) == (one == other)


@given(st.integers(0, 10**12), parts)
def test_a_spread_stays_within_its_limit(limit, parts):
    assert 0 <= spread(limit, *parts) <= limit


def test_a_spread_reaches_every_value_about_equally_often():
    counts = [0] * 10
    for number in range(10_000):
        counts[spread(9, "task", number)] += 1

    assert min(counts) > 850
    assert max(counts) < 1_150
