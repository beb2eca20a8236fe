"""What every lease backend promises. An adapter's test class inherits these and provides `leases`, a second way in to
the same backend (`others`), and `ttl_ms`, the shortest time that it can count."""

import asyncio

import msgspec
import pytest

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import HeldLease, Member

LONG_MS = 60_000
A = Member("s-a", "node-a", "http://a:1", version="1.0", protocol=2, started_ms=5)
B = Member("s-b", "node-b", "http://b:1", engine=False)


def held(partition: int, member: Member) -> HeldLease:
    return HeldLease(partition, member.session, member.node, member.address)


async def until(ask, *, seconds: float = 8.0):
    """Until the answer is true, or the deadline."""
    async with asyncio.timeout(seconds):
        while not await ask():
            await asyncio.sleep(0.02)


class LeaseSuite:
    # ---- members

    async def test_members_are_seen_by_all_by_session(self, leases, others):
        await others.beat(B, ttl_ms=LONG_MS)
        await leases.beat(A, ttl_ms=LONG_MS)

        assert await leases.members() == [A, B]
        assert await others.members() == [A, B]

    async def test_a_beat_brings_what_changed(self, leases):
        draining = msgspec.structs.replace(A, draining=True)
        await leases.beat(A, ttl_ms=LONG_MS)
        await leases.beat(draining, ttl_ms=LONG_MS)

        assert await leases.members() == [draining]

    async def test_a_member_that_no_longer_beats_is_gone(self, leases, others, ttl_ms):
        await others.beat(B, ttl_ms=LONG_MS)
        await leases.beat(A, ttl_ms=ttl_ms)

        async def gone():
            return await others.members() == [B]

        await until(gone)

    @pytest.mark.proves("F2")
    async def test_a_member_that_beats_stays(self, leases, others, ttl_ms):
        loop = asyncio.get_running_loop()
        end = loop.time() + ttl_ms * 2.5 / 1000
        while loop.time() < end:
            await leases.beat(A, ttl_ms=ttl_ms)
            assert await others.members() == [A]
            await asyncio.sleep(ttl_ms / 6_000)

    # ---- leases

    @pytest.mark.proves("I3")
    async def test_a_lease_has_one_holder(self, leases, others):
        assert await leases.take(3, A, ttl_ms=LONG_MS)
        assert not await others.take(3, B, ttl_ms=LONG_MS)
        assert await others.take(1, B, ttl_ms=LONG_MS)
        assert await leases.holdings() == await others.holdings() == [held(1, B), held(3, A)]

    async def test_its_own_may_be_taken_again(self, leases):
        assert await leases.take(3, A, ttl_ms=LONG_MS)
        assert await leases.take(3, A, ttl_ms=LONG_MS)
        assert await leases.holdings() == [held(3, A)]

    @pytest.mark.proves("F1")
    async def test_one_that_ran_out_is_free(self, leases, others, ttl_ms):
        await leases.take(3, A, ttl_ms=ttl_ms)

        await until(lambda: others.take(3, B, ttl_ms=LONG_MS))
        assert await others.holdings() == [held(3, B)]
        assert await leases.renew([3], A.session, ttl_ms=LONG_MS) == frozenset()
        assert not await leases.take(3, A, ttl_ms=LONG_MS)

    async def test_renewing_keeps_what_is_named_and_only_that(self, leases, others, ttl_ms):
        for partition in (1, 2):
            assert await leases.take(partition, A, ttl_ms=ttl_ms)
        free = False
        async with asyncio.timeout(8):
            while not free:
                assert await leases.renew([1, 7], A.session, ttl_ms=ttl_ms) == {1}
                free = await others.take(2, B, ttl_ms=LONG_MS)
                await asyncio.sleep(ttl_ms / 6_000)

        assert await others.holdings() == [held(1, A), held(2, B)]

    async def test_renewing_may_make_it_longer(self, leases, others, ttl_ms):
        await leases.take(1, A, ttl_ms=ttl_ms)
        await others.take(2, B, ttl_ms=ttl_ms)
        assert await leases.renew([1], A.session, ttl_ms=LONG_MS) == {1}

        async def gone():
            return await others.holdings() == [held(1, A)]

        await until(gone)

    async def test_one_that_ran_out_and_that_nobody_took_is_renewed(self, leases, ttl_ms):
        await leases.take(1, A, ttl_ms=ttl_ms)

        async def out():
            return await leases.holdings() == []

        await until(out)
        assert await leases.renew([1], A.session, ttl_ms=LONG_MS) == {1}
        assert await leases.holdings() == [held(1, A)]

    async def test_nobody_renews_or_releases_what_is_anothers(self, leases, others):
        await leases.take(1, A, ttl_ms=LONG_MS)
        await others.release(1, B.session)

        assert await others.renew([1], B.session, ttl_ms=LONG_MS) == frozenset()
        assert await leases.renew([], A.session, ttl_ms=LONG_MS) == frozenset()
        assert await leases.holdings() == [held(1, A)]

    async def test_a_released_one_is_free_at_once_and_not_renewed(self, leases, others):
        await leases.take(1, A, ttl_ms=LONG_MS)
        await leases.release(1, A.session)
        await leases.release(1, A.session)

        assert await leases.renew([1], A.session, ttl_ms=LONG_MS) == frozenset()
        assert await others.take(1, B, ttl_ms=LONG_MS)

    async def test_whoever_leaves_frees_everything_at_once(self, leases, others):
        await leases.beat(A, ttl_ms=LONG_MS)
        await others.beat(B, ttl_ms=LONG_MS)
        for partition in (1, 2):
            await leases.take(partition, A, ttl_ms=LONG_MS)
        await others.take(5, B, ttl_ms=LONG_MS)
        await leases.leave(A.session)

        assert await others.members() == [B]
        assert await others.holdings() == [held(5, B)]
        assert await others.take(2, B, ttl_ms=LONG_MS)

    @pytest.mark.proves("I3")
    async def test_of_many_that_try_at_once_one_gets_it(self, leases, others):
        members = [Member(f"s{n}", f"node{n}", "") for n in range(8)]
        taken = await asyncio.gather(
            *((leases if n % 2 else others).take(4, member, ttl_ms=LONG_MS) for n, member in enumerate(members))
        )

        assert sorted(taken) == [False] * 7 + [True]
        assert [one.session for one in await leases.holdings()] == [members[taken.index(True)].session]

    async def test_closed_leases_say_so(self, leases, others):
        await others.close()
        await others.close()

        if not self.never_closed:
            with pytest.raises(Unavailable):
                await others.members()

    never_closed = False
