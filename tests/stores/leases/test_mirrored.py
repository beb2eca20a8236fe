"""Leases in a chosen backend with the store behind it: an outage of the chosen one changes nothing."""

import pytest

from tickwork.core.base.errors import Unavailable
from tickwork.ports.leases import Member
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.stores.leases.mirrored import MirroredLeases

ANN, BOB = Member("a~1", "a", "http://a"), Member("b~1", "b", "http://b")


class Shaky:
    def __init__(self, inner) -> None:
        self.inner, self.down = inner, False

    def __getattr__(self, name):
        deed = getattr(self.inner, name)

        async def call(*args, **fields):
            if self.down:
                raise Unavailable("gone", retry_after_ms=100)
            return await deed(*args, **fields)

        return call


@pytest.fixture
def both():
    now = [0]
    chosen, store = Shaky(MemoryLeases(lambda: now[0])), MemoryLeases(lambda: now[0])
    alarms: list = []
    return MirroredLeases(chosen, store, on_alarm=lambda *words: alarms.append(words)), chosen, store, alarms, now


async def test_while_both_are_there_they_say_the_same(both):
    leases, chosen, store, alarms, _ = both
    await leases.open()
    await leases.beat(ANN, ttl_ms=1_000)
    assert await leases.take(1, ANN, ttl_ms=1_000) and not await leases.take(1, BOB, ttl_ms=1_000)
    assert await chosen.members() == await store.members() == await leases.members() == [ANN]
    assert await chosen.holdings() == await store.holdings() == await leases.holdings()
    assert await leases.renew([1, 2], ANN.session, ttl_ms=1_000) == {1}
    assert not alarms


@pytest.mark.proves("F21")
async def test_an_outage_of_the_chosen_one_is_bridged_by_the_store(both):
    leases, chosen, _, alarms, _ = both
    await leases.take(1, ANN, ttl_ms=1_000)
    chosen.down = True
    await leases.beat(ANN, ttl_ms=1_000)
    assert await leases.renew([1], ANN.session, ttl_ms=1_000) == {1}
    assert not await leases.take(1, BOB, ttl_ms=1_000)
    assert await leases.take(2, BOB, ttl_ms=1_000)
    assert [one.partition for one in await leases.holdings()] == [1, 2]
    assert await leases.members() == [ANN]
    assert len(alarms) == 1


@pytest.mark.proves("F21")
async def test_one_that_comes_back_empty_takes_nothing_away(both):
    leases, chosen, _, _, _ = both
    await leases.take(1, ANN, ttl_ms=1_000)
    chosen.down = True
    await leases.renew([1], ANN.session, ttl_ms=1_000)
    chosen.inner, chosen.down = MemoryLeases(lambda: 0), False
    assert await leases.renew([1], ANN.session, ttl_ms=1_000) == {1}


async def test_what_another_holds_in_the_chosen_one_is_given_up(both):
    leases, chosen, store, _, _ = both
    await store.take(1, ANN, ttl_ms=1_000)
    await chosen.take(1, BOB, ttl_ms=1_000)
    assert await leases.renew([1], ANN.session, ttl_ms=1_000) == frozenset()
    assert not await leases.take(1, ANN, ttl_ms=1_000)
