"""Where partitions, tenants and runs belong, and how credit is dealt out: pure functions, by property."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.cluster.placement import fitted_to, home_of, partition_of_run, partitions_of, partitions_of_run, place
from tickwork.cluster.worker_gateway import split_credit
from tickwork.core.base.stable_hash import stable_hash
from tickwork.ports.store import Route
from tickwork.system.uuids import Uuids

names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)
counts = st.integers(1, 64)


@given(counts, names)
def test_every_partition_has_one_owner_and_shares_are_even(partitions, nodes):
    found = place(partitions, [(name, "s") for name in nodes])
    shares = Counter(found.values())

    assert sorted(found) == list(range(partitions))
    assert max(shares.values()) <= -(-partitions // len(nodes))


@given(counts, names)
def test_every_node_comes_to_the_same_answer(partitions, nodes):
    members = [(name, f"s{name}") for name in nodes]
    assert place(partitions, members) == place(partitions, list(reversed(members)))


def test_a_restart_changes_nothing_and_a_departure_little():
    nodes = [(f"n{number}", "first") for number in range(8)]
    before = place(64, nodes)
    again = place(64, [(name, "second") for name, _ in nodes])
    assert {partition: node[0] for partition, node in before.items()} == {
        partition: node[0] for partition, node in again.items()
    }
    after = place(64, nodes[:-1])
    moved = sum(before[partition] != after[partition] for partition in before)
    assert 8 <= moved <= 24


def test_without_nodes_nobody_owns_anything():
    assert place(8, []) == {}


@given(st.text(max_size=20), counts, st.integers(1, 80), st.text(max_size=40))
def test_a_run_lives_in_a_partition_of_its_tenant_for_life(tenant, partitions, spread, run_id):
    route = Route(tenant, home_of(tenant, partitions), spread)
    places = partitions_of(route, partitions)

    assert places[0] == route.home and len(set(places)) == len(places) == min(spread, partitions)
    assert partition_of_run(route, run_id, partitions) in places


@given(st.text(max_size=20), counts, st.integers(1, 80), st.integers(0, 0xFFFF))
def test_the_end_of_an_id_is_fitted_to_where_its_run_shall_live(tenant, partitions, spread, drawn):
    route = Route(tenant, home_of(tenant, partitions), spread)
    for where in partitions_of(route, partitions):
        end = fitted_to(route, where, partitions)(f"{drawn:04x}")

        assert len(end) == 4 and abs(int(end, 16) - drawn) < min(spread, partitions)
        assert partition_of_run(route, f"01a1ec0a-fc3c-7000-a79f-3d9d2e7f{end}", partitions) == where


def test_drawn_ids_are_dealt_evenly_and_those_of_one_moment_stay_together():
    route, ids = Route("default", 3, 3), Uuids()
    dealt = Counter(partition_of_run(route, str(uuid7(number)), 8) for number in range(3_000))
    of_a_moment = [ids.new() for _ in range(20)]

    assert sorted(dealt) == [3, 4, 5] and min(dealt.values()) > 900
    assert len({partition_of_run(route, one, 8) for one in of_a_moment}) <= len({one[:13] for one in of_a_moment})


def uuid7(number):
    return UUID(int=0x01A1EC0AFC3C_7000_A79F_3D9D2E7F0000 + stable_hash("uuid", number) % 2**48)


@pytest.mark.parametrize("end", ["zzzz", "12 4", "+1ff", "é123", "ABCD"])
def test_an_odd_id_that_looks_like_a_drawn_one_has_a_place_too(end):
    route, odd = Route("default", 3, 4), f"01a1ec0a-fc3c-7000-a79f-3d9d2e7f{end}"

    assert partition_of_run(route, odd, 8) in partitions_of(route, 8)
    assert partition_of_run(route, odd, 8) in partitions_of_run(route, odd, 8)


def test_homes_and_runs_are_known_for_good():
    """Fixed values: a change of the hash would look for everything in the wrong place."""
    assert [home_of(name, 8) for name in ("default", "acme", "beta")] == [3, 1, 6]
    assert [partition_of_run(Route("default", 3, 4), f"run-{number}", 8) for number in range(6)] == [4, 6, 4, 6, 3, 5]
    drawn = [f"01a1ec0a-fc3c-7000-a79f-3d9d2e7fbdc{digit}" for digit in "012345"]
    assert [partition_of_run(Route("default", 3, 3), one, 8) for one in drawn] == [3, 4, 5] * 2


lists = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8)


@given(st.integers(0, 200), lists)
def test_shares_never_exceed_the_credit_and_never_take_back_what_is_held(credit, lines):
    held, wanted = [one for one, _ in lines], [one for _, one in lines]
    shares = split_credit(credit, held, wanted)

    assert sum(shares) == max(credit, sum(held))
    assert all(share >= has for share, has in zip(shares, held, strict=True))


@given(st.integers(1, 200), lists)
def test_who_wants_is_served_before_who_does_not(credit, lines):
    held, wanted = [one for one, _ in lines], [one for _, one in lines]
    shares = split_credit(credit, held, wanted)
    free = max(0, credit - sum(held))
    given = sum(share - has for share, has, want in zip(shares, held, wanted, strict=True) if want)
    assert given >= min(free, sum(wanted))
