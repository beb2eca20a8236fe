"""The real server is killed at every durable step, again and again, under load: nothing acknowledged is lost."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from pathlib import Path

import httpx2
import pytest

from tickwork.core.base.errors import TickworkError
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state.events import TaskSucceeded
from tickwork.journal.record import GENESIS, unseal
from tickwork.journal.replay import replay
from tickwork.protocol.worker_messages import AttemptJob, Catalog, NodeSpec, Succeeded
from tickwork.runtime.partition.recovery import recover, settings_of
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import SystemClock, SystemIds
from tickwork.worker.agent import Agent
from tickwork.worker.http_link import HttpLink

FAILPOINTS = (
    "before_commit", "after_head", "after_journal", "before_commit_statement", "after_commit", "before_rows",
    "mid_rows", "after_rows", "before_checkpoint", "after_checkpoint", "claim", "none",
)  # fmt: skip
# Rows follow once a second under load, and a checkpoint after some megabytes; a life without one is killed anyway.
HITS_MAX = {"claim": 1, "before_checkpoint": 1, "after_checkpoint": 1, "before_rows": 3, "mid_rows": 3, "after_rows": 3}
DOCUMENTS = [
    {"name": "one", "format": 1, "nodes": [{"kind": "task", "id": "a", "handler": "noop"}]},
    {
        "name": "graph",
        "format": 1,
        "nodes": [
            {"kind": "task", "id": "root", "handler": "noop"},
            *({"kind": "task", "id": f"n{n}", "handler": "noop", "needs": ["root"]} for n in range(3)),
            {"kind": "wait", "id": "rest", "duration_ms": 30, "needs": ["n0", "n1", "n2"]},
            {"kind": "task", "id": "join", "handler": "noop", "needs": ["rest"]},
        ],
    },
]


class Hands:
    """An executor that does everything at once and keeps a ledger of what it began."""

    kinds = frozenset({"task"})
    slots = 50
    isolation = "none"

    def __init__(self) -> None:
        self.begun: dict[tuple[int, int], int] = {}

    async def start(self, sink) -> Catalog:
        self.sink = sink
        return Catalog()

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        key = (work.task, work.attempt)
        self.begun[key] = self.begun.get(key, 0) + 1
        self.sink.report(Succeeded(*key, b"\xc0", 1, 2))

    def saved(self, task: int, attempt: int) -> None: ...

    def stop(self, task: int, attempt: int) -> None: ...

    def recall(self) -> tuple[tuple[int, int], ...]:
        return ()

    async def close(self, *, grace_s: float) -> None: ...


class Servers:
    """One server after the other on the same folder and port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.port}"
        self.lives = 0

    async def begin(self) -> None:
        zygote = Path(__file__).parent / "zygote.py"
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(zygote), str(self.folder), str(self.port), stdin=pipe, stdout=pipe
        )

    async def live(self, failpoint: str, hits: int) -> int:
        self.process.stdin.write(f"{failpoint} {hits}\n".encode())
        self.lives += 1
        return int((await self.word("alive")).split()[1])

    async def word(self, word: str, *, seconds: float = 20) -> str:
        """The next line that begins so. A server that died before it was ready says only `dead`."""
        async with asyncio.timeout(seconds):
            while True:
                line = (await self.process.stdout.readline()).decode()
                assert line, "the zygote ended"
                if line.startswith((word, "dead")):
                    return line

    async def end(self) -> None:
        self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Client:
    """Submits with keys until it is acknowledged, whatever happens to the server."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self.client = httpx2.AsyncClient(base_url=url, timeout=5)
        self.rng = rng
        self.accepted: dict[str, str] = {}
        self.asked = 0
        self.over = False

    async def publish(self) -> None:
        await self._until("PUT", "/v1/workflows", {"documents": DOCUMENTS})

    async def submit_for_ever(self) -> None:
        while not self.over:
            self.asked += 1
            keys = [f"k{self.asked}-{place}" for place in range(self.rng.choice([1, 5, 20]))]
            runs = [{"workflow": self.rng.choice(["one", "one", "graph"]), "key": key} for key in keys]
            answer = await self._until("POST", "/v1/runs/batch", {"runs": runs})
            for key, run in zip(keys, answer["runs"], strict=True):
                known = self.accepted.setdefault(key, run["id"])
                assert known == run["id"], "one key, one run"
            await asyncio.sleep(0.01)  # a longer history makes every start longer, and proves no more

    async def _until(self, method: str, path: str, body: dict) -> dict:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                answer = await self.client.request(method, path, json=body)
                if answer.status_code < 300:
                    return answer.json()
                assert answer.status_code in (503, 507), answer.text
            await asyncio.sleep(0.01)


async def kill_and_go_on(folder: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    servers = Servers(folder)
    await servers.begin()
    client, hands = Client(servers.url, rng), Hands()
    link = HttpLink(servers.url)
    agent = Agent(link, [hands], clock=SystemClock(), ids=SystemIds(), name="w1")
    jobs = [asyncio.create_task(agent.run())]
    deaths: dict[str, int] = {}
    try:
        await servers.live("none", 1)
        await servers.word("ready")
        await client.publish()
        jobs.append(asyncio.create_task(client.submit_for_ever()))
        pid = None
        for kill in range(kills):
            if pid is None:  # the first server has no failpoint
                family = await current(servers)
                os.kill(family, signal.SIGKILL)
                await servers.word("dead")
            failpoint = FAILPOINTS[kill % len(FAILPOINTS)]
            hits = rng.randint(1, HITS_MAX.get(failpoint, 12))
            pid = await servers.live(failpoint, hits)
            await servers.word("ready")
            if failpoint in ("none", "before_checkpoint", "after_checkpoint"):
                await asyncio.sleep(rng.uniform(0.0, 0.15))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await dead(servers, pid)
            deaths[failpoint] = deaths.get(failpoint, 0) + 1
        pid = await servers.live("none", 1)
        await servers.word("ready")
        client.over = True
        await asyncio.wait_for(jobs[1], 20)
        await all_ended(client.client)
        await check(servers, client, hands)
        os.kill(pid, signal.SIGTERM)
    finally:
        for job in jobs:
            job.cancel()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        await link.close()
        await client.client.aclose()
        await servers.end()
    wrong = [one for one in results if isinstance(one, AssertionError | TickworkError)]
    assert not wrong, wrong
    assert sum(deaths.values()) == kills and set(deaths) == set(FAILPOINTS[: min(kills, len(FAILPOINTS))])
    await check_journal(folder, client)
    print(
        f"{kills} kills, {len(client.accepted)} runs acknowledged, {len(hands.begun)} attempts begun: lost 0, doubled 0"
    )


async def current(servers: Servers) -> int:
    children = Path(f"/proc/{servers.process.pid}/task/{servers.process.pid}/children").read_text().split()
    return int(children[0])


async def dead(servers: Servers, pid: int) -> None:
    if Path(f"/proc/{pid}").exists():
        await servers.word("dead")


async def all_ended(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while (await client.get("/v1/status")).json()["live_runs"]:
            await asyncio.sleep(0.05)


async def check(servers: Servers, client: Client, hands: Hands) -> None:
    """Every acknowledged run is there and complete; nothing was begun twice under one number."""
    found: dict[str, str] = {}
    cursor = ""
    while True:
        page = (
            await client.client.get("/v1/runs", params={"limit": 200, **({"cursor": cursor} if cursor else {})})
        ).json()
        found |= {run["id"]: run["state"] for run in page["runs"]}
        cursor = page.get("next", "")
        if not cursor:
            break
    lost = [run for run in client.accepted.values() if found.get(run) != "completed"]
    assert not lost, f"{len(lost)} of {len(client.accepted)} acknowledged runs are lost: {lost[:3]}"
    assert len(client.accepted) > 50, "too little was accepted for a verdict"
    assert max(hands.begun.values()) == 1, "an attempt was begun twice"


async def check_journal(folder: Path, client: Client) -> None:
    """The chain verifies, decides the same again, and no task has two accepted results."""
    store = SqliteStore(folder / "tickwork.db")
    await store.open()
    try:
        head = await store.read_head(0)
        rows = await store.journal(0, after=0, limit=head.seq)
        loaded = await store.load(0)
        machine = Machine(settings=settings_of(loaded.settings))
        assert replay(rows, machine) == head.hash
        recovered, *_ = await recover(store, 0)
        assert digest(recovered.state) == digest(machine.state)
        accepted: dict[int, int] = {}
        before = GENESIS
        for sealed in rows:
            for event in unseal(sealed, before).events:
                if isinstance(event, TaskSucceeded):
                    accepted[event.task] = accepted.get(event.task, 0) + 1
            before = sealed.hash
        assert max(accepted.values()) == 1, "a result was accepted twice"
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.proves("F1", "I1", "I12", "I25", "I27", "I29", "S001-36", "S001-38")
@pytest.mark.parametrize("half", [1, 2])
async def test_two_hundred_kills_at_each_durable_step_lose_nothing_and_double_nothing(tmp_path, half):
    await kill_and_go_on(tmp_path, kills=108, seed=half)
