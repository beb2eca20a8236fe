"""Ownership over leases, in virtual time: what a node takes, keeps, hands over and drops."""

import asyncio
import functools
import re
from collections import Counter

import msgspec
import pytest

from tickwork.cluster.ownership import Ownership, OwnershipCallbacks
from tickwork.core.base.errors import Conflict, Unavailable
from tickwork.ports.leases import Member
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.testing.virtual_loop import VirtualLoop

PARTITIONS, TTL_MS = 6, 9_000


class Place:
    """One node's ownership, and what it was told to do."""

    def __init__(self, hall: "Hall", name: str, **fields) -> None:
        self.hall, self.name = hall, name
        self.owned: dict[int, None] = {}
        self.log: list[tuple] = []
        self.cut = False
        self.willing = True  # to take over what is announced to it
        self.fails: set[int] = set()
        self.slow_s = 0.0  # to take one up
        self.cut_when_taking = False
        self.failure: type[Exception] = Conflict
        member = Member(f"{name}~1", name, f"http://{name}", **fields)
        self.ownership = Ownership(
            leases=Cut(self, hall.leases),
            member=member,
            partitions=PARTITIONS,
            clock=hall,
            duties=OwnershipCallbacks(
                self.own,
                self.announce,
                self.finish,
                self.drop,
                self.give,
                lambda partition: self.log.append(("moved", partition)),
                lambda kind, text: self.log.append((kind, text)),
            ),
            ttl_ms=TTL_MS,
            retry_ms=1_000,
        )

    async def own(self, partition):
        if partition in self.fails:
            raise self.failure("it does not go")
        await asyncio.sleep(self.slow_s)
        self.owned[partition] = None
        self.log.append(("own", partition))

    async def finish(self, partition):
        await asyncio.sleep(0.5)
        self.owned.pop(partition)
        self.log.append(("finish", partition))

    async def drop(self, partition, reason):
        self.owned.pop(partition, None)
        self.log.append(("drop", partition))

    async def announce(self, partition, address):
        self.log.append(("announce", partition))
        next_owner = self.hall.places[address.removeprefix("http://")]
        return next_owner.willing and not next_owner.ownership.member.draining

    async def give(self, partition, address):
        await self.hall.places[address.removeprefix("http://")].ownership.take_up(partition)


class Cut:
    """Leases that one node cannot reach while it is cut off."""

    def __init__(self, place, inner) -> None:
        self._place, self._inner = place, inner

    def __getattr__(self, name):
        deed = getattr(self._inner, name)

        async def call(*args, **fields):
            if self._place.cut:
                await asyncio.sleep(60)
                raise Unavailable("cut off", retry_after_ms=100)
            found = await deed(*args, **fields)
            if name == "take" and self._place.cut_when_taking:
                self._place.cut = True
            return found

        return call


class Hall:
    def __init__(self) -> None:
        self.leases = MemoryLeases(self.mono_ms)
        self.places: dict[str, Place] = {}

    def mono_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.mono_ms()

    def new(self, name: str, **fields) -> Place:
        self.places[name] = Place(self, name, **fields)
        return self.places[name]

    async def add(self, name: str, **fields) -> Place:
        place = self.new(name, **fields)
        await place.ownership.start()
        return place

    def owners(self) -> dict[int, list[str]]:
        return {
            partition: [place.name for place in self.places.values() if partition in place.owned]
            for partition in range(PARTITIONS)
        }

    async def close(self) -> None:
        for place in self.places.values():
            place.cut = False
            if place.ownership._task is not None and not place.ownership._task.done():
                await place.ownership.stop()


def virtually(scenario):
    """The scenario as a test in virtual time."""

    @functools.wraps(scenario)
    def test():
        async def run():
            hall = Hall()
            await scenario(hall)
            await hall.close()

        VirtualLoop().run_until_complete(run())

    del test.__wrapped__  # pytest would ask for the hall
    return test


def one_each(hall) -> bool:
    return all(len(found) == 1 for found in hall.owners().values())


async def settled(hall, *, names) -> None:
    for _ in range(60):
        await asyncio.sleep(0.5)
        shares = Counter(found[0] for found in hall.owners().values() if found)
        if one_each(hall) and set(shares) == set(names) and max(shares.values()) - min(shares.values()) <= 1:
            return
    raise AssertionError(hall.owners())


@virtually
async def test_the_first_takes_all_and_gives_half_to_the_second(hall):
    first = await hall.add("a")
    assert len(first.owned) == PARTITIONS
    await hall.add("b")
    await settled(hall, names=("a", "b"))

    assert [len(place.owned) for place in hall.places.values()] == [3, 3]
    assert sum(what == "finish" for what, _ in first.log) == 3
    await hall.close()
    assert not await hall.leases.members() and not await hall.leases.holdings()


@virtually
async def test_a_node_that_says_nothing_is_replaced_when_its_lease_has_run_out(hall):
    for name in "abc":
        await hall.add(name)
    await settled(hall, names="abc")
    silent = hall.places.pop("b")
    lost = sorted(silent.owned)
    silent.ownership._task.cancel()  # gone without a word
    silent.ownership._guard.cancel()
    begin = hall.mono_ms()
    await settled(hall, names="ac")
    assert TTL_MS - 1_000 <= hall.mono_ms() - begin <= TTL_MS + 2_500
    assert sorted(partition for place in hall.places.values() for partition in told_to_be_taken_over(place)) == lost


