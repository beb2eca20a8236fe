"""A publication that arrives and whose confirmation does not: it is published again, and starts once."""

import pytest

from brokers.broker_fixture import Line
from brokers.test_broker_dispatch import NAMES, OPTIONS
from proxy import Proxy
from servers_brokers import nats_server  # noqa: F401
from tickwork.brokers.memory import MemoryBroker, MemoryBrokerState
from tickwork.brokers.nats import NatsBroker
from tickwork.core.base.errors import Unavailable


class Unconfirmed(MemoryBroker):
    """What is published arrives; the first times nobody is told."""

    def __init__(self, broker: MemoryBrokerState, times: int) -> None:
        super().__init__(broker, OPTIONS)
        self.left = times

    async def publish(self, envelopes):
        await super().publish(envelopes)
        if self.left > 0:
            self.left -= 1
            raise Unavailable("no confirmation", retry_after_ms=1)


@pytest.mark.proves("F5", "I28", "I30")
async def test_what_is_published_again_because_nobody_confirmed_it_starts_once():
    broker = MemoryBrokerState()
    async with Line(lambda: Unconfirmed(broker, 3)) as line:
        runs = await line.submit(10)
        await line.until(lambda: line.keeper.published >= 10)
        assert len(broker.messages) >= 20, "copies are on the lane"
        workers = [await line.worker(name, lane=Unconfirmed(broker, 0)) for name in ("w1", "w2")]
        await line.completed(runs)
        await line.until(lambda: not broker.messages)

        begun = [pair for executor, *_ in workers for pair in executor.seen]
        assert len(begun) == len(set(begun)) == 10
        assert sum(receiver.received for _, _, receiver, _ in workers) >= 20
        assert line.alarms[:2] == ["lane_away", "lane_back"]


@pytest.mark.proves("F5", "P13", "I30")
async def test_a_confirmation_that_nats_sent_and_nobody_got_starts_nothing_twice(nats_server):  # noqa: F811
    name = f"work{next(NAMES)}"
    async with Proxy("127.0.0.1", nats_server.port) as proxy:
        through = f"nats://127.0.0.1:{proxy.port}/{name}"
        async with Line(lambda: NatsBroker(through, OPTIONS)) as line:
            proxy.cut_after(f"{name}.work.".encode())  # the next publication reaches the broker, its answer nobody
            runs = await line.submit(5)
            await line.until(lambda: proxy.cuts == 1)
            executor, *_ = await line.worker(lane=NatsBroker(nats_server.url(name), OPTIONS))
            await line.completed(runs)
            await line.until(lambda: line.keeper.untaken == 0)

            assert len(executor.seen) == len(set(executor.seen)) == 5
            assert line.alarms[:1] == ["lane_away"]
