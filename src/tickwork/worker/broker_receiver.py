"""Work from a broker: received while there is room, claimed at the server, accepted at the broker, and run.

The order is the rule: a message is accepted only after the server has said, durably, that the attempt is this worker's
or nobody's to take. Whatever goes wrong before that, the message comes again, here or elsewhere. How long work takes
plays no part: the broker never waits for it.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import Broker, Delivery, DispatchBody
from tickwork.worker.agent import Agent

WAIT_MS = 5_000
LIMIT = 500
BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0

_parcel = msgspec.msgpack.Decoder(DispatchBody)


class BrokerReceiver:
    """`run` goes on until the agent drains, or it is cancelled."""

    def __init__(self, agent: Agent, lane: Broker, queues: Sequence[str]) -> None:
        self._agent, self._lane, self._queues = agent, lane, list(queues)
        self._jobs: set[asyncio.Task[None]] = set()
        self.received = self.taken = self.dropped = 0

    async def run(self) -> None:
        delay_s = BACKOFF_S
        await self._lane.open()
        try:
            await self._agent.reached.wait()
            while not self._agent.draining:
                try:
                    await self._round()
                    delay_s = BACKOFF_S
                except Unavailable:
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, BACKOFF_S_MAX)
        finally:
            for job in list(self._jobs):
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            await self._lane.close()

    async def _round(self) -> None:
        agent = self._agent
        agent.freed.clear()
        if agent.room <= 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await agent.freed.wait()
            return
        limit = min(agent.room, LIMIT)
        came = await self._lane.receive(self._queues, agent.labels, limit=limit, wait_ms=WAIT_MS)
        if came:
            self.received += len(came)
            job = asyncio.get_running_loop().create_task(self._take(came))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            await asyncio.sleep(0)  # their claims are sent, and they count against the room

    async def _take(self, came: list[Delivery]) -> None:
        pending = [(delivery, settled) for delivery in came if (settled := await self._ask(delivery)) is not None]
        if not pending:
            return
        await asyncio.wait([settled for _, settled in pending])
        known = [(delivery, settled.result()) for delivery, settled in pending if not settled.cancelled()]
        self.taken += sum(mine for _, mine in known)
        self.dropped += sum(not mine for _, mine in known)
        with contextlib.suppress(Unavailable):  # then they come again, and are dropped: the server knows whose they are
            await self._lane.accept([delivery for delivery, _ in known])

    async def _ask(self, delivery: Delivery) -> "asyncio.Future[bool] | None":
        envelope = delivery.envelope
        key = (envelope.task, envelope.attempt)
        if envelope.store and self._agent.store_id and envelope.store != self._agent.store_id:
            # Its numbers mean other tasks here, and its own store gives it out again.
            await self._reject(
                delivery, f"it was dispatched by another store ({envelope.store[:12]}) than this worker's"
            )
            return None
        if not envelope.body:
            return self._agent.take(key, None, None)
        try:
            parcel = _parcel.decode(envelope.body)
        except msgspec.MsgspecError as error:
            await self._reject(delivery, f"its work cannot be decoded: {error}")
            return None
        if (parcel.work.task, parcel.work.attempt, parcel.work.tenant) != (*key, envelope.tenant):
            await self._reject(delivery, "its body belongs to another attempt or tenant than its envelope says")
            return None
        return self._agent.take(key, parcel.work, parcel.spec)

    async def _reject(self, delivery: Delivery, reason: str) -> None:
        with contextlib.suppress(Unavailable):
            await self._lane.reject(delivery, reason)
