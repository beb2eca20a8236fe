"""Log lines of an attempt are taken from the session that holds it, or held it until it ended, and from nobody else."""

import asyncio

import httpx2
import pytest

from api.scripted_worker import Worker, flow, log_line, publish, submit
from tickwork.api.app import make_app
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds

NDJSON = {"content-type": "application/x-ndjson"}


async def send(http, work, text, headers, *, chunk=0, **more):
    path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
    params = {"chunk": chunk, "first": chunk, **more}
    answer = await http.post(path, params=params, content=log_line(1, "stdout", text), headers=headers)
    return answer.status_code, answer.json()["code"] if answer.content else ""


async def texts(http, run_id):
    return [line["text"] for line in (await http.get(f"/v1/runs/{run_id}/logs")).json()["lines"]]


@pytest.fixture
async def held(http):
    """A run whose one attempt is held by a worker, and another worker that holds nothing."""
    await publish(http, flow())
    run_id = await submit(http)
    holder, stranger = Worker(http), Worker(http, "w2", credit=0)
    [work] = await holder.work()
    await stranger.call()
    return run_id, work, holder, stranger


async def test_lines_of_an_attempt_are_refused_from_whoever_does_not_hold_it(http, held):
    run_id, work, holder, stranger = held
    posing = holder.sender | {"x-tickwork-session": "guessed"}
    for _ in ("while it runs", "after its end"):
        assert await send(http, work, "forged", NDJSON) == (403, "not_holder")
        assert await send(http, work, "forged", stranger.sender) == (403, "not_holder")
        assert await send(http, work, "forged", stranger.sender, run=run_id) == (403, "not_holder")
        assert await send(http, work, "forged", posing) == (403, "not_holder")
        await holder.finish(work)

    assert await texts(http, run_id) == []


async def test_a_stranger_that_claims_or_reports_an_attempt_may_not_write_its_log_either(http, held):
    run_id, work, holder, stranger = held
    await stranger.call(profile=WorkerProfile(), held=((work.task, work.attempt),))
    await stranger.finish(work)
    assert await send(http, work, "forged", stranger.sender) == (403, "not_holder")
    await holder.finish(work)
    await stranger.finish(work)

    assert await send(http, work, "forged", stranger.sender) == (403, "not_holder")
    assert await texts(http, run_id) == []


async def test_the_holders_lines_are_kept_before_at_and_after_the_end(http, held):
    run_id, work, holder, _ = held
    assert (await send(http, work, "before", holder.sender))[0] == 204
    ending = asyncio.create_task(holder.finish(work))
    assert (await send(http, work, "at", holder.sender, chunk=1))[0] == 204
    await ending
    assert (await send(http, work, "after", holder.sender, chunk=2))[0] == 204

    assert await texts(http, run_id) == ["before", "at", "after"]


async def test_lines_of_an_attempt_that_was_cancelled_are_kept(http, held):
    run_id, work, holder, stranger = held
    await http.post(f"/v1/runs/{run_id}/cancel")

    assert (await send(http, work, "cleaning up", holder.sender))[0] == 204
    assert (await send(http, work, "forged", stranger.sender, chunk=1))[0] == 403
    assert await texts(http, run_id) == ["cleaning up"]


async def test_a_later_start_of_a_worker_does_not_write_the_log_of_an_earlier_one(http, held, engine):
    run_id, work, holder, _ = held
    await holder.finish(work)
    engine.workers.registered["w1"].session.closed_ms = 1
    await asyncio.sleep(0.05)
    again = Worker(http)
    again.session = "session-later"
    await again.call()

    assert await send(http, work, "forged", again.sender) == (403, "not_holder")
    assert await send(http, work, "late", holder.sender) == (403, "not_holder")
    assert await texts(http, run_id) == []


async def test_lines_for_another_store_are_refused(http, held, engine):
    _, work, holder, _ = held

    assert await send(http, work, "x", holder.sender | {"x-tickwork-store": "other"}) == (409, "other_store")
    assert (await send(http, work, "x", holder.sender | {"x-tickwork-store": engine.context.store_id}))[0] == 204


@pytest.fixture
async def restarting(tmp_path):
    """A server that is started again on the same store."""
    disk, clients, engines = MemoryDisk(), [], []

    async def start():
        engine = Engine(
            store=MemoryStore(disk),
            artifacts=FolderArtifacts(tmp_path / "artifacts"),
            clock=SystemClock(),
            ids=SystemIds(),
            owner="test",
        )
        await engine.start()
        transport = httpx2.ASGITransport(app=make_app(engine), client=("127.0.0.1", 5000))
        engines.append(engine)
        clients.append(httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
        return engine, clients[-1]

    yield start
    for client in clients:
        await client.aclose()
    await engines[-1].stop()


async def test_a_session_goes_on_delivering_lines_after_a_restart_of_the_server(restarting):
    body = {"kind": "task", "handler": "work", "args": {"x": {"from": "item"}}}
    each = {"kind": "map", "id": "all", "over": "inputs.items", "body": body}
    engine, http = await restarting()
    await publish(http, flow(), flow("fan", each, inputs={"items": {"type": "array"}}))
    ended, open_run = await submit(http), await submit(http)
    mapped = await submit(http, "fan", inputs={"items": [1, 2]})
    worker, stranger = Worker(http), Worker(http, "w2", credit=0)
    works = await worker.work(4)
    await stranger.call()
    of = {run: [work for work in works if work.run_id == run] for run in (ended, open_run, mapped)}
    await worker.finish(*of[ended], of[mapped][0])
    await engine.stop()
    engine, http = await restarting()

    for run_id in (ended, open_run, mapped):
        work = of[run_id][0]
        assert (await send(http, work, "late", worker.sender, run=run_id))[0] == 204, run_id
        assert await send(http, work, "x", stranger.sender, run=run_id) == (403, "not_holder")
    worker.http = http
    await worker.call(
        profile=WorkerProfile(), held=tuple((work.task, work.attempt) for work in (*of[open_run], of[mapped][1]))
    )
    for run_id in (ended, open_run, mapped):
        assert (await send(http, of[run_id][0], "later", worker.sender, run=run_id, chunk=1))[0] == 204
    assert await texts(http, open_run) == ["late", "later"]


async def test_a_worker_that_was_lost_for_a_moment_is_asked_to_send_its_lines_again(http, held, engine):
    run_id, work, holder, _ = held
    await holder.finish(work)
    engine.workers._lose(engine.workers.registered["w1"].session, "silent")
    async with asyncio.timeout(5):
        while "w1" in engine.context.state.worker_numbers:
            await asyncio.sleep(0.01)
    assert (await send(http, work, "late", holder.sender))[0] == 503
    await holder.call(profile=WorkerProfile(), held=())

    assert (await send(http, work, "late", holder.sender))[0] == 204
    assert await texts(http, run_id) == ["late"]
