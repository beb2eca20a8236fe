"""What comes in as a message (a worker's exchange) and is none: refused by name, and nothing else is disturbed."""

import msgspec
import pytest

from api.scripted_worker import MSGPACK, Worker, flow, publish, submit, task
from tickwork.protocol.worker_messages import Call, Checkpointed, Started, Succeeded, encoder

pytestmark = pytest.mark.proves("B24")


def raw(**fields) -> bytes:
    """A call as it goes over the line, with what stands at some places replaced."""
    whole = {"worker": "w1", "session": "session-w1", "seq": 9, "credit": 10, "wait_ms": 0, "reports": [], "held": None}
    return msgspec.msgpack.encode(list((whole | fields).values()))


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"", MSGPACK, 400, "malformed"),
        (b"\xc1\xc1", MSGPACK, 400, "malformed"),
        (b"\x9f", MSGPACK, 400, "malformed"),
        (msgspec.json.encode({"worker": "w1"}), MSGPACK, 422, "invalid_body"),
        (msgspec.msgpack.encode({"worker": "w1", "session": "s", "seq": 1}), MSGPACK, 422, "invalid_body"),
        (msgspec.msgpack.encode(["w1"]), MSGPACK, 422, "invalid_body"),
        (raw(seq="nine"), MSGPACK, 422, "invalid_body"),
        (raw(reports=[[99, 1, 1]]), MSGPACK, 422, "invalid_body"),  # a kind of report that a later version may have
        (raw(reports=[[1]]), MSGPACK, 422, "invalid_body"),
        (raw(worker="w2"), MSGPACK, 422, "wrong_worker"),  # somebody else's
        (raw(), {}, 415, "content_type"),
        (raw(), {"content-type": "application/json"}, 415, "content_type"),
        (raw() + b" " * (64 * 1024 * 1024), MSGPACK, 413, "body_too_large"),
    ],
)
async def test_what_is_no_call_is_refused_by_name_and_the_worker_goes_on(http, body, headers, status, code):
    await publish(http, flow())
    worker = Worker(http)
    run = await submit(http)
    (work,) = await worker.work()
    answer = await http.post("/v1/workers/w1/exchange", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["detail"]

    await worker.call(Succeeded(work.task, work.attempt, b"\x01"))
    assert (await http.get(f"/v1/runs/{run}")).json()["state"] == "completed"


async def test_ten_megabytes_in_one_message_arrive_whole(http):
    await publish(http, flow())
    worker = Worker(http)
    run = await submit(http)
    (work,) = await worker.work()
    value = msgspec.msgpack.encode("x" * 10_000_000)
    await worker.call(Succeeded(work.task, work.attempt, value))

    answer = await http.get(f"/v1/runs/{run}/output", headers={"accept": "application/msgpack"})
    assert answer.status_code == 200 and answer.content == value


async def test_an_old_message_again_changes_nothing(http):
    await publish(http, flow("two", task("a"), task("b", needs=["a"])))
    worker = Worker(http)
    run = await submit(http, "two")
    (first,) = await worker.work()
    done = encoder.encode(Call("w1", worker.session, worker.seq + 1, 10, 0, (Succeeded(first.task, 1, b"\x01"),)))
    worker.seq += 1
    answers = [await http.post("/v1/workers/w1/exchange", content=done, headers=MSGPACK) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    await worker.call()
    before = (await http.get(f"/v1/runs/{run}")).json()
    await http.post("/v1/workers/w1/exchange", content=done, headers=MSGPACK)
    after = (await http.get(f"/v1/runs/{run}")).json()

    for shown in (before, after):
        del shown["tasks"][1]["lease_ends_at"]  # its worker was heard
    assert after == before


@pytest.mark.parametrize(
    "report",
    [Succeeded(10**9, 1), Started(10**9, 1), Checkpointed(10**9, 1, b"\x01"), Succeeded(-1, 1), Succeeded(1, 77)],
)
async def test_a_report_about_something_else_is_told_apart(http, report):
    await publish(http, flow())
    worker = Worker(http)
    run = await submit(http)
    await worker.work()
    reply = await worker.call(report)

    assert reply.fenced == ((report.task, report.attempt),)
    assert (await http.get(f"/v1/runs/{run}")).json()["state"] == "active"
