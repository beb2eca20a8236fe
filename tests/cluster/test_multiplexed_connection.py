"""The trunk between nodes: one connection for all workers, and what becomes of their calls when it ends."""

import asyncio
import time

import pytest
import pytest_asyncio

from cluster.cluster_fixture import Mute, TestCluster
from tickwork.cluster.multiplexed_connection import MultiplexedConnection, MultiplexedServer, UpgradeRefused, frame
from tickwork.cluster.peers import HttpPeers
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.protocol.worker_messages import Call, WorkerProfile

WORKERS = 50


@pytest_asyncio.fixture
async def house():
    cluster = TestCluster()
    yield await cluster.add("n1", partitions=1)
    await cluster.close()


@pytest_asyncio.fixture
async def peers():
    made = HttpPeers()
    yield made
    await made.close()


def first_call(number: int) -> Call:
    return Call(f"w{number}", f"s@1.n{number}", 1, 1, held=(), profile=WorkerProfile(slots=1), via="n2~1")


def waiting_call(number: int, *, seq: int = 2) -> Call:
    return Call(f"w{number}", f"s@1.n{number}", seq, 1, wait_ms=30_000, via="n2~1")


async def introduced(house, peers) -> str:
    address = house.node.member.address
    peers.identify(house.node.authentication.credentials.sent)
    await asyncio.gather(*(peers.exchange(address, 0, first_call(number)) for number in range(WORKERS)))
    return address


async def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_one_connection_carries_the_calls_of_all_workers_in_few_frames(house, peers, monkeypatch):
    frames = []
    received = MultiplexedServer.frame_received
    monkeypatch.setattr(
        MultiplexedServer, "frame_received", lambda end, body: (frames.append(len(body)), received(end, body))
    )
    await introduced(house, peers)

    assert len(house.node.workers.connections) == 1
    assert len(house.node.engines[0].workers.registered) == WORKERS
    assert len(frames) <= 5


async def test_calls_that_wait_end_with_their_connection_and_are_asked_again(house, peers):
    address = await introduced(house, peers)
    waiting = [asyncio.create_task(peers.exchange(address, 0, waiting_call(number))) for number in range(WORKERS)]
    floor = house.node.engines[0].workers
    await until(lambda: all(worker.session.waits_for_work for worker in floor.registered.values()))
    for trunk in list(house.node.workers.connections):
        trunk.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(one) for one in ended} == {Unavailable}
    again = await peers.exchange(address, 0, Call("w1", "s@1.n1", 3, 1, via="n2~1"))
    assert again.seq == 3 and not again.resync


async def test_a_node_that_is_gone_keeps_nobody_waiting(house, peers):
    address = await introduced(house, peers)
    waiting = asyncio.create_task(peers.exchange(address, 0, waiting_call(1)))
    await until(lambda: house.node.engines[0].workers.registered["w1"].session.waits_for_work)
    peers.keep_only(["http://somebody.else"])

    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, 5)


async def test_a_call_that_nobody_waits_for_is_ended_at_the_owner(house, peers):
    address = await introduced(house, peers)
    (trunk,) = house.node.workers.connections
    waiting = asyncio.create_task(peers.exchange(address, 0, waiting_call(1)))
    await until(lambda: len(trunk._calls) == 1)
    waiting.cancel()

    await until(lambda: not trunk._calls)


async def test_who_lives_is_said_in_one_message(house, peers):
    address = await introduced(house, peers)
    workers = house.node.engines[0].workers.registered
    for worker in workers.values():
        worker.session.heard_ms = 0
    workers["w2"].via = "n3~1"
    await peers.beat(address, "n2~1", ["w1", "w2", "unknown"])

    assert workers["w1"].session.heard_ms > 0
    assert workers["w2"].session.heard_ms == 0  # another node stands for it
    assert workers["w3"].session.heard_ms == 0


