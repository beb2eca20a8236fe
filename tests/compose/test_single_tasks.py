"""A task without a workflow, through every door: client, API and command line; its retries, its queue, and `why`."""

from pathlib import Path

import httpx2
import pytest

import tickwork as tw
from compose import single_task_app as app
from tickwork.cli.main import main
from tickwork.core.base.errors import Refused

FILE = Path(app.__file__)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    embedded = tw.embedded(data=tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tickwork.compose.embedded.DECLARED", [app.double, app.moody, app.elsewhere])  # no other test's
        with embedded as client:
            yield embedded, client


@pytest.fixture
def client(engine):
    app.FAILS["left"] = 0
    return engine[1]


def test_a_task_is_submitted_with_all_options_of_a_run(client):
    options = {"key": "once", "priority": 7, "tags": ["alone"], "options": tw.Options(timeout="1m")}
    run = client.submit(app.double, n=4, **options)

    assert client.result(run, timeout=30) == 8
    assert client.submit(app.double, n=4, **options).id == run.id
    found = client.get(run)
    assert (found.priority, found.tags, [task.state for task in found.tasks]) == (7, ("alone",), ["succeeded"])


def test_its_retries_are_its_own_and_a_failed_one_can_be_retried(client):
    app.FAILS["left"] = 2
    run = client.submit(app.moody, n=3)
    assert client.result(run, timeout=30) == 3
    assert len(client.get(run).tasks[0].attempts) == 3

    app.FAILS["left"] = 3
    run = client.submit(app.moody, n=5)
    with pytest.raises(tw.RunFailed, match="not now"):
        client.result(run, timeout=30)
    client.retry(run)
    assert client.result(run, timeout=30) == 5


def test_why_says_that_nobody_serves_its_queue(client):
    run = client.submit(app.elsewhere, n=1)
    words = " ".join(client.why(run).waiting_for)
    client.cancel(run)

    assert "nowhere" in words


def test_wrong_inputs_are_refused_before_anything_happens(client):
    with pytest.raises(Refused, match="m"):
        client.submit(app.double, m=4)


def test_the_api_and_the_command_line_know_it_by_its_name(engine, client, monkeypatch, capsys, tmp_path):
    embedded, _ = engine
    client.result(client.submit(app.double, n=1), timeout=30)
    name = client.get(client.submit(app.double, n=1)).workflow
    headers = {"authorization": f"Bearer {embedded.token}"}
    answer = httpx2.post(f"{embedded.address}/v1/runs", headers=headers, json={"workflow": name, "inputs": {"n": 21}})
    assert answer.status_code == 201
    assert client.result(answer.json()["id"], timeout=30) == 42

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICKWORK_URL", embedded.address)
    monkeypatch.setenv("TICKWORK_TOKEN", embedded.token)
    assert not main(["run", name, "--input", "n=11"])
    assert "22" in capsys.readouterr().out
    assert not main(["workflows"])
    assert name in capsys.readouterr().out
