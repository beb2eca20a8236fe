"""A store that is away, late or taken over: nothing stops that could go on, and nobody is told what is not so."""

import asyncio

import pytest

from runtime.engine_fixture import Hand, House, task
from tickwork.core.base.errors import TickworkError, Unavailable
from tickwork.core.machine import TIMERS_PER_TICK
from tickwork.ports.store import OutcomeUnknown, SyncFailed
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Call
from tickwork.runtime import context as ground
from tickwork.runtime.partition import partition as partition_module
from tickwork.runtime.partition.partition import AHEAD_INPUTS
from tickwork.stores.memory.store import MemoryStore

LARGE = "x" * 20_000  # not in the journal: it is read from the store


class Troubled(MemoryStore):
    """`away` names operations that fail so often; `gate` holds commits back, `rows_gate` rows; `late` commits happen,
    unheard."""

    def __init__(self, disk):
        super().__init__(disk)
        self.away: dict[str, int] = {}
        self.gate: asyncio.Event | None = None
        self.rows_gate: asyncio.Event | None = None
        self.late = 0

    def _may(self, name):
        if self.away.get(name):
            self.away[name] -= 1
            raise Unavailable("away", retry_after_ms=1)

    async def find_runs(self, *args, **fields):
        self._may("find_runs")
        return await super().find_runs(*args, **fields)

    async def read_payloads(self, *args):
        self._may("read_payloads")
        return await super().read_payloads(*args)

    async def read_cache(self, *args):
        self._may("read_cache")
        return await super().read_cache(*args)

    async def read_head(self, partition):
        head = await super().read_head(partition)
        if self.late == 2:  # it is seen as missing, and happens right afterwards
            self.late = 1
            await super().commit(*self.held[0], **self.held[1])
        return head

    async def write_rows(self, *args, **fields):
        self._may("write_rows")
        if self.rows_gate is not None:
            await self.rows_gate.wait()
        await super().write_rows(*args, **fields)

    async def commit(self, *args, **fields):
        self._may("commit")
        if self.gate is not None:
            await self.gate.wait()
        if self.late == 3:
            self.late, self.held = 2, (args, fields)
            raise OutcomeUnknown("late", retry_after_ms=1)
        await super().commit(*args, **fields)


@pytest.fixture
async def house():
    made = House(Troubled)
    await made.open()
    yield made
    made.store.away.clear()
    for gate in (made.store.gate, made.store.rows_gate):
        if gate is not None:
            gate.set()
    await made.engine.stop()


async def test_a_key_is_looked_up_until_the_store_answers(house):
    await house.define("w", task("a"))
    house.store.away["find_runs"] = 3

    assert await house.submit("w", key="k") == await house.submit("w", key="k")
    assert house.engine.context.partition.failed is None


async def test_arguments_are_loaded_until_the_store_answers(house, monkeypatch):
    monkeypatch.setattr(house.engine.context.payloads, "_keep", lambda *_: None)  # nothing large stays in memory
    await house.define("w", task("a"), task("b", needs=["a"], args={"value": {"from": "nodes.a"}}))
    hand = Hand(house)
    hand.functions = {"a": lambda: LARGE, "b": lambda value: len(value)}
    await hand.sit_down()
    run_id = await house.submit("w")
    house.store.away["read_payloads"] = 2
    for _ in ("a", "b"):
        (work,) = await hand.take()
        await hand.call(hand.do(work))

    assert (await house.until(run_id, "completed", "failed")).state == "completed"
    assert house.store.away["read_payloads"] == 0


async def test_a_cached_result_is_looked_up_until_the_store_answers(house):
    await house.define("w", task("a", cache={"ttl_ms": 60_000}, handler_version="1"))
    hand = Hand(house)
    hand.functions = {"a": lambda: 1}
    await hand.sit_down()
    house.store.away["read_cache"] = 2
    run_id = await house.submit("w")
    (work,) = await hand.take()
    await hand.call(hand.do(work))

    assert (await house.until(run_id, "completed")).state == "completed"


async def test_a_commit_that_timed_out_and_happened_later_is_our_own(house):
    await house.define("w", task("a"))
    house.store.late = 3

    await house.submit("w")

    assert house.store.late == 1
    assert house.engine.context.partition.failed is None


async def test_publishing_twice_is_answered_only_when_it_is_durable(house):
    document = {"name": "w", "format": 1, "nodes": [task("a")]}
    publication = wire.Publication(documents=(document,))
    house.store.gate = asyncio.Event()
    one = asyncio.ensure_future(house.engine.workflows.publish(publication, by="one"))
    await asyncio.sleep(0.02)  # decided, and not durable
    other = asyncio.ensure_future(house.engine.workflows.publish(publication, by="other"))
    await asyncio.sleep(0.02)
    assert not one.done() and not other.done()

    await MemoryStore.claim(house.store, 0, owner="n2", settings=b"")  # somebody else takes over
    house.store.gate.set()

    for asked in (one, other):
        with pytest.raises(Unavailable):
            await asked


async def test_a_request_in_hand_is_answered_when_the_partition_is_taken_over(house):
    await house.define("w", task("a"))
    house.store.away["find_runs"] = 10_000
    asked = asyncio.ensure_future(house.submit("w", key="k"))
    await asyncio.sleep(0.02)  # it waits for a fact
    await MemoryStore.claim(house.store, 0, owner="n2", settings=b"")
    house.engine.context.partition._fail(Unavailable("taken over", retry_after_ms=1))

    with pytest.raises(Unavailable):
        await asked
    house.store.away.clear()


