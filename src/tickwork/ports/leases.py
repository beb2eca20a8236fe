"""Who tries to own what: the nodes that are alive, and which of them holds which partition.

A lease chooses who tries; the epoch in the store decides who wins. So a backend that forgets, hands a lease out twice
or has a wrong clock costs time and never correctness. A lease belongs to one start of a node (its session), and every
backend measures time by one clock of its own, never by those of the nodes.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec


class Member(msgspec.Struct, frozen=True):
    """A node, as the others see it."""

    session: str  # one start of the node: after a restart it is another
    node: str  # its name, which it keeps: placement goes by it
    address: str  # where the other nodes reach its API
    version: str = ""  # of the program
    protocol: int = 1  # between nodes
    started_ms: int = 0
    draining: bool = False  # gives away what it holds and takes nothing more
    engine: bool = True  # owns partitions; a node without only answers and forwards
    oldest: int = 1  # the earliest protocol that it still speaks
    machine: int = 1  # the latest rules that it knows: a partition that later ones decided is not for it
    unable: tuple[int, ...] = ()  # partitions that it found to be so
    secrets: tuple[str, ...] = ()  # by which its requests are known to be a node's, the latest first; for nodes alone


class HeldLease(msgspec.Struct, frozen=True):
    """A lease that has not run out."""

    partition: int
    session: str
    node: str
    address: str


class Leases(Protocol):
    """Raises `Unavailable` where the backend cannot be reached."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        """This node lives, for as long as `ttl_ms` from now."""

    async def leave(self, session: str) -> None:
        """It ends: its beat and everything it holds is free at once."""

    async def members(self) -> list[Member]:
        """Those whose beat has not run out, by session."""

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        """Whether it is this member's now: it was free, run out, or its own already."""

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        """Renew for `ttl_ms` and return those that are still its own. One that ran out and was not taken counts."""

    async def release(self, partition: int, session: str) -> None:
        """Free at once, where it was its own."""

    async def holdings(self) -> list[HeldLease]:
        """By partition."""


@runtime_checkable
class ClusterScoped(Protocol):
    """Leases that several clusters may keep in one place, such as a Redis: each sees its own only."""

    def of_cluster(self, cluster: str) -> None:
        """Said before they are opened."""
