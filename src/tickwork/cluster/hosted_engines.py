"""Engines of the partitions that this node owns: started, handed over, stopped, and abandoned."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tickwork.cluster.peers import Peers
from tickwork.core.base.errors import Refused, TickworkError
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.context import Neighbours

if TYPE_CHECKING:
    from tickwork.cluster.shared_inbox import SharedInbox
    from tickwork.runtime.engine import Engine

READ_AHEAD_S = 5.0  # the next owner may take so long for it; then it begins from the rows when its time has come
READ_AHEAD_KEPT_S = 30.0
GIVE_S = 2.0


class EngineCompanion(Protocol):
    """Whatever goes with an engine while it ticks here, such as the keeper of a lane."""

    def start(self) -> None: ...

    async def close(self) -> None: ...


class HostedEngines:
    def __init__(
        self,
        *,
        make_engine: "Callable[[int], Engine]",
        attend: "Callable[[Engine], EngineCompanion] | None",
        inbox: "SharedInbox",
        peers: Peers,
        alarms: Alarms,
        neighbours: Neighbours,
    ) -> None:
        self.running: dict[int, Engine] = {}  # those that tick, by partition
        self.store_id = ""  # identity of the store, known once it is open
        self._make_engine = make_engine
        self._attend = attend
        self._inbox = inbox
        self._peers = peers
        self._neighbours = neighbours
        self._alarms = alarms
        self._companions: dict[int, EngineCompanion] = {}
        self._ahead: dict[int, Engine] = {}  # read ahead, for partitions that are about to be ours

    async def read_ahead(self, partition: int) -> None:
        """Its owner is about to hand it over to this node."""
        if partition in self.running:
            raise Refused("not_another", f"partition {partition} is not another node's to hand over")
        engine = self._make_engine(partition)
        await engine.read_ahead()
        self._ahead[partition] = engine
        asyncio.get_running_loop().call_later(READ_AHEAD_KEPT_S, self._forget_ahead, partition, engine)

    def _forget_ahead(self, partition: int, engine: "Engine") -> None:
        if self._ahead.get(partition) is engine:
            del self._ahead[partition]

    async def start(self, partition: int, *, moved: Callable[[int], None]) -> None:
        """Return when the partition ticks here. `moved` is called before anything goes with it."""
        engine = self._ahead.pop(partition, None) or self._make_engine(partition)
        engine.context.store_id = self.store_id
        engine.context.neighbours = self._neighbours
        engine.context.alarms.on_alarm = lambda alarm: self._alarms.on_alarm(alarm)
        try:
            await engine.start()
        except BaseException:
            await engine.abandon("it did not start")
            raise
        with contextlib.suppress(TickworkError):
            await self._inbox.submit_due(partition, engine)  # so that queries find what was accepted there
        self.running[partition] = engine
        moved(partition)
        if self._attend is not None:
            companion = self._companions[partition] = self._attend(engine)
            companion.start()

    async def announce(self, partition: int, address: str) -> bool:
        """Let the next owner read ahead while the partition goes on here. Rows are left to it from where it begins to
        read. False: it does not want the partition."""
        engine = self.running.get(partition)
        if engine is None:
            return True
        try:
            async with asyncio.timeout(READ_AHEAD_S):
                await engine.context.live.pause_flushing()
                await self._peers.announce(address, partition)
        except (TickworkError, TimeoutError) as error:
            engine.context.live.resume_flushing()
            return isinstance(error, TimeoutError)  # it is there, and slow: it begins from the rows, when it has them
        return True

    async def give(self, partition: int, address: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_S):
                await self._peers.give(address, partition)

    async def finish(self, partition: int) -> None:
        """Stop the partition here, with everything durable."""
        engine = await self._leave(partition)
        if engine is not None:
            await engine.stop()

    async def drop(self, partition: int, reason: str) -> None:
        engine = await self._leave(partition)
        if engine is not None:
            self._alarms.add("dropped", f"partition {partition}: {reason}")
            await engine.abandon(reason)

    async def _leave(self, partition: int) -> "Engine | None":
        companion = self._companions.pop(partition, None)
        if companion is not None:
            await companion.close()
        self._inbox.forget(partition)
        return self.running.pop(partition, None)

    def failed(self) -> list[tuple[int, str]]:
        """Return the partitions that cannot go on here, with the reason."""
        partitions = ((number, engine.context.partition) for number, engine in self.running.items())
        return [
            (number, str(live.failed)) for number, live in partitions if live is not None and live.failed is not None
        ]