@pytest.mark.proves("F12")
@pytest.mark.parametrize("step", ["commit", "write_rows", "find_runs"])
async def test_an_owner_that_ends_does_not_wait_for_ever_for_a_store_that_takes_nothing(house, monkeypatch, step):
    monkeypatch.setattr(partition_module, "STOP_S", 0.2)
    await house.define("w", task("a"))
    first = await house.submit("w")
    house.store.away[step] = 1_000_000
    asked = asyncio.ensure_future(house.submit("w", key="k"))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(house.engine.stop(), 5)

    if step == "write_rows":
        assert await asked
    else:
        with pytest.raises(Unavailable, match="the outcome is unknown" if step == "commit" else "nothing was done"):
            await asked
    await house.open()
    runs = {run.id for run in house.engine.context.state.runs.values()}
    assert runs == {first} | ({asked.result()} if step == "write_rows" else set())


async def test_a_call_that_was_overtaken_does_not_end_its_worker(house):
    hand = Hand(house)
    await hand.sit_down()
    await hand.call(seq=7)

    reply = await house.engine.workers.exchange(Call(hand.name, hand.session, 5, hand.credit), hand.peer)

    assert not reply.refused and not reply.resync and not reply.work


async def test_what_the_store_cannot_keep_up_with_is_refused_before_memory_is_full(house, monkeypatch):
    monkeypatch.setattr(ground, "LEFT_MAX", 2)
    await house.define("w", {"kind": "wait", "id": "rest", "duration_ms": 1})
    partition = house.engine.context.partition
    house.store.rows_gate = asyncio.Event()
    for _ in range(3):
        await house.submit("w")
    await until(lambda: partition.write_behind.left_count == 3)
    with pytest.raises(Unavailable, match="cannot keep up"):
        await house.submit("w")
    house.store.rows_gate.set()
    await until(lambda: partition.write_behind.left_count == 0)

    assert await house.submit("w")


# ---- beside a commit that takes its time


@pytest.mark.parametrize(("count", "ahead"), [(AHEAD_INPUTS - 1, 0), (AHEAD_INPUTS, 1)])
async def test_beside_a_commit_a_tick_is_decided_only_for_many(house, count, ahead):
    await house.define("w", task("a"))
    partition = house.engine.context.partition
    house.store.gate = asyncio.Event()
    first = asyncio.create_task(house.submit("w"))
    await until(lambda: partition.decided_seq > partition.durable_seq)
    begun = partition.decided_seq
    others = [asyncio.create_task(house.submit("w")) for _ in range(count)]
    await until(lambda: partition.backlog == (0 if ahead else count))
    await asyncio.sleep(0.02)

    assert partition.decided_seq == begun + ahead
    house.store.gate.set()
    assert len(set(await asyncio.gather(first, *others))) == count + 1
    assert partition.decided_seq == begun + 1, "those that waited were decided together"


async def test_what_is_durable_goes_out_before_the_next_portion_of_timers_is_decided(house, monkeypatch):
    await house.define("w", task("a"))
    wanted = {f"s{number}": wire.ScheduleRequest(workflow="w", cron="* * * * *") for number in range(500)}
    await house.engine.workflows.publish(wire.Publication(schedules=wanted), by="test")
    hand = Hand(house, credit=1_000)
    await hand.sit_down()
    partition, commit = house.engine.context.partition, house.store.commit
    await until(lambda: partition.idle)

    def at_once(*args, **fields):
        done = asyncio.get_running_loop().create_future()
        with pytest.raises(StopIteration):  # nothing in it waits
            commit(*args, **fields).send(None)
        done.set_result(None)
        return done

    monkeypatch.setattr(house.store, "commit", at_once)
    begun = partition.decided_seq

    async def called():
        return len((await hand.call(wait_ms=1_000)).work), partition.decided_seq

    waiting = asyncio.create_task(called())
    await asyncio.sleep(0.005)
    house.clock.pass_ms(60_000)
    partition.refresh()

    assert await waiting == (TIMERS_PER_TICK, begun + 1)


async def test_a_timer_that_is_due_does_not_wait_for_a_commit(house):
    await house.define("w", {"kind": "wait", "id": "rest", "duration_ms": 60_000})
    run_id = await house.submit("w")
    partition = house.engine.context.partition
    await until(lambda: partition.durable_seq == partition.decided_seq)
    house.store.gate = asyncio.Event()
    second = asyncio.create_task(house.submit("w"))
    await until(lambda: partition.decided_seq > partition.durable_seq)
    begun = partition.decided_seq
    house.clock.pass_ms(61_000)
    partition.refresh()
    await until(lambda: partition.decided_seq > begun)
    house.store.gate.set()

    assert (await house.until(run_id, "completed")).state == "completed"
    assert await second != run_id


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.mark.proves("P8")
async def test_a_failed_sync_stops_the_engine_with_an_alarm(house, monkeypatch):
    await house.define("w", task("a"))
    tries = []

    async def commit(*_args, **_fields):
        tries.append(1)
        raise SyncFailed("fsync failed")

    monkeypatch.setattr(house.store, "commit", commit)
    with pytest.raises(TickworkError):
        await house.submit("w", id="late")

    assert len(tries) == 1, "a second sync would succeed and prove nothing"
    assert isinstance(house.engine.context.partition.failed, SyncFailed)
    assert "sync_failed" in [alarm.kind for alarm in house.engine.context.alarms.recent]
