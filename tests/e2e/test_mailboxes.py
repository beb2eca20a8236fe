"""Mailboxes with a real server and worker: declared by an application, used by clients, listed, kept over a restart."""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

import tickwork as tw
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings

ROOT = Path(__file__).parents[2]
APP = """
from typing import Literal

import tickwork as tw

tw.mailbox("reply", keep="1d", max=2, fields={"text": str, "kind": Literal["good", "bad"], "more": list | None})
tw.mailbox("brief", keep="1s")


@tw.durable
async def takes(ctx: tw.Durable, number: str) -> str:
    return (await ctx.event("reply", key=number, timeout="1m"))["text"]


@tw.task
def text_of(reply: dict) -> str:
    return reply["text"]


@tw.workflow
def graph(number: str) -> str:
    return text_of(tw.event("reply", key=number))
"""


@pytest.fixture
def app(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def served(folder):
    return EphemeralServer(Settings(data=str(folder / "data"), grace_s=2.0), str(folder / "app.py"))


def test_what_is_sent_before_anybody_waits_is_taken_in_order_also_after_a_restart(app):
    with served(app) as server, tw.Client(server.address, token=server.token) as client:
        assert [box.name for box in client.mailboxes()] == ["brief", "reply"]
        for number in range(2):
            assert client.send_event("reply", {"text": f"n{number}", "kind": "good"}, key="k").kept
        with pytest.raises(tw.Conflict, match="is full"):
            client.signal("reply", {"text": "n2", "kind": "bad"}, key="k")
        client.signal("reply", {"text": "x" * 100_000, "kind": "bad"}, key="large")
        client.signal("brief", key="b")

    with served(app) as server, tw.Client(server.address, token=server.token) as client:
        first = client.submit("takes", number="k")
        assert client.result(first, timeout=30) == "n0"
        second = client.submit("graph", number="k")
        assert client.result(second, timeout=30) == "n1"
        assert client.result(client.submit("takes", number="large"), timeout=30) == "x" * 100_000
        assert "is taken from the mailbox" in " ".join(step.text for step in client.why(first).steps)

        fates = {message.fate: message.run for message in client.mailbox_messages("reply", key="k")}
        assert fates == {"refused": "", "taken": first.id}
        deadline = time.monotonic() + 30
        while client.mailbox_messages("brief")[0].fate != "expired":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        box = client.mailboxes()[1]
        assert (box.kept, box.taken, box.refused, box.keep) == (0, 3, 1, "1d")
        client.delete_mailbox("reply")
        assert [box.name for box in client.mailboxes()] == ["brief"]


def test_payloads_that_do_not_fit_and_unknown_mailboxes_are_refused(app):
    with served(app) as server, tw.Client(server.address, token=server.token) as client:
        for payload in (None, {}, {"text": 5}, {"text": "a", "kind": "ugly"}, {"text": "a" * 5_000, "kind": 1}, "a"):
            with pytest.raises(tw.Refused):
                client.signal("reply", payload, key="k")
        assert client.send_event("reply", {"text": "a", "kind": "good"}, key="k").kept
        with pytest.raises(tw.Refused, match="there is no mailbox"):
            client.mailbox_messages("nothing")
        headers = {"Authorization": f"Bearer {server.token}"}
        put = httpx2.put(f"{server.address}/v1/mailboxes/other", json={"keep": "1ms"}, headers=headers)
        assert (put.status_code, put.json()["code"]) == (422, "bad_keep")
        assert httpx2.put(f"{server.address}/v1/mailboxes/other", json={}, headers=headers).status_code == 204


def test_the_command_line_lists_them(app):
    with served(app) as server, tw.Client(server.address, token=server.token) as client:

        def run(*command: str) -> str:
            env = {"PYTHONPATH": str(ROOT / "src"), "TICKWORK_URL": server.address, "TICKWORK_TOKEN": server.token}
            whole = [sys.executable, "-m", "tickwork", *command]
            done = subprocess.run(whole, env=env, capture_output=True, text=True, timeout=60, check=True)
            return done.stdout

        sent = run("signal", "reply", "--key", "T-1", "--payload", '{"text": "hello", "kind": "good"}')
        assert "its mailbox keeps it" in sent
        rows = [line.split()[:3] for line in run("mailboxes").splitlines()]
        assert ["reply", "1d", "1"] in rows
        assert "hello" in run("mailboxes", "reply", "--key", "T-1", "--fate", "kept")
        assert json.loads(run("mailboxes", "reply", "--json"))["messages"][0]["fate"] == "kept"
        assert client.mailboxes()[1].keys == 1
