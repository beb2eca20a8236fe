# ruff: noqa: E501 - a case reads best on one line of its table
"""Both clients over loopback: what they send, what they make of the answers, and how they try again.

The real server is not part of these tests; loopback.py stands for it.
"""

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import httpx2
import pytest

import tickwork as tw
from sdk.client.loopback_server import FakeServer, Loopback
from tickwork.core.base.errors import Conflict, InvalidDefinition, Refused, Unavailable
from tickwork.sdk.client import async_client as async_client_module
from tickwork.sdk.client import client as client_module
from tickwork.sdk.client.connection import Address, Backoff, error_of


@tw.task
def work(n: int) -> int:
    return n


@tw.workflow
def daily(n: int, at: datetime | None = None) -> dict[str, int]:
    return {"n": work(n)}


@tw.workflow
def timed(scheduled_time: datetime) -> None:
    work(1)


@pytest.fixture(scope="module")
def loopback():
    loopback = Loopback()
    yield loopback
    loopback.close()


@pytest.fixture
def server(loopback):
    return FakeServer(loopback)


class Asker:
    """The same calls on either client: iterators are read to their end."""

    def __init__(self, kind, url, **options):
        self.runner = asyncio.Runner() if kind == "async" else None
        make = tw.AsyncClient if self.runner else tw.Client
        self.client = make(url, **options)

    def __getattr__(self, name):
        def call(*args, **kwargs):
            found = getattr(self.client, name)(*args, **kwargs)
            if self.runner is None:
                return list(found) if isinstance(found, Iterator) else found
            return self.runner.run(self._whole(found))

        return call

    @staticmethod
    async def _whole(found):
        return [one async for one in found] if hasattr(found, "__aiter__") else await found

    def end(self):
        self.close()
        if self.runner:
            self.runner.close()


@pytest.fixture(params=["sync", "async"])
def ask(request, server):
    asker = Asker(request.param, server.url, token="hush", deadline=5)
    yield asker
    asker.end()


def test_a_run_is_submitted_waited_for_and_gives_its_typed_output(ask, server):
    run = ask.submit(daily, n=3, key="k", delay="5m", priority=7, at=datetime(2026, 1, 2, tzinfo=UTC))

    assert server.submission == {
        "workflow": "daily", "inputs": {"n": 3, "at": "2026-01-02T00:00:00Z"}, "key": "k", "delay_ms": 300_000, "priority": 7
    }  # fmt: skip
    assert str(run) == "k" and not run.duplicate
    assert ask.submit(daily, {"n": 3}, key="k").duplicate
    server.runs["k"]["output"] = {"n": 3}
    assert ask.result(run, timeout=5) == {"n": 3}
    assert ask.get("k").state == "completed"


def test_an_output_too_large_for_the_run_is_fetched_by_itself(ask, server):
    run = ask.submit(daily, n=3, key="large")
    server.runs["large"] |= {"output": None, "output_size": 70_000}
    server.outputs["large"] = {"n": 70_000}

    assert ask.result(run, timeout=5) == {"n": 70_000}
    assert ask.get("large").output is None


def test_inputs_are_checked_before_anything_is_sent(ask, server):
    for wrong in ({}, {"n": "3"}, {"n": 3, "m": 4}, {"n": object()}):
        with pytest.raises(Refused, match=r"daily|n: "):
            ask.submit(daily, wrong)

    assert server.seen == []


def test_a_workflow_by_name_takes_any_plain_inputs(ask, server):
    ask.submit("other", x=[1], start_at="2026-01-02T03:04:05Z")

    submission = server.submission
    assert len(submission.pop("id")) == 36
    assert submission == {"workflow": "other", "inputs": {"x": [1]}, "start_at": "2026-01-02T03:04:05Z"}
    with pytest.raises(Refused, match="not both"):
        ask.submit("other", delay="1s", start_at="2026-01-02T03:04:05Z")
    with pytest.raises(Refused, match="no zone"):
        ask.submit("other", start_at="2026-01-02T03:04:05")


