"""Brokers that tests start themselves: one of each kind in a pytest process, names of its own for each test.

Each can be killed and started again on the same port and data, so that tests can take it away.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, process: subprocess.Popen, log: Path, timeout_s: float) -> None:
    ends = time.monotonic() + timeout_s
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            return
        time.sleep(0.02)
    raise AssertionError(f"no answer on port {port}:\n{log.read_text()[-2000:]}")


class Server:
    """A process that listens on one port, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.log = folder / "log"
        self.process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    timeout_s = 10.0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), cwd=self.folder, start_new_session=True
            )
        wait_for_port(self.port, self.process, self.log, self.timeout_s)

    def kill(self) -> None:
        """At once, with everything that it started."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Nats(Server):
    def command(self) -> list[str]:
        program = Path(sys.executable).parent / "nats-server"
        data = self.folder / "data"
        return [str(program), "--addr", "127.0.0.1", "--port", str(self.port), "--jetstream", "--store_dir", str(data)]

    def url(self, name: str) -> str:
        return f"nats://127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory):
    server = Nats(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()
    shutil.rmtree(server.folder / "data", ignore_errors=True)
