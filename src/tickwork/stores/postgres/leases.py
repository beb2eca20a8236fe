"""Leases in PostgreSQL: two small tables, and the server's clock for all.

They go over a connection of their own, so that a renewal never waits behind a commit, and are not synced: a lease
that a crash forgets costs a moment, and the epoch decides in any case.
"""

from collections.abc import Sequence

import msgspec

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import HeldLease, Member
from tickwork.stores.postgres.connections import SCHEMA, PostgresConnection, address
from tickwork.stores.postgres.errors import RETRY_MS
from tickwork.stores.postgres.open import bring_up

TIMEOUT_S = 5.0
UNSYNCED = {"synchronous_commit": "off"}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Member).decode


class PostgresLeases:
    """In the schema of the store, which is brought up to date by whichever of the two opens first."""

    def __init__(self, dsn: str, *, schema: str = SCHEMA, pgbouncer: bool | None = None, upgrade: bool = True) -> None:
        self._upgrade = upgrade
        self.address = address(dsn, schema=schema, pgbouncer=pgbouncer)
        self._opened: PostgresConnection | None = None

    async def open(self) -> None:
        await bring_up(self.address, upgrade=self._upgrade)
        self._opened = PostgresConnection(self.address, changes=False, timeout_s=TIMEOUT_S, settings=UNSYNCED)

    async def close(self) -> None:
        line, self._opened = self._opened, None
        if line is not None:
            await line.close()

    @property
    def _line(self) -> PostgresConnection:
        if self._opened is None:
            raise Unavailable("the leases are closed", retry_after_ms=RETRY_MS)
        return self._opened

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        await self._line.fetch("beat", member.session, member.node, member.address, _encode(member), ttl_ms)

    async def leave(self, session: str) -> None:
        await self._line.fetch("leave", session)
        await self._line.fetch("forget_members")

    async def members(self) -> list[Member]:
        return [_decode(data) for (data,) in await self._line.fetch("read_members")]

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        return bool(
            await self._line.fetch("take_lease", partition, member.session, member.node, member.address, ttl_ms)
        )

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        rows = await self._line.fetch("renew_leases", list(partitions), session, ttl_ms)
        return frozenset(partition for (partition,) in rows)

    async def release(self, partition: int, session: str) -> None:
        await self._line.fetch("release_lease", partition, session)

    async def holdings(self) -> list[HeldLease]:
        return [HeldLease(*row) for row in await self._line.fetch("read_leases")]
