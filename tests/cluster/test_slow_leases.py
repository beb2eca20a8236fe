"""A node and its leases, when these answer slowly or not at all. Nobody waits: the loop's time is virtual."""

import asyncio

import pytest

from tickwork.cluster.ownership import MARGIN, Duties, Ownership
from tickwork.core.errors import Unavailable
from tickwork.ports.leases import Member
from tickwork.sim.loop import VirtualLoop
from tickwork.stores.memory_leases import MemoryLeases

TTL_MS = 3_000


@pytest.fixture
def loop():
    made = VirtualLoop()
    yield made
    made.close()


class LoopClock:
    def __init__(self, loop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return int(self._loop.time() * 1000)

    mono_ms = wall_ms


class SlowLeases(MemoryLeases):
    def __init__(self, clock) -> None:
        super().__init__(clock.mono_ms)
        self.beat_s = self.release_s = 0.0
        self.away = False

    async def beat(self, member, *, ttl_ms):
        await asyncio.sleep(self.beat_s)
        if self.away:
            raise Unavailable("nobody answers", retry_after_ms=1)
        await super().beat(member, ttl_ms=ttl_ms)

    async def release(self, partition, session):
        await asyncio.sleep(self.release_s)
        await super().release(partition, session)


class Owner:
    def __init__(self, loop) -> None:
        self.clock = LoopClock(loop)
        self.leases = SlowLeases(self.clock)
        self.dropped: dict[int, int] = {}
        duties = Duties(self._nothing, self._nothing, self._drop, self._nothing, lambda *_: None)
        member = Member("s1", "n1", "http://n1")
        self.ownership = Ownership(
            leases=self.leases, member=member, partitions=3, clock=self.clock, duties=duties, ttl_ms=TTL_MS
        )

    async def _nothing(self, *_) -> None: ...

    async def _drop(self, partition, reason) -> None:
        self.dropped[partition] = self.clock.mono_ms()


def test_a_node_keeps_what_it_owns_while_its_leases_answer_slowly(loop):
    owner = Owner(loop)

    async def live():
        await owner.ownership.start()
        owner.leases.beat_s = 1.5 * TTL_MS * MARGIN / 1000
        await asyncio.sleep(20)
        held = sorted(owner.ownership.held)
        await owner.ownership.stop()
        return held

    assert loop.run_until_complete(live()) == [0, 1, 2]
    assert owner.dropped == {}


@pytest.mark.proves("I6", "F4")
@pytest.mark.parametrize("answers", ["with an error", "never"])
def test_everything_is_dropped_before_the_lease_ends_though_nobody_answers(loop, answers):
    owner = Owner(loop)

    async def live():
        await owner.ownership.start()
        began = owner.clock.mono_ms()
        owner.leases.away, owner.leases.release_s = True, 5.0
        if answers == "never":
            owner.leases.beat_s = 3_600.0
        await asyncio.sleep(TTL_MS / 1000)
        dropped = {partition: at - began for partition, at in owner.dropped.items()}
        owner.leases.release_s = 0.0
        await owner.ownership.stop()
        return dropped

    dropped = loop.run_until_complete(live())

    assert sorted(dropped) == [0, 1, 2]
    assert max(dropped.values()) < TTL_MS