def test_options_of_one_submission_are_sent_with_it(ask, server):
    options = tw.Options(timeout="1h", queue="gpu", retries=2, retry_delay=timedelta(seconds=10), fail_on=ValueError)
    ask.submit("other", x=1, id="o", options=options)

    assert server.submission == {
        "workflow": "other", "inputs": {"x": 1}, "id": "o", "timeout_ms": 3_600_000, "queue": "gpu",
        "retry": {"attempts": 3, "delay_ms": 10_000, "rules": [{"error": "ValueError", "attempts": 1}]},
    }  # fmt: skip
    with pytest.raises(Refused, match="has no unit"):
        ask.submit("other", options=tw.Options(timeout=60))  # type: ignore[arg-type]


def test_inputs_that_are_named_like_an_option_are_given_as_a_mapping(ask, server):
    @tw.workflow
    def keyed(key: str, options: int = 0) -> None:
        tw.shell(["true"])

    ask.submit(keyed, {"key": "input", "options": 3}, key="option")
    assert (server.submission["key"], server.submission["inputs"]) == ("option", {"key": "input", "options": 3})
    with pytest.raises(Refused, match="key is an input of the workflow and an option of submit"):
        ask.submit(keyed, key="which")


def test_a_debounced_submission_says_how_long_it_waits_and_how_long_at_most(ask, server):
    ask.submit("other", x=1, debounce="d", delay="5s", at_most=timedelta(minutes=1))

    submission = server.submission
    assert len(submission.pop("id")) == 36
    assert submission == {
        "workflow": "other", "inputs": {"x": 1}, "delay_ms": 5_000, "debounce": "d", "at_most_ms": 60_000
    }  # fmt: skip


def test_a_run_without_a_schedule_gets_the_present_time(ask, server):
    ask.submit(timed)

    sent = datetime.fromisoformat(server.submission["inputs"]["scheduled_time"])
    assert abs((datetime.now(UTC) - sent).total_seconds()) < 60


def test_many_runs_go_a_thousand_at_a_time(ask, server):
    handles = ask.submit_many(daily, ({"n": n} for n in range(2_500)))

    assert len({handle.id for handle in handles}) == 2_500
    assert [path for _, path, _ in server.seen] == ["/v1/runs/batch"] * 3


def test_a_refused_row_is_named_and_the_others_stand(ask, server):
    with pytest.raises(tw.BatchRefused, match=r"\[1\]: 1 of 3 were refused, the first: n is negative") as caught:
        ask.submit_many(daily, [{"n": 1}, {"n": -1}, {"n": 2}])

    assert [handle and handle.id for handle in caught.value.handles] == ["r0", None, "r1"]
    with pytest.raises(Refused, match=r"\[1\]\.n: .*declared as int"):
        ask.submit_many(daily, [{"n": 1}, {"n": "x"}])


def test_a_lost_answer_is_asked_for_again_under_the_same_key(ask, server):
    server.faults.extend(["late", 503, 429])
    ask.submit(daily, n=1)

    keys = {headers["idempotency-key"] for _, _, headers in server.seen}
    assert len(server.seen) == 4 and len(keys) == 1
    assert len(server.runs) == 1


def test_what_no_key_protects_is_not_repeated_where_it_may_have_been_done(ask, server):
    server.faults.extend([503, "late"])
    with pytest.raises(
        tw.OutcomeUnknown, match=r"the outcome is unknown.*read the state before you repeat it"
    ) as caught:
        ask.signal("paid", {"amount": 5}, key="A-17")

    assert caught.value.code == "outcome_unknown"
    assert [path for _, path, _ in server.seen] == ["/v1/events"] * 2  # once for 503, which did nothing


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_submission_whose_outcome_stays_unknown_names_the_run_to_look_for(kind, server, monkeypatch):
    monkeypatch.setattr(client_module if kind == "sync" else async_client_module, "BUSY_S", 0.5)
    asker = Asker(kind, server.url, deadline=0.2)
    server.faults.extend(["late", *[504] * 100])
    with pytest.raises(tw.OutcomeUnknown, match=r"look for the run [0-9a-f-]{36}"):
        asker.submit(daily, n=1)
    asker.end()

    assert len({headers["idempotency-key"] for _, _, headers in server.seen}) == 1


def test_every_call_has_a_key_and_the_token(ask, server):
    ask.submit(daily, n=1)
    ask.submit(daily, n=2)

    assert len({headers["idempotency-key"] for _, _, headers in server.seen}) == 2
    assert {headers["authorization"] for _, _, headers in server.seen} == {"Bearer hush"}
    assert {headers["x-tickwork-by"] for _, _, headers in server.seen} == {
        f"{getpass.getuser()}@{socket.gethostname()}"
    }


