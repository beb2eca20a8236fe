"""Both clients and the command line against a real server in this process: endpoints from file to history."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

import tickwork as tw
from tickwork.cli.main import main
from tickwork.core.calendar.durations import instant_ms
from tickwork.protocol import http_models as wire

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "endpoints.yaml"
WAIT_S = 40.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """It answers for itself: its health is what is called."""
    with tw.embedded(workflows=(), data=tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture
def served(server):
    yield server
    for one in server.endpoints():
        server.archive_endpoint(one.name)


@pytest.fixture
def cli(served, monkeypatch, capsys):
    monkeypatch.setenv("TICKWORK_URL", served.address.url)
    monkeypatch.setenv("TICKWORK_TOKEN", served.address.token)
    monkeypatch.setenv("COLUMNS", "200")  # ids and bodies on one line

    def run(*args, code=0):
        capsys.readouterr()
        assert main(["endpoints", *args]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return run


def health(served) -> str:
    return f"{served.address.url}/healthz"


def test_an_endpoint_from_put_to_archive(served):
    told = served.put_endpoint(
        "alive", health(served), every=timedelta(hours=1), success="status == 200", headers={"X-A": "b"}, retries=1
    )
    run = served.trigger_endpoint("alive")
    assert served.wait(run, timeout=20).state == "completed"
    served.wait(served.test_endpoint("alive"), timeout=20)

    assert told.source == "baseline-interval" and {one.code for one in told.warnings} == {"address_refused"}
    assert [one.name for one in served.endpoints()] == ["alive"]
    test, call = served.endpoint_runs("alive", page_size=1)
    assert (call.id, call.source, call.status, call.body["status"]) == (run, "trigger", 200, "alive")
    assert test.source == "test" and served.endpoint("alive").last.id == run
    assert served.hint("alive", interval="1m", reason="look closer").governed.hints.reason == "look closer"
    served.archive_endpoint("alive")
    assert served.endpoints() == [] and [one.name for one in served.endpoints(archived=True)] == ["alive"]


def test_the_asynchronous_client_does_the_same(served):
    async def story():
        async with tw.AsyncClient(served.address.url, token=served.address.token) as client:
            await client.put_endpoint(
                "later", health(served), cron="0 6 * * *", timezone="Europe/Berlin", body={"a": 1}
            )
            run = await client.trigger_endpoint("later")
            await client.wait(run, timeout=20)
            await client.wait(await client.test_endpoint("later"), timeout=20)
            await client.apply_endpoints({"more": wire.EndpointRequest(url=health(served), every="1h")})
            names = [one.name for one in await client.endpoints()]
            calls = [call.source async for call in client.endpoint_runs("later")]
            shown = await client.endpoint("later")
            await client.archive_endpoint("more")
            return names, calls, shown

    names, calls, shown = asyncio.run(story())

    assert (names, calls) == (["later", "more"], ["test", "trigger"])
    assert (shown.cron, shown.timezone, shown.source) == ("0 6 * * *", "Europe/Berlin", "baseline-cron")


def test_the_command_line_tells_the_whole_story(served, cli):
    out = cli("put", "cli", health(served), "--every", "1h", "--header", "X-Team: stock", "--group", "shops")
    assert "cli: 1h after the start of each run; next" in out and "address_refused" in out
    run = cli("trigger", "cli").strip()
    served.wait(run, timeout=20)
    served.wait(cli("test", "cli").strip(), timeout=20)

    assert "trigger" in cli("history", "cli") and '"alive"' in cli("history", "cli", "--bodies")
    calls = json.loads(cli("history", "cli", "--json"))["runs"]
    assert [call["source"] for call in calls] == ["test", "trigger"] and calls[1]["id"] == run
    assert "X-Team: stock" in cli("show", "cli") and "GET http://127.0.0.1" in cli()
    told = cli("hint", "cli", "--every", "2m", "--reason", "look closer", "--cost", "7")
    assert "interval hint by " in told and "ai-" not in told + cli("show", "cli") + cli()
    assert "look closer" in cli("show", "cli") and "at a cost of 7" in cli("show", "cli")
    assert "baseline-interval" in cli("clear-hints", "cli")
    assert "paused" in cli("pause", "cli", "--until", "2200-01-01T00:00:00Z") and "paused until" in cli("list")
    assert "resumed" in cli("resume", "cli")
    assert "group shops: paused" in cli("pause", "--group", "shops")
    assert "group shops: resumed" in cli("resume", "--group", "shops")
    assert "failures reset" in cli("reset-failures", "cli")
    assert "archived" in cli("archive", "cli") and "cli" in cli("list", "--archived")
    assert "restored; next" in cli("restore", "cli") and "shops" not in cli("list", "--archived")
    assert "cli" in cli("list") and "not archived" in cli("restore", "cli", code=4)


def test_a_queue_for_endpoints_is_declared_and_paused(served, cli, monkeypatch, capsys):
    def queues(*args):
        capsys.readouterr()
        assert main(["queues", *args]) == 0
        return capsys.readouterr().out

    wanted = ("put", "apart", health(served), "--every", "1h", "--queue", "calls")
    assert "tickwork queues put" in cli(*wanted, code=3)
    assert "queue calls: declared" in queues("put", "calls", "--limit", "2", "--rate", "10", "--per", "1m")
    assert json.loads(cli(*wanted, "--json"))["source"] == "baseline-interval"
    assert "queue calls: paused" in queues("pause", "calls", "--reason", "repairs") and "paused" in queues()
    assert "queue calls: resumed" in queues("resume", "calls")
    [found] = [one for one in json.loads(queues("--json"))["queues"] if one["name"] == "calls"]
    assert (found["limit"], found.get("paused", False)) == (2, False)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("show", "nobody"), 3, "there is no endpoint"),
        (("put", "x", "http://a", "--every", "1h", "--min-interval", "2h", "--max-interval", "1h"), 4, "above the max"),
        (("put", "x", "http://there"), 4, "cron or every"),
        (("put", "x", "http://there", "--every", "1h", "--header", "nothing"), 2, "Name: value"),
        (("history", "x", "--limit", "-1"), 2, "Must be >= 1"),
        (("pause",), 2, "name one endpoint"),
        (("hint", "x"), 2, "--every, --at"),
        (("apply", "nowhere.yaml"), 3, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(cli, args, code, says):
    assert says in cli(*args, code=code)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: {url: 'http://x', every: 5m, retry: 1}", "a: Object contains unknown field `retry`"),
        ("a: {url: 'http://x', retries: many}", "a.retries: Expected `int`"),
        ("endpoints: {a: {url: 'http://x', every: 5m}}\nowner: me", "'owner' is next to"),
        ("[1, 2]", "it must be a mapping"),
        ("a: [", "(line 1)"),
        ("a: {url: 'http://x', every: 5m}\na: {url: 'http://y', every: 5m}", "'a' appears twice"),
        ("yes: {url: 'http://x', every: 5m}\n1: {url: 'http://y', every: 5m}", "appears twice"),
        ("yes: {url: 'http://x', every: 5m}", "put it in quotes"),
        ("a: &a {url: 'http://x', every: 5m, body: [*a]}", "nests deeper"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(cli, served, tmp_path, text, says):
    path = tmp_path / "set.yaml"
    path.write_text(text)

    assert says in cli("apply", str(path), code=4)
    assert served.endpoints() == []


def test_the_example_is_applied_as_a_whole_and_again_without_a_change(served, cli, tmp_path):
    path = tmp_path / "endpoints.yaml"
    path.write_text(EXAMPLE.read_text().replace("http://127.0.0.1:8440", served.address.url))
    cli("apply", str(path))
    before = {one.name: one.next_at for one in served.endpoints()}
    cli("apply", str(path))
    calls = [served.wait(served.test_endpoint(name), timeout=20) for name in before]

    assert {one.name: one.next_at for one in served.endpoints()} == before
    assert sorted(before) == ["health", "night_report", "queue_depth"]
    assert [one.state for one in calls] == ["completed"] * 3


# ---- as processes of their own


class Shop(ThreadingHTTPServer):
    """Counts who asks; the first answer waits until the test lets it go."""

    daemon_threads = True

    def __init__(self):
        self.asked, self.go = 0, threading.Event()
        super().__init__(("127.0.0.1", 0), Answering)


class Answering(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked += 1
        self.server.go.wait(WAIT_S)
        try:
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
        except OSError:
            pass  # whoever asked was killed

    def log_message(self, *_):
        pass


@contextmanager
def shop():
    with Shop() as found:
        serving = threading.Thread(target=found.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield found
        finally:
            found.go.set()
            found.shutdown()
            serving.join()


class Processes:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self.folder, self.stack, self.url = folder, stack, f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}
        more = {"PYTHONPATH": str(ROOT / "src"), "TICKWORK_URL": self.url, "TICKWORK_ALLOW_NETWORKS": "127.0.0.0/8"}
        self.env = kept | more

    def begin(self, *args: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "tickwork", *args]
        running = subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.stack.callback(self.kill, running)
        assert running.stdout.readline()  # it is ready
        return running

    def server(self) -> subprocess.Popen:
        return self.begin("server", "--port", self.port, "--data", "data")

    def worker(self, name: str) -> subprocess.Popen:
        return self.begin("worker", "--name", name)

    @staticmethod
    def kill(running: subprocess.Popen) -> None:
        running.kill()
        running.wait(WAIT_S)
        running.stdout.close()


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)
    return found


@pytest.mark.proves("S003-10", "S003-58", "S003-63")
def test_a_killed_worker_and_a_killed_server_lose_no_call_and_begin_none_twice(tmp_path):
    with ExitStack() as stack:
        there, here = stack.enter_context(shop()), Processes(tmp_path, stack)
        server, worker = here.server(), here.worker("w1")
        client = stack.enter_context(tw.Client(here.url, token="", deadline=WAIT_S))
        client.put_endpoint("shop", f"http://127.0.0.1:{there.server_port}/", every="1s", timeout="5m")
        until(lambda: there.asked == 1)
        here.kill(worker)  # in the middle of its call
        here.worker("w2")
        until(lambda: there.asked == 2)
        here.kill(server)  # in the middle of the same
        server = here.server()
        there.go.set()
        until(lambda: len([one for one in client.endpoint_runs("shop") if one.state == "completed"]) >= 3)
        client.pause_schedule("shop")
        until(lambda: not client.endpoint("shop").running)

        calls = list(reversed(list(client.endpoint_runs("shop", page_size=100))))
        due_ms = [instant_ms(one.scheduled_at, path="due") for one in calls]
        assert {one.state for one in calls} == {"completed"} and calls[0].attempt == 2
        assert {one.attempt for one in calls[1:]} == {1} and there.asked == len(calls) + 1
        assert len({one.id for one in calls}) == len(calls) == client.endpoint("shop").fates.ran
        assert all(later - earlier >= 1_000 for earlier, later in pairwise(due_ms))
