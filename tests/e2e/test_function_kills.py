"""Random programs of durable functions with a real server and workers that are killed, and with new code in between.

Every run returns the sum of its parts, and the journal has one outcome for each position: nothing is lost or doubled.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

import function_programs
from servers import end, free_port
from sim.function_scenario import outcomes_are_recorded_once
from tickwork.stores.sqlite.store import SqliteStore

SOURCE = Path(__file__).parents[2] / "src"
RUNS, MESSAGES = 6, 6
PATIENCE_S = 60
APP = """
import asyncio, random
import function_programs


class Outside:
    async def work(self, name):
        await asyncio.sleep(random.random() / 20)

    def fails(self):
        return random.random() < 0.3


globals().update(vars(function_programs.make(CODE, Outside())))
"""


class Processes:
    """A server and two workers, each of which is started again when it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.code = 1
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        shutil.copy(function_programs.__file__, folder)

    def start(self, name: str) -> None:
        (self._folder / "app.py").write_text(APP.replace("CODE", str(self.code)))
        server = ("server", "--data", "data", "--port", str(self._port))
        command = server if name == "server" else ("worker", "app.py", "--url", self.url, "--name", name)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TICKWORK_")}
        env = kept | {"PYTHONPATH": str(SOURCE), "TICKWORK_UNPROTECTED": "true"}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "tickwork", *command], cwd=self._folder, env=env, stdout=log, stderr=log
            )

    def kill(self, *names: str) -> None:
        for name in names:
            self._running[name].send_signal(signal.SIGKILL)
        for name in names:
            self._running[name].wait()
            self.start(name)

    def end(self) -> None:
        for process in reversed(self._running.values()):
            end(process)


async def insist(client: httpx2.AsyncClient, method: str, path: str, body: Any = None) -> httpx2.Response:
    """Ask until there is an answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, f"{method} {path} is not answered"
        with contextlib.suppress(httpx2.HTTPError):
            answer = await client.request(method, path, json=body)
            if answer.status_code not in (404, 503) or (method == "POST" and path == "/v1/events"):
                return answer
        await asyncio.sleep(0.1)


async def see_through(client: httpx2.AsyncClient, number: int, given: dict[str, Any], chance: random.Random) -> None:
    """Submit a program, send its messages, and compare what it returns."""
    body = {"workflow": "rounds", "inputs": given, "key": f"run-{number}"}
    run = (await insist(client, "POST", "/v1/runs", body)).json()["id"]
    for message in range(MESSAGES):
        await asyncio.sleep(chance.choice([0, 0, 1.5]))
        name = chance.choice(function_programs.MESSAGES)
        await insist(client, "POST", "/v1/events", {"event": name, "run": run, "payload": message})
    deadline = time.monotonic() + PATIENCE_S
    while (detail := (await insist(client, "GET", f"/v1/runs/{run}")).json())["state"] not in ("completed", "failed"):
        assert time.monotonic() < deadline, detail
        await asyncio.sleep(0.2)
    assert detail["state"] == "completed", detail
    assert (await insist(client, "GET", f"/v1/runs/{run}/output")).json() == function_programs.result(given)


async def strike(processes: Processes, chance: random.Random) -> None:
    """Kill everything once, alone and together; halfway the new code is deployed."""
    for names in (("worker-1",), ("server",), ("worker-2",), ("server", "worker-1", "worker-2")):
        await asyncio.sleep(chance.uniform(0.5, 1.5))
        processes.code += names == ("worker-2",)
        processes.kill(*names)
    processes.kill("worker-1")


@pytest.mark.slow
async def test_programs_return_the_sum_of_their_parts_though_everything_is_killed(tmp_path):
    chance = random.Random(int(os.environ.get("TICKWORK_SEED", "7")))
    programs = [
        function_programs.inputs(chance, leaves=chance.randint(2, 7), messages=MESSAGES, pause_ms=600)
        for _ in range(RUNS)
    ]
    processes = Processes(tmp_path)
    for name in ("server", "worker-1", "worker-2"):
        processes.start(name)
    try:
        async with httpx2.AsyncClient(base_url=processes.url, timeout=10) as client:
            assert (await insist(client, "GET", "/v1/workflows/rounds")).status_code == 200
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(strike(processes, chance))
                for number, given in enumerate(programs):
                    tasks.create_task(see_through(client, number, given, random.Random(number)))
    finally:
        processes.end()
    store = SqliteStore(tmp_path / "data" / "tickwork.db")
    await store.open()
    try:
        head = await store.read_head(0)
        rows = await store.journal(0, after=0, limit=head.seq)
        assert list(outcomes_are_recorded_once(rows)) == []
    finally:
        await store.close()
