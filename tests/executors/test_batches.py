"""Short attempts share a packet: what becomes of the others when one of them is slow, dies or is stopped."""

import asyncio
import mmap
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise

import msgspec
import pytest

from executors.executor_fixture import playing
from tickwork.executors import process_pool as pool_module
from tickwork.executors.packet_queue import FEW, SPAN, PacketQueue, QueuedAttempt
from tickwork.protocol.child_messages import PacketDone, head, opened, sayings_decoder
from tickwork.protocol.child_shared_memory import ChildSharedMemory, marks_bytes
from tickwork.protocol.worker_messages import AttemptJob, Failed, NodeSpec, Succeeded


class Turns:
    """Attempts of one function on a stage. They come while every child is busy, so they share packets."""

    def __init__(self, stage, path) -> None:
        self.stage, self.path = stage, path
        self.pool = stage.executor._pools["process"]

    def start(self, text: str, **how) -> tuple[int, int]:
        more = {name: how.pop(name) for name in ("running_ms",) if name in how}
        return self.stage.start("turn", args={"path": str(self.path), "text": text, **how}, **more)

    async def warm(self, **more) -> None:
        """It is known to be short, however busy the machine is now."""
        await self.stage.end(self.start("warm", **more))
        (spec,) = (one.id for one in self.stage._specs.values() if one.handler == "turn")
        self.pool._box.learn(spec, 10, weight=SPAN)

    async def packed(self, *hows: dict, **more) -> list[tuple[int, int]]:
        """One packet with all of these in their order, and others behind it, in the hands of a child that was busy."""
        busy = [self.stage.start("sleep", args={"seconds": 0.15}) for _ in self.pool.children]
        keys = [self.start(f"t{number}", **how, **more) for number, how in enumerate(hows)]
        # Of what waits every child gets some: so many are needed behind them, that these are one packet.
        rest = [self.start(f"r{number}", **more) for number in range(2 * len(hows) * len(self.pool.children))]
        await self.stage.until(lambda: all(key in self.pool._box.out for key in keys))
        assert len({self.pool._box.out[key] for key in keys}) == 1
        for key in busy:
            await self.stage.end(key)
        self.rest = rest
        return keys

    async def ended(self, keys) -> list:
        return [await self.stage.end(key) for key in keys]

    def ran(self) -> Counter:
        return Counter(line for line in self.path.read_text().split() if not line.startswith("warm"))


@asynccontextmanager
async def turning(path, *, processes: int = 1, **more):
    async with playing(processes=processes) as stage:
        pool = stage.executor._pools["process"]
        await stage.until(lambda: sum(child.ready for child in pool.children) == processes)
        turns = Turns(stage, path)
        await turns.warm(**more)
        yield turns


async def test_short_attempts_share_packets_and_long_or_unknown_ones_never(tmp_path):
    async with turning(tmp_path / "ran", processes=2) as turns:
        box = turns.pool._box
        box._took_us.clear()  # it has to find out by itself
        for number in range(20):
            await turns.stage.end(turns.start(f"warm{number}"))
        before = box._number
        await turns.ended([turns.start(f"t{number}") for number in range(300)])
        together = box._number - before
        before = box._number
        unknown = [turns.stage.start("add", args={"a": 1, "b": number}) for number in range(20)]
        alone = box._number
        await turns.stage.until(lambda: all(key in box.out or key in turns.stage.ends for key in unknown))
        assert alone - before == 2, "two children were free"
        await turns.ended(unknown)
        slow = [turns.stage.start("sleep", args={"seconds": 0.02}) for _ in range(30)]
        before = box._number
        await turns.ended(slow)

    assert together < 200
    assert box._number - before >= 28


