"""How a node proves to another node that it is one.

The API's token lets clients and workers in. What only nodes may say (which partition they mean, that one is handed
over, who lives, that they stand for a worker) needs a proof: a secret that each start of a node makes, writes into its
row of members, and sends with its requests. Only nodes can read members. A node changes its secret from time to time,
and the one before stays valid until the next change; that of a node that has left stays valid for a while, because it
still passes requests on while it ends.
"""

import hmac
from collections.abc import Callable, Iterable

from tickwork.cluster.owner_lookup import OwnerLookup
from tickwork.cluster.ownership import Ownership
from tickwork.ports.leases import Member
from tickwork.ports.system import Clock

HEADER = "x-tickwork-node"
CODE = "not_a_node"
ROTATE_MS = 3_600_000
KEPT_MS = 60_000  # after a node was heard of last


class Credentials:
    def __init__(self, new_secret: Callable[[], str], *, now_ms: int) -> None:
        self._new_secret = new_secret
        self.accepted: tuple[str, ...] = (new_secret(),)  # of this node, the latest first: as members have it
        self.sent = self.accepted[0]
        self._changed_ms = now_ms
        self._known: dict[str, int] = {}  # secret -> when it was among the members last

    def note(self, members: Iterable[Member], *, now_ms: int) -> None:
        for member in members:
            for secret in member.secrets:
                self._known[secret] = now_ms
        for secret in [known for known, seen_ms in self._known.items() if now_ms - seen_ms > KEPT_MS]:
            del self._known[secret]

    def proves(self, given: str) -> bool:
        """Whether a live node sent this."""
        sent = given.encode("utf-8", "surrogatepass")
        return any(hmac.compare_digest(sent, secret.encode()) for secret in (*self._known, *self.accepted))

    def rotate(self, *, now_ms: int, published_ms: int, every_ms: int = ROTATE_MS) -> bool:
        """Whether members must be written. A new secret is sent only when it has been there, as of `published_ms`."""
        if self.sent != self.accepted[0] and published_ms > self._changed_ms:
            self.sent = self.accepted[0]
        if now_ms - self._changed_ms < every_ms:
            return False
        self.accepted = (self._new_secret(), self.accepted[0])
        self._changed_ms = now_ms
        return True


class NodeAuthentication:
    """Checks the proofs of other nodes, and publishes and rotates this node's own."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        ownership: Ownership,
        owners: OwnerLookup,
        clock: Clock,
        identify: Callable[[str], None],
    ) -> None:
        """`identify` gets what this node sends with its requests from now on."""
        self.credentials = credentials
        self.rotate_ms = ROTATE_MS  # how often the secret changes
        self._ownership = ownership
        self._owners = owners
        self._clock = clock
        self._identify = identify

    async def is_node(self, secret: str) -> bool:
        """Whether a request with this proof comes from a node. One that has just joined is looked for."""
        if not secret:
            return False
        if self.knows(secret):
            return True
        await self._owners.refresh()
        return self.knows(secret)

    def knows(self, secret: str) -> bool:
        """Whether the proof is that of a node which was seen among the members."""
        if not secret:
            return False
        self.credentials.note(self._ownership.members, now_ms=self._clock.mono_ms())
        return self.credentials.proves(secret)

    def rotate(self) -> None:
        """Change the secret when it is time."""
        credentials, now_ms = self.credentials, self._clock.mono_ms()
        sent = credentials.sent
        credentials.note(self._ownership.members, now_ms=now_ms)
        if credentials.rotate(now_ms=now_ms, published_ms=self._ownership.renewal.renewed_ms, every_ms=self.rotate_ms):
            self._ownership.identify(credentials.accepted)
        if credentials.sent != sent:
            self._identify(credentials.sent)
