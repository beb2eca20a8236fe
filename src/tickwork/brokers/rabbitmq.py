"""Broker on RabbitMQ: quorum queues, publisher confirms, and messages that are fetched, never pushed.

A quorum queue has no priorities, so each band of priorities has a queue of its own; they are read in order. A message
that is not accepted in time is put back by its receiver; if that process is gone, RabbitMQ does so at once. We count
how often a message is delivered, because RabbitMQ 3.10 would deliver a poison message without end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import (
    DEFAULTS,
    BrokerOptions,
    DeadLetter,
    Delivery,
    Envelope,
    QueueDepth,
    UnreadableMessage,
    band,
    headers_of,
    labels_token,
    missing_extra,
    places,
    token,
    too_often,
)

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange, AbstractIncomingMessage

TIMEOUT_S = 3.0
POLL_S, POLL_S_MAX = 0.01, 0.1
BROKER_DELIVERIES_MAX = 1_000  # RabbitMQ 4 would drop a message after 20, silently
IDLE_DAYS = 7  # an unused queue expires after this time: versions of applications come and go
DEAD_DAYS, DEAD_MAX = 30, 10_000

QueueAddress = tuple[str, str, int]
T = TypeVar("T")


class _UnackedMessage(msgspec.Struct, eq=False):
    """A message that was fetched and is not settled yet."""

    message: Any
    due: float


class RabbitBroker:
    def __init__(self, url: str, options: BrokerOptions = DEFAULTS) -> None:
        """`amqp://user:password@host:5672/vhost?lane=NAME`; NAME begins the names of exchange and queues."""
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        self._name = token(given.pop("lane", "tickwork"))
        self._url = urlunsplit(parts._replace(query=urlencode(given)))
        self._options = options
        self._connection: AbstractConnection | None = None
        self._opening = asyncio.Lock()
        self._out: AbstractChannel
        self._in: AbstractChannel
        self._exchange: AbstractExchange
        self._queues: dict[QueueAddress, Any] = {}
        self._held: dict[int, _UnackedMessage] = {}  # by delivery tag of this connection
        self._generation = 0  # of the connection: tags mean something in it alone
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            import aio_pika  # noqa: F401
        except ImportError:
            raise missing_extra("rabbitmq", "RabbitMQ") from None

    async def close(self) -> None:
        """What it has and did not accept goes back at once."""
        connection, self._connection = self._connection, None
        self._queues, self._held = {}, {}
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
            self._sweeper = None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await connection.close()

    # ---- the connection

    @contextlib.asynccontextmanager
    async def _broker(self) -> AsyncIterator[None]:
        """Connect, or raise `Unavailable`. After an error it connects again, because channels do not outlive it."""
        from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

        try:
            async with self._opening:
                if self._connection is None or self._connection.is_closed:
                    async with asyncio.timeout(2 * TIMEOUT_S):
                        await self._connect()
            yield
        except (AMQPError, ChannelInvalidStateError, ConnectionError, OSError, TimeoutError, RuntimeError) as error:
            await self.close()
            raise Unavailable(
                f"RabbitMQ cannot be reached: {str(error) or type(error).__name__}", retry_after_ms=1_000
            ) from None

    async def _connect(self) -> None:
        import aio_pika

        await self.close()
        connection = await aio_pika.connect(self._url, timeout=TIMEOUT_S)
        try:
            self._out = await connection.channel(publisher_confirms=True, on_return_raises=True)
            self._in = await connection.channel()
            self._exchange = await self._out.declare_exchange(
                f"{self._name}.work", aio_pika.ExchangeType.TOPIC, durable=True, timeout=TIMEOUT_S
            )
            limits: Any = {"x-queue-type": "quorum", "x-message-ttl": DEAD_DAYS * 86_400_000, "x-max-length": DEAD_MAX}
            await self._out.declare_queue(f"{self._name}.dead", durable=True, arguments=limits, timeout=TIMEOUT_S)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._generation += 1
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(self._generation))

    async def _queue(self, address: QueueAddress) -> Any:
        queue = self._queues.get(address)
        if queue is None:
            queue, labels, level = address
            arguments: Any = {
                "x-queue-type": "quorum",
                "x-delivery-limit": BROKER_DELIVERIES_MAX,
                "x-expires": IDLE_DAYS * 86_400_000,
            }
            name = f"{self._name}.work.{queue}.{labels}.{level}"
            made = await self._in.declare_queue(name, durable=True, arguments=arguments, timeout=TIMEOUT_S)
            await made.bind(self._exchange, f"*.{queue}.{labels}.{level}", timeout=TIMEOUT_S)
            queue = self._queues[address] = made
        return queue

    # ---- out

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        async with self._broker():
            for fromkey in dict.fromkeys(_address_of(envelope) for envelope in envelopes):
                await self._queue(fromkey)
            ended = await asyncio.gather(*map(self._publish, envelopes), return_exceptions=True)
            for error in ended:
                if isinstance(error, BaseException):
                    raise error  # also if its queue was deleted: the next connection declares it again

    async def _publish(self, envelope: Envelope) -> None:
        from aio_pika import DeliveryMode, Message

        message = Message(
            self._options.codec.wrap(envelope),
            headers=dict(headers_of(envelope)),
            message_id=envelope.key,
            delivery_mode=DeliveryMode.PERSISTENT,
        )
        address = ".".join(map(str, _address_of(envelope)))
        sent = self._exchange.publish(message, f"{token(envelope.tenant)}.{address}", mandatory=True, timeout=TIMEOUT_S)
        await _answered(f"{self._name}.work.{address}", sent)

    # ---- in

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        addresses = places(queues, labels)
        loop = asyncio.get_running_loop()
        ends, pause_s = loop.time() + wait_ms / 1000, POLL_S
        while True:
            async with self._broker():
                deliveries = await self._fetch(addresses, limit)
            left = ends - loop.time()
            if deliveries or left <= 0:
                return deliveries
            await asyncio.sleep(min(pause_s, left))
            pause_s = min(pause_s * 1.5, POLL_S_MAX)

    async def _fetch(self, addresses: list[QueueAddress], limit: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        there = [
            await self._queue(address) for address in addresses
        ]  # all of them first: what is fetched is not to wait
        loop = asyncio.get_running_loop()
        # Each message takes a round trip, and the first ones must not wait too long for the others.
        ends = loop.time() + self._options.redeliver_s / 4
        for queue in there:
            while len(deliveries) < limit and not (deliveries and loop.time() > ends):
                message = await _answered(queue.name, queue.get(no_ack=False, fail=False, timeout=TIMEOUT_S))
                if message is None:
                    break
                if (delivery := await self._delivery(message)) is not None:
                    deliveries.append(delivery)
        return deliveries

    async def _delivery(self, message: "AbstractIncomingMessage") -> Delivery | None:
        times = _counted(message) + 1
        tag = message.delivery_tag or 0
        try:
            if times > self._options.deliveries_max:
                raise UnreadableMessage(too_often(times - 1))
            envelope = self._options.codec.unwrap(message.body)
        except UnreadableMessage as error:
            await self._bury(message, str(error))
            return None
        self._held[tag] = _UnackedMessage(message, asyncio.get_running_loop().time() + self._options.redeliver_s)
        return Delivery(envelope, (self._generation, tag), times)

    async def _sweep(self, generation: int) -> None:
        """What was not accepted in time goes back into its queue, for anybody."""
        loop = asyncio.get_running_loop()
        while generation == self._generation:
            await asyncio.sleep(min(self._options.redeliver_s / 4, 1.0))
            for tag, held in list(self._held.items()):
                if held.due <= loop.time() and self._held.pop(tag, None) is not None:
                    with contextlib.suppress(Exception):  # the next call sees that the connection is gone
                        await held.message.nack(requeue=True)

    # ---- what became of it

    def _settled(self, delivery: Delivery) -> Any:
        """The message, where it is still ours. A word about one that went back would end the whole channel."""
        generation, tag = delivery.receipt
        held = self._held.pop(tag, None) if generation == self._generation else None
        return None if held is None else held.message

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        async with self._broker():
            for delivery in deliveries:
                if (message := self._settled(delivery)) is not None:
                    await message.ack()

    async def reject(self, delivery: Delivery, reason: str) -> None:
        async with self._broker():
            if (message := self._settled(delivery)) is not None:
                await self._bury(message, reason)

    async def _bury(self, message: "AbstractIncomingMessage", reason: str) -> None:
        from aio_pika import DeliveryMode, Message

        dead = Message(message.body, headers={"tickwork-reason": reason}, delivery_mode=DeliveryMode.PERSISTENT)
        await self._out.default_exchange.publish(dead, f"{self._name}.dead", mandatory=True, timeout=TIMEOUT_S)
        await message.ack()

    async def depth(self) -> QueueDepth:
        """As far as this process knows its queues; what others have fetched and not accepted is not counted."""
        async with self._broker():
            waiting = len(self._held)
            for queue in list(self._queues.values()):
                again = await self._in.declare_queue(queue.name, passive=True, timeout=TIMEOUT_S)
                waiting += again.declaration_result.message_count or 0
            dead = await self._in.declare_queue(f"{self._name}.dead", passive=True, timeout=TIMEOUT_S)
            return QueueDepth(waiting, dead.declaration_result.message_count or 0)

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        """They are fetched and put back: RabbitMQ has no other way to look."""
        async with self._broker():
            queue = await self._in.declare_queue(f"{self._name}.dead", passive=True, timeout=TIMEOUT_S)
            fetched: list[Any] = []
            while len(fetched) < DEAD_MAX and (message := await queue.get(no_ack=False, fail=False)) is not None:
                fetched.append(message)
            for message in fetched:
                await message.nack(requeue=True)
            newest = fetched[-limit:][::-1]
            return [DeadLetter(str(message.headers.get("tickwork-reason", "")), message.body) for message in newest]


async def _answered(queue: str, question: Awaitable[T]) -> T:
    """Name the queue in the error: a queue can lack a leader while its broker is well."""
    try:
        return await question
    except TimeoutError:
        raise TimeoutError(f"queue {queue} does not answer") from None


def _address_of(envelope: Envelope) -> QueueAddress:
    return (token(envelope.queue), labels_token(envelope.labels), band(envelope.priority))


def _counted(message: "AbstractIncomingMessage") -> int:
    """How often it came back, as a quorum queue counts."""
    count = message.headers.get("x-delivery-count", 0)
    return count if isinstance(count, int) else 0
