"""The wheel against a sorted list, which cannot be wrong."""

import random
from bisect import insort
from heapq import nsmallest
from time import thread_time_ns

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tickwork.core.state import timing_wheel as wheel_module
from tickwork.core.state.timing_wheel import DUE_MAX, KEY_MAX, WIDTH, Bucket, Wheel, _find, mark_of

DAY = 86_400_000
EDGES = sorted(
    {0, 1, DUE_MAX, 30 * DAY}
    | {base**power + step for base in (64, 1024) for power in range(1, 5) for step in (-1, 0, 1)}
    | {(1 << bit) + step for bit in range(8, 48, 8) for step in (-1, 0, 1)}
)


def fire_order(timer):
    due, key = timer
    return due, key & 31, key >> 5


def take(wheel, tick, limit):
    """What a tick does with due timers: look at the first, let what it decides cancel it, look again."""
    taken = []
    while len(taken) < limit and (timer := wheel.first(tick)) is not None:
        wheel.cancel(*timer)
        taken.append(timer)
    return taken


class SortedList:
    """What a wheel promises, done slowly."""

    def __init__(self):
        self.timers = []

    def insert(self, due, key):
        insort(self.timers, (due, key), key=fire_order)

    def cancel(self, due, key):
        self.timers.remove((due, key))

    def next_due(self):
        return self.timers[0][0] if self.timers else None

    def take(self, tick, limit):
        due = [timer for timer in self.timers if timer[0] <= tick][:limit]
        del self.timers[: len(due)]
        return due


dues = st.one_of(
    st.sampled_from(EDGES),
    st.integers(0, 50),
    st.integers(0, DUE_MAX),
    st.builds(lambda edge, offset: min(max(edge + offset, 0), DUE_MAX), st.sampled_from(EDGES), st.integers(-99, 99)),
)


class WheelIsASortedList(RuleBasedStateMachine):
    @initialize(bucket=st.sampled_from([1, 3, 128]))
    def small_buckets_split_early(self, bucket):
        self.limits = wheel_module.BUCKET_MAX, wheel_module.FRONT_MAX
        wheel_module.BUCKET_MAX, wheel_module.FRONT_MAX = bucket, 2 * bucket
        self.wheel, self.model, self.number, self.now = Wheel(), SortedList(), 0, 0

    def teardown(self):
        if hasattr(self, "limits"):
            wheel_module.BUCKET_MAX, wheel_module.FRONT_MAX = self.limits

    def set_timer(self, due, kind):
        key = self.number << 5 | kind
        self.number += 1
        self.wheel.insert(due, key)
        self.model.insert(due, key)

    @rule(due=dues, kind=st.integers(0, 31))
    def insert_anywhere_also_in_the_past(self, due, kind):
        self.set_timer(due, kind)

    @rule(delay=st.integers(0, 5_000), kinds=st.lists(st.integers(0, 31), max_size=12))
    def insert_many_on_one_tick(self, delay, kinds):
        for kind in kinds:
            self.set_timer(min(self.now + delay, DUE_MAX), kind)

    @rule(data=st.data())
    def cancel_one(self, data):
        if self.model.timers:
            due, key = data.draw(st.sampled_from(self.model.timers))
            self.wheel.cancel(due, key)
            self.model.cancel(due, key)

    @rule(data=st.data(), later=dues)
    def move_one(self, data, later):
        if self.model.timers:
            first = data.draw(st.booleans())
            due, key = self.model.timers[0] if first else data.draw(st.sampled_from(self.model.timers))
            self.wheel.move(due, later, key)
            self.model.cancel(due, key)
            self.model.insert(later, key)

    @rule(tick=dues, limit=st.integers(0, 8))
    def poll_after_skipping_ticks(self, tick, limit):
        self.now = max(self.now, tick)
        assert take(self.wheel, self.now, limit) == self.model.take(self.now, limit)

    @rule(limit=st.integers(1, 100))
    def jump_to_the_next(self, limit):
        self.now = max(self.now, self.model.next_due() or 0)
        assert take(self.wheel, self.now, limit) == self.model.take(self.now, limit)

    @rule()
    def look_ahead(self):
        assert self.wheel.next_due() == self.model.next_due()

    @invariant()
    def holds_the_same(self):
        if hasattr(self, "limits"):
            assert len(self.wheel) == len(self.model.timers)
            assert self.wheel.items() == self.model.timers


