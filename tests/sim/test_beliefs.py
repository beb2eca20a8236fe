"""Who believes to own a partition, and for how long two of them may: nodes that are cut off from the store, whole or in
one direction."""

import asyncio

import pytest

from campaign import seeds
from sim import checkers, scenario
from sim.cluster import BELIEF_NS, Cluster
from sim.recorder import Belief
from sim.report import Violated
from tickwork.cluster.ownership import Ownership

S = 1_000_000_000
CUTS = {"faults": "store_cuts=90", "nodes": "3", "partitions": "3", "safety_s": "300", "tasks": "20"}


def overlaps_s(cluster: Cluster) -> list[float]:
    found = checkers.one_believes(cluster.journals.beliefs, {}, allowed_ns=0, now_ns=cluster.world.loop.now_ns)
    return [float(one.text.split(" for ")[1].split(" s")[0]) for one in found]


@pytest.mark.proves("I4", "I6", "F4", "F5")
@pytest.mark.parametrize("seed", seeds(0, few=6, many=60))
def test_a_node_whose_renewals_get_no_answer_owns_nothing_before_another_does(seed):
    """Half of the cuts let everything through but the answers: the lease is renewed, and its holder cannot know."""
    cluster = scenario.cluster(seed, CUTS)
    report = cluster.run()

    if not report.ok:
        raise Violated(report)
    assert report.trace.faults["store_cuts"] >= 5
    assert overlaps_s(cluster) == []  # nobody stood still: then the margin is enough


@pytest.mark.proves("I4")
@pytest.mark.parametrize("seed", seeds(100, few=4, many=40))
def test_one_that_stood_still_believes_no_longer_than_it_did(seed):
    cluster = scenario.cluster(seed, CUTS | {"faults": "store_cuts=60,pauses=60"})
    report = cluster.run()

    if not report.ok:
        raise Violated(report)


async def _never(_):
    await asyncio.Event().wait()


def test_a_node_that_holds_on_to_what_it_cannot_prove_is_caught(monkeypatch):
    monkeypatch.setattr(Ownership, "_drop_in_time", _never)
    reports = (scenario.cluster(seed, CUTS).run() for seed in range(8))

    assert any("I4" in {violation.invariant for violation in report.violations} for report in reports)


@pytest.mark.parametrize(
    ("first", "second", "paused", "wrong"),
    [
        ((0, 10), (10, None), [], False),  # one after the other
        ((0, 21), (10, None), [], True),
        ((0, 20), (10, None), [], False),  # a lease long
        ((0, 60), (10, None), [(9, 59)], False),  # it stood still
        ((0, 60), (10, None), [(30, 40)], True),  # not for all of it
        ((0, None), (10, 15), [], False),
        ((0, None), (10, None), [], True),  # both do to this day
    ],
)
def test_what_two_believe_at_once_is_counted(first, second, paused, wrong):
    def belief(owner, begin, end):
        return Belief(0, owner, begin * S, None if end is None else end * S)

    beliefs = [belief("n1", *first), belief("n2", *second)]
    pauses = {"n1": [(since * S, to * S) for since, to in paused]}

    found = list(checkers.one_believes(beliefs, pauses, allowed_ns=BELIEF_NS, now_ns=100 * S))
    assert [one.invariant for one in found] == (["I4"] if wrong else [])
    assert list(checkers.one_believes(beliefs[:1], {}, allowed_ns=0, now_ns=100 * S)) == []
