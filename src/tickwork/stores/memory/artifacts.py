"""Artifacts in memory, for tests and for applications that keep nothing."""

from collections.abc import Sequence

from tickwork.core.base.errors import Corrupt
from tickwork.ports.artifacts import Named, digest_of


class MemoryArtifacts:
    """`ports.artifacts.Artifacts` that outlives its engine. `damage` is for tests of what readers do about it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.day = 0  # today; tests set it
        self.days: dict[str, int] = {}

    async def put(self, data: bytes) -> str:
        digest = digest_of(data)
        self.kept[digest], self.days[digest] = bytes(data), self.day
        return digest

    async def get(self, digest: str) -> bytes | None:
        data = self.kept.get(digest)
        if data is not None and digest_of(data) != digest:
            raise Corrupt(f"artifact {digest} does not match its digest")
        return data

    async def delete(self, digest: str) -> None:
        self.kept.pop(digest, None)

    async def renew(self, digests: Sequence[str]) -> frozenset[str]:
        self.days.update({digest: self.day for digest in digests if digest in self.kept})
        return frozenset(digests) & self.kept.keys()

    async def sweep(self, *, before: int, named: Named) -> int:
        old = [digest for digest in sorted(self.kept) if self.days.get(digest, 0) < before]
        gone = [digest for digest in old if digest not in await named(old)]
        for digest in gone:
            await self.delete(digest)
        return len(gone)

    def damage(self, digest: str) -> None:
        data = self.kept[digest]
        self.kept[digest] = bytes([data[0] ^ 1]) + data[1:] if data else b"\0"