WheelIsASortedList.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@pytest.mark.proves("P19", "S001-83", "I17")
class TestWheelIsASortedList(WheelIsASortedList.TestCase):  # type: ignore[valid-type]  # Hypothesis makes it
    pass


@pytest.mark.proves("P19", "I17", "S001-143")
@pytest.mark.parametrize("bucket", [2, 128])
@pytest.mark.parametrize("spread", [1, 40, 5_000, 30 * DAY, DUE_MAX])
def test_every_timer_set_and_not_cancelled_fires_exactly_once_in_order(monkeypatch, spread, bucket):
    monkeypatch.setattr(wheel_module, "BUCKET_MAX", bucket)
    chance, wheel = random.Random(spread), Wheel()
    timers = [(chance.randrange(spread), number << 5 | chance.randrange(32)) for number in range(5_000)]
    for due, key in timers:
        wheel.insert(due, key)
    cancelled = timers[::7]
    for due, key in cancelled:
        wheel.cancel(due, key)
    fired = []
    while (due := wheel.next_due()) is not None:
        fired += take(wheel, due + spread // 100, 300)

    assert fired == sorted(set(timers) - set(cancelled), key=fire_order)
    assert len(wheel) == 0


@pytest.mark.proves("P19")
@pytest.mark.parametrize("due", EDGES)
def test_a_timer_alone_fires_on_its_tick_and_not_before(due):
    wheel = Wheel()
    wheel.insert(due, 7)

    assert wheel.next_due() == due
    assert take(wheel, due - 1, 10) == []
    assert take(wheel, due, 10) == [(due, 7)]
    assert wheel.next_due() is None


@pytest.mark.proves("P19")
def test_a_timer_set_for_the_past_fires_at_the_next_take():
    wheel = Wheel()
    wheel.insert(1_000_000, 1)
    assert take(wheel, 1_000_000, 10) == [(1_000_000, 1)]
    wheel.insert(5, 2)
    wheel.insert(1_000_001, 3)

    assert take(wheel, 1_000_000, 10) == [(5, 2)]
    assert wheel.next_due() == 1_000_001


@pytest.mark.proves("S001-83")
def test_what_the_limit_leaves_behind_fires_first_next_time():
    wheel = Wheel()
    for number in reversed(range(3_000)):
        wheel.insert(50, number << 5 | number % 3)
    expected = wheel.items()
    parts = [take(wheel, 50, limit) for limit in (1, 700, 0, 5_000)]

    assert [len(part) for part in parts] == [1, 700, 0, 2_299]
    assert [timer for part in parts for timer in part] == expected == sorted(expected, key=fire_order)


@given(st.lists(st.tuples(dues, st.integers(0, 31)), max_size=40))
def test_two_wheels_with_the_same_timers_list_them_alike_whatever_the_order_of_setting(timers):
    keyed = [(due, number << 5 | kind) for number, (due, kind) in enumerate(timers)]
    one, other = Wheel(), Wheel()
    for timer in keyed:
        one.insert(*timer)
    for timer in reversed(keyed):
        other.insert(*timer)
        other.next_due()

    assert one.items() == other.items() == sorted(keyed, key=fire_order)


@pytest.mark.parametrize("bucket", [2, 128])
@pytest.mark.parametrize("spread", [1, 5_000, 30 * DAY, DUE_MAX])
def test_a_filled_wheel_is_the_same_as_one_that_was_set_timer_by_timer(monkeypatch, spread, bucket):
    monkeypatch.setattr(wheel_module, "BUCKET_MAX", bucket)
    rng = random.Random(spread)
    timers = [(rng.randrange(spread), number << 5 | rng.randrange(11)) for number in range(2_000)]
    one, other = Wheel(), Wheel()
    for due, key in timers:
        one.insert(due, key)
    for due, key in timers[:50]:
        other.insert(due, key)
    other.next_due()  # some of what is there already has been looked at
    other.fill([mark_of(due, key & 31, key >> 5) for due, key in timers[50:]])

    assert (len(other), other.items()) == (len(one), one.items())
    for due, key in rng.sample(timers, 1_000):
        one.cancel(due, key)
        other.cancel(due, key)
        one.insert(due + 1, key)
        other.insert(due + 1, key)
        assert other.next_due() == one.next_due()
    assert (
        other.items()
        == one.items()
        == sorted(other.items(), key=lambda timer: mark_of(timer[0], timer[1] & 31, timer[1] >> 5))
    )


def cpu_us(wheel, timers, now):
    """Of one timer: set, cancelled, and another that fires."""
    begin = thread_time_ns()
    for timer in timers:
        wheel.insert(*timer)
    for timer in timers:
        wheel.cancel(*timer)
    fired = take(wheel, now, len(timers))
    assert len(fired) == len(timers)
    return (thread_time_ns() - begin) / len(timers) / 1_000


@pytest.mark.proves("S001-48")
def test_two_million_timers_are_held_at_once_and_cost_no_more_than_a_few():
    """Two million dues at whole seconds over a month; a round sets, cancels and fires 500 beside them."""
    costs, month_s = {}, 30 * DAY // 1_000
    for held in (20_000, 2_000_000):
        wheel, dues = Wheel(), [number * 1_000_003 % month_s * 1_000 for number in range(held)]
        wheel.fill([mark_of(due, 1, number) for number, due in enumerate(dues)])
        assert len(wheel) == held
        first, rounds = nsmallest(4_001, dues), []
        for turn in range(1, 9):
            own = [(number * 5_003 % month_s * 1_000, held + number << 5) for number in range(500)]
            rounds.append(cpu_us(wheel, own, first[500 * turn - 1]))
            assert (len(wheel), wheel.next_due()) == (held - 500 * turn, first[500 * turn])
        costs[held] = min(rounds)

    assert costs[2_000_000] < 3 * costs[20_000], costs  # a scan would cost a hundred times as much


@pytest.mark.parametrize("look", [False, True])
def test_a_mistake_of_the_owner_is_an_assertion(look):
    wheel = Wheel()
    wheel.insert(10, 1)
    wheel.insert(10, 5)
    if look:
        wheel.next_due()  # the timers now lie in the front, not in the trie

    for mistake in (
        lambda: wheel.cancel(10, 2),
        lambda: wheel.cancel(11, 1),
        lambda: wheel.cancel(DUE_MAX, 1),
        lambda: wheel.insert(DUE_MAX + 1, 3),
        lambda: wheel.insert(-1, 3),
        lambda: wheel.insert(10, KEY_MAX + 1),
    ):
        with pytest.raises(AssertionError):
            mistake()
    assert wheel.items() == [(10, 1), (10, 5)]


def test_a_timer_set_twice_never_fires_twice():
    wheel = Wheel()
    wheel.insert(10, 1)
    wheel.insert(10, 1)

    with pytest.raises(AssertionError, match="twice"):
        take(wheel, 10, 10)


@pytest.mark.parametrize("offset", range(1, WIDTH))
def test_a_timer_is_not_mistaken_for_the_seam_between_two_others(offset):
    bucket = Bucket(range(2 * WIDTH))
    seam = int.from_bytes(bucket[offset : offset + WIDTH], "big")

    assert _find(bucket, seam) == -1
    assert _find(bucket + seam.to_bytes(WIDTH, "big"), seam) == 2 * WIDTH