def test_waiting_goes_on_when_the_stream_breaks(ask, server):
    run = ask.submit(daily, n=1)
    server.runs[run.id]["polls"] = 99
    server.cut_streams = 2

    assert ask.wait(run, timeout=10).state == "completed"
    assert [path for _, path, _ in server.seen].count(f"/v1/runs/{run.id}/events") == 3


def test_waiting_polls_where_there_is_no_stream(ask, server):
    server.stream = False
    run = ask.submit(daily, n=1)

    assert ask.wait(run, timeout=10).state == "completed"
    assert [path for _, path, _ in server.seen].count(f"/v1/runs/{run.id}/events") == 1


@pytest.mark.parametrize("stream", [True, False])
def test_waiting_ends_when_its_time_is_over(ask, server, stream):
    server.stream = stream
    run = ask.submit(daily, n=1)
    server.runs[run.id] |= {"end": "never", "polls": 10_000}
    began = time.monotonic()
    with pytest.raises(tw.StillRunning, match="is active and the time limit"):
        ask.wait(run, timeout=0.3)

    assert time.monotonic() - began < 10
    server.runs[run.id]["end"] = "completed"


def test_a_workflow_that_returns_nothing_gives_nothing(ask, server):
    run = ask.submit(timed)

    assert ask.result(run, timeout=5) is None
    assert ask.result(run.id, timeout=5) is not None  # by its id alone: what the last node gave


def test_a_run_that_failed_has_no_result(ask, server):
    run = ask.submit(daily, n=1)
    server.runs[run.id] |= {"end": "failed", "error": "fetch: ValueError"}

    with pytest.raises(tw.RunFailed, match="is failed: fetch: ValueError"):
        ask.result(run, timeout=5)


def test_lists_run_over_all_pages(ask, server):
    ask.submit_many("daily", ({"n": n} for n in range(25)))

    assert [run.id for run in ask.list(page_size=10)] == [f"r{n}" for n in range(25)]
    assert ask.list(state=["failed"]) == []


def test_logs_are_read_and_followed_over_a_break_without_a_gap(ask, server):
    run = ask.submit(daily, n=1)

    assert [line.text for line in ask.logs(run)] == server.log
    assert [line.text for line in ask.logs(run, follow=True)] == server.log
    assert server.log_openings == ["", "1"]


@pytest.mark.parametrize(
    ("name", "args", "options", "path", "body"),
    [
        ("cancel", ("a/b",), {"reason": "no"}, "/v1/runs/a/b/cancel", {"reason": "no"}),
        ("pause", ("r",), {"until": datetime(2026, 1, 2, tzinfo=UTC)}, "/v1/runs/r/pause", {"until": "2026-01-02T00:00:00Z"}),
        ("resume", ("r",), {}, "/v1/runs/r/resume", {}),
        ("retry", ("r",), {}, "/v1/runs/r/retry", {}),
        ("resolve", ("r", {"n": "accept"}), {"values": {"n": 1}}, "/v1/runs/r/resolve", {"decisions": {"n": "accept"}, "values": {"n": 1}}),
        ("approve", ("r", "n"), {"comment": "ok"}, "/v1/runs/r/approvals/n", {"approve": True, "comment": "ok"}),
        ("reject", ("r", "n"), {}, "/v1/runs/r/approvals/n", {"approve": False}),
        ("fill", ("r", "n", {"a": 1}), {"day": date(2026, 1, 2), "comment": "ok"}, "/v1/runs/r/approvals/n",
         {"approve": True, "comment": "ok", "values": {"a": 1, "day": "2026-01-02"}}),
        ("signal", ("paid", {"a": 1}), {"key": "o1"}, "/v1/events", {"event": "paid", "key": "o1", "payload": {"a": 1}}),
        ("delete_schedule", ("s",), {}, "/v1/schedules/s", None),
        ("pause_schedule", ("s",), {"reason": "rest"}, "/v1/schedules/s/pause", {"reason": "rest"}),
        ("resume_schedule", ("s",), {}, "/v1/schedules/s/resume", {}),
    ],
)  # fmt: skip
def test_each_deed_has_its_route(ask, server, name, args, options, path, body):
    getattr(ask, name)(*args, **options)

    assert server.last[1:] == (path, body)


