"""A broker in this process, for tests, the simulator and `tickwork dev`: what it holds ends with it.

It keeps exact priorities. Time is the event loop's, so it runs on a simulated one as well.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import (
    DEFAULTS,
    BrokerOptions,
    DeadLetter,
    Delivery,
    Envelope,
    Labels,
    QueueDepth,
    UnreadableMessage,
    label_sets,
    too_often,
)

DEAD_KEPT_MAX = 1_000


class _Message(msgspec.Struct, eq=False):
    number: int
    address: tuple[str, Labels]
    priority: int
    data: bytes
    times: int = 0
    due: float = 0.0  # while a receiver has it: when it comes again
    gone: bool = False


class MemoryBrokerState:
    """What several lanes of one process share."""

    def __init__(self) -> None:
        self.up = True  # False: an outage, for all users of this broker
        self.identity = 1
        self.messages: dict[int, _Message] = {}
        self.dead: list[DeadLetter] = []
        self._lines: dict[tuple[str, Labels], list[tuple[int, int, _Message]]] = {}
        self._leased: list[tuple[float, int, _Message]] = []
        self._numbers = 0
        self._news: asyncio.Future[None] | None = None

    def put(self, address: tuple[str, Labels], priority: int, data: bytes) -> None:
        self._numbers += 1
        message = self.messages[self._numbers] = _Message(self._numbers, address, priority, data)
        self._line_up(message)

    def _line_up(self, message: _Message) -> None:
        line = self._lines.setdefault(message.address, [])
        heapq.heappush(line, (-message.priority, message.number, message))
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def take(self, addresses: Sequence[tuple[str, Labels]], now: float, *, redeliver_s: float) -> _Message | None:
        """The most important one, of equals the oldest."""
        while self._leased and self._leased[0][0] <= now:
            due, _, message = heapq.heappop(self._leased)
            if not message.gone and message.due == due:
                self._line_up(message)
        heads = [line[0] for address in addresses if (line := self._line(address))]
        if not heads:
            return None
        message = heapq.heappop(self._lines[min(heads)[2].address])[2]
        message.times, message.due = message.times + 1, now + redeliver_s
        heapq.heappush(self._leased, (message.due, message.number, message))
        return message

    def _line(self, address: tuple[str, Labels]) -> list[tuple[int, int, _Message]]:
        line = self._lines.get(address, [])
        while line and line[0][2].gone:
            heapq.heappop(line)
        return line

    def drop(self, number: int) -> None:
        message = self.messages.pop(number, None)
        if message is not None:
            message.gone = True

    def bury(self, data: bytes, reason: str) -> None:
        self.dead = [*self.dead[-DEAD_KEPT_MAX:], DeadLetter(reason, data)]

    def wipe(self) -> None:
        """As if its disk were lost."""
        for number in list(self.messages):
            self.drop(number)
        self.identity += 1

    async def news(self, timeout_s: float) -> None:
        """Until something may have come."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._news)

    def next_due(self) -> float | None:
        return self._leased[0][0] if self._leased else None


_NAMED: "WeakValueDictionary[str, MemoryBrokerState]" = WeakValueDictionary()


def broker_named(name: str) -> MemoryBrokerState:
    """Return the same broker for an address as long as it is in use."""
    state = _NAMED.get(name)
    if state is None:
        state = _NAMED[name] = MemoryBrokerState()
    return state


class MemoryBroker:
    def __init__(self, broker: MemoryBrokerState, options: BrokerOptions = DEFAULTS) -> None:
        self._broker = broker
        self._options = options

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def _check(self) -> None:
        if not self._broker.up:
            raise Unavailable("the broker is unreachable", retry_after_ms=1_000)

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        self._check()
        for envelope in envelopes:
            self._broker.put((envelope.queue, envelope.labels), envelope.priority, self._options.codec.wrap(envelope))

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        addresses = [(queue, some) for queue in queues for some in label_sets(labels)]
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_ms / 1000
        while True:
            self._check()
            if deliveries := self._take(addresses, limit, loop.time()):
                return deliveries
            left = ends - loop.time()
            if left <= 0:
                return []
            due = self._broker.next_due()
            await self._broker.news(left if due is None else max(min(left, due - loop.time()), 0.001))

    def _take(self, addresses: list[tuple[str, Labels]], limit: int, now: float) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while len(deliveries) < limit:
            message = self._broker.take(addresses, now, redeliver_s=self._options.redeliver_s)
            if message is None:
                break
            try:
                if message.times > self._options.deliveries_max:
                    raise UnreadableMessage(too_often(message.times - 1))
                deliveries.append(Delivery(self._options.codec.unwrap(message.data), message.number, message.times))
            except UnreadableMessage as error:
                self._broker.bury(message.data, str(error))
                self._broker.drop(message.number)
        return deliveries

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        self._check()
        for delivery in deliveries:
            self._broker.drop(delivery.receipt)

    async def reject(self, delivery: Delivery, reason: str) -> None:
        self._check()
        message = self._broker.messages.get(delivery.receipt)
        if message is not None:
            self._broker.bury(message.data, reason)
            self._broker.drop(message.number)

    async def depth(self) -> QueueDepth:
        self._check()
        return QueueDepth(len(self._broker.messages), len(self._broker.dead), str(self._broker.identity))

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        self._check()
        return self._broker.dead[-limit:][::-1]
