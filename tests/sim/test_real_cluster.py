"""The real engine, API and agent as a cluster under every fault: nothing is violated, whatever the seed."""

import pytest

from campaign import seeds
from sim import scenario, workload
from sim.checkers import lives_of
from sim.cluster import Options
from sim.report import Violated

# Seeds that once failed, and what they found. All faults that the seed had then are on.
FOUND = {
    2021: "an echo of a request came over a connection that had ended",
    1: "a store that could not be read for a moment stopped the whole partition",
    4: "arguments that could not be loaded for a moment failed the task for good",
    3923: "publishing what another request had just published was answered before it was durable",
    10: "a child's large inputs were asked for before they were kept",
    682: "a line to an engine of a node that ends asked without a pause",
}


def check(seed, **words):
    report = scenario.run(seed, words)
    if not report.ok:
        raise Violated(report)
    return report


@pytest.mark.proves("I1", "I2", "I4", "I5", "I7", "I12", "I25", "I29")
@pytest.mark.parametrize("seed", seeds(2_000, few=60, many=400))
def test_nothing_is_violated(seed):
    check(seed)


@pytest.mark.proves("I1", "I2", "I4", "I6")
@pytest.mark.parametrize("seed", seeds(910_060, few=10, many=200))  # 910,064 was cut off while it started
def test_nothing_is_violated_where_more_nodes_share_more_partitions(seed):
    check(seed, nodes="3", partitions="4", workers="4")


@pytest.mark.parametrize("seed", seeds(930_000, few=6, many=200))
def test_nothing_is_violated_where_a_tenant_is_spread_beside_publications(seed):
    faults = "spreads=200,node_crashes=40,drop=0.02,store_slow=0.05,pauses=20"
    check(seed, nodes="3", partitions="4", workers="2", faults=faults)


@pytest.mark.parametrize("seed", seeds(940_000, few=6, many=200))
def test_every_worker_serves_every_partition_again_after_nodes_hung(seed):
    check(seed, nodes="3", partitions="4", workers="3", faults="hangs=60,node_crashes=20,drop=0.01")


@pytest.mark.parametrize("seed", seeds(950_003, few=4, many=200))
def test_what_tasks_ask_of_other_partitions_happens_once(seed, monkeypatch):
    monkeypatch.setattr(workload, "DRAWN", ["starting", "starting", "starting", "single", "paid"])
    check(
        seed, nodes="3", partitions="4", workers="2", tasks="40", faults="spreads=50,node_crashes=60,drop=0.02,hangs=20"
    )


@pytest.mark.parametrize("seed", seeds(960_000, few=6, many=200))
def test_what_an_application_enqueues_by_sql_begins_once_although_nodes_die(seed):
    faults = "spreads=30,node_crashes=80,drop=0.02,store_slow=0.05,store_answer_lost=0.05,store_fails=0.05,pauses=20"
    check(seed, nodes="3", partitions="4", workers="2", tasks="6", enqueues="20", faults=faults)


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.get)
def test_what_a_seed_found_stays_found(seed):
    check(seed, faults=str(Options.of(seed, {}).faults.without("store_cuts", "spreads", "hangs", "foreign_stores")))


def test_without_faults_the_whole_workload_ends_as_it_should():
    cluster = scenario.cluster(1, {"faults": "", "tasks": "60"})
    report = cluster.run()

    assert report.ok, str(report)
    assert report.trace.faults == {}
    assert sum(len(lives_of(rows).states) for rows in cluster.kept().values()) >= 60


def test_the_same_seed_tells_the_same_story():
    one, again = (scenario.run(7, {"tasks": "15", "safety_s": "120"}) for _ in range(2))

    assert one.trace.hash == again.trace.hash
