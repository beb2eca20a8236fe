"""The commands by which the documents start a cluster, on a real PostgreSQL."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import msgspec
import pytest

from servers import end, free_port, postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.ports import wire

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


@pytest.fixture
def database(postgres, schema):  # noqa: F811 - fixtures
    async def make():
        connection = await asyncpg.connect(postgres)
        try:
            await connection.execute(f"create database {schema}")
        finally:
            await connection.close()

    asyncio.run(make())
    return postgres.rpartition("/")[0] + f"/{schema}"


@pytest.fixture
def start(database, tmp_path):
    """A process that says in one line that it is ready; all are ended."""
    begun = []
    own = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}

    def begin(*words: str) -> tuple[subprocess.Popen, str]:
        env = own | ({"TICKWORK_STORE": database, "TICKWORK_PARTITIONS": "4"} if words[0] == "server" else {})
        with (tmp_path / f"err{len(begun)}").open("wb") as errors:
            command = [sys.executable, "-m", "tickwork", *words]
            process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        begun.append(process)
        line = process.stdout.readline()
        assert line, (tmp_path / f"err{len(begun) - 1}").read_text()
        return process, line

    yield begin
    for process in begun:
        end(process)
        process.stdout.close()


def ask(*words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}
    command = [sys.executable, "-m", "tickwork", *words]
    done = subprocess.run(command, env=own, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def cluster(url: str) -> wire.Cluster:
    return msgspec.json.decode(ask("cluster", "--json", "--url", url), type=wire.Cluster)


def settled(url: str, nodes: int) -> wire.Cluster:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = cluster(url)
        if len(found.nodes) == nodes and {one.node for one in found.partitions} == {one.node for one in found.nodes}:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


@pytest.mark.proves("S000-18", "S000-28")
def test_servers_on_one_database_are_a_cluster(start):
    first, second = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    alone, line = start("server", "--port", first.rpartition(":")[2], "--node", "a")
    assert line.startswith(f"tickwork server: {first} (node a, 4 of 4 partitions")
    start("server", "--port", second.rpartition(":")[2], "--processes", "2")
    start("worker", "examples/hello.py", "--url", f"{first},{second}")

    found = settled(second, 3)

    assert len(found.partitions) == 4
    assert "words on 3 pages" in ask("run", "hello", "--url", second)
    assert "home" in ask("cluster", "spread", "4", "--url", second)
    alone.send_signal(signal.SIGTERM)
    assert alone.wait(PATIENCE_S) == 0
    left = settled(second, 2)
    assert "a" not in {one.node for one in left.nodes}
    assert "words on 3 pages" in ask("run", "hello", "--url", second)
