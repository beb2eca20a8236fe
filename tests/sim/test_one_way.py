"""A way that works in one direction: what a worker says arrives, and no answer comes back."""

import asyncio

import pytest

from campaign import seeds
from sim import node, scenario
from sim.cluster import Cluster, Options, WorkerSeat
from sim.executor import SimExecutor
from sim.links import SimLink
from sim.report import Violated
from sim.workload import HANDLERS
from tickwork.core.base.errors import Unavailable
from tickwork.protocol.worker_messages import Call, Catalog, Reply, WorkerProfile
from tickwork.worker.agent import Agent

PERIOD_S, DEAF_S = 90.0, 60.0  # longer than the silence after which a worker is lost
WORDS = {"faults": "", "tasks": "25", "safety_s": "300", "workers": "2", "nodes": "1"}


class DeafLink:
    """Everything reaches the server; of each period, a part in which no reply to a call gets back."""

    def __init__(self, link: SimLink) -> None:
        self._link = link
        self.lost = 0

    def __getattr__(self, name: str):
        return getattr(self._link, name)

    async def call(self, call: Call) -> Reply:
        reply = await self._link.call(call)
        if asyncio.get_running_loop().time() % PERIOD_S < DEAF_S:
            self.lost += 1
            await asyncio.sleep(1.0)
            raise Unavailable("no answer", retry_after_ms=1_000)
        return reply


def deaf_cluster(seed: int) -> tuple[Cluster, list[DeafLink]]:
    links: list[DeafLink] = []

    async def worker(seat: WorkerSeat) -> None:
        host = seat.host
        links.append(DeafLink(seat.link))
        executor = SimExecutor(host, HANDLERS, seat.ledger, slots=4, catalog=Catalog())
        profile = WorkerProfile(host=host.name)
        await Agent(links[-1], [executor], clock=host.clock, ids=host.ids, name=host.name, profile=profile).run()

    programs = scenario.programs()
    programs.worker = worker
    return Cluster(seed, programs, Options.of(seed, WORDS)), links


@pytest.mark.proves("F5", "I5", "I30", "I35", "I51")
@pytest.mark.parametrize("seed", seeds(0, few=6, many=60))
def test_a_worker_that_hears_no_answer_beats_on_and_nothing_of_it_starts_twice(seed, monkeypatch):
    monkeypatch.setattr(node, "EXPECTED_ALARMS", node.EXPECTED_ALARMS - {"worker_lost"})  # it is heard all the time
    cluster, links = deaf_cluster(seed)
    report = cluster.run()

    if not report.ok:
        raise Violated(report)
    assert sum(link.lost for link in links) > 100
    writes = cluster.ledger.writes
    assert len(writes) >= 25 and len({(write.task, write.attempt) for write in writes}) == len(writes)
    # What a person has retried runs again as a later attempt, under the same key; nothing else does.
    assert [write for write in writes if not write.applied and write.attempt == 1] == []