async def test_where_no_trunk_is_spoken_each_call_is_a_request(house, peers, monkeypatch):
    tried = []

    async def refuse(self, *_args, **_fields):
        tried.append(self)
        raise UpgradeRefused

    monkeypatch.setattr(MultiplexedConnection, "send", refuse)
    await introduced(house, peers)

    assert len(house.node.engines[0].workers.registered) == WORKERS
    assert not house.node.workers.connections
    count = len(tried)
    await peers.exchange(house.node.member.address, 0, Call("w1", "s@1.n1", 2, 1, via="n2~1"))
    assert len(tried) == count  # not again for a while


async def test_a_trunk_needs_the_token(house):
    house.server._app.state.front._guard._token = b"secret"
    peers = HttpPeers(token="wrong")
    try:
        with pytest.raises(Refused):
            await peers.exchange(house.node.member.address, 0, first_call(1))
        assert not house.node.workers.connections
        assert peers._singly
    finally:
        await peers.close()


async def test_one_that_comes_back_while_it_is_said_to_be_lost_keeps_its_seat(house):
    floor = house.node.engines[0].workers
    await floor.exchange(first_call(1))
    lost = asyncio.create_task(floor.exchange(Call("w1", "s@1.n1", 2, via="n2~1", lost=True)))
    await asyncio.sleep(0)
    back = Call("w1", "s@2.n1", 1, 1, held=(), profile=WorkerProfile(slots=1), via="n2~1")
    await asyncio.gather(lost, floor.exchange(back))

    assert floor.registered["w1"].session.id == "s@2.n1"
    assert "w1" in house.node.engines[0].context.state.worker_numbers


# ---- a node that hangs: it accepts connections, and does not respond


@pytest_asyncio.fixture
async def mute():
    made = Mute()
    yield made
    await made.close()


async def test_closing_a_connection_that_is_being_opened_is_a_connection_error_to_its_waiters(mute):
    trunk = MultiplexedConnection(await mute.start(), headers={})
    waiting = [asyncio.create_task(trunk.send(0, first_call(number), timeout_s=5)) for number in range(3)]
    await until(lambda: mute.heard)
    trunk.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(one) for one in ended} == {ConnectionError}
    with pytest.raises(ConnectionError):
        await trunk.send(0, first_call(1), timeout_s=5)


async def test_a_connection_whose_peer_hangs_ends_before_its_calls_would(mute, monkeypatch):
    monkeypatch.setattr("tickwork.cluster.multiplexed_connection.PING_S", 0.05)
    mute.first = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + frame(())  # it answers the first ping, then hangs
    trunk = MultiplexedConnection(await mute.start(), headers={})
    begin = time.monotonic()
    with pytest.raises(ConnectionError, match="does not respond"):
        await trunk.send(0, waiting_call(1), timeout_s=60)

    assert time.monotonic() - begin < 5
    trunk.close()


async def test_a_connection_on_which_nothing_happens_is_kept_while_its_peer_lives(house, peers, monkeypatch):
    monkeypatch.setattr("tickwork.cluster.multiplexed_connection.PING_S", 0.02)
    address = await introduced(house, peers)
    waiting = asyncio.create_task(peers.exchange(address, 0, waiting_call(1)))
    (trunk,) = house.node.workers.connections
    await asyncio.sleep(0.5)

    assert not waiting.done() and house.node.workers.connections == {trunk}
    waiting.cancel()


async def test_a_repeated_call_outlives_the_first_whose_caller_gave_up(house, peers):
    address = await introduced(house, peers)
    floor = house.node.engines[0].workers
    first = asyncio.create_task(floor.exchange(waiting_call(1)))
    await until(lambda: floor.registered["w1"].session.waits_for_work)
    again = asyncio.create_task(floor.exchange(waiting_call(1)))
    await asyncio.sleep(0.05)
    first.cancel()

    with pytest.raises(Unavailable):
        await asyncio.wait_for(again, 5)
    assert address
