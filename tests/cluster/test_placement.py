"""Where partitions, tenants and runs belong, and how credit is dealt out: pure functions, by property."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.cluster.dealing import deal
from tickwork.cluster.placement import fitted_to, home_of, partition_of_run, partitions_of, place
from tickwork.ports.store import Route

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


@pytest.mark.proves("S000-29")
@given(st.text(max_size=20), counts, st.integers(1, 80), st.text(max_size=40))
def test_a_run_lives_in_a_partition_of_its_tenant_for_life(tenant, partitions, spread, run_id):
    route = Route(tenant, home_of(tenant, partitions), spread)
    places = partitions_of(route, partitions)

    assert places[0] == route.home and len(set(places)) == len(places) == min(spread, partitions)
    assert partition_of_run(route, run_id, partitions) in places


@given(st.text(max_size=20), counts, st.integers(1, 80), st.lists(st.uuids(), min_size=1, max_size=9, unique=True))
def test_an_id_is_fitted_to_where_its_run_shall_live(tenant, partitions, spread, drawn):
    route = Route(tenant, home_of(tenant, partitions), spread)
    for where in partitions_of(route, partitions):
        fitted = [fitted_to(route, where, partitions)(str(one)) for one in drawn]

        assert {partition_of_run(route, one, partitions) for one in fitted if one} <= {where}
        assert all(UUID(one).int >> 8 == known.int >> 8 for one, known in zip(fitted, drawn, strict=True) if one)
        assert all(fitted) or spread > 16, "with few partitions there is always one that fits"


def test_homes_and_runs_are_known_for_good():
    """Fixed values: a change of the hash would look for everything in the wrong place."""
    assert [home_of(name, 8) for name in ("default", "acme", "beta")] == [3, 1, 6]
    assert [partition_of_run(Route("default", 3, 4), f"run-{number}", 8) for number in range(6)] == [4, 6, 4, 6, 3, 5]


lists = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8)


@given(st.integers(0, 200), lists)
def test_shares_never_exceed_the_credit_and_never_take_back_what_is_held(credit, lines):
    held, wanted = [one for one, _ in lines], [one for _, one in lines]
    shares = deal(credit, held, wanted)

    assert sum(shares) == max(credit, sum(held))
    assert all(share >= has for share, has in zip(shares, held, strict=True))


@given(st.integers(1, 200), lists)
def test_who_wants_is_served_before_who_does_not(credit, lines):
    held, wanted = [one for one, _ in lines], [one for _, one in lines]
    shares = deal(credit, held, wanted)
    free = max(0, credit - sum(held))
    given = sum(share - has for share, has, want in zip(shares, held, wanted, strict=True) if want)
    assert given >= min(free, sum(wanted))
