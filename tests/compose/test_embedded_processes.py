"""Applications in four processes of a real uvicorn, each with the engine in it, on one store."""

# ruff: noqa: F811 - fixtures have the names of the imports

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import asyncpg
import httpx2
import pytest

from servers import end, free_port, postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.cluster.placement import home_of

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
TOKEN = "for-this-test-only-0123456789"
OWNER = "select address from tickwork.leases where partition_id = $1"


class Application:
    """Four processes behind one port. Each request has a connection of its own, so that any process may get it."""

    def __init__(self, url):
        self.url = url

    async def ask(self, method, path, *, until=200):
        """Until the answer has this status: a process may die with the request in its hands, and others start."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(httpx2.TransportError):
                async with httpx2.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
                    answer = await client.request(method, f"{self.url}{path}")
                    if answer.status_code == until:
                        return answer.json() if answer.is_success else None
            assert time.monotonic() < deadline, f"{method} {path} is not answered"
            await asyncio.sleep(0.05)

    async def processes(self, count, method, path, **more):
        """Ask until so many processes have answered."""
        deadline, seen = time.monotonic() + PATIENCE_S, Counter()
        while len(seen) < count:
            assert time.monotonic() < deadline, f"only {seen} answered"
            answers = await asyncio.gather(*(self.ask(method, path.format(len(seen), n), **more) for n in range(8)))
            seen.update(answer["process"] for answer in answers)
        return seen


@contextlib.contextmanager
def four_processes(app, folder, **env):
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--workers", "4", "--port", str(port), "--log-level", "warning"]
    paths = f"{ROOT / 'src'}:{ROOT / 'examples'}:{Path(__file__).parent}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            command, cwd=folder, env=kept | {"PYTHONPATH": paths} | env, stdout=said, stderr=said
        )
        try:
            yield Application(f"http://127.0.0.1:{port}")
        finally:
            end(running)
            print((folder / "said").read_text()[-3_000:])


@pytest.mark.slow
async def test_four_processes_share_a_folder_and_go_on_when_its_owner_is_killed(tmp_path):
    data = tmp_path / "data"
    with four_processes("four_processes:app", tmp_path, FOLDER=str(data)) as application:
        await application.processes(4, "GET", "/submit/warm-{}-{}")
        owner = json.loads((data / "owner").read_bytes())["pid"]
        keys = [f"run-{number}" for number in range(60)]
        submitting = asyncio.gather(*(application.ask("GET", f"/submit/{key}") for key in keys[:30]))
        await asyncio.sleep(0.1)
        os.kill(owner, signal.SIGKILL)
        first = await submitting
        second = await asyncio.gather(*(application.ask("GET", f"/submit/{key}") for key in keys))
        results = await asyncio.gather(*(application.ask("GET", f"/result/{answer['run']}") for answer in second))

        assert [answer["run"] for answer in first] == [answer["run"] for answer in second[:30]], "one key is one run"
        assert len({answer["run"] for answer in second}) == 60
        assert json.loads((data / "owner").read_bytes())["pid"] != owner
        assert len({answer["worked"] for answer in results}) > 1, "the tasks run in all processes"
        await application.processes(4, "GET", f"/result/{second[0]['run']}")


def listening(pid):
    """The ports that a process listens on."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.slow
async def test_the_shop_of_the_examples_loses_and_doubles_no_order_when_the_owner_is_killed(tmp_path, postgres, schema):
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"create database {schema}")
    await connection.close()
    dsn = postgres.rpartition("/")[0] + f"/{schema}"
    with four_processes("shop_asgi:app", tmp_path, DATABASE_URL=dsn, TICKWORK_TOKEN=TOKEN) as application:
        seen = await application.processes(4, "POST", "/orders?item=lamp", until=201)
        await application.ask("POST", "/orders?item=nothing", until=422)
        connection = await asyncpg.connect(dsn)
        address = await connection.fetchval(OWNER, home_of("default", 8))
        owner = next(pid for pid in seen if int(address.rpartition(":")[2]) in listening(pid))
        ordering = asyncio.gather(*(application.ask("POST", "/orders?item=desk", until=201) for _ in range(30)))
        await asyncio.sleep(0.05)
        os.kill(owner, signal.SIGKILL)
        await ordering
        orders = {row["id"] for row in await connection.fetch("select id from orders")}

        async def runs():
            url = await connection.fetchval(OWNER, home_of("default", 8))
            with contextlib.suppress(httpx2.TransportError):
                async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False) as client:
                    answer = await client.get(f"{url}/v1/runs?limit=500")
                    return answer.json()["runs"] if answer.status_code == 200 else []
            return []

        deadline = time.monotonic() + PATIENCE_S
        while len(found := await runs()) < len(orders) or any(run["state"] != "completed" for run in found):
            assert time.monotonic() < deadline, f"not every order was confirmed: {Counter(r['state'] for r in found)}"
            await asyncio.sleep(0.2)
        await connection.close()

        assert len(orders) >= 38
        assert sorted(run["key"] for run in found) == sorted(f"order-{number}" for number in orders)
