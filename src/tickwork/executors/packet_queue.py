"""What waits for a child of a pool and what is on its way to one: attempts in their order, in packets on one socket.

An attempt travels alone unless its like is known to be short and more of them wait than there are children to take
them; then so many share a packet as a few milliseconds hold. A packet that no child has read can be taken back from
the socket at any time. Every packet has a number that never comes again, so a report about one is never taken for
another that has the same attempts. Where an attempt travels alone it is below zero, and its end is that of the packet.
"""

import socket
from collections import deque

import msgspec

from tickwork.protocol.child_messages import PACKET_BYTES_MAX, LargeAttemptJob, large_packet, number_of, packet
from tickwork.protocol.worker_messages import AttemptJob, NodeSpec

AHEAD = 256  # attempts that wait in the socket beyond what runs: enough to keep children busy
FEW = 8  # the same while the duration is unknown: the others may share packets as soon as one has ended
BATCH_MAX = 32  # attempts in a packet
BATCH_US = 3_000  # what those in a packet take together, by what is known
SPAN = 16  # so many attempts ago counts no more for what one takes
_TAKE_BYTES = 256 * 1024
Key = tuple[int, int]


class QueuedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt, and what a packet with it needs. `job` where its values are files."""

    key: Key
    work: AttemptJob
    spec: NodeSpec
    head: bytes
    size: int  # about what it adds to a packet
    job: LargeAttemptJob | None = None


class PacketQueue:
    def __init__(
        self, *, children: int, width: int, pair: tuple[socket.socket, socket.socket] | None = None
    ) -> None:  # fmt: skip
        self._ours, self._theirs = pair or _pair()
        self._width = width
        self.queue: deque[QueuedAttempt] = deque()
        self.errands: dict[Key, QueuedAttempt] = {}  # everything here, in the queue or out
        self.out: dict[Key, int] = {}  # in the socket or with a child: the number of its packet
        self.packets: dict[int, list[QueuedAttempt]] = {}  # that no child has reported as done
        self.shared = 0  # of these, the ones with several attempts
        self._took_us: dict[int, int] = {}  # duration of an attempt of a spec; missing: unknown
        self._number = 0
        self.grow(children)

    def grow(self, children: int) -> None:
        self._children = children
        self._free = children * self._width  # so many run at once
        self._most = self._free + AHEAD

    # ---- out

    def put(self, errand: QueuedAttempt) -> bool:
        """Whether it is on its way. It goes at once where a child is free for it."""
        self.errands[errand.key] = errand
        if not self.queue and len(self.out) < self._free and self._send([errand], errand.head):
            return True
        self.queue.append(errand)
        return False

    def top_up(self) -> None:
        # Of what waits, every child shall get some.
        most = min(BATCH_MAX, -(-len(self.queue) // (2 * self._children))) if self._width == 1 else 1
        while self.queue:
            known = self.queue[0].spec.id in self._took_us
            if len(self.out) >= (self._most if known else self._free + FEW):
                return
            batch, heads = self._portion(most)
            if not self._send(batch, heads):
                self.queue.extendleft(reversed(batch))
                return

    def _portion(self, most: int) -> tuple[list[QueuedAttempt], bytes]:
        """The next ones that go together, at most so many."""
        queue, took_us = self.queue, self._took_us
        first = queue.popleft()
        if first.job is not None or most == 1:
            return [first], first.head
        batch, heads = [first], {first.spec.id: first.head}
        left_us = BATCH_US - took_us.get(first.spec.id, BATCH_US)
        left_bytes = PACKET_BYTES_MAX - first.size
        while queue and len(batch) < most and left_us > 0:
            errand = queue[0]
            left_us -= took_us.get(errand.spec.id, BATCH_US)
            left_bytes -= errand.size
            if left_us < 0 or left_bytes < 0 or errand.job is not None:
                break
            if heads.setdefault(errand.spec.id, errand.head) is not errand.head:
                break  # the number means another spec by now
            batch.append(queue.popleft())
        return batch, b"".join(heads.values())

    def _send(self, batch: list[QueuedAttempt], heads: bytes) -> bool:
        self._number += 1
        number = -self._number if len(batch) == 1 else self._number
        job = batch[0].job
        works = [errand.work for errand in batch]
        data = packet(number, heads, works) if job is None else large_packet(number, heads, job)
        try:
            self._ours.send(data)
        except BlockingIOError:
            return False
        self.packets[number] = batch
        self.shared += len(batch) > 1
        for errand in batch:
            self.out[errand.key] = number
        return True

    # ---- and back

    def take_back(self) -> None:
        """What lies in the socket goes to the front of the queue, in its order."""
        taken: list[int] = []
        while True:
            try:
                data = self._theirs.recv(_TAKE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not data:
                break  # our end is closed
            taken.append(number_of(data))
        for number in reversed(taken):
            self.put_back(self.through(number))

    def through(self, number: int, *, ran: int = 0, took_us: int = 0) -> list[QueuedAttempt]:
        """The first `ran` of a packet have begun, and nothing more of it will. Answers with the others, which are
        neither out nor in the queue any more. `took_us`: what those that ran took together."""
        packet = self.packets.pop(number, None)
        if packet is None:
            return []
        self.shared -= len(packet) > 1
        if ran and took_us:  # none began where the packet was held before the first did
            for spec in {errand.spec.id: None for errand in packet}:
                self.learn(spec, took_us // ran, weight=ran)
        if ran == len(packet):
            return []
        return self._no_longer_out(number, packet[ran:])

    def _no_longer_out(self, number: int, errands: list[QueuedAttempt]) -> list[QueuedAttempt]:
        """Forget that these attempts are out in the packet, and return those that were."""
        left = [errand for errand in errands if self.out.get(errand.key) == number]
        for errand in left:
            del self.out[errand.key]
        return left

    def alone(self, number: int, key: Key, *, took_ms: int) -> None:
        """The end of an attempt that had a packet for itself, and of that packet."""
        del self.packets[number]
        self.learn(self.errands.pop(key).spec.id, 1_000 * took_ms + 500)

    def behind(self, key: Key) -> list[QueuedAttempt]:
        """Those that come after it in its packet. None of them will begin; whether it has begun itself, a child that
        stood still for a while may only say when it is through."""
        number = self.out[key]
        packet = self.packets[number]
        count = [errand.key for errand in packet].index(key) + 1
        left = self._no_longer_out(number, packet[count:])
        del packet[count:]
        self.shared -= count == 1
        return left

    def put_back(self, errands: list[QueuedAttempt]) -> None:
        self.queue.extendleft(reversed(errands))

    def learn(self, spec: int, took_us: int, *, weight: int = 1) -> None:
        """What attempts of this spec take. One that is new counts as its first."""
        known = self._took_us.get(spec, took_us)
        self._took_us[spec] = known + (took_us - known) * min(weight, SPAN) // SPAN

    def drop(self, key: Key) -> None:
        """Out of the queue."""
        self.queue = deque(errand for errand in self.queue if errand.key != key)

    def forget(self, key: Key) -> None:
        self.errands.pop(key, None)
        number = self.out.pop(key, 0)
        if number < 0:
            self.packets.pop(number, None)

    # ---- the socket

    @property
    def theirs(self) -> socket.socket:
        """The end that children read."""
        return self._theirs

    def shut(self) -> None:
        """Children that wait for work end."""
        self._ours.close()

    def close(self) -> None:
        self._theirs.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM))
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
    ours.setblocking(False)
    return ours, theirs
