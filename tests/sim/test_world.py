"""Hosts and the network between them: clocks, ids, crashes, and everything that befalls a message."""

import asyncio

import pytest

from sim.faults import Faults
from sim.hosts import ORIGIN_MS, World
from sim.network import Net
from tickwork.core.base.errors import Unavailable
from tickwork.testing.seeded_random import Chance


class Counter:
    """A service that counts, and answers with what it has counted."""

    def __init__(self, host, think_s=0.0):
        self.host, self.think_s = host, think_s
        self.seen, self.ended, self.finished = [], [], 0

    async def serve(self, request, peer):
        self.seen.append((request, peer))
        await asyncio.sleep(self.think_s)
        self.finished += 1
        return str(len(self.seen)).encode()

    def closed(self, peer):
        self.ended.append((peer, self.host.world.loop.time()))


@pytest.fixture
def world():
    made = World(1)
    yield made
    made.close()


def two(world, think_s=0.0):
    net = Net(world)
    client, server = world.host("client"), world.host("server")
    client.start()
    server.start()
    service = Counter(server, think_s)
    net.listen(server, service)
    return net, client, server, service


def ask(world, host, deed):
    """Its answer or its error, as the host gets it, and when."""
    got = []

    async def asking():
        try:
            got.append(await deed)
        except Unavailable as error:
            got.append(error)
        got.append(world.loop.time())

    host.spawn(asking())
    return got


# ---- clocks and ids


def test_a_clock_is_wrong_in_its_own_way_and_may_be_stepped(world):
    host = world.host("h")
    host.start()
    wall_ms, mono_ms = host.clock.wall_ms(), host.clock.mono_ms()
    host.clock.drift(500)
    world.loop.advance(1_000)
    assert wall_ms == ORIGIN_MS
    assert (host.clock.wall_ms() - wall_ms, host.clock.mono_ms() - mono_ms) == (1_000_500, 1_000_500)

    host.clock.step(-3_600_000)
    assert host.clock.wall_ms() - wall_ms == 1_000_500 - 3_600_000
    assert host.clock.mono_ms() - mono_ms == 1_000_500


def test_ids_are_version_7_never_repeat_over_restarts_and_follow_from_the_seed():
    def ids(seed):
        world = World(seed)
        host = world.host("h")
        made = []
        for _ in range(3):
            host.start()
            made += [host.ids.new() for _ in range(50)]
            host.crash()
            world.loop.advance(1)
        world.close()
        return made

    made = ids(1)
    assert made == ids(1) != ids(2)
    assert len(set(made)) == 150
    assert {(one[14], one[19] in "89ab") for one in made} == {("7", True)}
    assert made[0][:13] < made[60][:13]  # by time


# ---- crash


def test_a_crash_ends_everything_of_the_process_and_a_restart_boots_anew(world):
    said = []

    async def boot(host):
        said.append("boots")
        asyncio.get_running_loop().call_later(5, said.append, "timer of a dead process")
        child = asyncio.ensure_future(asyncio.sleep(5))
        try:
            await child
        finally:
            said.append("cleans up")

    host = world.host("h", boot)
    host.start()
    world.loop.advance(1)
    host.crash(back_after_s=10)
    world.loop.advance(9)
    assert said == ["boots"]

    world.loop.advance(5)
    assert said == ["boots", "boots"]
    assert host.starts == 2 and host.up


def test_the_server_hears_when_a_client_dies(world):
    net, client, _server, service = two(world, think_s=60)
    ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    client.crash()
    world.loop.advance(1)

    [(peer, at)] = service.ended
    assert peer == service.seen[0][1]
    assert 1 < at < 1.1


def test_nobody_hears_of_a_machine_that_loses_its_power(world):
    net, client, _server, service = two(world, think_s=60)
    ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    client.crash(told=False)
    world.loop.advance(300)

    assert service.ended == []


def test_a_half_open_connection_is_not_noticed_by_the_server():
    world = World(1, faults=Faults(half_open=1.0))
    net, client, _server, service = two(world, think_s=60)
    ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    client.crash()
    world.loop.advance(300)

    assert service.ended == []
    assert world.trace.faults["half_open"] >= 1
    world.close()


