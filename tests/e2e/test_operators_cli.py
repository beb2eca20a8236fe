"""What operators type: policies, limits, settings, dead letters, workflows and ticks, with a real server and worker."""

import json
import time

import pytest

import tickwork as tw
from tickwork.cli.main import main
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings

APP = """
import tickwork as tw


@tw.task
def check(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


@tw.workflow
def checked(number: int) -> int:
    return check(number)
"""
DOCUMENT = """
name: gated
policy: [hours]
nodes:
  - {kind: wait, id: rest, duration_ms: 1}
"""
TOML = """
[hours]
allow = "true"
reason = "closed"
action = "pause"
pause = "1h"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operators")
    (folder / "app.py").write_text(APP)
    start = Settings(data=str(folder / "data"), grace_s=2.0, max_runs_per_tick=321)
    with EphemeralServer(start, str(folder / "app.py")) as server:
        yield server


@pytest.fixture
def run(server, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICKWORK_URL", server.address)
    monkeypatch.setenv("TICKWORK_TOKEN", server.token)

    def call(*words, code=0):
        got = main(list(words))
        out, err = capsys.readouterr()
        assert got == code, (words, out, err)
        return out + err

    return call


@pytest.fixture
def client(server):
    with tw.Client(server.address, token=server.token) as client:
        yield client


def test_policies_come_from_files_and_gate_workflows_that_come_from_files(run, client, tmp_path):
    (tmp_path / "flow.yaml").write_text(DOCUMENT)
    (tmp_path / "policies.toml").write_text(TOML)
    assert "tickwork policies put hours" in run("workflows", "put", "flow.yaml", code=4)
    assert "hours" in run("policies", "apply", "policies.toml")
    assert "gated" in run("workflows", "put", "flow.yaml")
    assert "pause for 1h" in run("policies", "list")
    assert "the workflow gated names it" in run("policies", "delete", "hours", code=4)
    assert "[policy hours]" not in run("workflows", "show", "gated") and "hours" in run("workflows", "show", "gated")

    assert client.wait(client.submit("gated"), timeout=60).state == "completed"
    assert "1 runs, 1 steps: 1 denied, 1 different" in run("policies", "test", "hours", "--allow", "false")
    run("policies", "put", "hours", "--allow", "false", "--reason", "closed", "--action", "pause")
    held = client.submit("gated").id
    until(lambda: client.get(held).state == "paused")
    assert "policy hours: closed" in run("show", held[:13])
    run("cancel", held[:13])
    run("workflows", "put", "flow.yaml")
    run("workflows", "delete", "gated")
    run("policies", "delete", "hours")
    assert "no policies" in run("policies")


def until(done):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_limits_and_settings_are_put_shown_and_deleted(run, tmp_path):
    (tmp_path / "limits.json").write_text('{"gpu=true": {"limit": 7}}')
    (tmp_path / "queues.yaml").write_text("queues:\n  slow: {limit: 2}\n")
    run("label-limits", "apply", "limits.json")
    assert "gpu=true" in run("label-limits")
    run("label-limits", "delete", "gpu=true")
    assert "no label has a limit" in run("label-limits", "list")
    run("queues", "apply", "queues.yaml")
    run("queues", "delete", "slow")
    run("tenants", "put", "--limit", "9", "--rate", "50", "--per", "1m")
    tenant = json.loads(run("tenants", "--json"))["tenants"][0]
    assert (tenant["limit"], tenant["rate"], tenant["per"]) == (9, 50, "1m")
    run("tenants", "put")
    run("tenants", "pause", "--reason", "moving")
    assert "paused" in run("tenants")
    run("tenants", "resume")
    run("mailboxes", "put", "orders", "--keep", "1h")
    assert "orders" in run("mailboxes")
    run("mailboxes", "delete", "orders")

    values = {entry["name"]: entry["value"] for entry in json.loads(run("settings", "--json"))["settings"]}
    assert values["max_runs_per_tick"] == 321, "as it was started"
    run("settings", "put", "max_runs_per_tick=200", "ageing_ms=5000")
    assert "default 500" in run("settings")
    assert "is not name=value" in run("settings", "put", "ageing_ms", code=2)
    assert "out of its bounds" in run("settings", "put", "ageing_ms=-1", code=4)


@pytest.mark.proves("S001-14")
def test_dead_letters_are_found_resolved_redriven_and_dropped_by_the_beginning_of_their_ids(run, client):
    names = [f"{word}-order" for word in ("first", "second", "third", "fourth")]
    for name in names:
        client.submit("checked", number=-1, id=name)
    for name in names:
        assert client.wait(name, timeout=60).state == "failed"
    listing = " ".join(run("dead-letters", "--workflow", "checked").split())  # a narrow column has several lines
    assert all(name in listing for name in names) and "-1 is negative" in listing
    assert "tickwork resolve decides each node" in run("dead-letters", "show", "first")
    assert "no run" in run("show", "nobody", code=3)

    run("resolve", "first", "--accept", "check=5", "--reason", "by hand")
    assert client.result("first-order", timeout=60) == 5
    assert "1 dropped" in run("dead-letters", "drop", "second", "--reason", "the customer left")
    assert "cancelled" in run("show", "second-order") and "the customer left" in run("why", "second-order")
    assert "2 redriven" in run("dead-letters", "redrive", "--workflow", "checked", "--all", "--per-second", "100")
    until(lambda: client.get("fourth-order").state == "failed")
    run("rerun", "fourth", "--from-start", "--input", "number=4")
    assert "name runs, or a workflow" in run("dead-letters", "redrive", code=2)

    tick = client.status().tick
    assert "nothing happened in it" in run("tick", str(tick + 1_000_000), code=3)
    row = json.loads(run("why", "first-order", "--json"))["steps"][0]
    assert row["text"].startswith("submitted")
    assert "run_failed" in run("alarms")
