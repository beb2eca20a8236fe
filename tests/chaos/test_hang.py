"""Nodes that hang and go on: real nodes, workers and a real PostgreSQL, seen through the API."""

import asyncio
import contextlib
import random
import re
import time

import httpx2
import pytest

from chaos.campaign import spread
from chaos.deployment import LEASE_TTL_S, Stage, staged
from chaos.load import Load

HANG_S = 2.5 * LEASE_TTL_S
SERVED_S = 30.0  # 10 s until a silent connection is lost, a lease, and time for a machine under load
PARTITIONS = 6
ROUNDS = (("n1", "n2"), ("n2", "n3"))  # the owner of the home is in one of them, and each node goes on at least once
RUNS = 48  # of each probe
WORKERS_OF = re.compile(r'^tickwork_workers\{partition="(\d+)"\} (\d+)', re.MULTILINE)


async def workers_by_partition(stage: Stage, http: httpx2.AsyncClient) -> dict[int, int]:
    """As the owner of each partition counts them."""
    texts = [(await http.get(f"{node.url}/metrics")).text for node in stage.nodes]
    return {int(partition): int(count) for text in texts for partition, count in WORKERS_OF.findall(text)}


async def probe(load: Load, rng: random.Random, missing: set[tuple[int, str]]) -> None:
    """New runs complete; takes out of `missing` which worker ran one of which partition."""
    for run in await load.submit(["one"] * RUNS, rng):
        while "ended_at" not in (detail := await load.ask("GET", f"/v1/runs/{run}", None, rng)):
            await asyncio.sleep(0.02)
        assert detail["state"] == "completed", detail
        missing.discard((int(detail["number"]) >> 44, detail["tasks"][0]["attempts"][-1]["worker"]))


async def until_served(stage: Stage, load: Load, http: httpx2.AsyncClient, rng: random.Random) -> float:
    """Seconds until every worker runs tasks of every partition; each run on the way completes."""
    names = [worker.name for worker in stage.workers]
    every = dict.fromkeys(range(PARTITIONS), len(names))
    missing = {(partition, name) for partition in every for name in names}
    began = time.monotonic()
    try:
        async with asyncio.timeout(SERVED_S):
            while missing or await workers_by_partition(stage, http) != every:
                await probe(load, rng, missing)
    except TimeoutError:
        counted = await workers_by_partition(stage, http)
        raise AssertionError(f"after {SERVED_S:g} s: not served {sorted(missing)}, workers {counted}") from None
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.proves("F3")
async def test_every_worker_serves_every_partition_again_after_two_of_three_nodes_hung(tmp_path):
    rng = random.Random(1)
    async with (
        staged(tmp_path, nodes=3, workers=2, partitions=PARTITIONS) as stage,
        httpx2.AsyncClient(timeout=10, trust_env=False) as http,
    ):
        load = Load([node.url for node in stage.nodes], rate=0, seed=1)
        await stage.until_settled()
        await spread(stage, load)
        await until_served(stage, load, http, rng)
        pids = {worker.pid for worker in stage.workers}

        for names in ROUNDS:
            hung = [stage.node(name) for name in names]
            for node in hung:
                node.program.pause()
                node.peers.drop()  # so that each worker is opening a connection when it learns of the new owners
            alive = Load([node.url for node in stage.nodes if node not in hung], rate=0, seed=1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANG_S):  # clients need every partition meanwhile
                    while True:
                        await alive.submit(["one"] * RUNS, rng)
            await alive.close()
            for node in hung:
                node.program.resume()
            print(f"{names}: served after {await until_served(stage, load, http, rng):.1f} s")

        assert {worker.pid for worker in stage.workers} == pids and all(worker.alive for worker in stage.workers)
        assert load.wrong == []
        await load.close()
