"""What leads to a run, before any store is asked."""

from hypothesis import given
from hypothesis import strategies as some

from tickwork.stores.blocks import clue_of

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


def test_names_of_another_kind_are_far_away():
    near = clues("order-1", "order-2", "order-3")

    assert max(near) - min(near) <= 1
    assert all(abs(one - near[0]) > 1 << 20 for one in clues("orders-1", "order_1", "1", "order-1a", SEVEN))


@given(some.text(some.characters(exclude_categories=["Cs"]), max_size=300) | some.from_regex(r"[a-z]{0,3}\d{0,200}"))
def test_every_id_has_a_clue_that_a_store_can_keep(name):
    assert -(2**63) <= clue_of(name) < 2**63
    assert clue_of(name) < 0 or clue_of(name[:15]) == clue_of(name)
