"""Broker on NATS JetStream: a work-queue stream, pull consumers, and acknowledgements that are confirmed themselves.

JetStream has no priorities, so each band of priorities has a subject and a consumer of its own; they are read in order.
Messages arrive in one inbox: those that arrive while nothing is requested are kept for a moment and then given back.
After a lost connection the next call connects again; a stream or consumer that was deleted is created again when it
is missed.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.core.base.stable_hash import stable_digest
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
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

TIMEOUT_S = 2.0
TOGETHER_MAX = 500  # publications or acknowledgements that wait for their confirmation at one time
KEPT_S = 1.0  # messages that came too late for their request go back to the other receivers
DEAD_DAYS = 30
DEAD_BYTES_MAX = 256 * 1024 * 1024
IDLE_DAYS = 7  # an idle consumer is removed after this time; its messages stay

CONSUMER_GONE, NO_RESPONDERS = "409", "503"

QueueAddress = tuple[str, str, int]
_Message = tuple[str, bytes, dict[str, str] | None]
T = TypeVar("T")


class _Pull(msgspec.Struct, eq=False):
    """A request for messages that the server has not fulfilled yet."""

    reply: str
    left: int
    expires: float
    done: asyncio.Future[None]


class _ReceivedMessage(msgspec.Struct, eq=False):
    address: QueueAddress
    seq: int
    times: int
    reply: str
    data: bytes
    at: float


class NatsBroker:
    def __init__(self, url: str, options: BrokerOptions = DEFAULTS) -> None:
        """`nats://host:4222/NAME?replicas=3`; NAME begins the names of streams and subjects."""
        parts = urlsplit(url)
        self._servers = [f"{parts.scheme}://{host}" for host in parts.netloc.split(",")]
        self._name = token(parts.path.strip("/") or "tickwork")
        self._replicas = int(parse_qs(parts.query).get("replicas", ["1"])[0])
        self._work, self._dead = f"{self._name}-work", f"{self._name}-dead"
        self._options = options
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._consumers: dict[str, QueueAddress] = {}
        self._pulls: dict[QueueAddress, _Pull] = {}
        self._numbers = 0
        self._inbox = self._answers = ""
        self._requests: dict[str, asyncio.Future[Msg]] = {}
        self._arrived: list[_ReceivedMessage] = []
        self._news = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()
        self._receiving = 0

    async def open(self) -> None:
        try:
            import nats  # noqa: F401
        except ImportError:
            raise missing_extra("nats", "NATS") from None

    async def close(self) -> None:
        client, self._client = self._client, None
        for job in list(self._jobs):
            job.cancel()
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.close()

    # ---- the connection

    @contextlib.asynccontextmanager
    async def _stream(self) -> "AsyncIterator[JetStreamContext]":
        """The broker, connected and with its streams. Whatever it cannot do now is `Unavailable`."""
        import nats.errors
        import nats.js.errors

        try:
            async with self._opening:
                client = self._client
                if client is None or client.is_closed:
                    client = await self._connect()
            yield client.jetstream(timeout=TIMEOUT_S)
        except nats.js.errors.NoStreamResponseError as error:
            await self._drop()  # it was deleted: the next call creates it again
            raise _away(error) from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise _away(error) from None

    async def _connect(self) -> "Client":
        from nats.aio.client import Client

        await self._drop()
        client = Client()
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                await client.connect(
                    self._servers,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=int(TIMEOUT_S),
                    ping_interval=5,
                    error_cb=_silent,
                )
                await self._make_streams(client)
                self._inbox = client.new_inbox()
                await client.subscribe(f"{self._inbox}.*", cb=self._on_message)
                self._answers = client.new_inbox()
                await client.subscribe(f"{self._answers}.*", cb=self._on_answer)
        except BaseException:
            await client.close()
            raise
        self._client = client
        return client

    def _connected(self) -> "Client":
        """Between two steps of a call, another call may have missed the stream and dropped the connection for all."""
        if self._client is None:
            raise Unavailable("reconnecting to NATS; try again", retry_after_ms=100)
        return self._client

    async def _drop(self) -> None:
        client, self._client = self._client, None
        self._consumers, self._pulls, self._arrived = {}, {}, []
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(TIMEOUT_S):
                    await client.close()

    async def _make_streams(self, client: "Client") -> None:
        """Where they are there, they stay as they are: their owner may have chosen replicas or limits."""
        from nats.js.api import RetentionPolicy, StreamConfig
        from nats.js.errors import NotFoundError

        stream = client.jetstream(timeout=TIMEOUT_S)
        work = StreamConfig(
            name=self._work,
            subjects=[f"{self._name}.work.>"],
            retention=RetentionPolicy.WORK_QUEUE,
            num_replicas=self._replicas,
        )
        dead = StreamConfig(
            name=self._dead,
            subjects=[f"{self._name}.dead.>"],
            max_age=DEAD_DAYS * 86_400,
            max_bytes=DEAD_BYTES_MAX,
            num_replicas=self._replicas,
        )
        for config in (work, dead):
            try:
                await stream.stream_info(config.name or "")
            except NotFoundError:
                await stream.add_stream(config)

    # ---- out

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        from nats.js.errors import APIError, NoStreamResponseError

        async with self._stream():
            for some in _portions(envelopes):
                for answer in await self._ask([self._message(envelope) for envelope in some]):
                    if _status(answer) == NO_RESPONDERS:
                        raise NoStreamResponseError
                    reply = json.loads(answer.data)
                    if "error" in reply:
                        raise APIError.from_error(reply["error"])

    def _message(self, envelope: Envelope) -> "_Message":
        tokens = (token(envelope.tenant), token(envelope.queue), labels_token(envelope.labels))
        subject = ".".join((self._name, "work", *tokens, str(band(envelope.priority))))
        return subject, self._options.codec.wrap(envelope), headers_of(envelope) | {"Nats-Msg-Id": envelope.key}

    async def _ask(self, messages: "Sequence[_Message]") -> "list[Msg]":
        """Send all messages at once and return the answer to each."""
        client = self._connected()
        waiting: dict[str, asyncio.Future[Msg]] = {}
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for subject, data, headers in messages:
                    self._numbers += 1
                    name = f"{self._answers}.{self._numbers}"
                    waiting[name] = self._requests[name] = asyncio.get_running_loop().create_future()
                    await client.publish(subject, data, reply=name, headers=headers)
                return [await answer for answer in waiting.values()]
        finally:
            for name in waiting:
                self._requests.pop(name, None)

    async def _on_answer(self, message: "Msg") -> None:
        waiting = self._requests.get(message.subject)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    # ---- in

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        addresses = places(queues, labels)
        self._receiving += 1
        try:
            async with self._stream() as stream:
                await self._make_consumers(stream, addresses)
                await self._look(addresses, limit)
                if wait_ms and not self._has(addresses):
                    await self._wait(addresses, wait_ms / 1000)
                return await self._deliveries(self._take(addresses, limit))
        finally:
            self._receiving -= 1
            if self._arrived:
                asyncio.get_running_loop().call_later(KEPT_S, self._give_back)

    async def _make_consumers(self, stream: "JetStreamContext", addresses: list[QueueAddress]) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        known = set(self._consumers.values())
        for address in addresses:
            if address in known:
                continue
            queue, some, level = address
            name = f"take-{stable_digest(queue, some, str(level))}"
            config = ConsumerConfig(
                durable_name=name,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._options.redeliver_s,
                filter_subject=f"{self._name}.work.*.{queue}.{some}.{level}",
                inactive_threshold=IDLE_DAYS * 86_400,
                max_ack_pending=100_000,
            )
            await stream.add_consumer(self._work, config)
            self._consumers[name] = address

    async def _look(self, addresses: list[QueueAddress], limit: int) -> None:
        """Fetch what is there now, band by band, until there is enough."""
        for level in sorted({address[2] for address in addresses}):
            room = limit - sum(message.address in addresses for message in self._arrived)
            if room <= 0:
                return
            pulls = [self._pulls.get(address) for address in addresses if address[2] == level]
            pending = [
                await self._pull(address, batch=room, no_wait=True)
                for address, pull in zip([address for address in addresses if address[2] == level], pulls, strict=True)
                if pull is None or self._is_over(pull)
            ]
            if pending:
                await asyncio.wait([pull.done for pull in pending], timeout=TIMEOUT_S)

    def _is_over(self, pull: _Pull) -> bool:
        return pull.done.done() or asyncio.get_running_loop().time() > pull.expires

    async def _wait(self, addresses: list[QueueAddress], wait_s: float) -> None:
        for address in addresses:
            pull = self._pulls.get(address)
            if pull is None or self._is_over(pull):
                await self._pull(address, batch=1, no_wait=False, expires_s=wait_s)
        client = self._client
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._has(addresses):
                    self._news.clear()
                    await self._news.wait()
                    if client is None or client.is_closed or client is not self._client:
                        return

    async def _pull(self, address: QueueAddress, *, batch: int, no_wait: bool, expires_s: float = TIMEOUT_S) -> _Pull:
        client = self._connected()
        name = next((name for name, known in self._consumers.items() if known == address), "")
        if not name:  # it was deleted meanwhile: the next call creates it again
            raise Unavailable("NATS lost the consumer; try again", retry_after_ms=100)
        loop = asyncio.get_running_loop()
        self._numbers += 1
        reply = f"{self._inbox}.{self._numbers}"
        pull = self._pulls[address] = _Pull(reply, batch, loop.time() + expires_s + 0.5, loop.create_future())
        request = {"batch": batch, "no_wait": True} if no_wait else {"batch": batch, "expires": int(expires_s * 1e9)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._work}.{name}"
        await client.publish(subject, json.dumps(request).encode(), reply=reply)
        return pull

    async def _on_message(self, message: "Msg") -> None:
        if not message.reply:
            self._on_status(message)
            return
        facts = message.metadata
        consumer = self._consumers.get(facts.consumer)
        if consumer is None:
            return
        now = asyncio.get_running_loop().time()
        arrived = _ReceivedMessage(
            consumer, facts.sequence.stream, facts.num_delivered or 1, message.reply, message.data, now
        )
        self._arrived.append(arrived)
        pull = self._pulls.get(consumer)
        if pull is not None:
            pull.left -= 1
            if pull.left <= 0 and not pull.done.done():
                pull.done.set_result(None)
        self._news.set()
        if not self._receiving:
            asyncio.get_running_loop().call_later(KEPT_S, self._give_back)

    def _on_status(self, message: "Msg") -> None:
        """The pull has ended; if its consumer is gone, it is created again."""
        for address, pull in list(self._pulls.items()):
            if pull.reply == message.subject:
                del self._pulls[address]
                if not pull.done.done():
                    pull.done.set_result(None)
                if _status(message) in (CONSUMER_GONE, NO_RESPONDERS):
                    self._consumers = {name: known for name, known in self._consumers.items() if known != address}
        self._news.set()

    def _has(self, addresses: list[QueueAddress]) -> bool:
        return any(message.address in addresses for message in self._arrived)

    def _take(self, addresses: list[QueueAddress], limit: int) -> list[_ReceivedMessage]:
        ready = sorted(
            (message for message in self._arrived if message.address in addresses),
            key=lambda message: (message.address[2], message.seq),
        )
        self._arrived = [message for message in self._arrived if message.address not in addresses] + ready[limit:]
        return ready[:limit]

    async def _deliveries(self, arrived: list[_ReceivedMessage]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for message in arrived:
            try:
                if message.times > self._options.deliveries_max:
                    raise UnreadableMessage(too_often(message.times - 1))
                deliveries.append(
                    Delivery(self._options.codec.unwrap(message.data), (message.reply, message.data), message.times)
                )
            except UnreadableMessage as error:
                await self._bury(message.reply, message.data, str(error))
        return deliveries

    def _give_back(self) -> None:
        now = asyncio.get_running_loop().time()
        late = [message for message in self._arrived if now - message.at >= KEPT_S]
        if late and not self._receiving and self._client is not None:
            self._arrived = [message for message in self._arrived if message not in late]
            self._spawn(_all(self._client.publish(message.reply, b"-NAK") for message in late))

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    # ---- what became of it

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Each is confirmed by the server; otherwise it comes again. Where its stream or consumer is gone, nobody
        answers, and it is gone with them."""
        async with self._stream():
            for some in _portions(deliveries):
                await self._ask([(delivery.receipt[0], b"+ACK", None) for delivery in some])

    async def reject(self, delivery: Delivery, reason: str) -> None:
        reply, data = delivery.receipt
        async with self._stream():
            await self._bury(reply, data, reason)

    async def _bury(self, reply: str, data: bytes, reason: str) -> None:
        shown = reason.encode("ascii", "backslashreplace").decode()[:500]
        [kept] = await self._ask([(f"{self._name}.dead.letter", data, {"tickwork-reason": shown})])
        if _status(kept) != NO_RESPONDERS:  # else it comes again, and the stream is created again meanwhile
            await self._ask([(reply, b"+TERM", None)])

    async def depth(self) -> QueueDepth:
        async with self._stream() as stream:
            work, dead = await stream.stream_info(self._work), await stream.stream_info(self._dead)
            return QueueDepth(work.state.messages, dead.state.messages, str(work.created))

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        from nats.js.errors import NotFoundError

        async with self._stream() as stream:
            state = (await stream.stream_info(self._dead)).state
            letters: list[DeadLetter] = []
            for seq in range(state.last_seq, max(state.first_seq, 1) - 1, -1):
                if len(letters) == limit:
                    break
                with contextlib.suppress(NotFoundError):
                    message = await stream.get_msg(self._dead, seq)
                    letters.append(DeadLetter((message.headers or {}).get("tickwork-reason", ""), message.data or b""))
            return letters


async def _all(jobs: Any) -> None:
    """All of them to their end, then the first error."""
    for ended in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


def _portions(things: Sequence[T]) -> Iterator[Sequence[T]]:
    return (things[first : first + TOGETHER_MAX] for first in range(0, len(things), TOGETHER_MAX))


def _status(message: "Msg") -> str:
    return (message.headers or {}).get("Status", "")


async def _silent(_error: Exception) -> None:
    """The caller gets the error; nothing is printed."""


def _away(error: BaseException) -> Unavailable:
    return Unavailable(f"NATS cannot be reached: {str(error) or type(error).__name__}", retry_after_ms=1_000)
