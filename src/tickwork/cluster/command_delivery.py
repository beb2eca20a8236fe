"""Commands of tasks from one partition to another, wherever that is owned."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tickwork.cluster.peers import Peers
from tickwork.cluster.tenant_routes import TenantRoutes
from tickwork.core.base.errors import Unavailable
from tickwork.core.state.state import QueuedCommand
from tickwork.protocol.partition_messages import CommandBatch, CommandOutcome

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


class CommandDelivery:
    """`runtime.context.Neighbours` of every engine of a node."""

    def __init__(
        self,
        *,
        routes: TenantRoutes,
        peers: Peers,
        owned: "Callable[[int], Engine | None]",
        address_of: Callable[[int], Awaitable[str]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._routes = routes
        self._peers = peers
        self._owned = owned
        self._address_of = address_of
        self._refresh = refresh

    def partitions_of(self, tenant: str) -> tuple[int, ...]:
        return self._routes.partitions_of(tenant)

    async def deliver(self, partition: int, sender: int, commands: Sequence[QueuedCommand]) -> list[CommandOutcome]:
        batch = CommandBatch(sender, tuple(commands))
        engine = self._owned(partition)
        if engine is not None:
            return await engine.runs.take_commands(batch)
        try:
            return await self._peers.deliver(await self._address_of(partition), partition, batch)
        except Unavailable:
            await self._refresh()  # it may have another owner by now
            raise
