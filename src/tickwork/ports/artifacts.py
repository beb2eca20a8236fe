"""Large values and pieces of logs: bytes under their own digest.

Content-addressed, so writing twice is harmless and reading can verify. A reader never gets bytes that do
not match the digest: `Corrupt` is raised instead.
"""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Protocol

DIGEST_BYTES = 32
ARTIFACT_BYTES_MAX = 256 * 1024 * 1024  # of one, wherever it is put


Named = Callable[[Sequence[str]], Awaitable[frozenset[str]]]


def digest_of(data: bytes) -> str:
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


class Artifacts(Protocol):
    async def put(self, data: bytes) -> str:
        """Durable when it returns; answers with the digest."""

    async def get(self, digest: str) -> bytes | None:
        """Return `None` if it was never put, or is gone. Raises `Corrupt` if the bytes are not those that were put."""

    async def delete(self, digest: str) -> None:
        """Gone for good. Repeating it changes nothing."""

    # Days are counted from 1970 on, by the clock of whatever holds them.

    async def renew(self, digests: Sequence[str]) -> frozenset[str]:
        """These are needed today, as are those that are put today. Which of them are here."""

    async def sweep(self, *, before: int, named: Named) -> int:
        """How many are gone: those last needed before this day, but for those of them that are `named`. None where
        they lie among the payloads of a store."""
