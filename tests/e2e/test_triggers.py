"""Events that start runs, with a real server that is killed while they come, and from the command line."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from servers import end, free_port

SOURCE = Path(__file__).parents[2] / "src"
EVENTS, PATIENCE_S = 60, 60
APP = """
import tickwork as tw


@tw.task
def note(event: dict) -> int:
    return event["n"]


@tw.workflow(schedule=tw.on(tw.incoming("order", where="event.n >= 0")))
def each(event: dict) -> int:
    return note(event)


@tw.task
def number(because: list) -> int:
    return len(because)


@tw.workflow(schedule=tw.on(tw.ended(each), updates="coalesce", overlap="buffer_one"))
def after(because: list) -> int:
    return number(because)
"""


class Server:
    """A server with a worker, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        (folder / "app.py").write_text(APP)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        server = ("server", "--data", "data", "--port", str(self._port))
        command = server if name == "server" else ("worker", "app.py", "--url", self.url, "--name", name)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "tickwork", *command], cwd=self._folder, env=self.env, stdout=log, stderr=log
            )

    @property
    def env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TICKWORK_")}
        return kept | {"PYTHONPATH": str(SOURCE), "TICKWORK_UNPROTECTED": "true"}

    def kill(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGKILL)
        self._running[name].wait()
        self.start(name)

    def run(self, *command: str) -> str:
        whole = [sys.executable, "-m", "tickwork", *command]
        env = self.env | {"TICKWORK_URL": self.url}
        return subprocess.run(whole, env=env, capture_output=True, text=True, timeout=60, check=True).stdout

    def end(self) -> None:
        for process in reversed(self._running.values()):
            end(process)


@pytest.fixture
def server(tmp_path):
    made = Server(tmp_path)
    for name in ("server", "worker"):
        made.start(name)
    try:
        yield made
    finally:
        made.end()


async def insist(client: httpx2.AsyncClient, method: str, path: str, body=None):
    """The answer, however often it takes: a request that got none is repeated."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, f"{method} {path} is not answered"
        with contextlib.suppress(httpx2.HTTPError):
            answer = await client.request(method, path, json=body)
            if answer.status_code == 200:
                return answer.json()
        await asyncio.sleep(0.05)


async def until(found):
    deadline = time.monotonic() + PATIENCE_S
    while not (value := await found()):
        assert time.monotonic() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.1)
    return value


@pytest.mark.slow
async def test_events_that_were_accepted_before_a_kill_start_one_run_each(server):
    async with httpx2.AsyncClient(base_url=server.url, timeout=10) as client:
        await insist(client, "GET", "/v1/schedules/after")

        async def send(n):
            await asyncio.sleep(n / 40)
            for _ in range(2):  # whoever got no answer sends it again; so does this one
                await insist(client, "POST", "/v1/events", {"event": "order", "payload": {"n": n}, "id": f"o-{n}"})

        async with asyncio.TaskGroup() as tasks:
            for n in range(EVENTS):
                tasks.create_task(send(n))
            await asyncio.sleep(0.8)
            server.kill("server")

        async def done():
            status = await insist(client, "GET", "/v1/schedules/after")
            each = await insist(client, "GET", "/v1/runs?workflow=each&state=completed&limit=500")
            waiting = status.get("active", 0) + status["updates"].get("waiting", 0)
            return each["runs"] if len(each["runs"]) >= EVENTS and not waiting else None

        runs = await until(done)
        outputs = Counter([await insist(client, "GET", f"/v1/runs/{run['id']}/output") for run in runs])
        assert outputs == Counter(range(EVENTS)), "an event was lost, or started two runs"
        every = (await insist(client, "GET", "/v1/runs?workflow=each&limit=500"))["runs"]
        assert len(every) == EVENTS
        heard = await insist(client, "GET", "/v1/schedules/after")
        fates = heard["fates"]
        assert fates["ran"] + fates.get("coalesced", 0) == heard["updates"]["count"] == EVENTS
        status = await insist(client, "GET", "/v1/status")
        assert status.get("ledger_differences", 0) == 0

    put = ("schedules", "put", "paid", "--workflow", "each", "--event", "paid", "--where", "event.n > 5")
    assert "on event paid where event.n > 5" in server.run(*put)
    assert "1 schedule heard it" in server.run("signal", "paid", "--payload", '{"n": 7}', "--id", "p-1")
    assert "came before" in server.run("signal", "paid", "--payload", '{"n": 7}', "--id", "p-1")
    assert "updates 1, 0 waiting" in server.run("schedules", "show", "paid")
    server.run("schedules", "put", "data", "--workflow", "after", "--asset", "orders", "--asset", "rates", "--together")
    assert "1 schedules heard it" in server.run("assets", "update", "orders", "--partition", "01")
    assert "01" in server.run("assets", "show", "orders") and "consumed by data" in server.run(
        "assets", "show", "orders"
    )
    assert "rates" in server.run("assets")
    assert "missing asset rates" in server.run("schedules", "show", "data")
