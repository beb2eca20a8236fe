"""Brokers that tests start themselves: one of each kind in a pytest process, names of its own for each test.

Each can be killed and started again on the same port and data, so that tests can take it away.
"""

import asyncio
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

from servers import free_port


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

    def freeze(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

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


OWN_RABBIT = Path(__file__).parent.parent / ".tools" / "rabbitmq"


class Rabbit(Server):
    """Debian's program, with everything in a folder of its own: node name, ports, cookie, port mapper. `root` is where
    its packages are unpacked: the machine itself, or what tools/servers.py made."""

    timeout_s = 60.0

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder)
        self.root = root
        self.mapper_port = free_port()
        self.mapper: subprocess.Popen | None = None
        (folder / "plugins").write_text("[].\n")

    def command(self) -> list[str]:
        return [str(self.root / "usr/lib/rabbitmq/bin/rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        folder, name = self.folder, f"tickwork{os.getpid()}@localhost"
        return {
            "PATH": f"{self.root / 'usr/lib/erlang/bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self.mapper_port),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none-env"),
        }

    def start(self) -> None:
        if self.mapper is None:  # ours, so that none is left behind as a daemon
            program = str(self.root / "usr/lib/erlang/bin/epmd")
            words = [program, "-port", str(self.mapper_port), "-address", "127.0.0.1"]
            self.mapper = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for_port(self.mapper_port, self.mapper, self.folder / "plugins", 5)
        super().start()

    def end(self) -> None:
        self.kill()
        if self.mapper is not None:
            self.mapper.kill()
            self.mapper.wait()

    def url(self, name: str, port: int = 0) -> str:
        return f"amqp://guest:guest@127.0.0.1:{port or self.port}/?lane={name}"


@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory):
    roots = [root for root in (Path("/"), OWN_RABBIT) if (root / "usr/lib/rabbitmq/bin/rabbitmq-server").exists()]
    if not roots:
        pytest.skip("RabbitMQ is not to be had here: python3 tools/servers.py says why")
    server = Rabbit(tmp_path_factory.mktemp("rabbit"), roots[0])
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(server.folder / "data", ignore_errors=True)


class Cable:
    """Between a client and a server that starts slowly: cut instead of killed."""

    def __init__(self, port: int) -> None:
        self.target, self.port = port, free_port()
        self._server: asyncio.Server | None = None
        self._wires: set[asyncio.StreamWriter] = set()
        self._jobs: set[asyncio.Task] = set()

    async def join(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)

    async def cut(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for wire in list(self._wires):
            wire.transport.abort()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # nobody there: the client sees its connection end
            writer.transport.abort()
            return
        self._wires |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            job = asyncio.ensure_future(self._pass_on(source, sink))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()
            self._wires.discard(sink)


MOCK = """
import sys
from confluent_kafka import Producer
brokers = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
[one] = brokers.list_topics(timeout=20).brokers.values()
print(f"{one.host}:{one.port}", flush=True)
sys.stdin.read()
"""


class MockKafka:
    """The brokers that Kafka's C client brings for tests, in a process of their own: they speak the protocol, keep all
    in memory, and can be frozen."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the mock brokers did not start"

    def url(self, name: str) -> str:
        return f"kafka://{self.address}/{name}"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.thaw()
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def kafka_server():
    server = MockKafka()
    yield server
    server.end()
