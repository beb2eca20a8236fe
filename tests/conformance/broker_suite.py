"""What every lane promises. A new adapter subclasses this and says how to reach and trouble its broker."""

import asyncio
import time

import pytest

from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import DELIVERIES_MAX, Envelope, EnvelopeCodec, labels_token

KEY = "a token that server and workers share"
WAIT_MS = 5_000


def envelope(task: int, *, queue="default", labels=(), priority=5, attempt=1, tenant="acme") -> Envelope:
    key = f"{task}-{attempt}"
    return Envelope(tenant, queue, labels, priority, task, attempt, key, 3, "00-" + "1" * 32, 1_800_000_000_000, b"x")


def numbers(deliveries) -> list[int]:
    return [one.envelope.task for one in deliveries]


async def until(holds, timeout_s: float = 10.0) -> None:
    ends = time.monotonic() + timeout_s
    while not await holds():
        assert time.monotonic() < ends, "it did not come to that in time"
        await asyncio.sleep(0.02)


async def until_reached(do, timeout_s: float = 20.0):
    """A broker that was away is reached again by itself."""
    ends = time.monotonic() + timeout_s
    while True:
        try:
            return await do()
        except Unavailable:
            assert time.monotonic() < ends, "the broker is back, and the lane does not reach it"
            await asyncio.sleep(0.05)


async def receive_all(lane, count: int, queues=("default",), labels=None, *, accept: bool = True):
    found = []
    ends = time.monotonic() + 20
    while len(found) < count and time.monotonic() < ends:
        some = await lane.receive(queues, labels or {}, limit=count - len(found), wait_ms=500)
        if accept:
            await lane.accept(some)
        found += some
    return found


