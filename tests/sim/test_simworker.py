"""What a worker has in the simulated world: a link that breaks, artifacts, and an executor with faults."""

import asyncio

import pytest

from sim.executor import EffectLedger, Handler, SimExecutor
from sim.faults import Faults
from sim.hosts import World
from sim.links import ServerService, SimLink
from sim.network import Net
from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.base.values import pack
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.executor import Executor
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Catalog,
    Failed,
    Link,
    LogPiece,
    NodeSpec,
    Reply,
    Succeeded,
)
from tickwork.stores.memory.artifacts import MemoryArtifacts


class Desk:
    """A server that writes down what it is told."""

    def __init__(self):
        self.calls, self.ended, self.logs, self.published = [], [], [], []
        self.artifacts: Artifacts = MemoryArtifacts()

    async def exchange(self, call, peer, _partition):
        self.calls.append((call, peer))
        if call.seq == 99:
            raise Unavailable("not the owner", retry_after_ms=7)
        await asyncio.sleep(call.wait_ms / 1000)
        return Reply(call.seq, stop=((1, 2),))

    def connection_closed(self, peer):
        self.ended.append(peer)

    async def fetch(self, digest):
        data = await self.artifacts.get(digest)
        if data is None:
            raise Refused("not_found", "no such artifact")
        return data

    async def store(self, data):
        return await self.artifacts.put(data)

    async def log(self, *chunk):
        self.logs.append(chunk)

    async def publish(self, catalog):
        self.published.append(catalog)
        return catalog.version


class Place:
    def __init__(self, **faults):
        self.world = World(1, faults=Faults(**faults))
        self.net, self.desk = Net(self.world), Desk()
        self.node, self.worker = self.world.host("node"), self.world.host("worker")
        self.node.start()
        self.worker.start()
        self.net.listen(self.node, ServerService(self.desk))
        self.link: Link = SimLink(self.net, self.worker, ("node",))

    def ask(self, coro, budget_s=100):
        got = []

        async def body():
            try:
                got.append(await coro)
            except Exception as error:
                got.append(error)

        self.worker.spawn(body())
        self.world.loop.run_until(lambda: bool(got), budget_s)
        return got[0]


@pytest.fixture
def place():
    made = Place()
    yield made
    made.world.loop.settle()
    made.world.close()


def test_a_call_and_its_reply_cross_the_network_as_they_are(place):
    call = Call("w", "s", 1, credit=3, reports=(Succeeded(1, 2, pack("x")),), held=((1, 2),))

    assert place.ask(place.link.call(call)) == Reply(1, stop=((1, 2),))
    assert place.desk.calls[0][0] == call and place.desk.calls[0][0] is not call


def test_artifacts_logs_and_catalogs_arrive(place):
    digest = place.ask(place.link.store(b"data"))
    assert place.ask(place.link.fetch(digest)) == b"data"
    assert isinstance(place.ask(place.link.fetch("0" * 64)), Refused)
    piece = LogPiece(1, 2, 3, 4, b"lines", "r", "w", "s", "store")
    place.ask(place.link.log(piece))
    place.ask(place.link.publish(Catalog(handlers=("f",))))
    assert (place.desk.logs, place.desk.published) == ([(piece,)], [Catalog(handlers=("f",))])

    place.desk.artifacts.damage(digest)
    assert isinstance(place.ask(place.link.fetch(digest)), Corrupt)


def test_calls_one_after_the_other_share_a_connection_and_those_at_once_do_not(place):
    for seq in (1, 2):
        place.ask(place.link.call(Call("w", "s", seq)))
    assert len({peer for _, peer in place.desk.calls}) == 1

    async def both():
        await asyncio.gather(*(place.link.call(Call("w", "s", seq, wait_ms=1_000)) for seq in (3, 4)))

    place.ask(both())
    assert len({peer for _, peer in place.desk.calls}) == 2


def test_giving_up_on_a_call_closes_its_connection(place):
    async def impatient():
        async with asyncio.timeout(1):
            await place.link.call(Call("w", "s", 1, wait_ms=30_000))

    assert isinstance(place.ask(impatient()), TimeoutError)
    place.world.loop.advance(1)
    assert place.desk.ended == [place.desk.calls[0][1]]


def test_the_servers_word_that_it_is_unavailable_reaches_the_worker(place):
    error = place.ask(place.link.call(Call("w", "s", 99)))

    assert isinstance(error, Unavailable) and error.retry_after_ms == 7


def test_a_worker_goes_to_the_next_server_when_one_is_gone(place):
    other = place.world.host("other")
    other.start()
    desk = Desk()
    place.net.listen(other, ServerService(desk))
    link = SimLink(place.net, place.worker, ("node", "other"))
    place.node.crash()

    assert isinstance(place.ask(link.call(Call("w", "s", 1))), Unavailable)
    assert place.ask(link.call(Call("w", "s", 1))).seq == 1
    assert len(desk.calls) == 1


