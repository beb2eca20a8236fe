"""Lanes from settings: the keepers of a server, and what a worker receives from."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from tickwork.brokers.making import make_broker
from tickwork.compose.local_protection import given_token
from tickwork.compose.settings import BadSettings, Settings, names
from tickwork.core.base.errors import Refused
from tickwork.ports.broker import Broker, BrokerOptions, EnvelopeCodec
from tickwork.runtime.broker_publisher import BrokerPublisher
from tickwork.system.clock import SystemClock, SystemIds
from tickwork.worker.agent import Agent
from tickwork.worker.broker_receiver import BrokerReceiver

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine

LIBRARIES = ("aio_pika", "aiokafka", "aiormq", "nats")


def lane_of(settings: Settings) -> Broker:
    for name in LIBRARIES:  # they say of every try that it failed; one alarm says it for all
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        return make_broker(settings.lane, BrokerOptions(codec=EnvelopeCodec(given_token(settings))))
    except (Refused, ValueError) as error:
        raise BadSettings("bad_setting", f"{getattr(error, 'message', error)}", path="lane") from None


@contextlib.asynccontextmanager
async def carrying(settings: Settings) -> "AsyncIterator[Callable[[Engine], BrokerPublisher] | None]":
    """Return a factory of broker publishers, which share one connection, or `None` without a broker."""
    if not settings.lane:
        yield None
        return
    check_lane(settings)
    lane = lane_of(settings)
    await lane.open()

    def keeper(engine: "Engine") -> BrokerPublisher:
        return BrokerPublisher(
            engine,
            lane,
            queues=names(settings.lane_queues),
            clock=SystemClock(),
            ids=SystemIds(),
            credit=settings.lane_credit,
            drain_per_s=settings.lane_drain,
            untaken_ms=round(settings.lane_untaken_s * 1000),
            on_trouble=engine.context.alarms.add,
        )

    try:
        yield keeper
    finally:
        await lane.close()


def check_lane(settings: Settings) -> None:
    if not names(settings.lane_queues):
        raise BadSettings("bad_setting", "name at least one queue", path="lane_queues")
    if settings.lane_credit < 1 or settings.lane_drain < 1:
        raise BadSettings("bad_setting", "lane_credit and lane_drain must be at least 1", path="lane_credit")
    if settings.lane_untaken_s < 1:
        raise BadSettings("bad_setting", "must be at least 1 second", path="lane_untaken_s")


def exchange_queues(settings: Settings) -> tuple[str, ...]:
    """What a worker serves by its own calls: not what comes by the lane."""
    served = names(settings.queues) or ("default",)
    return tuple(queue for queue in served if not settings.lane or queue not in names(settings.lane_queues))


def receiver_of(settings: Settings, agent: Agent) -> BrokerReceiver | None:
    """Of those of its queues that go by the lane."""
    served = names(settings.queues) or ("default",)
    by_lane = [queue for queue in names(settings.lane_queues) if queue in served]
    if not settings.lane or not by_lane:
        return None
    return BrokerReceiver(agent, lane_of(settings), by_lane)
