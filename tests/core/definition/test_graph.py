"""Graphs: order, shortest cycles and ancestry, against slow and obvious versions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.definition.graph import TARGETS_PER_PASS, children_of, order_of, shortest_cycle, unrelated


@st.composite
def graphs(draw, acyclic=False):
    size = draw(st.integers(1, 8))
    pairs = [(a, b) for a, b in itertools.permutations(range(size), 2) if not acyclic or b < a]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return [[parent for node, parent in edges if node == number] for number in range(size)]


def reachable(parents, node):
    """Ancestors, the obvious way."""
    found, todo = set(), list(parents[node])
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(parents[one])
    return found


def shortest_length(parents):
    """The least number of steps from any node up to itself; 0 for none."""
    for length in range(2, len(parents) + 1):
        for nodes in itertools.permutations(range(len(parents)), length):
            if all(a in parents[b] for a, b in itertools.pairwise([*nodes, nodes[0]])):
                return length
    return 0


@given(graphs(acyclic=True))
def test_parents_come_before_their_children(parents):
    order = order_of(parents, children_of(parents))

    assert sorted(order) == list(range(len(parents)))
    assert all(order.index(parent) < order.index(node) for node, above in enumerate(parents) for parent in above)


@given(graphs())
def test_the_order_is_short_exactly_when_there_is_a_cycle(parents):
    order = order_of(parents, children_of(parents))

    assert (len(order) < len(parents)) == any(node in reachable(parents, node) for node in range(len(parents)))


@pytest.mark.proves("B12")
@given(graphs())
def test_the_named_cycle_is_one_and_none_is_shorter(parents):
    cycle = shortest_cycle(parents, children_of(parents))

    assert len(cycle) == len(set(cycle)) == shortest_length([above[:] for above in parents])
    assert all(a in parents[b] for a, b in itertools.pairwise([*cycle, *cycle[:1]]))
    assert cycle == [] or cycle[0] == min(cycle)


def test_a_pair_is_found_in_a_core_too_large_to_search_whole():
    ring = [[(number - 1) % 5_000] for number in range(5_000)]
    ring[4_000].append(4_001)

    assert shortest_cycle(ring, children_of(ring)) == [4_000, 4_001]


@given(graphs(acyclic=True), st.data())
def test_only_ancestors_count_as_related(parents, data):
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, len(parents) - 1)] * 2), unique=True))
    order = order_of(parents, children_of(parents))

    expected = sorted((node, other) for node, other in pairs if other not in reachable(parents, node))
    assert unrelated(parents, order, pairs) == expected


def test_more_questions_than_fit_in_one_pass_are_all_answered():
    size = TARGETS_PER_PASS * 2 + 10
    chain = [[number - 1] if number else [] for number in range(size)]
    order = order_of(chain, children_of(chain))
    asked = [(size - 1, other) for other in range(size)] + [(5, size - 1)]

    assert unrelated(chain, order, asked) == [(5, size - 1), (size - 1, size - 1)]
