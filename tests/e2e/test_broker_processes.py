"""Server, workers and a real broker as processes: work goes over it while each of them is killed once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from servers import free_port
from servers_brokers import nats_server, rabbit_server  # noqa: F401
from tickwork.sdk.client.connection import LocalBearer

APP = """
import time
from tickwork import task, workflow

@task(retries=5)
def work(number: int) -> int:
    time.sleep(0.01)
    return number

@workflow
def flow(number: int):
    return work(number)
"""


class Programs:
    def __init__(self, folder: Path, lane: str) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "app.py").write_text(APP)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")},
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "TICKWORK_DATA": str(folder / "data"),
            "TICKWORK_PORT": str(self.port),
            "TICKWORK_LANE": lane,
            "TICKWORK_LANE_UNTAKEN_S": "5",
            "TICKWORK_PROCESSES": "2",
        }
        self.running: list[subprocess.Popen] = []
        self.client = httpx2.Client(base_url=self.url, timeout=10, trust_env=False, auth=LocalBearer())

    def start(self, *words: str, **env: str) -> subprocess.Popen:
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tickwork", *words], cwd=self.folder, env=self.env | env, stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def until(self, true, what: str, seconds: float = 60) -> None:
        ends = time.monotonic() + seconds
        while True:
            try:
                if true():
                    return
            except httpx2.TransportError:
                pass
            assert time.monotonic() < ends, f"{what}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(f"{one.name}: {one.read_text()[-1500:]}" for one in self.folder.glob("*.log"))

    def submit(self, count: int, first: int) -> list[str]:
        runs = [{"workflow": "flow", "inputs": {"number": number}} for number in range(first, first + count)]
        answer = self.client.post("/v1/runs/batch", json={"runs": runs})
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["runs"]]

    def completed(self, ids: list[str]) -> bool:
        return all(self.client.get(f"/v1/runs/{one}").json()["state"] == "completed" for one in ids)

    def end(self) -> None:
        self.client.close()
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(params=["nats_server", pytest.param("rabbit_server", marks=pytest.mark.slow)])
def broker(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def programs(tmp_path, broker):
    programs = Programs(tmp_path, broker.url("processes"))
    yield programs
    programs.end()


@pytest.mark.proves("F2", "F4", "F19", "F20")
def test_nothing_is_lost_while_worker_broker_and_server_are_killed_in_turn(programs, broker):
    server = programs.start("server")
    programs.until(lambda: programs.client.get("/v1/workers").status_code == 200, "the server did not start")
    first = programs.start("worker", "app.py", TICKWORK_WORKER="w1")
    programs.start("worker", "app.py", TICKWORK_WORKER="w2")
    programs.until(lambda: len(programs.client.get("/v1/workers").json()["workers"]) == 3, "no workers")

    ids = programs.submit(1, 0)
    programs.until(lambda: programs.completed(ids), "the first was not done")
    time.sleep(1.5)  # a queue that RabbitMQ made less than a second before it is killed may be lost (docs/brokers.md)
    ids += programs.submit(99, 1)
    first.send_signal(signal.SIGKILL)
    broker.kill()
    ids += programs.submit(50, 100)
    broker.start()
    server.send_signal(signal.SIGKILL)
    server.wait()
    programs.start("server")
    programs.until(lambda: programs.client.get("/v1/workers").status_code == 200, "the server did not come back")
    ids += programs.submit(50, 150)

    programs.until(lambda: programs.completed(ids), "not all of it was done")
    named = [one["id"] for one in programs.client.get("/v1/workers").json()["workers"]]
    assert "lane:main" in named
    outputs = [programs.client.get(f"/v1/runs/{one}").json()["output"] for one in ids]
    assert sorted(outputs) == list(range(200))