def test_definitions_are_published_whole(ask, server):
    ask.publish(daily)

    method, path, body = server.last
    assert (method, path, [one["name"] for one in body["documents"]]) == ("PUT", "/v1/workflows", ["daily"])


def test_what_is_there_can_be_listed(ask, server):
    run = ask.submit(daily, n=1)

    assert [one.name for one in ask.workflows()] == ["daily"]
    assert [one.id for one in ask.workers()] == ["w"]
    assert ask.why(run).waiting_for == ("a worker",)
    assert ask.rerun(run).id == "r0-again"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Refused), (401, Refused), (404, Refused), (422, Refused), (409, Conflict), (503, Unavailable), (500, Unavailable)],
)  # fmt: skip
def test_problems_become_our_errors_with_the_servers_code(status, kind):
    error = error_of(
        status, {"retry-after": "2"}, b'{"title": "t", "status": 1, "code": "c", "detail": "d", "path": "p"}'
    )

    assert type(error) is kind and error.code == "c" and "d" in str(error)
    if kind is Unavailable:
        assert error.retry_after_ms == 2_000


def test_problems_of_a_definition_are_all_there():
    body = (
        b'{"title": "t", "status": 422, "code": "c", "problems": [{"path": "nodes[0]", "code": "x", "message": "m"}]}'
    )
    error = error_of(422, {}, body)

    assert isinstance(error, InvalidDefinition) and error.problems[0].path == "nodes[0]"


def test_an_answer_that_is_no_problem_is_shown():
    assert "Bad Gateway" in str(error_of(502, {}, b"<html>Bad Gateway</html>"))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_is_not_there_is_unavailable_after_the_deadline(kind):
    asker = Asker(kind, "http://127.0.0.1:9", deadline=0.3)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="is the server running"):
        asker.status()
    asker.end()

    assert time.monotonic() - began < 20


def test_a_transport_can_be_given():
    def answer(request):
        return httpx2.Response(200, json={"id": "x"})

    with tw.Client(transport=httpx2.MockTransport(answer)) as client:
        assert client.submit("w").id == "x"


def test_the_address_comes_from_arguments_then_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TICKWORK_BY", "ann")
    for name in ("TICKWORK_URL", "TICKWORK_TOKEN", "TICKWORK_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert Address.of(None, None) == Address(("http://127.0.0.1:8440",), "", "ann")
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("TICKWORK_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("TICKWORK_URL", "https://x.example/")
    assert Address.of(None, None) == Address(("https://x.example",), "from-file", "ann")
    monkeypatch.setenv("TICKWORK_TOKEN", "from-env")
    assert Address.of("http://y", None) == Address(("http://y",), "from-env", "ann")
    assert Address.of("http://y", "mine").token == "mine"
    assert "from-env" not in repr(Address.of(None, None))
    assert Address.of("http://a:1/, http://b:2", None).urls == ("http://a:1", "http://b:2")
    for wrong in ("localhost:8440", "http://a:1,b:2", ","):
        with pytest.raises(Refused, match="not a valid server address"):
            Address.of(wrong, None)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_of_several_addresses_the_next_is_asked_where_one_is_away(kind, server, monkeypatch):
    monkeypatch.setenv("TICKWORK_URL", f"http://127.0.0.1:9,{server.url}")
    asker = Asker(kind, None, deadline=5)
    run = asker.submit(daily, n=1)

    assert asker.wait(run, timeout=10).state == "completed"
    assert asker.alive() and asker.logs(run, follow=True)
    asker.end()


def test_patience_grows_and_ends():
    patience = Backoff(now_s=0, within_s=10)
    pauses = [pause for _ in range(12) if (pause := patience.pause_s(0)) is not None]

    assert len(pauses) == 12 and all(0 < pause <= 5 for pause in pauses)
    assert max(pauses[:3]) < min(pauses[6:])
    assert patience.pause_s(9.99) is None
    assert Backoff(now_s=0, within_s=None).left_s(1e9) is None


def test_whoever_asks_says_who_it_is(monkeypatch):
    monkeypatch.setenv("TICKWORK_BY", " Zoë\n of accounts ")
    assert Address.of(None, "").headers() == {"X-Tickwork-By": "Zo?? of accounts"}

    monkeypatch.delenv("TICKWORK_BY")
    monkeypatch.setattr(getpass, "getuser", lambda: {}["nobody"])
    assert Address.of(None, "").by == f"uid{os.getuid()}@{socket.gethostname()}"
