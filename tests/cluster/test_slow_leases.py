"""A node and its leases, when these answer slowly or not at all. Nobody waits: the loop's time is virtual."""

import asyncio
import contextlib
import itertools

import pytest

from tickwork.cluster.lease_renewal import MARGIN
from tickwork.cluster.ownership import Ownership, OwnershipCallbacks
from tickwork.compose.settings import duration_setting, load
from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import Member
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.testing.virtual_loop import VirtualLoop

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
    def __init__(self, loop, leases=SlowLeases, **options) -> None:
        self.clock = LoopClock(loop)
        self.leases = leases(self.clock)
        self.dropped: dict[int, int] = {}
        self.alarms: list[tuple[str, str]] = []
        duties = OwnershipCallbacks(
            own=self._nothing,
            announce=self._nothing,
            finish=self._nothing,
            drop=self._drop,
            give=self._nothing,
            moved=lambda _: None,
            alarm=lambda *told: self.alarms.append(told),
        )
        member = Member("s1", "n1", "http://n1")
        self.ownership = Ownership(
            leases=self.leases, member=member, partitions=3, clock=self.clock, duties=duties, ttl_ms=TTL_MS, **options
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


class OneLine(MemoryLeases):
    """One thing at a time, as over one connection, and each takes its time. Whoever gives up breaks the connection."""

    def __init__(self, clock, *, takes_s: float) -> None:
        super().__init__(clock.mono_ms)
        self.takes_s, self.broken = takes_s, 0
        self._turn = asyncio.Lock()

    async def _take_time(self):
        async with self._turn:
            try:
                await asyncio.sleep(self.takes_s)
            except asyncio.CancelledError:
                self.broken += 1
                raise

    async def beat(self, member, *, ttl_ms):
        await self._take_time()
        await super().beat(member, ttl_ms=ttl_ms)

    async def renew(self, partitions, session, *, ttl_ms):
        await self._take_time()
        return await super().renew(partitions, session, ttl_ms=ttl_ms)

    async def members(self):
        await self._take_time()
        return await super().members()

    async def holdings(self):
        await self._take_time()
        return await super().holdings()


@pytest.mark.proves("F8")
def test_renewing_does_not_stand_behind_those_who_ask_who_owns_what(loop):
    """Workers and clients whose partition has no owner ask all the time, and many of them do not wait for the end."""
    owner = Owner(loop, lambda clock: OneLine(clock, takes_s=0.1))

    async def ask():
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.15):
                    await owner.ownership.refresh()
            await asyncio.sleep(0.02)

    async def live():
        await owner.ownership.start()
        asking = [asyncio.create_task(ask()) for _ in range(50)]
        await asyncio.sleep(30)
        held, broken = sorted(owner.ownership.held), owner.leases.broken
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await owner.ownership.stop()
        return held, broken

    assert loop.run_until_complete(live()) == ([0, 1, 2], 0)
    assert owner.dropped == {} and owner.alarms == []


@pytest.mark.proves("I4", "I6")
def test_what_took_so_long_to_take_up_that_its_lease_ended_is_not_kept(loop):
    owner = Owner(loop)
    own, owned = asyncio.Event(), []

    async def slowly(partition):
        await own.wait()
        owned.append(partition)

    owner.ownership._duties.own = slowly

    async def live():
        starting = asyncio.create_task(owner.ownership.start())
        await asyncio.sleep(0.1)
        assert sorted(owner.ownership.held) == [0, 1, 2]
        for partition in range(3):
            await owner.ownership.lost(partition, "another has it")  # as the guard says when the proof runs out
        owner.leases.away = True
        owner.dropped.clear()
        own.set()
        await starting
        owner.leases.away = False
        await owner.ownership.stop()

    loop.run_until_complete(live())

    assert sorted(owned) == [0, 1, 2]
    assert set(owner.dropped) == {0, 1, 2}, "each is dropped after it was taken up"


class WatchedLeases(SlowLeases):
    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.looks: list[int] = []
        self._clock = clock

    async def beat(self, member, *, ttl_ms):
        self.looks.append(self._clock.mono_ms())
        await super().beat(member, ttl_ms=ttl_ms)


@pytest.mark.proves("S000-23")
@pytest.mark.parametrize(("given", "delay_ms"), [(None, 1_000), ("400ms", 400)])
def test_a_node_looks_again_for_a_held_lease_after_the_delay_of_its_setting(loop, given, delay_ms):
    settings = load({"lease_retry": given}, env={})
    owner = Owner(loop, WatchedLeases, retry_ms=duration_setting(settings, "lease_retry"))
    other = Member("s0", "n0", "http://n0")

    async def live():
        for partition in range(3):
            assert await owner.leases.take(partition, other, ttl_ms=10_100)
        await owner.ownership.start()
        await asyncio.sleep(10)
        while_held = dict(owner.ownership.held)
        await asyncio.sleep(1.5)
        afterwards = sorted(owner.ownership.held)
        await owner.ownership.stop()
        return while_held, afterwards

    assert loop.run_until_complete(live()) == ({}, [0, 1, 2])
    looks = [at for at in owner.leases.looks if at <= 10_000]
    between = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert len(between) >= 9 and set(between[1:]) == {delay_ms}
