"""Every response names its store, and clients notice another one at the same address."""

import asyncio
from unittest.mock import AsyncMock, Mock

import httpx2
import pytest

import tickwork as tw
from api.scripted_worker import Worker, flow, publish
from tickwork.api.app import make_app
from tickwork.api.server import HttpServer
from tickwork.cli.exit_codes import Exit, code_of
from tickwork.cli.progress import follow
from tickwork.runtime.engine import Engine
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client
from tickwork.sdk.client.connection import OtherStore
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds


class Address:
    """One port, at which one store after the other answers."""

    def __init__(self, folder) -> None:
        self._folder, self._port = folder, 0
        self.disk = MemoryDisk()
        self.engine = self.server = None

    async def answer(self, disk=None) -> str:
        self.disk = disk or MemoryDisk()
        ids, artifacts = SystemIds(), FolderArtifacts(self._folder)
        self.engine = Engine(
            store=MemoryStore(self.disk), artifacts=artifacts, clock=SystemClock(), ids=ids, owner="test"
        )
        await self.engine.start()
        self.server = HttpServer(make_app(self.engine), self.engine, port=self._port)
        await self.server.start()
        self._port = self.server.bound[1]
        async with httpx2.AsyncClient(base_url=self.server.address) as http:
            await publish(http, flow("greet", output="nodes.hello"))
        return self.engine.context.store_id

    async def leave(self) -> None:
        await self.server.stop()
        await self.engine.stop()


@pytest.fixture
async def address(tmp_path):
    found = Address(tmp_path / "artifacts")
    await found.answer()
    yield found
    await found.leave()


async def test_every_response_names_the_store_that_answers(address):
    async with httpx2.AsyncClient(base_url=address.server.address) as http:
        worker = Worker(http)
        await worker.call()  # the short way, twice: under a known head
        answers = [await http.post("/v1/runs", json={"workflow": "greet"}) for _ in range(2)]
        answers += [await http.get(path) for path in ("/healthz", "/v1/runs", "/v1/runs/nobody", "/nowhere")]

    assert {answer.headers["x-tickwork-store"] for answer in answers} == {address.engine.context.store_id}


async def waiting(kind, client, run_id):
    """Through this door."""
    if kind == "async":
        return await client.result(run_id, timeout=20)
    return await asyncio.to_thread(follow if kind == "cli" else Client.result, client, run_id)


@pytest.mark.parametrize("kind", ["async", "sync", "cli"])
@pytest.mark.parametrize("known", [False, True], ids=["the other store does not know it", "the other store has one"])
async def test_whoever_waits_for_a_run_notices_another_store_at_the_address(address, kind, known):
    before, url = address.engine.context.store_id, address.server.address
    async with AsyncClient(url) as client:
        with Client(url) as sync:
            used = client if kind == "async" else sync
            handle = (
                await client.submit("greet", id="same")
                if kind == "async"
                else await asyncio.to_thread(sync.submit, "greet", id="same")
            )
            job = asyncio.create_task(waiting(kind, used, handle.id))
            await asyncio.sleep(0.3)
            await address.leave()
            after = await address.answer()
            if known:
                async with httpx2.AsyncClient(base_url=url) as http:
                    await http.post("/v1/runs", json={"workflow": "greet", "id": "same"})
            with pytest.raises(OtherStore) as caught:
                await asyncio.wait_for(job, 20)

    assert before in str(caught.value) and after in str(caught.value) and before != after
    assert (caught.value.code, code_of(caught.value)) == ("other_store", Exit.REFUSED)
    assert tw.OtherStore is OtherStore


async def test_a_restart_of_the_same_store_is_no_other_store(address):
    async with AsyncClient(address.server.address) as client:
        [handle] = await client.submit_many("greet", [{}])
        job = asyncio.create_task(client.result(handle, timeout=20))
        await asyncio.sleep(0.2)
        await address.leave()
        await address.answer(address.disk)
        async with httpx2.AsyncClient(base_url=address.server.address) as http:
            worker = Worker(http)
            await worker.finish(*await worker.work(), value="hi")

        assert await job == "hi"


async def test_a_run_that_is_submitted_again_is_one_of_the_new_store(address):
    async with AsyncClient(address.server.address) as client:
        [first] = await client.submit_many("greet", [{}])
        await address.leave()
        await address.answer()
        with pytest.raises(OtherStore):
            await client.get(first)
        again = await client.submit("greet", id=first.id)

        assert (await client.get(again)).id == first.id


DEEDS = {
    "cancel": lambda client: client.cancel("same"),
    "pause": lambda client: client.pause("same"),
    "resume": lambda client: client.resume("same"),
    "retry": lambda client: client.retry("same"),
    "rerun": lambda client: client.rerun("same"),
    "approve": lambda client: client.approve("same", "boss"),
    "fill": lambda client: client.fill("same", "boss", dish="soup"),
    "resolve": lambda client: client.resolve("same", {"hello": "retry"}),
    "ask": lambda client: client.ask("same", "book", timeout=5),
    "signal": lambda client: client.signal("paid", run="same"),
    "cancel a node": lambda client: client.cancel("same", node="hello"),
    "retry a node": lambda client: client.retry("same", node="hello"),
}


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("deed", DEEDS)
async def test_a_change_for_a_run_of_another_store_is_refused_before_it_is_made(address, deed, kind, monkeypatch):
    url = address.server.address
    async with AsyncClient(url) as client:
        with Client(url) as sync:
            if kind == "async":
                await client.submit("greet", id="same")
            else:
                await asyncio.to_thread(sync.submit, "greet", id="same")
            detail = await address.engine.queries.run("same")
            await address.leave()
            await address.answer()
            async with httpx2.AsyncClient(base_url=url) as http:
                await http.post("/v1/runs", json={"workflow": "greet", "id": "same"})
            if "node" in deed:  # its number was read before the other store came
                monkeypatch.setattr(AsyncClient, "get", AsyncMock(return_value=detail))
                monkeypatch.setattr(Client, "get", Mock(return_value=detail))
            before = (await address.engine.overview.head()).seq
            doing = DEEDS[deed](client) if kind == "async" else asyncio.to_thread(DEEDS[deed], sync)
            with pytest.raises(OtherStore):
                await doing

            assert (await address.engine.overview.head()).seq == before, "something of it was journalled"
            assert (await address.engine.queries.run("same")).state == "active"


@pytest.mark.parametrize("path", ["/v1/runs/same/cancel", "/v1/events", "/v1/tasks/TASK/cancel"])
async def test_the_server_refuses_a_change_that_names_another_store(address, path):
    async with httpx2.AsyncClient(base_url=address.server.address) as http:
        await http.post("/v1/runs", json={"workflow": "greet", "id": "same"})
        [task] = (await http.get("/v1/runs/same")).json()["tasks"]
        path = path.replace("TASK", task["id"])
        body = {"event": "paid", "run": "same"} if path == "/v1/events" else {}
        answer = await http.post(path, json=body, headers={"x-tickwork-store": "another"})
        right = await http.post(
            "/v1/runs/same/cancel", json={}, headers={"x-tickwork-store": address.engine.context.store_id}
        )

    assert (answer.status_code, answer.json()["code"]) == (409, "other_store")
    assert "another" in answer.json()["detail"] and address.engine.context.store_id in answer.json()["detail"]
    assert right.status_code < 300