def test_a_client_hears_when_its_server_dies_and_finds_the_next_one(world):
    net, client, server, _service = two(world, think_s=60)
    got = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    server.crash()
    world.loop.advance(1)
    assert isinstance(got[0], Unavailable) and got[1] < 1.1

    refused = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    assert "nobody listens" in str(refused[0])

    server.restart()
    net.listen(server, Counter(server))
    answered = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    assert answered[0] == b"1"


def test_who_gives_up_closes_its_connection_and_the_server_goes_on(world):
    net, client, _server, service = two(world, think_s=30)

    async def impatient():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await net.request(client, "server", b"x")

    client.spawn(impatient())
    world.loop.advance(10)
    assert [at for _, at in service.ended] == [pytest.approx(2, abs=0.1)]
    world.loop.advance(30)
    assert service.finished == 1


def test_a_host_that_stands_still_answers_when_it_goes_on(world):
    net, client, server, service = two(world)
    server.pause(20)
    got = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(19)
    assert got == [] and service.seen == []
    world.loop.advance(2)

    assert got[0] == b"1" and 20 <= got[1] < 20.1


# ---- messages


def test_a_partition_stops_messages_until_it_is_joined(world):
    net, client, _server, service = two(world)
    net.partition("client", "server")
    lost = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(30)
    assert isinstance(lost[0], Unavailable) and lost[1] >= 1 and service.seen == []

    net.join("client", "server")
    got = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(1)
    assert got[0] == b"1"


def test_a_one_way_partition_lets_the_request_through_and_loses_the_answer(world):
    net, client, _server, service = two(world, think_s=1)
    got = ask(world, client, net.request(client, "server", b"x"))
    world.loop.advance(0.5)
    net.partition("server", "client", both_ways=False)
    world.loop.advance(60)

    assert service.finished == 1
    assert isinstance(got[0], Unavailable)


@pytest.mark.parametrize("name", ["drop", "duplicate", "spike"])
def test_faults_of_messages_happen_about_as_often_as_they_should(name):
    world = World(5, faults=Faults(**{name: 0.2}))
    net, client, _server, service = two(world)
    answers = [ask(world, client, net.request(client, "server", bytes([n]))) for n in range(200)]
    world.loop.advance(120)

    lost = sum(isinstance(got[0], Unavailable) for got in answers)
    late = sum(got[1] > 1 for got in answers)
    twice = len(service.seen) - len({request for request, _ in service.seen})
    assert all(len(got) == 2 for got in answers)
    if name == "drop":
        assert 60 < lost < 180 and twice == 0  # four messages each
    elif name == "duplicate":
        assert 15 < twice < 80 and lost == 0
    else:
        assert 60 < late < 180 and lost == twice == 0
    world.close()


def test_messages_overtake_each_other(world):
    net, client, _server, service = two(world)
    for number in range(50):
        ask(world, client, net.request(client, "server", bytes([number])))
    world.loop.advance(1)
    order = [request[0] for request, _ in service.seen]

    assert sorted(order) == list(range(50)) != order


# ---- chance


def test_streams_do_not_disturb_each_other():
    one, other = Chance(1), Chance(1)
    one.stream("a").bits(64)
    one.bits(64)

    assert [one.stream("b").bits(32) for _ in range(3)] == [other.stream("b").bits(32) for _ in range(3)]
    assert one.stream("b").bits(64) != one.stream("c").bits(64)


def test_draws_stay_in_their_bounds_and_use_all_of_them():
    chance = Chance(3)
    assert {chance.between(2, 5) for _ in range(200)} == {2, 3, 4, 5}
    assert 150 < sum(chance.happens(0.2) for _ in range(1_000)) < 250
    assert not chance.happens(0.0) and chance.happens(1.0)
    mixed = list(range(30))
    chance.mix(mixed)
    assert mixed != sorted(mixed) == list(range(30))
    assert min(chance.delay_ns(1_000) for _ in range(2_000)) >= 125
    assert max(chance.delay_ns(1_000) for _ in range(2_000)) > 8_000
    assert len(chance.some(range(10), 4)) == 4


def test_faults_are_written_and_read_again():
    for seed in range(50):
        drawn = Faults.draw(Chance(seed))
        assert Faults.of(str(drawn)) == drawn
    assert Faults.of("") == Faults()
    assert sum(bool(Faults.draw(Chance(seed)).drop) for seed in range(400)) in range(150, 250)