async def test_where_a_child_is_free_an_attempt_goes_at_once_and_alone(tmp_path):
    async with turning(tmp_path / "ran", processes=2) as turns:
        box = turns.pool._box
        keys = [turns.start("a"), turns.start("b")]

        assert len({box.out[key] for key in keys}) == 2 and not box.queue
        await turns.ended(keys)


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.proves("F29", "I35")
async def test_of_a_packet_whose_child_is_killed_only_the_begun_one_fails_and_none_runs_twice(tmp_path, place):
    async with turning(tmp_path / "ran") as turns:
        keys = await turns.packed(*({"dies": number == place} for number in range(7)))
        ends = await turns.ended(keys)
        rest = await turns.ended(turns.rest)

    broke = ends.pop(place)
    assert isinstance(broke, Failed) and (broke.error, broke.exit_code) == ("ProcessDied", -9)
    assert {type(end) for end in ends + rest} == {Succeeded}
    assert set(turns.ran().values()) == {1} and len(turns.ran()) == 7 + len(rest)


@pytest.mark.proves("I35")
async def test_whoever_stands_behind_a_slow_one_goes_to_another_child_and_nobody_waits_for_it(tmp_path):
    async with turning(tmp_path / "ran", processes=2) as turns:
        keys = await turns.packed({}, {}, {"seconds": 3.0}, {}, {})
        began = time.monotonic()
        slow = keys.pop(2)
        ends = await turns.ended(keys + turns.rest)
        took = time.monotonic() - began
        assert slow not in turns.stage.ends
        ends.append(await turns.stage.end(slow))

    assert took < 1.5
    assert {type(end) for end in ends} == {Succeeded}
    assert set(turns.ran().values()) == {1}


async def test_an_end_does_not_wait_for_a_slow_one_behind_it_also_where_there_is_one_child(tmp_path):
    async with turning(tmp_path / "ran") as turns:
        first, second, slow, behind = await turns.packed({}, {}, {"seconds": 1.0}, {})
        began = time.monotonic()
        await turns.ended([first, second])

        assert time.monotonic() - began < 0.6 and slow not in turns.stage.ends
        await turns.stage.until(lambda: turns.pool._box.out.get(behind) != turns.pool._box.out.get(slow))
        assert slow not in turns.stage.ends
        assert isinstance(await turns.stage.end(behind), Succeeded)
    assert turns.ran()["t3"] == 1


@pytest.mark.parametrize("slow_ns", [pool_module.SLOW_NS, 10**12])
@pytest.mark.proves("I35")
async def test_one_that_has_not_begun_is_stopped_inside_a_packet(tmp_path, monkeypatch, slow_ns):
    """Once after it was taken from the child, once while the child still has it."""
    monkeypatch.setattr(pool_module, "SLOW_NS", slow_ns)
    async with turning(tmp_path / "ran") as turns:
        keys = await turns.packed({"seconds": 0.4}, {}, {}, {})
        (child,) = turns.pool.children
        await turns.stage.until(lambda: [key for key, _ in child.marked()] == [keys[0]])
        turns.stage.executor.stop(*keys[2])
        stopped = keys.pop(2)
        ends = await turns.ended(keys + turns.rest)

        assert child in turns.pool.children and stopped not in turns.stage.ends and stopped not in turns.pool
    assert {type(end) for end in ends} == {Succeeded}
    assert turns.ran()["t2"] == 0 and set(turns.ran().values()) == {1}


async def test_a_time_limit_counts_from_the_begin_of_each(tmp_path, monkeypatch):
    monkeypatch.setattr(pool_module, "SLOW_NS", 10**12)  # the child keeps them all
    async with turning(tmp_path / "ran", running_ms=600) as turns:
        keys = await turns.packed(*[{"seconds": 0.2}] * 6, running_ms=600)
        ends = await turns.ended(keys)

    assert {type(end) for end in ends} == {Succeeded}
    assert all(one.started_ms <= two.started_ms - 190 for one, two in pairwise(ends))


@pytest.mark.parametrize("slow_ns", [pool_module.SLOW_NS, 10**12])
async def test_a_time_limit_inside_a_packet_ends_one_and_the_others_run_once(tmp_path, monkeypatch, slow_ns):
    monkeypatch.setattr(pool_module, "SLOW_NS", slow_ns)
    async with turning(tmp_path / "ran", running_ms=300) as turns:
        keys = await turns.packed({}, {"seconds": 60}, {}, {}, running_ms=300)
        ends = await turns.ended(keys)
        rest = await turns.ended(turns.rest)

    broke = ends.pop(1)
    assert isinstance(broke, Failed) and broke.error == "TimeoutError"
    assert {type(end) for end in ends + rest} == {Succeeded} and set(turns.ran().values()) == {1}


