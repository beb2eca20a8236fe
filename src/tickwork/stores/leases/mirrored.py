"""Leases in two places: a configured backend, and the store behind it for times when the backend is away.

Everything is written to both, so that a node that falls back to the store finds what the others hold. An outage of the
backend costs its speed only; an outage of both costs what an outage of the store costs anyway.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import ClusterScoped, HeldLease, Leases, Member

T = TypeVar("T")


class MirroredLeases:
    def __init__(
        self, chosen: Leases, store: Leases, *, on_alarm: Callable[[str, str], None] = lambda _kind, _text: None
    ) -> None:
        self._chosen, self._store = chosen, store
        self.on_alarm = on_alarm
        self._away = False

    def of_cluster(self, cluster: str) -> None:
        if isinstance(self._chosen, ClusterScoped):
            self._chosen.of_cluster(cluster)

    async def open(self) -> None:
        await self._store.open()
        try:
            await self._chosen.open()
        except Unavailable as error:
            self._missed(error)

    async def close(self) -> None:
        await self._chosen.close()
        await self._store.close()

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        await self._both(lambda leases: leases.beat(member, ttl_ms=ttl_ms))

    async def leave(self, session: str) -> None:
        await self._both(lambda leases: leases.leave(session))

    async def members(self) -> list[Member]:
        return await self._either(lambda leases: leases.members())

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        """Only who has it in both has it: nodes may not agree on which of the two is away."""
        if not await self._store.take(partition, member, ttl_ms=ttl_ms):
            return False
        try:
            taken = await self._chosen.take(partition, member, ttl_ms=ttl_ms)
        except Unavailable as error:
            self._missed(error)
            return True
        if not taken:
            await self._store.release(partition, member.session)
        return taken

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        kept = await self._store.renew(partitions, session, ttl_ms=ttl_ms)
        try:
            mine = await self._chosen.renew(sorted(kept), session, ttl_ms=ttl_ms)
        except Unavailable as error:
            self._missed(error)
            return kept
        self._back()
        # What the chosen one forgot, as after a restart without its data, is ours as long as the store says so.
        forgotten = kept - mine
        if not forgotten:
            return kept
        elsewhere = {holding.partition for holding in await self._chosen.holdings() if holding.session != session}
        return kept - (forgotten & elsewhere)

    async def release(self, partition: int, session: str) -> None:
        await self._both(lambda leases: leases.release(partition, session))

    async def holdings(self) -> list[HeldLease]:
        return await self._either(lambda leases: leases.holdings())

    # ---- which of the two

    async def _both(self, action: Callable[[Leases], Awaitable[None]]) -> None:
        await action(self._store)
        try:
            await action(self._chosen)
        except Unavailable as error:
            self._missed(error)

    async def _either(self, action: Callable[[Leases], Awaitable[T]]) -> T:
        try:
            return await action(self._chosen) if not self._away else await action(self._store)
        except Unavailable as error:
            self._missed(error)
            return await action(self._store)

    def _missed(self, error: Unavailable) -> None:
        if not self._away:
            self._away = True
            self.on_alarm(
                "leases_fell_back", f"leases are read from the store until their backend responds again: {error}"
            )

    def _back(self) -> None:
        self._away = False