def test_a_silent_server_is_given_up_after_a_while(place):
    place.node.pause(1_000)
    error = place.ask(place.link.call(Call("w", "s", 1, wait_ms=5_000)))

    assert isinstance(error, Unavailable) and 15 < place.world.loop.time() < 40


# ---- the executor


class Sink:
    def __init__(self):
        self.reports = []

    def report(self, report):
        self.reports.append(report)

    def log(self, *_):
        pass


class Shop:
    def __init__(self, handlers, *, slots=2, **faults):
        self.world = World(1, faults=Faults(**faults))
        self.host = self.world.host("worker")
        self.host.start()
        self.ledger, self.sink = EffectLedger(), Sink()
        self.executor: Executor = SimExecutor(self.host, handlers, self.ledger, slots=slots)
        self.catalog = None
        self.host.spawn(self._start())
        self.world.loop.advance(0)

    async def _start(self):
        self.catalog = await self.executor.start(self.sink)

    def run(self, task, handler="f", attempt=1, **args):
        work = AttemptJob(task, attempt, 0, "acme", f"r{task}", pack(args))
        self.host.call(self.executor.run, work, NodeSpec(0, "task", "w", "n", "", handler))


async def slow_double(n):
    await asyncio.sleep(10)
    return 2 * n


def boom():
    raise ValueError("no good")


@pytest.fixture
def shop():
    made = []

    def make(handlers=None, **fields):
        given = {"f": Handler(ms=(100, 100)), "slow": slow_double, "boom": boom}
        made.append(Shop(given if handlers is None else handlers, **fields))
        return made[-1]

    yield make
    for one in made:
        one.world.loop.settle()
        one.world.close()


def test_handlers_run_in_virtual_time_and_report(shop):
    s = shop()
    s.run(1)
    s.run(2, "slow", n=21)
    s.run(3, "boom")
    s.run(4, "nobody")
    s.world.loop.advance(20)

    by_task = {report.task: report for report in s.sink.reports}
    assert isinstance(by_task[1], Succeeded) and by_task[1].ended_ms - by_task[1].started_ms == 100
    assert by_task[2].value == pack(42) and by_task[2].ended_ms - by_task[2].started_ms == 10_000
    assert (by_task[3].error, by_task[3].message) == ("ValueError", "no good")
    assert isinstance(by_task[4], Failed) and by_task[4].permanent
    assert sorted(write.key for write in s.ledger.writes) == ["acme/r1/n/-1", "acme/r2/n/-1"]
    assert s.catalog.handlers == ("boom", "f", "slow")


def test_slots_bound_what_runs_and_what_has_not_begun_can_be_recalled(shop):
    s = shop(slots=2)
    for number in range(1, 6):
        s.run(number)
    s.world.loop.advance(0.05)

    assert s.executor.recall() == ((3, 1), (4, 1), (5, 1))
    s.world.loop.advance(1)
    assert [report.task for report in s.sink.reports] == [1, 2]


def test_a_stopped_attempt_says_nothing_more_and_frees_its_slot(shop):
    s = shop(slots=1)
    s.run(1, "slow", n=1)
    s.run(2)
    s.world.loop.advance(1)
    s.host.call(s.executor.stop, 1, 1)
    s.world.loop.advance(60)

    assert [report.task for report in s.sink.reports] == [2]


def test_closing_lets_work_end_within_the_grace(shop):
    s = shop()
    s.run(1)
    s.run(2, "slow", n=1)
    s.host.spawn(s.executor.close(grace_s=1))
    s.world.loop.advance(60)

    assert [report.task for report in s.sink.reports] == [1]


@pytest.mark.parametrize(("fault", "effects", "reports", "starts"), [
    ("crash_before_effect", 0, 0, 2),
    ("crash_after_effect", 1, 0, 2),
    ("crash_after_report", 1, 1, 2),
    ("reports_twice", 1, 2, 1),
    ("never_reports", 1, 0, 1),
])  # fmt: skip
def test_faults_strike_around_the_effect_and_the_report(shop, fault, effects, reports, starts):
    s = shop(**{fault: 1.0})
    s.run(1)
    s.world.loop.advance(300)

    assert (len(s.ledger.writes), len(s.sink.reports), s.host.starts) == (effects, reports, starts)
    assert s.world.trace.faults == {fault: 1}


def test_a_zombie_stands_still_for_longer_than_a_lease_and_then_goes_on(shop):
    s = shop(zombie=1.0)
    s.run(1)
    s.world.loop.advance(30)
    assert s.ledger.writes == [] == s.sink.reports
    s.world.loop.advance(60)

    assert len(s.ledger.writes) == len(s.sink.reports) == 1
