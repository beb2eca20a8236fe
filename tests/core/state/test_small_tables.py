"""Tables that are nearly always small: one entry takes no dict, and behaves like one."""

import pytest

from tickwork.core.state.tables import OneEntry, SmallTable, with_entry, without_entry


def filled(*numbers: int) -> SmallTable[str]:
    table: SmallTable[str] | None = None
    for number in numbers:
        table = with_entry(table, number, f"value {number}")
    assert table is not None
    return table


@pytest.mark.parametrize(("numbers", "kind"), [((3,), OneEntry), ((3, 3), OneEntry), ((3, 5), dict), ((5, 3, 7), dict)])
def test_it_reads_like_a_dict(numbers, kind):
    table = filled(*numbers)
    same = {number: f"value {number}" for number in numbers}

    assert type(table) is kind
    assert (len(table), sorted(table), dict(table.items())) == (len(same), sorted(same), same)
    assert sorted(table.values()) == sorted(same.values())
    assert {**table} == same
    assert [number in table for number in range(9)] == [number in same for number in range(9)]
    assert [table.get(number) for number in range(9)] == [same.get(number) for number in range(9)]
    assert table[3] == "value 3"
    with pytest.raises(KeyError):
        table[4]


def test_entries_are_removed_until_nothing_is_left():
    left: SmallTable[str] | None = filled(1, 2, 3)
    for number in (2, 1, 3):
        assert left is not None
        left = without_entry(left, number)

    assert left is None
    assert without_entry(filled(4), 4) is None
    with pytest.raises(AssertionError):
        without_entry(filled(4), 5)


def test_an_empty_table_that_many_share_is_never_changed():
    empty: SmallTable[str] = {}

    assert with_entry(empty, 1, "one") is not empty
    assert empty == {}
