"""Several addresses in TICKWORK_URL: each command goes on with the next one where a node does not answer."""

import pytest

import tickwork as tw
from servers import free_port
from tickwork.cli.main import main


@tw.task
def double(n: int) -> int:
    return 2 * n


@tw.workflow
def doubled(n: int) -> int:
    return double(n)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with tw.embedded(workflows=[doubled], data=tmp_path_factory.mktemp("data")) as client:
        run = client.submit(doubled, n=4)
        assert client.result(run) == 8
        yield client, run.id


@pytest.mark.parametrize(
    "words",
    [
        "runs", "show RUN", "logs RUN", "stream RUN", "why RUN", "rerun RUN --from-start", "signal paid --key k",
        "inbox", "mailboxes", "schedules", "endpoints", "backfills", "catchup", "holidays", "cluster", "status",
        "clock", "page", "workflows", "workers", "queues", "versions", "replay", "run doubled --input n=3", "doctor",
    ],
)  # fmt: skip
def test_a_command_reaches_the_node_that_lives(served, words, monkeypatch, capsys, tmp_path):
    client, run = served
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TICKWORK_URL", f"http://127.0.0.1:{free_port()}, {client.address.url}")
    monkeypatch.setenv("TICKWORK_TOKEN", client.address.token)

    code = main([run if word == "RUN" else word for word in words.split()])

    said = capsys.readouterr()
    assert (code or 0) == 0, said.err
    if words == "page":
        assert said.out.startswith(client.address.url)
