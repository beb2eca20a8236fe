"""Lookup of the node that owns a partition, for requests and workers that came to another node."""

import asyncio

from tickwork.cluster.ownership import Ownership
from tickwork.core.base.errors import Unavailable

REFRESH_S = 0.02  # the shortest time between two refreshes after a missing answer


class OwnerLookup:
    def __init__(self, ownership: Ownership, *, session: str) -> None:
        self._ownership = ownership
        self._session = session  # of this node
        self._refreshed_s = 0.0

    async def address_of(self, partition: int) -> str:
        """Return the address of the node that owns a partition which this one does not."""
        holding = self._ownership.holdings.get(partition)
        if holding is None or holding.session == self._session:
            await self.refresh()
            holding = self._ownership.holdings.get(partition)
        if holding is None or holding.session == self._session:
            raise Unavailable(f"partition {partition} has no owner now; try again in a moment", retry_after_ms=200)
        return holding.address

    def other_owners(self) -> list[str]:
        """Return the addresses of all other nodes that own a partition."""
        holdings = self._ownership.holdings.values()
        return sorted({holding.address for holding in holdings if holding.session != self._session})

    async def refresh(self) -> None:
        """Refresh the owners: a supposed owner did not answer."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refreshed_s >= REFRESH_S:
            self._refreshed_s = now_s
            await self._ownership.refresh()
