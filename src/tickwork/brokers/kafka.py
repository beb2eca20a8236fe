"""Lanes over Kafka: a topic for each queue, set of labels and band; offsets committed by hand, after acceptance.

Kafka keeps places, not messages: what was fetched and not accepted holds its partition's place back, comes again here
after a while, and elsewhere when this worker leaves its group. One topic partition feeds one worker at a time, so there
are to be more of them than workers. Nothing long happens between two polls: work is taken here and runs elsewhere.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

TIMEOUT_S = 3.0
POLL_MS = 200
SESSION_MS = 10_000  # a worker that dies is out of its group after this
POLL_MS_MAX = 60_000  # one that has had no room for so long leaves its partitions to others


class _Open(msgspec.Struct, eq=False):
    """A message that was fetched and not accepted."""

    data: bytes
    level: int
    due: float
    times: int = 1


class _TopicPartitions:
    """One topic partition, as this worker has it."""

    def __init__(self) -> None:
        self.open: dict[int, _Open] = {}  # by offset
        self.next = -1  # the offset after the last one fetched
        self.committed = -1

    def low(self) -> int:
        """Everything before it is settled."""
        return min(self.open, default=self.next)


class KafkaBroker:
    def __init__(self, url: str, options: BrokerOptions = DEFAULTS) -> None:
        """`kafka://host:9092,host2:9092/NAME`; NAME begins the names of topics and of the group."""
        parts = urlsplit(url)
        self._servers = parts.netloc.split(",")
        self._name = token(parts.path.strip("/") or "tickwork")
        self._options = options
        self._opening = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._topics: dict[str, int] = {}  # known to this process, with their band
        self._subscribed: frozenset[str] = frozenset()
        self._places: dict[Any, _TopicPartitions] = {}  # by topic partition

    async def open(self) -> None:
        try:
            import aiokafka  # noqa: F401
        except ImportError:
            raise missing_extra("kafka", "Kafka") from None

    async def close(self) -> None:
        producer, consumer = self._producer, self._consumer
        self._producer = self._consumer = None
        self._subscribed, self._places = frozenset(), {}
        for client in (consumer, producer):
            if client is not None:
                await _quietly(client.stop())

    # ---- the connection

    @contextlib.asynccontextmanager
    async def _broker(self) -> "AsyncIterator[tuple[AIOKafkaProducer, AIOKafkaConsumer]]":
        from aiokafka.errors import IllegalStateError, KafkaError

        try:
            async with self._opening:
                if self._producer is None or self._consumer is None:
                    await self._connect()
            assert self._producer is not None and self._consumer is not None
            yield self._producer, self._consumer
        except (KafkaError, IllegalStateError, OSError, TimeoutError) as error:
            raise Unavailable(
                f"Kafka cannot be reached: {str(error) or type(error).__name__}", retry_after_ms=1_000
            ) from None

    async def _connect(self) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        request_ms = int(TIMEOUT_S * 1000)
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, acks="all", request_timeout_ms=request_ms)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=f"{self._name}.workers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 5,
            max_poll_interval_ms=POLL_MS_MAX,
            metadata_max_age_ms=5_000,  # so soon it sees partitions that are new
        )
        try:
            await producer.start()
            await consumer.start()
        except BaseException:
            await _quietly(consumer.stop())
            await _quietly(producer.stop())
            raise
        self._producer, self._consumer = producer, consumer

    # ---- out

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        async with self._broker() as (producer, _):
            async with asyncio.timeout(2 * TIMEOUT_S):
                sent = [await self._send(producer, envelope) for envelope in envelopes]
                await asyncio.gather(*sent)

    async def _send(self, producer: "AIOKafkaProducer", envelope: Envelope) -> "Awaitable[Any]":
        level = band(envelope.priority)
        topic = self._topic(token(envelope.queue), labels_token(envelope.labels), level)
        self._topics[topic] = level
        headers = [(name, value.encode()) for name, value in headers_of(envelope).items()]
        sent: Awaitable[Any] = await producer.send(topic, self._options.codec.wrap(envelope), headers=headers)
        return sent

    def _topic(self, queue: str, labels: str, level: int) -> str:
        return f"{self._name}.work.{queue}.{labels}.{level}"

    # ---- in

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        topics = {self._topic(*index): index[2] for index in places(queues, labels)}
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_ms / 1000
        async with self._broker() as (_, consumer):
            self._subscribe(consumer, topics)
            while True:
                await self._fetch(consumer, topics, limit)
                if deliveries := await self._deliveries(topics, limit):
                    return deliveries
                left = ends - loop.time()
                if left <= 0:
                    async with asyncio.timeout(TIMEOUT_S):
                        await consumer.topics()  # a broker that is away is silent: ask whether it is there
                    return []
                await self._poll(consumer, [], min(left, POLL_MS / 1000), limit)

    def _subscribe(self, consumer: "AIOKafkaConsumer", topics: Mapping[str, int]) -> None:
        self._topics.update(topics)
        if not frozenset(topics) <= self._subscribed:
            self._subscribed |= frozenset(topics)
            consumer.subscribe(sorted(self._subscribed))

    async def _fetch(self, consumer: "AIOKafkaConsumer", topics: Mapping[str, int], limit: int) -> None:
        """Fetch records band by band until there are enough."""
        assigned = consumer.assignment()
        for gone in [index for index in self._places if index not in assigned]:
            del self._places[gone]  # another receiver has it now, with the messages that were not accepted
        for level in sorted(set(topics.values())):
            some = [partition for partition in assigned if topics.get(partition.topic) == level]
            if some and self._ready(topics) < limit:
                await self._poll(consumer, some, 0.001, limit)

    async def _poll(self, consumer: "AIOKafkaConsumer", some: list[Any], wait_s: float, limit: int) -> None:
        """The client's own limit counts only once the group has met."""
        fetched: Mapping[Any, Sequence[Any]] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s + 0.1):
                fetched = await consumer.getmany(*some, timeout_ms=max(int(wait_s * 1000), 1), max_records=limit)
        for partition, records in fetched.items():
            known = self._places.setdefault(partition, _TopicPartitions())
            for record in records:
                known.open[record.offset] = _Open(record.value or b"", self._topics.get(record.topic, 1), 0.0, 0)
                known.next = record.offset + 1

    def _ready(self, topics: Mapping[str, int]) -> int:
        now = asyncio.get_running_loop().time()
        kept = [known for partition, known in self._places.items() if partition.topic in topics]
        return sum(message.due <= now for known in kept for message in known.open.values())

    async def _deliveries(self, topics: Mapping[str, int], limit: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        ready = [
            (message.level, offset, partition, message)
            for partition, known in self._places.items()
            if partition.topic in topics
            for offset, message in known.open.items()
            if message.due <= now
        ]
        deliveries: list[Delivery] = []
        for _, offset, partition, message in sorted(ready, key=lambda entry: entry[:3])[:limit]:
            message.times, message.due = message.times + 1, now + self._options.redeliver_s
            try:
                if message.times > self._options.deliveries_max:
                    raise UnreadableMessage(too_often(message.times - 1))
                deliveries.append(
                    Delivery(self._options.codec.unwrap(message.data), (partition, offset), message.times)
                )
            except UnreadableMessage as error:
                await self._bury(partition, offset, message.data, str(error))
        return deliveries

    # ---- what became of it

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        async with self._broker():
            await self._settle([delivery.receipt for delivery in deliveries])

    async def _settle(self, receipts: list[tuple[Any, int]]) -> None:
        from aiokafka.errors import CommitFailedError, IllegalStateError

        assert self._consumer is not None
        for partition, offset in receipts:
            if (known := self._places.get(partition)) is not None:
                known.open.pop(offset, None)
        moved = {
            partition: known.low()
            for partition in {partition for partition, _ in receipts}
            if (known := self._places.get(partition)) is not None and known.low() > known.committed
        }
        if not moved:
            return
        with contextlib.suppress(
            CommitFailedError, IllegalStateError
        ):  # another worker has it, and gets the same reply
            async with asyncio.timeout(TIMEOUT_S):
                await self._consumer.commit(moved)
            for partition, offset in moved.items():
                if partition in self._places:
                    self._places[partition].committed = offset

    async def reject(self, delivery: Delivery, reason: str) -> None:
        partition, offset = delivery.receipt
        async with self._broker():
            known = self._places.get(partition)
            if known is not None and (message := known.open.get(offset)) is not None:
                await self._bury(partition, offset, message.data, reason)

    async def _bury(self, partition: Any, offset: int, data: bytes, reason: str) -> None:
        assert self._producer is not None
        headers = [("tickwork-reason", reason.encode())]
        async with asyncio.timeout(2 * TIMEOUT_S):
            await self._producer.send_and_wait(f"{self._name}.dead", data, headers=headers)
        await self._settle([(partition, offset)])

    async def depth(self) -> QueueDepth:
        """Of the topics that this process has used: what the group has not committed."""
        async with self._broker() as (producer, consumer):
            async with asyncio.timeout(2 * TIMEOUT_S):
                ends = await self._ends(producer, consumer, *self._topics)
                used = [partition for partition, end in ends.items() if end]
                settled = await asyncio.gather(*(consumer.committed(partition) for partition in used))
                waiting = sum(ends[partition] - (done or 0) for partition, done in zip(used, settled, strict=True))
                dead = await self._ends(producer, consumer, f"{self._name}.dead")
                began = await consumer.beginning_offsets(list(dead)) if dead else {}
                return QueueDepth(waiting, sum(end - began[partition] for partition, end in dead.items()))

    async def _ends(self, producer: "AIOKafkaProducer", consumer: "AIOKafkaConsumer", *topics: str) -> "dict[Any, int]":
        from aiokafka import TopicPartition

        partitions = [
            TopicPartition(topic, number) for topic in topics for number in await producer.partitions_for(topic)
        ]
        return dict(await consumer.end_offsets(partitions)) if partitions else {}

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        from aiokafka import AIOKafkaConsumer

        async with self._broker() as (producer, consumer):
            ends = await self._ends(producer, consumer, f"{self._name}.dead")
            reader = AIOKafkaConsumer(bootstrap_servers=self._servers, enable_auto_commit=False)
            try:
                await reader.start()
                reader.assign(list(ends))
                for partition, end in ends.items():
                    reader.seek(partition, max(end - limit, 0))
                letters: list[Any] = []
                async with asyncio.timeout(2 * TIMEOUT_S):
                    while any([await reader.position(partition) < end for partition, end in ends.items()]):
                        fetched = await reader.getmany(timeout_ms=POLL_MS)
                        letters += [record for records in fetched.values() for record in records]
            finally:
                await _quietly(reader.stop())
        letters.sort(key=lambda record: (record.timestamp, record.offset), reverse=True)
        return [DeadLetter(_reason(record), record.value or b"") for record in letters[:limit]]


def _reason(record: Any) -> str:
    return next((value.decode("utf-8", "replace") for name, value in record.headers if name == "tickwork-reason"), "")


async def _quietly(ending: "Awaitable[None]") -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(TIMEOUT_S):
            await ending