async def test_packets_that_nobody_has_read_are_called_back_whole(tmp_path):
    async with turning(tmp_path / "ran") as turns:
        busy = turns.stage.start("sleep", args={"seconds": 0.3})
        keys = [turns.start(f"t{number}") for number in range(100)]
        await turns.stage.until(lambda: turns.pool._box.shared > 0)
        back = turns.stage.executor.recall()

        assert list(back) == keys and turns.pool.busy == 1
        await turns.stage.end(busy)
        await asyncio.sleep(0.05)
    assert not turns.ran()


async def test_closing_hands_back_what_stands_behind_a_slow_one(tmp_path):
    async with turning(tmp_path / "ran") as turns:
        keys = await turns.packed({}, {"seconds": 0.5}, {}, {})
        (child,) = turns.pool.children
        await turns.stage.until(lambda: [key for key, _ in child.marked()] == [keys[1]])
        await turns.stage.executor.close(grace_s=5)

    kinds = [type(turns.stage.ends[key][0]).__name__ for key in keys]
    assert kinds[:2] == ["Succeeded", "Succeeded"] and set(turns.ran().values()) == {1}
    for key in (*keys, *turns.rest):
        (end,) = turns.stage.ends[key]
        text = f"t{keys.index(key)}" if key in keys else f"r{turns.rest.index(key)}"
        assert (type(end) is Succeeded) == bool(turns.ran()[text])


# ---- the memory they share


def marks() -> tuple[ChildSharedMemory, ChildSharedMemory]:
    memory = memoryview(bytearray(marks_bytes(1)))
    return ChildSharedMemory(memory, 1), ChildSharedMemory(memory, 1)


def test_what_is_kept_is_found_until_it_is_sent():
    child, pool = marks()
    ends = [Succeeded(1, 1, None, 5, 6), Failed(2, 1, "ValueError", "no"), PacketDone(7, 2, 30)]
    for end in ends:
        assert child.keep(msgspec.msgpack.encode(end))

    assert sayings_decoder.decode(pool.unsent()) == ends
    assert sayings_decoder.decode(bytes(child.kept())[4:]) == ends
    child.sent()
    assert sayings_decoder.decode(pool.unsent()) == []


WRITER = """
import mmap, sys
import msgspec
from tickwork.protocol.worker_messages import Succeeded
from tickwork.protocol.child_shared_memory import ChildSharedMemory, marks_bytes

memory = mmap.mmap(int(sys.argv[1]), marks_bytes(1))
marks = ChildSharedMemory(memoryview(memory), 1)
ends = [msgspec.msgpack.encode(Succeeded(n, 1, b"x" * (n * 37 % 90))) for n in range(50)]
for turn in range(1_000_000):
    for place in range(turn % 31 + 1):
        marks.keep(ends[(turn + place) % 50])
    marks.sent()
"""


def test_what_a_child_keeps_and_sends_at_any_moment_is_read_whole_or_not_at_all():
    with memory_file(marks_bytes(1)) as fd, mmap.mmap(fd, marks_bytes(1)) as memory:
        pool = ChildSharedMemory(memoryview(memory), 1)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(fd)], pass_fds=[fd])
        found, until = 0, time.monotonic() + 30
        try:
            while found < 20_000:
                assert writer.poll() is None and time.monotonic() < until
                ends = sayings_decoder.decode(pool.unsent())
                assert all(later.task == (earlier.task + 1) % 50 for earlier, later in pairwise(ends))
                found += len(ends)
        finally:
            writer.kill()
            writer.wait()
            pool.release()


@contextmanager
def memory_file(size):
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        yield file.fileno()