class LaneSuite:
    """`make(**options)` gives a lane that is not open, `garbage(data, queue)` puts bytes where messages are, `down()`
    and `up()` take the broker away and bring it back."""

    exact_priority = False  # within a band
    redelivers_to_others = True
    redeliver_ms = 400
    keeps_over_a_kill = True  # what it confirmed

    @pytest.fixture
    async def lane(self, make):
        async with opened(make(codec=EnvelopeCodec(KEY), redeliver_ms=self.redeliver_ms)) as lane:
            yield lane

    @pytest.fixture
    async def other(self, make):
        async with opened(make(codec=EnvelopeCodec(KEY), redeliver_ms=self.redeliver_ms)) as lane:
            yield lane

    async def test_what_is_published_is_received_whole_and_gone_once_accepted(self, lane):
        sent = [envelope(number, tenant="acme corp", labels=(("gpu", "ä.b>*"),)) for number in range(5)]
        await lane.publish(sent)
        assert (await lane.depth()).waiting == 5

        found = await receive_all(lane, 5, labels={"gpu": "ä.b>*", "zone": "eu"})
        assert sorted((one.envelope for one in found), key=lambda one: one.task) == sent
        assert (await lane.depth()).waiting == 0
        assert await lane.receive(["default"], {}, limit=5, wait_ms=0) == []

    async def test_a_worker_that_waits_gets_what_comes(self, lane, other):
        waiting = asyncio.create_task(lane.receive(["default"], {}, limit=5, wait_ms=WAIT_MS))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await other.publish([envelope(1)])

        found = await waiting
        assert numbers(found) == [1] and time.monotonic() - began < 2
        await lane.accept(found)

    async def test_nothing_comes_more_often_than_asked_for(self, lane):
        await lane.publish([envelope(number) for number in range(9)])

        assert len(await lane.receive(["default"], {}, limit=4, wait_ms=WAIT_MS)) <= 4

    @pytest.mark.proves("F20", "P14")
    async def test_what_nobody_accepted_comes_again(self, lane, other):
        await lane.publish([envelope(1)])
        [first] = await receive_all(lane, 1, accept=False)
        again = other if self.redelivers_to_others else lane
        [second] = await receive_all(again, 1)

        assert second.envelope == first.envelope
        await lane.accept([first])  # a late word of the first delivery does no harm
        assert (await lane.depth()).waiting == 0

    @pytest.mark.proves("F20")
    async def test_a_message_that_is_sent_twice_does_no_harm(self, lane):
        await lane.publish([envelope(1)])
        await lane.publish([envelope(1), envelope(2)])
        found = await drained(lane)  # a broker may drop the copy, or not

        assert sorted(set(found)) == [1, 2]
        assert (await lane.depth()).waiting == 0

    async def test_important_work_comes_first(self, lane):
        await lane.publish([envelope(1, priority=0)])
        await lane.publish([envelope(2, priority=5)])
        await lane.publish([envelope(3, priority=9)])
        await lane.publish([envelope(4, priority=6)])
        found = numbers(await receive_all(lane, 4))

        assert found == ([3, 4, 2, 1] if self.exact_priority else [3, 2, 4, 1])

    async def test_queues_and_labels_are_kept_apart(self, lane, other):
        gpu = (("gpu", "yes"),)
        await lane.publish([envelope(1), envelope(2, queue="bulk"), envelope(3, labels=gpu)])
        await lane.publish([envelope(4, labels=(*gpu, ("zone", "eu")))])

        assert numbers(await receive_all(lane, 1)) == [1]
        assert await other.receive(["default"], {"gpu": "no"}, limit=9, wait_ms=100) == []
        assert sorted(numbers(await receive_all(other, 2, ("bulk", "default"), {"gpu": "yes"}))) == [2, 3]
        assert numbers(await receive_all(lane, 1, labels={"gpu": "yes", "zone": "eu", "more": "1"})) == [4]

    @pytest.mark.proves("B24", "F28", "S001-75")
    async def test_what_cannot_be_read_is_a_dead_letter_with_its_reason(self, lane, garbage):
        good = EnvelopeCodec(KEY).wrap(envelope(7))
        reasons = {
            b"hello": "not a tickwork message",
            b"TW9" + good[3:]: "its format is",
            good[:-1] + b"?": "its signature is invalid",
            EnvelopeCodec("another").wrap(envelope(8)): "its signature is invalid",
        }
        for data in reasons:
            await garbage(data, "default", labels_token(()))
        await lane.publish([envelope(1)])

        assert numbers(await receive_all(lane, 1)) == [1]

        async def all_dead():
            await lane.receive(["default"], {}, limit=5, wait_ms=0)
            return (await lane.depth()).dead == len(reasons)

        await until(all_dead)
        found = {one.data: one.reason for one in await lane.dead_letters(10)}
        assert {data: reason in found[data] for data, reason in reasons.items()} == dict.fromkeys(reasons, True)
        assert (await lane.depth()).waiting == 0

    async def test_what_a_worker_rejects_is_a_dead_letter_too(self, lane):
        await lane.publish([envelope(1), envelope(2)])
        first, second = await receive_all(lane, 2, accept=False)
        await lane.reject(first, "its work cannot be decoded")
        await lane.accept([second])

        [dead] = await lane.dead_letters(10)
        assert dead.reason == "its work cannot be decoded" and EnvelopeCodec(KEY).unwrap(dead.data) == first.envelope
        assert (await lane.depth()).waiting == 0

    @pytest.mark.proves("P15", "S001-75")
    async def test_a_poison_message_does_not_come_for_ever(self, make):
        async with opened(make(codec=EnvelopeCodec(KEY), redeliver_ms=1, deliveries_max=3)) as lane:
            await lane.publish([envelope(1)])
            came = 0

            async def dead():
                nonlocal came
                came += len(await lane.receive(["default"], {}, limit=1, wait_ms=20))
                return (await lane.depth()).dead == 1

            await until(dead)
            assert came <= 4
            assert "no worker accepted it" in (await lane.dead_letters(1))[0].reason
            assert DELIVERIES_MAX > 10, "busy workers give messages back; that alone must not kill one"

    @pytest.mark.proves("F19", "S001-165")
    async def test_an_outage_is_said_and_the_lane_comes_back_by_itself(self, lane, down, up):
        await lane.publish([envelope(1)])
        await down()
        for ask in (
            lambda: lane.publish([envelope(2)]),
            lambda: lane.receive(["default"], {}, limit=1, wait_ms=100),
            lambda: lane.depth(),
        ):
            with pytest.raises(Unavailable):
                await ask()
        await up()

        await until_reached(lambda: lane.publish([envelope(3)]))
        wanted = {1, 3} if self.keeps_over_a_kill else {3}
        ends = time.monotonic() + 20
        found = set()
        while not wanted <= found:
            assert time.monotonic() < ends, f"only {found} came"
            some = await until_reached(lambda: lane.receive(["default"], {}, limit=5, wait_ms=500))
            await lane.accept(some)
            found |= set(numbers(some))

    async def test_a_lane_opens_while_its_broker_is_away(self, make, down, up):
        await down()
        try:
            async with opened(make(codec=EnvelopeCodec(KEY))) as lane:
                with pytest.raises(Unavailable):
                    await lane.publish([envelope(1)])
        finally:
            await up()

    async def test_many_messages_come_each_once(self, lane, other):
        await lane.publish([envelope(number) for number in range(300)])
        here, there = await asyncio.gather(drained(lane), drained(other))

        assert sorted(here + there) == list(range(300))


async def drained(lane) -> list[int]:
    found = []
    while some := await lane.receive(["default"], {}, limit=50, wait_ms=300):
        await lane.accept(some)
        found += numbers(some)
    return found


class opened:  # noqa: N801
    def __init__(self, lane) -> None:
        self.lane = lane

    async def __aenter__(self):
        await self.lane.open()
        return self.lane

    async def __aexit__(self, *_):
        await self.lane.close()
