"""A cluster from the command line: real nodes, a real PostgreSQL, a token, and processes that come and go."""

import signal
import time

import pytest

from servers import crashable_postgres, pgbouncer_before
from terminal import Terminal, free_port
from tickwork.cli.exit_codes import Exit

TOKEN = "long-and-random-for-this-test"


@pytest.fixture(scope="module")
def database():
    with crashable_postgres() as server:
        yield server


@pytest.fixture
def pooled(database):
    with pgbouncer_before(database) as dsn:
        yield f"{dsn}&schema=pooled"


@pytest.fixture
def terminal(tmp_path, database):
    found = Terminal(tmp_path)
    found.env.update(TICKWORK_TOKEN=TOKEN, TICKWORK_LEASE_TTL="3s")
    found.dsn = database.dsn
    try:
        yield found
    finally:
        found.close()


def node(terminal, name, *words):
    port = free_port()
    program = terminal.start("server", "--store", terminal.dsn, "--port", str(port), "--node", name, *words)
    program.until("tickwork server: ")
    return program, f"http://127.0.0.1:{port}"


def owners(terminal, url):
    found = terminal.json("cluster", "--url", url)
    return {one["partition"]: one.get("node", "") for one in found["partitions"]}


def until(true, *, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.mark.proves("S000-18", "S000-28", "S000-34", "F1")
@pytest.mark.parametrize("behind", ["nothing", "pooled"])
def test_nodes_share_the_work_and_replace_each_other(terminal, behind, request):
    if behind == "pooled":
        terminal.dsn = request.getfixturevalue("pooled")
    first, a = node(terminal, "a", "--partitions", "4")
    second, b = node(terminal, "b")
    until(lambda: set(owners(terminal, a).values()) == {"a", "b"})
    assert owners(terminal, a) == owners(terminal, b)
    worker = terminal.start("worker", "app.py", "--url", f"{a},{b}")
    worker.until("serves app.py")

    assert "HELLO YOU" in terminal.run("run", "greet", "--url", a).stdout
    assert terminal.run("cluster", "spread", "4", "--url", b).returncode == 0
    for place in range(6):
        assert "HELLO" in terminal.run("run", "greet", "--input", f"name=n{place}", "--url", (a, b)[place % 2]).stdout
    runs = terminal.json("runs", "--url", b)["runs"]
    assert len(runs) == 7 and {run["state"] for run in runs} == {"completed"}
    assert len({int(run["number"]) >> 44 for run in runs}) > 1

    first.signal(signal.SIGKILL)
    first.ended()
    assert "HELLO YOU" in terminal.run("run", "greet", "--url", b).stdout  # waits for whoever takes over
    until(lambda: set(owners(terminal, b).values()) == {"b"})
    shown = terminal.run("cluster", "--url", b)
    assert "owns" in shown.stdout and "runs in 4 of 4 partitions" in shown.stdout

    second.signal(signal.SIGTERM)
    assert second.ended() == 0


def test_one_server_of_several_processes(terminal):
    port = free_port()
    server = terminal.start("server", "--store", terminal.dsn, "--port", str(port), "--node", "c", "--processes", "2")
    server.until("tickwork server: ", count=2)
    url = f"http://127.0.0.1:{port}"
    until(lambda: set(owners(terminal, url).values()) == {"c-1", "c-2"})
    terminal.start("worker", "app.py", "--url", url).until("serves app.py")
    assert "HELLO YOU" in terminal.run("run", "greet", "--url", url).stdout

    other = terminal.run("server", "--store", f"{terminal.dsn}?schema=other", "--port", str(port), "--processes", "2")
    assert other.returncode == Exit.SETTINGS and f"cannot listen on 127.0.0.1:{port}" in other.stderr

    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    assert TOKEN not in server.text and "Traceback" not in server.text


def test_after_an_outage_of_all_nodes_one_looks_into_their_store(terminal):
    one, url = node(terminal, "only")
    worker = terminal.start("worker", "app.py", "--url", url)
    worker.until("serves app.py")
    put = ("schedules", "put", "often", "--workflow", "greet", "--every", "1s", "--catch-up", "all", "--url", url)
    until(lambda: terminal.run(*put).returncode == 0)
    for program in (worker, one):
        program.signal(signal.SIGTERM)
        program.ended()

    def late() -> int:
        found = terminal.json("catchup", "--preview", "--data", terminal.dsn)["schedules"]
        return found[0]["late"] if found else 0

    until(lambda: late() >= 3)
    terminal.env["TICKWORK_STORE"] = terminal.dsn
    shown = terminal.run("catchup", "--preview", "--policy", "last")

    assert shown.returncode == 0 and "often" in shown.stdout, shown.stderr
    assert "no server is running; reading from postgresql://" in shown.stderr


def test_what_is_wrong_is_said_at_the_start(terminal):
    for words, said in (
        (["--store", "mysql://x/y"], "store"),
        (["--store", terminal.dsn, "--role", "chief"], "role"),
        (["--store", terminal.dsn, "--lease-ttl", "10ms"], "lease_ttl"),
        (["--store", terminal.dsn, "--host", "0.0.0.0"], "advertise"),
        (["--processes", "2"], "--store"),
        (["--processes", "0"], "--processes"),
        (["--role", "api"], "--store"),
    ):
        done = terminal.run("server", "--port", "0", *words)
        assert done.returncode == Exit.SETTINGS, (words, done.stderr)
        assert said in done.stderr and "Traceback" not in done.stderr
