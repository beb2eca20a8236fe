"""Auditors of a server: beside the engines that it owns, or, on a node that owns nothing, of a whole cluster.

A standby reads the journals of all partitions from the store, on whichever node they are, and has dispatch held by a
command to the owner. So the decisions of an owner are repeated on another machine.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tickwork.cluster.hosted_engines import EngineCompanion
from tickwork.core.base.errors import TickworkError
from tickwork.core.calendar.zones import Zones
from tickwork.ports.system import Clock
from tickwork.runtime.maintenance.auditor import Auditor, Hold, Leave, at_the_watermark
from tickwork.runtime.storage.archive import ArchiveReader
from tickwork.runtime.storage.store_retry import retry_until_available
from tickwork.system.private_files import private_file, private_folder

if TYPE_CHECKING:
    from tickwork.cluster.node import Node
    from tickwork.runtime.engine import Engine


def keeping(folder: Path) -> Leave:
    """Reproductions that an auditor leaves go here. The first one of a name stays."""

    async def keep(name: str, data: bytes) -> None:
        private_folder(folder)
        with contextlib.suppress(FileExistsError), os.fdopen(private_file(folder / name), "wb") as file:
            file.write(data)

    return keep


class EngineAuditor:
    """Beside an engine that a node owns, for as long as it does."""

    def __init__(self, engine: "Engine", keep: Leave) -> None:
        self._engine, self._keep = engine, keep
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._begin())

    async def _begin(self) -> None:
        try:
            await retry_until_available(lambda: self._engine.maintenance.audit(self._keep))
        except TickworkError as error:
            self._engine.context.alarms.add(
                "audit_stopped", f"partition {self._engine.context.number} is not audited: {error}"
            )

    async def close(self) -> None:
        """What it began ends with the engine."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class ClusterAuditor:
    """Follows every partition of a cluster. `hold` reaches the owner of one."""

    def __init__(self, node: "Node", *, hold: Hold, keep: Leave, zones: Zones, clock: Clock) -> None:
        self._node = node
        self._hold, self._keep = hold, keep
        self._zones, self._clock = zones, clock
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(partition)) for partition in range(self._node.partitions)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, partition: int) -> None:
        node = self._node
        try:
            start = await retry_until_available(lambda: at_the_watermark(node.store, partition, self._zones))
        except TickworkError as error:
            node.alarms.add("audit_stopped", f"partition {partition} is not audited: {error}")
            return
        auditor = Auditor(
            ArchiveReader(node.store, node.artifacts), partition, start, zones=self._zones,
            clock=self._clock, hold=self._hold, keep=self._keep, on_alarm=node.alarms.add,
        )  # fmt: skip
        node.auditors.append(auditor)
        await auditor.follow()


def holding(ask: Callable[[int, str, str, object], Awaitable[bytes]]) -> Hold:
    """Send a command to the node that owns the partition then."""

    async def hold(partition: int, reason: str) -> None:
        await ask(partition, "POST", f"/v1/partitions/{partition}/pause", {"reason": reason})

    return hold


class Companions:
    """What goes with an engine, where that is more than one."""

    def __init__(self, attendants: Sequence[EngineCompanion]) -> None:
        self._attendants = attendants

    def start(self) -> None:
        for attendant in self._attendants:
            attendant.start()

    async def close(self) -> None:
        for attendant in self._attendants:
            await attendant.close()
