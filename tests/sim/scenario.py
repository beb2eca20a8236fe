"""The scenario of `python -m sim`: the real engine, API and agent as a small cluster under every fault.

Two nodes and three workers unless the options say otherwise. Only what touches the operating system is simulated:
loop, clocks, network, disk, and the code that the workers run.
"""

import asyncio
from collections.abc import Mapping

from sim.child_pool import SharedExecutor
from sim.cluster import Cluster, Options, Programs, WorkerSeat
from sim.executor import SimExecutor
from sim.links import SimReach
from sim.node import SETTINGS, Node, no_foreign_results, recovers_as_it_lives, unserved
from sim.report import Report
from sim.workload import HANDLERS, Client
from tickwork.cluster.direct_link import OwnerLink
from tickwork.protocol.worker_messages import Catalog, WorkerProfile
from tickwork.testing.seeded_random import Chance
from tickwork.worker.agent import Agent

SLOTS = 4
SHAPE = {"nodes": "2", "workers": "3", "safety_s": "200"}


async def worker(seat: WorkerSeat) -> None:
    """A process with an agent; some are drained after a while, as in a rolling deployment."""
    host, chance = seat.host, seat.host.chance.stream(f"worker/{seat.host.starts}")
    kind = SharedExecutor if seat.cluster.options.faults.neighbours else SimExecutor
    executor = kind(host, HANDLERS, seat.ledger, slots=SLOTS, catalog=Catalog())
    direct = OwnerLink(seat.link, SimReach(seat.link.net, host), clock=host.clock)
    # Some reach nothing but the server that they were given.
    link = direct if host.chance.stream("direct").happens(0.7) else seat.link
    agent = Agent(
        link, [executor], clock=host.clock, ids=host.ids, name=host.name, profile=WorkerProfile(host=host.name)
    )
    drains = (
        asyncio.get_running_loop().create_task(_drain(agent, chance.between(10, 600))) if chance.happens(0.2) else None
    )
    try:
        await agent.run()
    finally:
        await direct.close()
        seat.link.close()
    if drains is not None:
        await drains


async def _drain(agent: Agent, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await agent.drain(grace_s=5.0)


def programs() -> Programs:
    return Programs(
        node=lambda seat: Node(seat).main(),
        worker=worker,
        client=lambda seat: Client(seat).main(),
        settings=SETTINGS,
        checks=lambda cluster: [*recovers_as_it_lives(cluster), *no_foreign_results(cluster)],
        unserved=unserved,
    )


def cluster(seed: int, words: Mapping[str, str]) -> Cluster:
    shape = SHAPE | {"tasks": str(Chance(seed, "tasks").between(8, 24))}
    return Cluster(seed, programs(), Options.of(seed, shape | dict(words)), scenario="sim.scenario:run")


def run(seed: int, words: Mapping[str, str]) -> Report:
    return cluster(seed, words).run()
