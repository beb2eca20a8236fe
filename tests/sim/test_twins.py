"""Nodes that all say the same name, as copies of one machine would: they are as many nodes as there are."""

import msgspec
import pytest

from campaign import seeds
from sim import scenario
from sim.report import Violated
from tickwork.cluster import node as real

FAULTS = "node_crashes=60,pauses=60,store_cuts=60,store_late=0.02"


@pytest.mark.proves("F24", "I1", "I2", "I3")
@pytest.mark.parametrize("seed", seeds(0, few=5, many=60))
def test_nodes_of_one_name_write_one_journal(seed, monkeypatch):
    true = real.member_of
    monkeypatch.setattr(real, "member_of", lambda **told: msgspec.structs.replace(true(**told), node="copy"))
    cluster = scenario.cluster(seed, {"faults": FAULTS, "nodes": "3", "partitions": "3", "tasks": "15"})
    report = cluster.run()

    if not report.ok:
        raise Violated(report)
    assert len({belief.owner for belief in cluster.journals.beliefs}) == 3
