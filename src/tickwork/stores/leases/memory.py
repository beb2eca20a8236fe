"""Leases in memory: for tests and for simulated nodes, which share one `MemoryLeases` as they would share a server."""

from collections.abc import Callable, Sequence

from tickwork.ports.leases import HeldLease, Member


class MemoryLeases:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._members: dict[str, tuple[Member, int]] = {}
        self._held: dict[int, tuple[HeldLease, int]] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        self._members[member.session] = (member, self._now_ms() + ttl_ms)

    async def leave(self, session: str) -> None:
        self._members.pop(session, None)
        self._held = {partition: held for partition, held in self._held.items() if held[0].session != session}

    async def members(self) -> list[Member]:
        now_ms = self._now_ms()
        return [member for _, (member, until) in sorted(self._members.items()) if until > now_ms]

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        now_ms = self._now_ms()
        current = self._held.get(partition)
        if current is not None and current[1] > now_ms and current[0].session != member.session:
            return False
        self._held[partition] = (HeldLease(partition, member.session, member.node, member.address), now_ms + ttl_ms)
        return True

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        mine = [
            partition
            for partition in partitions
            if partition in self._held and self._held[partition][0].session == session
        ]
        for held in mine:
            self._held[held] = (self._held[held][0], self._now_ms() + ttl_ms)
        return frozenset(mine)

    async def release(self, partition: int, session: str) -> None:
        if partition in self._held and self._held[partition][0].session == session:
            del self._held[partition]

    async def holdings(self) -> list[HeldLease]:
        now_ms = self._now_ms()
        return [holding for _, (holding, until) in sorted(self._held.items()) if until > now_ms]
