"""Artifacts in the database that all nodes share, beside the payloads, which are bytes under their digest as well.

Good for values and logs of ordinary size; a cluster with many large ones wants an object store.
"""

from collections.abc import Sequence

from tickwork.core.base.errors import Corrupt
from tickwork.ports.artifacts import Named, digest_of
from tickwork.stores.postgres.connections import SCHEMA, ConnectionPool, PostgresConnection, address

MOVE_S = 120.0


class PostgresArtifacts:
    """Ready when the store over the same database is open."""

    def __init__(self, dsn: str, *, schema: str = SCHEMA, pgbouncer: bool | None = None) -> None:
        where = address(dsn, schema=schema, pgbouncer=pgbouncer)
        self._lines = ConnectionPool(lambda: PostgresConnection(where, changes=True, timeout_s=MOVE_S), count=2)

    async def put(self, data: bytes) -> str:
        digest = digest_of(data)
        await self._lines.fetch("put_payload", digest, data)
        return digest

    async def get(self, digest: str) -> bytes | None:
        rows = await self._lines.fetch("read_payloads", [digest])
        if not rows:
            return None
        data: bytes = rows[0][1]
        if digest_of(data) != digest:
            raise Corrupt(f"the artifact {digest} was damaged in the database")
        return data

    async def delete(self, digest: str) -> None:
        await self._lines.fetch("drop_payload", digest)

    async def renew(self, digests: Sequence[str]) -> frozenset[str]:
        return frozenset(digest for (digest,) in await self._lines.fetch("renew_payloads", list(digests)))

    async def sweep(self, *, before: int, named: Named) -> int:  # noqa: ARG002 - the store sweeps its payloads itself
        return 0

    async def close(self) -> None:
        await self._lines.close()