def told_to_be_taken_over(place) -> list[int]:
    told = [text for what, text in place.log if what == "took_over"]
    assert all(text.endswith(" of b, which does not respond any more") for text in told)
    return [int(number) for text in told for number in re.findall(r"\d+", text)]


@pytest.mark.proves("I6")
@virtually
async def test_whoever_cannot_renew_drops_what_it_owns_before_anybody_else_may_take_it(hall):
    for name in "ab":
        await hall.add(name)
    await settled(hall, names="ab")
    lonely = hall.places["a"]
    mine = list(lonely.owned)
    lonely.cut = True
    while lonely.owned:
        assert all(partition not in hall.places["b"].owned for partition in mine)
        await asyncio.sleep(0.1)
    assert all(("drop", partition) in lonely.log for partition in mine)
    await settled(hall, names="b")
    lonely.cut = False
    await settled(hall, names="ab")


@pytest.mark.proves("I4", "I6")
@virtually
async def test_what_is_taken_at_the_start_is_dropped_in_time_too(hall):
    """It is cut off with one lease in its hands, before it has all that it wants."""
    unlucky = hall.new("a")
    unlucky.cut_when_taking = True
    starting = asyncio.get_running_loop().create_task(unlucky.ownership.start())
    await asyncio.sleep(0.5)
    assert unlucky.owned
    await asyncio.sleep(TTL_MS / 1000 - 0.5)

    assert not unlucky.owned
    unlucky.cut = unlucky.cut_when_taking = False
    await starting
    await settled(hall, names="a")


@virtually
async def test_a_lease_is_kept_while_its_partition_is_taken_up_however_long_that_lasts(hall):
    slow = hall.new("a")
    slow.slow_s = 3 * TTL_MS / 1000
    starting = asyncio.get_running_loop().create_task(slow.ownership.start())
    await asyncio.sleep(2 * TTL_MS / 1000)
    held = await hall.leases.holdings()

    assert sorted(one.partition for one in held) == list(range(PARTITIONS)) and not slow.owned
    await starting
    assert len(slow.owned) == PARTITIONS and not any(what == "drop" for what, _ in slow.log)


@virtually
async def test_a_node_that_leaves_hands_everything_over_without_waiting_for_a_lease(hall):
    for name in "ab":
        await hall.add(name)
    await settled(hall, names="ab")
    begin = hall.mono_ms()
    await hall.places["a"].ownership.stop()
    await settled(hall, names="b")
    assert hall.mono_ms() - begin < TTL_MS / 3
    assert not any(what == "drop" for what, _ in hall.places["a"].log)
    assert not any(what == "took_over" for place in hall.places.values() for what, _ in place.log)


@virtually
async def test_what_the_next_owner_does_not_want_stays_where_it_is(hall):
    first = await hall.add("a")
    second = Place(hall, "b")
    second.willing = False
    hall.places["b"] = second
    await second.ownership.start()
    await asyncio.sleep(5)

    assert any(what == "announce" for what, _ in first.log)
    assert len(first.owned) == PARTITIONS and not any(what == "finish" for what, _ in first.log)
    second.willing = True
    await settled(hall, names="ab")


@virtually
async def test_what_is_given_during_a_look_is_kept(hall):
    """The look renews what was held when it began; what came meanwhile is no less held."""
    place = Place(hall, "a")
    hall.places["a"] = place
    await place.ownership.start()
    place.owned.clear()
    for partition in list(place.ownership.held):
        await place.ownership.lost(partition, "somebody else had it")
    renew = hall.leases.renew

    async def slowly(*args, **fields):
        hall.leases.renew = renew
        kept = await renew(*args, **fields)
        await place.ownership.take_up(3)
        return kept

    hall.leases.renew = slowly
    place.log.clear()
    await place.ownership._round()

    assert 3 in place.ownership.held and ("drop", 3) not in place.log
    assert [what for what, where in place.log if where == 3 and what == "own"] == ["own"]


@virtually
async def test_what_cannot_be_owned_is_let_go_and_tried_again(hall):
    place = Place(hall, "a")
    hall.places["a"] = place
    place.fails = {2}
    await place.ownership.start()
    await asyncio.sleep(3)
    assert 2 not in place.owned and len(place.owned) == PARTITIONS - 1
    place.fails = set()
    await settled(hall, names="a")


@virtually
async def test_a_defect_in_taking_one_up_leaves_no_lease_that_nobody_acts_under(hall):
    first, second = Place(hall, "a"), Place(hall, "b")
    hall.places |= {"a": first, "b": second}
    first.fails, first.failure = set(range(PARTITIONS)), AssertionError
    await first.ownership.start()
    await asyncio.sleep(3)
    assert not first.owned and not first.ownership.held
    first.fails = set()
    await second.ownership.start()
    await settled(hall, names="ab")


@virtually
async def test_a_node_without_an_engine_owns_nothing(hall):
    await hall.add("front", engine=False)
    await hall.add("a")
    await settled(hall, names="a")


@pytest.mark.proves("F24")
@virtually
async def test_two_starts_under_one_name_are_two_nodes(hall):
    first = await hall.add("a")
    twin = Place(hall, "a")
    member = msgspec.structs.replace(twin.ownership.member, session="a~2")
    twin.ownership.member = member
    hall.places["twin"] = twin
    await twin.ownership.start()
    for _ in range(20):
        await asyncio.sleep(0.5)
    assert not set(first.owned) & set(twin.owned)
    assert len(first.owned) + len(twin.owned) == PARTITIONS
