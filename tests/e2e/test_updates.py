"""Updates and published values with a real server, worker and child process, through client, command line and HTTP."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

import tickwork as tw
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings

ROOT = Path(__file__).parents[2]
APP = """
import tickwork as tw


def work(n: int) -> int:
    return n + 1


@tw.durable
async def entity(ctx: tw.Durable, total: int = 0) -> int:
    while True:
        ctx.publish("total", total)
        message = await ctx.receive("add", "text", "fail", "stop", "quiet")
        if message.name == "add":
            if message["n"] < 0:
                message.refuse("no negative numbers")
                continue
            total = await ctx.step(work, total + message["n"] - 1)
            message.reply({"total": total})
        elif message.name == "text":
            ctx.publish("text", message.payload * 3)
            message.reply(message.payload * 2)
        elif message.name == "fail":
            message.reply("failing")
            raise tw.Permanent("as requested")
        elif message.name == "stop":
            message.reply(total)
            return total


@tw.workflow
def graph() -> None:
    tw.event("paid")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("updates")
    (folder / "app.py").write_text(APP)
    with EphemeralServer(Settings(data=str(folder / "data"), grace_s=2.0), str(folder / "app.py")) as running:
        yield running


@pytest.fixture
def client(server):
    with tw.Client(server.address, token=server.token) as found:
        yield found


def test_updates_are_replied_to_and_refused_by_the_function(client):
    run = client.submit("entity", id="replies")
    assert client.ask(run, "add", n=2, timeout=30) == {"total": 2}
    assert client.ask(run, "add", {"n": 3}, timeout=30) == {"total": 5}
    with pytest.raises(tw.UpdateRefused, match="no negative numbers"):
        client.ask(run, "add", n=-1, timeout=30)
    assert client.read(run, "total") == 5
    assert client.get(run).published == {"total": 5}
    assert any("update add" in step.text for step in client.why(run).steps)

    assert client.ask(run, "stop", key="end", timeout=30) == 5
    assert client.result(run, timeout=30) == 5
    assert client.ask(run, "stop", key="end") == 5
    assert client.read(run, "total") == 5
    with pytest.raises(tw.Conflict, match="is completed") as refused:
        client.ask(run, "add", n=1)
    assert refused.value.code == "run_ended"


def test_large_payloads_replies_and_values_arrive_whole(client):
    run, text = client.submit("entity", id="large"), "x" * 100_000
    assert client.ask(run, "text", text, timeout=30) == text * 2
    assert client.read(run, "text") == text * 3
    assert client.get(run).published["text"] is None


def test_a_missing_run_is_started_by_the_first_update(client):
    for expected in (11, 12):
        reply = client.ask("started", "add", n=1, start="entity", inputs={"total": 10}, timeout=30)
        assert reply == {"total": expected}
    with pytest.raises(tw.Refused) as refused:
        client.ask("missing", "add", n=1)
    assert refused.value.code == "unknown_run"


def test_many_callers_at_once_are_served_one_after_the_other(server):
    async def ask() -> list[int]:
        async with tw.AsyncClient(server.address, token=server.token) as client:
            await client.submit("entity", id="many")
            replies = await asyncio.gather(*(client.ask("many", "add", n=1, timeout=60) for _ in range(20)))
            return sorted(reply["total"] for reply in replies)

    assert asyncio.run(ask()) == list(range(1, 21))


def test_a_function_that_fails_has_replied_before(client):
    run = client.submit("entity", id="fails")
    assert client.ask(run, "fail", timeout=30) == "failing"
    assert client.wait(run, timeout=30).state == "failed"


def test_an_update_without_a_reply_says_how_to_ask_again_and_ends_with_the_run(client):
    run = client.submit("entity", id="quiet")
    with pytest.raises(tw.NoReply) as no_reply:
        client.ask(run, "quiet", timeout=0.3)
    assert client.ask(run, "stop", timeout=30) == 0
    with pytest.raises(tw.Conflict, match="is completed"):
        client.ask(run, "quiet", key=no_reply.value.key, timeout=30)


@pytest.mark.parametrize(
    ("run", "name", "body", "status", "code"),
    [
        ("graph", "add", {}, 422, "no_receiver"),
        ("refuses", "no name", {}, 422, "name_characters"),
        ("refuses", "add", {"wait_ms": 20_001}, 422, "bad_wait"),
        ("refuses", "add", {"payload": {"n": 1}, "key": "used"}, 409, "key_reused"),
    ],
)
def test_the_api_refuses_with_a_code(server, client, run, name, body, status, code):
    client.submit("graph", id="graph")
    client.submit("entity", id="refuses")
    with contextlib.suppress(tw.NoReply):
        client.ask("refuses", "quiet", key="used", timeout=0)
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = httpx2.post(f"{server.address}/v1/runs/{run}/updates/{name}", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_values_that_are_not_there_are_named(client):
    client.submit("entity", id="names")
    client.ask("names", "add", n=1, timeout=30)
    with pytest.raises(tw.Refused, match="it has published total"):
        client.read("names", "nothing")


def test_the_command_line_asks_and_reads(server):
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        env = {"PYTHONPATH": str(ROOT / "src"), "TICKWORK_URL": server.address, "TICKWORK_TOKEN": server.token}
        whole = [sys.executable, "-m", "tickwork", *command]
        return subprocess.run(whole, env=env, capture_output=True, text=True, timeout=60, check=False)

    asked = run("ask", "line", "add", "--input", "n=4", "--start", "entity", "--timeout", "30s")
    assert (asked.returncode, asked.stdout) == (0, '{"total":4}\n'), asked.stderr
    refused = run("ask", "line", "add", "--payload-json", '{"n": -1}', "--timeout", "30s")
    assert refused.returncode == 4
    assert "no negative numbers" in refused.stderr
    assert run("ask", "line", "quiet", "--timeout", "0s").returncode == 75
    assert run("read", "line", "total").stdout == "4\n"
    assert run("read", "line").stdout == '{"total":4}\n'
    assert run("read", "line", "nothing").returncode == 3
    assert "published total 4" in run("show", "line").stdout
