"""Server-sent events through real sockets."""

import asyncio

import httpx2
import msgspec
import pytest

from api.scripted_worker import Worker, flow, log_line, publish, submit, task
from api.test_server import real, server, until  # noqa: F401 - fixtures
from tickwork.api.app import make_app
from tickwork.api.server import HttpServer


async def events_of(client, path, headers=None):
    """Every event of a stream that ends by itself, as (name, id, data)."""
    found = []
    async with asyncio.timeout(10), client.stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream", answer.status_code
        name = place = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("id: "):
                place = line.removeprefix("id: ")
            elif line.startswith("data: "):
                found.append((name, place, msgspec.json.decode(line.removeprefix("data: "))))
    return found


async def test_a_run_is_watched_until_it_has_ended(real):  # noqa: F811
    await publish(real, flow())
    run_id = await submit(real)
    watching = asyncio.create_task(events_of(real, f"/v1/runs/{run_id}/events"))
    worker = Worker(real)
    await worker.finish(*await worker.work())
    events = await watching

    assert {name for name, _, _ in events} == {"run"}
    assert events[-1][2]["state"] == "completed" and len(events) == len({place for _, place, _ in events})
    again = await events_of(real, f"/v1/runs/{run_id}/events")
    assert [data["state"] for _, _, data in again] == ["completed"]
    seen = await real.get(f"/v1/runs/{run_id}/events", headers={"last-event-id": again[0][1]})
    assert seen.status_code == 204
    assert (await real.get("/v1/runs/nobody/events")).status_code == 404


async def test_a_log_is_followed_and_taken_up_again(real):  # noqa: F811
    await publish(real, flow())
    run_id = await submit(real)
    worker = Worker(real)
    [work] = await worker.work()
    following = asyncio.create_task(events_of(real, f"/v1/runs/{run_id}/logs?follow=true"))
    path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
    for chunk in range(3):
        data = log_line(1000 * chunk, "stdout", f"line {chunk}")
        sent = await real.post(f"{path}?chunk={chunk}&first={chunk}", content=data, headers=worker.sender)
        assert sent.status_code == 204
    await worker.finish(work)
    events = await following

    assert [data["text"] for _, _, data in events] == ["line 0", "line 1", "line 2"]
    rest = await events_of(real, f"/v1/runs/{run_id}/logs?follow=true", {"last-event-id": events[0][1]})
    assert [data["text"] for _, _, data in rest] == ["line 1", "line 2"]
    seen = await real.get(f"/v1/runs/{run_id}/logs?follow=true", headers={"last-event-id": events[-1][1]})
    assert seen.status_code == 204, "there is nothing to come back for"


def piece(number, text):
    return b'{"at": %d, "stream": "piece", "text": "%s", "number": %d}\n' % (number, text.encode(), number)


async def test_a_stream_is_followed_taken_up_again_and_tells_of_attempts_that_died(real):  # noqa: F811
    await publish(real, flow("greet", task("hello", retry={"attempts": 2, "delay": "1ms"})))
    run_id = await submit(real)
    worker = Worker(real)
    [work] = await worker.work()
    following = asyncio.create_task(events_of(real, f"/v1/runs/{run_id}/stream"))
    path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
    chunks = [piece(0, "a") + piece(1, "b"), log_line(5, "stdout", "printed"), piece(2, "c")]
    for chunk, data in enumerate(chunks):
        sent = await real.post(f"{path}?chunk={chunk}&first={chunk}", content=data, headers=worker.sender)
        assert sent.status_code == 204
    await asyncio.sleep(0.2)
    await worker.fail(work, permanent=False)
    [second] = await worker.work()
    path = f"/v1/tasks/{second.task}/attempts/{second.attempt}/logs"
    await real.post(f"{path}?chunk=0&first=0", content=piece(0, "d"), headers=worker.sender)
    await worker.finish(second)
    events = await following

    told = [(data["attempt"], data.get("number"), data.get("text", "")) for _, _, data in events]
    assert told == [(1, 0, "a"), (1, 1, "b"), (1, 2, "c"), (1, None, ""), (2, 0, "d")]
    assert [data.get("dead", False) for _, _, data in events] == [False, False, False, True, False]
    rest = await events_of(real, f"/v1/runs/{run_id}/stream", {"last-event-id": events[1][1]})
    assert [(data["attempt"], data.get("number"), data.get("dead", False)) for _, _, data in rest] == [
        (1, 2, True), (1, None, True), (2, 0, False),
    ]  # fmt: skip
    seen = await real.get(f"/v1/runs/{run_id}/stream", headers={"last-event-id": events[-1][1]})
    assert seen.status_code == 204
    lines = (await real.get(f"/v1/runs/{run_id}/logs")).json()["lines"]
    assert [line["text"] for line in lines] == ["printed"], "pieces are no lines of the log"


async def test_a_reader_that_hangs_up_leaves_no_watcher(real, engine):  # noqa: F811
    await publish(real, flow())
    run_id = await submit(real)
    async with real.stream("GET", f"/v1/runs/{run_id}/events") as answer:
        await anext(answer.aiter_lines())
        assert engine.queries.watchers

    await until(lambda: not engine.queries.watchers)


async def test_stopping_ends_streams_at_once(engine):
    server = HttpServer(make_app(engine), engine, port=0)  # noqa: F811
    await server.start()
    async with httpx2.AsyncClient(base_url=server.address) as client:
        await publish(client, flow())
        run_id = await submit(client)
        watching = asyncio.create_task(events_of(client, f"/v1/runs/{run_id}/events"))
        await until(lambda: engine.queries.watchers)
        async with asyncio.timeout(10):
            await server.stop()
            assert (await watching)[0][2]["state"] == "active"

    assert not engine.queries.watchers


async def test_asking_for_the_head_of_a_stream_leaves_no_watcher(real, engine):  # noqa: F811
    await publish(real, flow())
    run_id = await submit(real)
    answer = await real.head(f"/v1/runs/{run_id}/events")

    assert (answer.status_code, answer.headers["content-type"], engine.queries.watchers) == (
        200,
        "text/event-stream",
        {},
    )


async def test_a_stream_that_breaks_is_cut_and_not_ended(real, engine, caplog):  # noqa: F811
    read = engine.overview.journal

    async def broken(*, after, limit):
        if limit > 1:  # the rows themselves; the end that the head names is read before the stream begins
            raise RuntimeError("the disk is gone")
        return await read(after=after, limit=limit)

    await publish(real, flow())
    engine.overview.journal = broken

    with pytest.raises(httpx2.RemoteProtocolError):
        await real.get("/v1/journal")
    assert "broke off" in caplog.text
