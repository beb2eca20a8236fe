"""Renewal of this node's heartbeat and leases, and how long the leases are certain by its own clock.

A lease may end while an answer is under way, so time counts from before the call. A margin before the end of a lease
nothing is done under it any more: the node drops what it owned before another may take it.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tickwork.ports.leases import HeldLease, Leases, Member
from tickwork.ports.system import Clock

TTL_MS = 10_000
MARGIN = 0.2  # of a lease


class Renewed(NamedTuple):
    kept: frozenset[int]  # leases that are still this node's
    members: list[Member]
    holdings: list[HeldLease]


class LeaseRenewal:
    """`renewed_ms` is when the last successful renewal began, by the monotonic clock."""

    def __init__(self, leases: Leases, clock: Clock, *, ttl_ms: int) -> None:
        self._leases = leases
        self._clock = clock
        self._ttl_ms = ttl_ms
        self.renewed_ms = clock.mono_ms()

    @property
    def certain(self) -> bool:
        """Whether the leases that are held are this node's beyond doubt."""
        return self.certain_ms() > 0

    def certain_ms(self) -> float:
        """How long the leases remain certain without another renewal."""
        return self.renewed_ms + self._ttl_ms * (1 - MARGIN) - self._clock.mono_ms()

    async def renew(self, member: Member, partitions: Sequence[int]) -> Renewed:
        """Renew once. A slow answer may take as long as the leases are certain: dropping what is still owned would make
        a busy backend busier. Raises `TimeoutError`, or what the backend raises."""
        started_ms = self._clock.mono_ms()
        async with asyncio.timeout(max(self._ttl_ms * MARGIN, self.certain_ms()) / 1000):
            await self._leases.beat(member, ttl_ms=self._ttl_ms)
            kept = await self._leases.renew(partitions, member.session, ttl_ms=self._ttl_ms)
            renewed = Renewed(kept, await self._leases.members(), await self._leases.holdings())
        self.renewed_ms = started_ms
        return renewed