def test_what_does_not_fit_is_refused_and_the_rest_stays_whole():
    child, pool = marks()
    end = msgspec.msgpack.encode(Succeeded(1, 1, b"x" * 64 * 1024))

    assert [child.keep(end) for _ in range(4)] == [True, True, False, False]
    assert len(sayings_decoder.decode(pool.unsent())) == 2


def test_nothing_of_a_held_packet_begins_and_what_is_held_is_not_marked():
    child, pool = marks()
    slot = child.slot(0)
    slot.take(7)
    pool.hold(6)
    assert slot.begin(1, 1) > 0 and [key for key, _ in pool.running()] == [(1, 1)]
    slot.end()
    pool.hold(7)

    assert slot.begin(2, 1) == 0 and pool.running() == [] and pool.packets() == [7]
    slot.take(8)
    assert slot.begin(2, 1) > 0


def test_a_spec_whose_number_means_another_by_now_gets_a_packet_of_its_own():
    box = PacketQueue(children=1, width=1)
    old, new = NodeSpec(1, "task", "flow", "old", "d"), NodeSpec(1, "task", "flow", "new", "d")
    box.learn(1, 10)
    heads = {spec.node: head(spec) for spec in (old, new)}
    for number in range(24):
        spec = old if number < 4 else new
        box.put(QueuedAttempt((number, 1), AttemptJob(number, 1, 1, "acme", "run", b""), spec, heads[spec.node], 0))
    box.top_up()

    for _ in range(len(box.packets)):
        data = box.theirs.recv(100_000)
        assert opened(data)[1] in heads.values()
    assert box.packets[2][-1].spec is old and box.packets[3][0].spec is new
    box.shut()
    box.close()


@contextmanager
def one_packet(count):
    """An outbox with one packet that holds so many."""
    box = PacketQueue(children=1, width=1)
    spec = NodeSpec(1, "task", "flow", "a", "d")
    box.learn(1, 10)
    for number in range(count + 1):
        box.put(QueuedAttempt((number, 1), AttemptJob(number, 1, 1, "acme", "run", b""), spec, head(spec), 0))
    box.forget((0, 1))  # went at once and alone
    batch = list(box.queue)
    box.queue.clear()
    assert box._send(batch, head(spec)) and box.shared == 1
    try:
        yield box
    finally:
        box.shut()
        box.close()


def test_a_packet_that_was_held_before_its_first_began_comes_back_whole():
    with one_packet(3) as box:
        left = box.through(2, ran=0, took_us=40_000)

        assert [one.key for one in left] == [(1, 1), (2, 1), (3, 1)]
        assert not box.out and not box.packets and box.shared == 0


@pytest.mark.parametrize(("ran", "again"), [(2, []), (1, [(2, 1)])])
def test_a_child_that_stood_still_says_itself_whether_the_one_it_marked_has_begun(ran, again):
    with one_packet(4) as box:
        assert [one.key for one in box.behind((2, 1))] == [(3, 1), (4, 1)]
        assert box.out.keys() == {(1, 1), (2, 1)} and box.behind((2, 1)) == []
        del box.out[1, 1]  # it has ended

        assert [one.key for one in box.through(2, ran=ran, took_us=90)] == again
        assert not box.packets and box.shared == 0


def test_where_the_first_is_slow_its_packet_is_no_longer_a_shared_one():
    with one_packet(2) as box:
        assert [one.key for one in box.behind((1, 1))] == [(2, 1)] and box.shared == 0
        assert box.through(2, ran=1, took_us=90) == [] and box.shared == 0


def test_where_nobody_knows_what_one_takes_few_go_ahead():
    box = PacketQueue(children=2, width=1)
    spec = NodeSpec(1, "task", "flow", "a", "d")
    lead = head(spec)
    for number in range(300):
        box.put(QueuedAttempt((number, 1), AttemptJob(number, 1, 1, "acme", "run", b""), spec, lead, 0))
    box.top_up()
    assert (len(box.out), box.shared) == (2 + FEW, 0)

    box.alone(box.out.pop((0, 1)), (0, 1), took_ms=0)
    box.top_up()
    assert len(box.out) > 200 and box.shared >= 4
    box.shut()
    box.close()
