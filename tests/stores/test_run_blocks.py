"""What leads to a run, before any store is asked."""

from hypothesis import given
from hypothesis import strategies as some

from tickwork.stores.run_blocks import clue_of

SEVEN = "01890a5d-ac96-774b-bcce-b302099a8057"


def clues(*ids: str) -> list[int]:
    return [clue_of(one) for one in ids]


def test_names_that_count_on_have_clues_that_grow_slowly():
    found = [clue_of(f"order-{number}") for number in range(100_000)]

    assert found == sorted(found)
    assert len(set(found)) == 25_000


def test_names_that_count_with_long_numbers_have_clues_that_grow():
    found = [
        clue_of(f"order-{number}") for number in range(7_300_000_000_000_000_000, 7_300_000_040_000_000_000, 10**8)
    ]

    assert found == sorted(found)
    assert len(set(found)) > 4


def test_occurrences_have_clues_that_grow_with_their_time():
    minutes = [
        [clue_of(f"sched-{name}-2026-0{at}:00Z") for name in range(1_000)] for at in ("1-31T23:59", "2-01T00:00")
    ]

    assert max(minutes[0]) < min(minutes[1])
    assert len(set(minutes[0])) > 990
    assert clue_of("sched-a-2026-01-31T23:59:59.123Z") == clue_of("sched-a-2026-01-31T23:59:00Z")
    assert abs(clue_of("sched-a-2026-01-31T23:59Zx") - clue_of("sched-a-2026-01-31T23:59:00Z")) > 1 << 40


def test_names_of_another_kind_are_far_away():
    near = clues("order-1", "order-2", "order-3")

    assert max(near) - min(near) <= 1
    assert all(abs(one - near[0]) > 1 << 20 for one in clues("orders-1", "order_1", "1", "order-1a", SEVEN))


@given(
    some.text(some.characters(exclude_categories=["Cs"]), max_size=300)
    | some.from_regex(r"[a-z]{0,3}\d{0,200}")
    | some.from_regex(r".{0,3}-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
)
def test_every_id_has_a_clue_that_a_store_can_keep(name):
    assert -(2**63) <= clue_of(name) < 2**63
    assert clue_of(name) < 0 or clue_of(name[:15]) == clue_of(name)
