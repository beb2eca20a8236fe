"""Our own client and worker against the real server: what they send is what it takes."""

import msgspec

from api.scripted_worker import flow, log_line, task
from api.test_server import server  # noqa: F401 - a fixture
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Call, Catalog, DeclaredSchedule, LogPiece, Succeeded, WorkerProfile
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.worker.http_link import HttpLink


async def test_link_and_client_do_their_work_through_the_server(server):  # noqa: F811
    link, client = HttpLink(server.address), AsyncClient(server.address)
    document = msgspec.json.encode(flow("greet", task("hello"), output="nodes.hello"))
    often = DeclaredSchedule("often", wire.ScheduleRequest(workflow="greet", every="1h"))
    await link.publish(Catalog(documents=(document,), schedules=(often,)))
    handle = await client.submit("greet", key="once")
    again = await client.submit("greet", key="once")
    reply = await link.call(Call("w1", "s", 1, 4, profile=WorkerProfile(), held=()))
    seq, works = 2, list(reply.work)
    while not works:
        works += (await link.call(Call("w1", "s", seq, 4, wait_ms=1_000))).work
        seq += 1
    [work] = works
    digest = await link.store(b"\xa5large")
    await link.log(LogPiece(work.task, work.attempt, 0, 0, log_line(1, "stdout", "hi"), work.run_id, "w1", "s"))
    await link.call(
        Call("w1", "s", seq, 4, reports=(Succeeded(work.task, work.attempt, msgspec.msgpack.encode("hi")),))
    )

    assert (again.id, again.duplicate) == (handle.id, True)
    assert await client.result(handle, timeout=10) == "hi"
    assert await link.fetch(digest) == b"\xa5large"
    assert [line.text async for line in client.logs(handle)] == ["hi"]
    assert [line.text async for line in client.logs(handle, follow=True)] == ["hi"]
    assert [run.id async for run in client.list("greet", state=("completed", "failed"))] == [handle.id]
    assert [one.name for one in await client.schedules()] == ["often"]
    assert [one.id for one in await client.workers()] == ["w1"]
    assert len(await client.submit_many("greet", [{}, {}])) == 2
    assert (await client.why(handle)).state == "completed"
    await link.close()
    await client.close()
