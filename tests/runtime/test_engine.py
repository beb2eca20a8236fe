"""The engine on a memory store: what a client and a worker can rely on."""

import asyncio
import contextlib

import msgspec
import pytest

from runtime.engine_fixture import AtOnceStore, Hand, House, task
from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.base.values import pack
from tickwork.core.machine import Machine
from tickwork.core.state.inputs import Submit, Succeeded
from tickwork.ports.store import OutcomeUnknown, StoreFull
from tickwork.protocol import http_models as wire
from tickwork.protocol import worker_messages
from tickwork.protocol.worker_messages import Checkpointed, Failed, Started
from tickwork.runtime.effects import EffectRunner
from tickwork.runtime.engine import BURST, Engine
from tickwork.runtime.partition.input_queue import InputBatch
from tickwork.stores.memory.store import MemoryStore


@pytest.fixture(params=[MemoryStore, AtOnceStore])
async def house(request):
    house = House(request.param)
    await house.open()
    yield house
    await house.crash()


@contextlib.asynccontextmanager
async def serving(hand: Hand, **functions):
    hand.functions |= functions
    await hand.sit_down()
    job = asyncio.create_task(hand.serve())
    try:
        yield
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def test_a_run_goes_from_submission_to_its_output(house):
    await house.define(
        "add", task("one"), task("two", args={"x": {"from": "nodes.one"}, "y": {"from": "inputs.y"}}, needs=["one"]),
        inputs={"y": {"type": "integer", "default": 5}},
    )  # fmt: skip
    async with serving(Hand(house), one=lambda: 37, two=lambda x, y: x + y):
        run = await house.until(await house.submit("add"), "completed")

    assert run.output == 42
    assert [(one.node, one.state, len(one.attempts)) for one in run.tasks] == [
        ("one", "succeeded", 1), ("two", "succeeded", 1)
    ]  # fmt: skip


async def test_work_is_on_its_way_before_its_submission_is_acknowledged(house):
    await house.define("w", task("a"))
    hand, order = Hand(house), []
    await hand.sit_down()
    waiting = asyncio.create_task(hand.call(wait_ms=5_000))
    waiting.add_done_callback(lambda _: order.append("work"))
    await asyncio.sleep(0.05)
    await house.submit("w")
    order.append("acknowledged")
    await waiting

    assert order == ["work", "acknowledged"] and len(hand.held) == 1


async def test_a_defect_behind_a_commit_stops_the_partition_and_whoever_waits_is_told(house, monkeypatch):
    await house.define("w", task("a"))

    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr(house.engine.context.live, "_on_durable", broken)
    with pytest.raises(Unavailable, match="is unknown"):
        async with asyncio.timeout(5):
            await house.submit("w")
    with pytest.raises(Unavailable, match="has stopped"):
        await house.submit("w")


@pytest.mark.proves("I27", "S001-40")
async def test_one_key_is_one_run_while_it_runs_after_it_left_and_when_it_is_stored(house):
    await house.define("w", task("a"))
    first = await house.submit("w", key="k1")
    assert await house.submit("w", key="k1") == first

    async with serving(Hand(house), a=lambda: None):
        await house.until(first, "completed")
        assert await house.submit("w", key="k1") == first
        await asyncio.sleep(0.15)  # rows are written
        assert house.engine.context.live.write_behind.find_left("default", first) is None
        assert await house.submit("w", key="k1") == first

    await house.engine.stop()
    await house.open()
    assert await house.submit("w", key="k1") == first
    [answer] = await house.engine.runs.submit([wire.Submission(workflow="w", key="k1", priority=3)], by="test")
    assert isinstance(answer, wire.Rejected) and answer.code == "key_reused"


async def test_an_id_is_one_run_for_ever(house):
    await house.define("w", task("a"))
    async with serving(Hand(house), a=lambda: None):
        await house.until(await house.submit("w", id="mine"), "completed")
    await house.engine.stop()
    await house.open()
    house.clock.pass_ms(3 * 86_400_000)

    [answer] = await house.engine.runs.submit([wire.Submission(workflow="w", id="mine")], by="test")

    assert answer == wire.Submitted(id="mine", duplicate=True)


@pytest.mark.proves("I27")
@pytest.mark.parametrize("name", ["id", "key"])
async def test_a_run_that_ends_in_the_tick_in_which_it_is_asked_for_again_is_not_made_twice(house, name):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    run = await house.submit("w", **{name: "once"})
    [work] = await hand.take()

    ended = house.engine.context.partition.submit_inputs([Succeeded(work.task, work.attempt, None)])
    again = await house.submit("w", **{name: "once"})

    await ended.done
    assert again == run
    assert house.engine.context.state.live_runs == 0
    assert (await house.engine.queries.run(run)).state == "completed"


async def test_what_comes_after_the_end_is_sent_away_and_not_left_waiting(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()
    partition = house.engine.context.partition
    await house.engine.stop()

    with pytest.raises(Unavailable):
        partition.submit_inputs([Succeeded(work.task, work.attempt, None)])
    with pytest.raises(Unavailable):
        await asyncio.wait_for(hand.call(worker_messages.Succeeded(work.task, work.attempt, None, 1, 2)), 2)
    await house.open()


async def test_a_batch_is_answered_one_by_one(house):
    await house.define("w", task("a"), inputs={"n": {"type": "integer"}})

    answers = await house.engine.runs.submit(
        [
            wire.Submission(workflow="w", inputs={"n": 1}),
            wire.Submission(workflow="nope"),
            wire.Submission(workflow="w", inputs={"n": "x"}),
            wire.Submission(workflow="w", inputs={"n": 2}, start_at="yesterday"),
            wire.Submission(workflow="w", inputs={"n": 3}),
        ],
        by="test",
    )

    codes = [getattr(one, "code", "ok") for one in answers]
    assert codes == ["ok", "unknown_workflow", "wrong_type", "instant_syntax", "ok"]


async def test_results_of_a_map_are_gathered_in_order_also_when_they_are_large(house):
    await house.define(
        "fan",
        task("make"),
        {"kind": "map", "id": "each", "needs": ["make"], "over": "nodes.make", "max_parallel": 3,
         "body": {"kind": "task", "handler": "each", "args": {"x": {"from": "item"}, "i": {"from": "index"}}}},
        task("join", needs=["each"], args={"xs": {"from": "nodes.each"}}),
    )  # fmt: skip
    sizes = {0: 10, 1: 3_000, 2: 100, 3: 40_000, 4: 1, 5: 30_000}
    functions = {
        "make": lambda: list(range(6)),
        "each": lambda x, i: str(i) * sizes[x],
        "join": lambda xs: [len(x) for x in xs],
    }
    async with serving(Hand(house), **functions):
        run_id = await house.submit("fan")
        # 73 KB gathered is more than travels inline: the worker is told to fetch it.
        run = await house.until(run_id, "failed", "completed")

    assert run.state == "failed" and "join" in run.error  # the scripted worker does not fetch
    gathered = msgspec.msgpack.decode(await house.engine.queries.value_bytes(run_id, "each"))
    assert [len(text) for text in gathered] == [sizes[place] for place in range(6)]
    assert "".join(text[0] for text in gathered) == "012345"


@pytest.mark.proves("S001-27")
async def test_a_value_too_large_for_the_journal_is_committed_with_it_and_read_back(house):
    await house.define("big", task("make"), task("use", needs=["make"], args={"x": {"from": "nodes.make"}}))
    async with serving(Hand(house), make=lambda: "y" * 20_000, use=lambda x: len(x)):
        run_id = await house.submit("big")
        run = await house.until(run_id, "completed")

    assert run.output == 20_000
    assert run.tasks[0].result_size > 20_000
    await house.engine.stop()
    await house.open()
    assert msgspec.msgpack.decode(await house.engine.queries.value_bytes(run_id, "make")) == "y" * 20_000


@pytest.mark.proves("S004-69")
async def test_a_failed_run_can_be_retried_after_a_restart(house):
    await house.define("w", task("a"))
    broken = True

    def a():
        if broken:
            raise ValueError("not today")
        return "fine"

    async with serving(Hand(house), a=a):
        run_id = await house.submit("w")
        run = await house.until(run_id, "failed")
        assert run.error == "a: ValueError: not today"
    await house.engine.stop()
    await house.open()
    broken = False
    async with serving(Hand(house), a=a):
        await house.engine.runs.resolve(run_id, by="test")
        run = await house.until(run_id, "completed")

    assert run.output == "fine"
    assert [one.state for one in run.tasks[0].attempts] == ["failed", "succeeded"]
    page, _ = await house.engine.queries.runs(house.engine.queries.filter())
    assert [(one.id, one.state) for one in page] == [(run_id, "completed")]


@pytest.mark.parametrize(
    ("node", "error"),
    [
        ({"kind": "map", "id": "each", "needs": ["text"], "over": "nodes.text",
          "body": {"kind": "task", "handler": "text"}},
         "each: not_a_list: nodes.text is not a list, so a map cannot fan out over it"),
        ({"kind": "workflow", "id": "child", "workflow": "inner"}, "child: a: ValueError: not today"),
        ({"kind": "map", "id": "each", "needs": ["two"], "over": "nodes.two",
          "body": {"kind": "workflow", "workflow": "inner"}}, "each: a: ValueError: not today"),
        ({"kind": "event", "id": "paid", "event": "paid", "timeout_ms": 20}, "paid: timeout: no event came in time"),
        (task("one", "text", args={"x": {"from": "nodes.text.part"}}, needs=["text"]),
         "one: BadArgument: argument 'x': there is no 'part' in it"),
        (task("one", "text", when="results['text'] > 3", needs=["text"]), "one: condition_failed: "),
    ],
)  # fmt: skip
async def test_a_failed_run_says_why_also_where_no_attempt_failed_and_when_it_ends_much_later(house, node, error):
    await house.define("inner", task("a"))
    await house.define("outer", task("text"), task("two"), {"kind": "wait", "id": "slow", "duration_ms": 300}, node)

    def a():
        raise ValueError("not today")

    async with serving(Hand(house), a=a, text=lambda: "text", two=lambda: [1, 2]):
        run = await house.until(await house.submit("outer"), "failed")  # rows are written meanwhile

    assert run.error.startswith(error)


async def test_a_store_can_be_looked_at_without_owning_it(house):
    await house.define("w", {"kind": "wait", "id": "soon", "duration_ms": 10}, task("a", needs=["soon"]))
    run_id = await house.submit("w", delay_ms=20)
    before = (await house.engine.overview.head()).epoch
    await house.engine.stop()
    house.clock.pass_ms(60_000)
    looking = Engine(
        store=house.make_store(house.disk), artifacts=house.artifacts, clock=house.clock, ids=house.ids, owner="n2"
    )
    await looking.open_read_only()
    try:
        await asyncio.sleep(0.05)
        assert (await looking.queries.run(run_id)).state == "pending"  # although it is due
        assert await looking.queries.why(run_id) is not None
        with pytest.raises(Unavailable):
            await looking.runs.cancel(run_id, by="test")
        head = await looking.overview.head()
    finally:
        await looking.stop()
    await house.open()

    assert head.epoch == before and (await house.engine.overview.head()).epoch == before + 1


async def test_a_run_that_ended_cannot_be_cancelled_and_says_so(house):
    await house.define("w", task("a"))
    async with serving(Hand(house), a=lambda: None):
        run_id = await house.submit("w")
        await house.until(run_id, "completed")

        with pytest.raises(Refused, match="COMPLETED"):
            await house.engine.runs.cancel(run_id, by="test")
        with pytest.raises(Refused, match="no unfinished run"):
            await house.engine.runs.cancel("never", by="test")


async def test_cancel_stops_what_a_worker_holds(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    run_id = await house.submit("w")
    [work] = await hand.take()

    await house.engine.runs.cancel(run_id, by="test", reason="enough")
    await hand.call(wait_ms=100)

    assert hand.stopped == [(work.task, work.attempt)]
    run = await house.engine.queries.run(run_id)
    assert run.state == "cancelled" and run.tasks[0].attempts[0].state == "cancelled"
    reply = await hand.call(worker_messages.Succeeded(work.task, work.attempt, b"\xc0"))
    assert reply.fenced == ((work.task, work.attempt),)


# ---- the exchange


async def test_a_repeated_call_gets_the_same_reply(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    await hand.take()
    seq = hand.seq

    again = await hand.call(seq=seq)

    assert [(work.task, work.attempt) for work in again.work] == list(hand.held)


async def test_work_whose_reply_was_lost_is_offered_again(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()
    hand.held.clear()

    reply = await hand.call(held=())

    assert reply.work == (work,) and len(reply.specs) == 1


async def test_a_newer_call_ends_one_that_waits(house):
    hand = Hand(house)
    await hand.sit_down()
    waiting = asyncio.create_task(hand.call(wait_ms=20_000))
    await asyncio.sleep(0.01)

    await hand.call()

    await asyncio.wait_for(waiting, 10)


async def test_what_a_report_sets_free_comes_with_its_own_reply_and_the_call_that_waits_goes_on(house):
    await house.define("w", task("a"), task("b", needs=["a"]))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [first] = await hand.take()
    waiting = asyncio.create_task(hand.call(wait_ms=20_000))
    await asyncio.sleep(0.01)

    [second] = (await hand.call(worker_messages.Succeeded(first.task, first.attempt, None))).work
    assert not waiting.done()
    await hand.call(worker_messages.Succeeded(second.task, second.attempt, None))
    await house.submit("w")
    assert len((await asyncio.wait_for(waiting, 10)).work) == 1


async def delayed(house, count):
    """So many runs that are due together, and are."""
    wanted = wire.Submission(workflow="w", delay_ms=5_000)
    await house.engine.runs.submit([wanted] * count, by="test")
    house.clock.pass_ms(5_000)
    house.engine.context.live.refresh()


async def test_what_a_burst_of_timers_began_goes_out_although_reports_of_its_worker_are_not_durable_yet(house):
    await house.define("w", task("a"))
    hand = Hand(house, credit=100)
    await hand.sit_down()
    waiting = asyncio.create_task(hand.call(wait_ms=20_000))
    await asyncio.sleep(0.01)
    house.engine.workers.registered["w1"].session.reporting += 1  # as while these timers keep its reports waiting

    await house.submit("w")
    await delayed(house, 1)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await delayed(house, BURST)
    assert len((await asyncio.wait_for(waiting, 10)).work) == BURST + 2


async def test_a_call_that_only_waits_for_work_does_not_wait_for_an_earlier_one_with_reports(house, monkeypatch):
    await house.define("w", task("a"))
    hand = Hand(house, credit=100)
    await hand.sit_down()
    await house.submit("w")
    [first] = await hand.take()
    kept: list[InputBatch] = []

    def keep(inputs, payloads, **_):
        kept.append(InputBatch(inputs, asyncio.get_running_loop().create_future()))
        return kept[-1]

    monkeypatch.setattr(house.engine.context.live, "submit_inputs", keep)
    reporting = asyncio.create_task(hand.call(worker_messages.Succeeded(first.task, first.attempt, None)))
    await asyncio.sleep(0.01)
    monkeypatch.undo()
    assert kept and not reporting.done()

    waiting = asyncio.create_task(hand.call(wait_ms=20_000))
    await delayed(house, BURST)
    assert len((await asyncio.wait_for(waiting, 10)).work) == BURST
    assert not reporting.done()
    reporting.cancel()


async def test_a_server_that_does_not_know_a_session_asks_for_everything(house):
    hand = Hand(house)

    assert (await hand.call()).resync


@pytest.mark.proves("F24")
async def test_a_second_worker_of_the_same_name_is_refused_while_the_first_is_there(house):
    await Hand(house).sit_down()

    reply = await Hand(house, session="other").sit_down()

    assert "choose another name" in reply.refused


@pytest.mark.proves("F1", "I49", "I5", "S004-68", "S001-164")
async def test_a_worker_whose_connection_closed_is_lost_after_three_seconds(house):
    await house.define("w", task("a"))
    first, second = Hand(house), Hand(house, "w2")
    await first.sit_down()
    await house.submit("w")
    [work] = await first.take()
    await second.sit_down()
    house.engine.workers.connection_closed(first.peer)
    house.clock.pass_ms(2_000)
    await asyncio.sleep(0.6)
    assert "w1" in house.engine.workers.registered

    house.clock.pass_ms(1_000)
    [again] = await second.take()

    assert (again.task, again.attempt) == (work.task, 2)
    assert (await first.call(worker_messages.Succeeded(work.task, 1, b"\xc0"))).resync
    await first.sit_down()
    assert (await first.call(worker_messages.Succeeded(work.task, 1, b"\xc0"))).fenced == ((work.task, 1),)


@pytest.mark.proves("F2", "I51", "S001-43", "S001-98", "S001-99")
async def test_a_worker_is_silent_for_25_seconds_before_it_is_lost(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    await hand.take()
    house.clock.pass_ms(24_000)
    await asyncio.sleep(0.6)
    assert "w1" in house.engine.workers.registered
    await hand.call()
    house.clock.pass_ms(24_000)
    await asyncio.sleep(0.6)
    assert "w1" in house.engine.workers.registered

    house.clock.pass_ms(2_000)
    await asyncio.sleep(0.6)

    assert "w1" not in house.engine.workers.registered and not house.engine.context.state.workers


@pytest.mark.proves("S001-58")
async def test_after_a_restart_a_worker_goes_on_and_its_result_counts(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    run_id = await house.submit("w")
    [work] = await hand.take()
    await house.crash()
    house.clock.pass_ms(600_000)  # the server was away for long: the loss clock starts anew
    await house.open()

    assert (await hand.call()).resync
    assert (await hand.sit_down()).stop == ()
    await hand.call(worker_messages.Succeeded(work.task, work.attempt, b"\x07"))

    run = await house.until(run_id, "completed")
    assert run.output == 7 and len(run.tasks[0].attempts) == 1


async def test_goodbye_hands_back_what_was_held(house):
    await house.define("w", task("a"))
    first, second = Hand(house), Hand(house, "w2")
    await first.sit_down()
    await house.submit("w")
    await first.take()
    await second.sit_down()

    await first.call(goodbye=True)

    [work] = await second.take()
    assert work.attempt == 2


async def test_a_checkpoint_reaches_the_next_attempt(house):
    await house.define("w", task("a", retry={"attempts": 2, "delay_ms": 1}))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()
    await hand.call(Started(work.task, 1, 5))
    await hand.call(Checkpointed(work.task, 1, msgspec.msgpack.encode("x" * 5_000)))
    hand.held[work.task, 1] = work
    await hand.call(Failed(work.task, 1, "ValueError", "again"))
    [again] = await hand.take()

    assert again.attempt == 2 and msgspec.msgpack.decode(again.checkpoint) == "x" * 5_000


async def test_a_reference_that_leads_nowhere_fails_the_attempt_with_a_reason(house):
    await house.define("w", task("a"), task("b", needs=["a"], args={"x": {"from": "nodes.a.rows.3"}}))
    async with serving(Hand(house), a=lambda: {"rows": [1]}, b=lambda x: x):
        run = await house.until(await house.submit("w"), "failed")

    assert run.error == "b: BadArgument: argument 'x': there is no '3' in it"


# ---- a child run


async def test_a_child_run_gets_arguments_of_any_size_and_gives_its_output(house):
    await house.define(
        "inner", task("use", args={"text": {"from": "inputs.text"}}), inputs={"text": {"type": "string"}}
    )
    await house.define(
        "outer",
        task("make"),
        {
            "kind": "workflow",
            "id": "child",
            "workflow": "inner",
            "needs": ["make"],
            "args": {"text": {"from": "nodes.make"}},
        },
    )
    async with serving(Hand(house), make=lambda: "z" * 9_000, use=lambda text: len(text)):
        run = await house.until(await house.submit("outer"), "completed")

    assert run.output == 9_000
    page, _ = await house.engine.queries.runs(house.engine.queries.filter(workflow="inner"))
    child = await house.engine.queries.run(page[0].id)
    assert child.source == "child" and child.inputs == {"text": "z" * 9_000}


@pytest.mark.parametrize("size", [10, 9_000], ids=["small", "large"])
async def test_an_input_of_the_wrong_type_fails_a_child_run_whatever_its_size(house, size):
    await house.define("inner", task("use"), inputs={"text": {"type": "string"}})
    node = {"kind": "workflow", "id": "child", "workflow": "inner", "needs": ["make"]}
    await house.define("outer", task("make"), {**node, "args": {"text": {"from": "nodes.make"}}})
    used = []
    async with serving(Hand(house), make=lambda: [0] * size, use=lambda: used.append(1)):
        run = await house.until(await house.submit("outer"), "failed", "completed")

    assert (run.state, used) == ("failed", [])
    page, _ = await house.engine.queries.runs(house.engine.queries.filter(workflow="inner"))
    errors = [run.error, *[(await house.engine.queries.run(child.id)).error for child in page]]
    wrong = "wrong_type: inputs.text: a value of type string is expected, not list"
    assert any(wrong in error for error in errors), errors


@pytest.mark.parametrize("padding", [0, 600, 40_000], ids=["inline", "payload", "artifact"])
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({}, "bad_reference: argument 'n': there is no 'n' in it"),
        ({"n": "two"}, "wrong_type: inputs.n: a value of type integer is expected, not str"),
    ],
    ids=["missing", "wrong type"],
)
async def test_an_item_that_does_not_fit_fails_only_its_own_child_run_whatever_the_size_of_the_list(
    house, padding, second, message
):
    await house.define("inner", task("use", args={"n": {"from": "inputs.n"}}), inputs={"n": {"type": "integer"}})
    body = {"kind": "workflow", "workflow": "inner", "args": {"n": {"from": "item.n"}}}
    each = {"kind": "map", "id": "each", "needs": ["make"], "over": "nodes.make", "body": body}
    await house.define("tolerant", task("make"), {**each, "tolerate": 1})
    await house.define("strict", task("make"), each)
    items = [{"n": 0, "more": "x" * padding}, second, {"n": 2}]
    async with serving(Hand(house), make=lambda: items, use=lambda n: n + 1):
        tolerant = await house.until(await house.submit("tolerant"), "completed", "failed")
        strict = await house.until(await house.submit("strict"), "completed", "failed")

    assert (tolerant.state, tolerant.output) == ("completed", [1, None, 3])
    assert strict.state == "failed"
    page, _ = await house.engine.queries.runs(house.engine.queries.filter(workflow="inner"))
    children = [await house.engine.queries.run(child.id) for child in page]
    assert sorted(child.state for child in children) == ["completed"] * 4 + ["failed"] * 2
    assert {child.error for child in children if child.state == "failed"} == {message}
    assert message in strict.error


async def test_an_item_that_does_not_fit_fails_its_child_run_also_after_a_restart(house):
    await house.define("inner", task("use"), inputs={"n": {"type": "integer"}})
    body = {"kind": "workflow", "workflow": "inner", "args": {"n": {"from": "item.n"}}}
    await house.define("outer", {"kind": "map", "id": "each", "over": "inputs.items", "body": body, "tolerate": 1},
                       inputs={"items": {"type": "array"}})  # fmt: skip
    run_id = await house.submit("outer", inputs={"items": [{"m": 1}, {"n": 2}]})
    await house.crash()
    await house.open()
    async with serving(Hand(house), use=lambda: None):
        run = await house.until(run_id, "completed", "failed")

    assert run.state == "completed"


@pytest.mark.parametrize("size", [9_000, 100_000, 1_000_000], ids=["payload", "artifact", "large artifact"])
async def test_a_child_run_takes_a_whole_result_of_any_size(house, size):
    await house.define(
        "inner", task("use", args={"text": {"from": "inputs.text"}}), inputs={"text": {"type": "string"}}
    )
    node = {"kind": "workflow", "id": "child", "workflow": "inner", "needs": ["make"]}
    await house.define("outer", task("make"), {**node, "args": {"text": {"from": "nodes.make"}}})
    sizes = []

    class Fetching(Hand):
        def do(self, work):
            sizes.extend(len(msgspec.msgpack.decode(house.artifacts.kept[fetch.digest])) for fetch in work.fetch)
            return super().do(work)

    def use(text=None):
        sizes.extend([len(text)] if text else [])

    async with serving(Fetching(house), make=lambda: "z" * size, use=use):
        run = await house.until(await house.submit("outer"), "completed", "failed")

    assert run.state == "completed", run.error
    assert sizes == [size]


async def test_a_result_too_large_for_the_inputs_of_a_child_run_fails_it_with_the_limit(house):
    await house.define("inner", task("use"), inputs={"text": {"type": "string"}})
    node = {"kind": "workflow", "id": "child", "workflow": "inner", "needs": ["make"]}
    await house.define("outer", task("make"), {**node, "args": {"text": {"from": "nodes.make"}}})
    async with serving(Hand(house), make=lambda: "z" * (17 << 20), use=lambda: None):
        run = await house.until(await house.submit("outer"), "completed", "failed")

    assert "inputs_too_large" in run.error and "16 MiB" in run.error


@pytest.mark.proves("S001-136")
async def test_cached_results_are_used_again_also_after_a_restart(house):
    await house.define("w", task("a", args={"x": {"value": 1}}, cache={}))
    calls = []
    async with serving(Hand(house), a=lambda x: calls.append(x) or "kept"):
        for _ in range(2):
            await house.until(await house.submit("w"), "completed")
        await house.engine.stop()
        await house.open()
    async with serving(Hand(house), a=lambda x: calls.append(x) or "kept"):
        run = await house.until(await house.submit("w"), "completed")

    assert run.output == "kept" and calls == [1]


# ---- lists


async def test_pages_join_what_runs_what_just_ended_and_what_is_stored(house):
    await house.define("w", task("a"))
    async with serving(Hand(house), a=lambda: None):
        ids = [await house.submit("w") for _ in range(7)]
        for run_id in ids:
            await house.until(run_id, "completed")
    await asyncio.sleep(0.1)
    ids += [await house.submit("w") for _ in range(4)]
    found, before = [], 0
    while True:
        page, before = await house.engine.queries.runs(house.engine.queries.filter(limit=3, before=before))
        found += [run.id for run in page]
        if not before:
            break

    assert found == ids[::-1]
    active, _ = await house.engine.queries.runs(house.engine.queries.filter(states=("active",)))
    assert [run.id for run in active] == ids[:6:-1]
    with pytest.raises(Refused, match="a state is one of"):
        house.engine.queries.filter(states=("odd",))


async def test_changes_of_a_run_are_followed_to_its_end(house):
    await house.define("w", task("a"), task("b", needs=["a"]))
    run_id = await house.submit("w")
    seen = []

    async def follow():
        seen.extend(
            [(view.state, view.tasks_ended) async for view in house.engine.queries.changes(run_id) if view is not None]
        )

    follower = asyncio.create_task(follow())
    async with serving(Hand(house), a=lambda: None, b=lambda: None):
        await asyncio.wait_for(follower, 20)

    assert seen[0] == ("active", 0) and seen[-1] == ("completed", 2)
    assert not house.engine.queries.watchers


async def test_why_tells_the_chain_of_decisions(house):
    await house.define("w", task("a"))
    run_id = await house.submit("w")
    assert "credit" in {one.held for node in house.engine.queries.why_not(run_id).nodes for one in node.obstacles}
    async with serving(Hand(house), a=lambda: None):
        await house.until(run_id, "completed")

    story = await house.engine.queries.why(run_id)

    assert story.entries[0].what == "submitted" and story.state == "COMPLETED"
    assert house.engine.queries.why_not(run_id) is None


# ---- when things go wrong


class Troubled(MemoryStore):
    """A store whose commits fail as the test says."""

    trouble: Exception | None = None
    after: bool = False

    async def commit(self, partition, row, payloads, *, epoch):
        trouble = self.trouble
        if trouble is not None and not self.after:
            raise trouble
        await super().commit(partition, row, payloads, epoch=epoch)
        if trouble is not None:
            self.trouble = None
            raise trouble


@pytest.mark.proves("F9", "I1", "I11")
@pytest.mark.parametrize("after", [True, False])
async def test_a_commit_of_unknown_outcome_is_settled_by_the_head(after):
    house = House(Troubled)
    await house.open()
    await house.define("w", task("a"))
    house.store.after = after
    house.store.trouble = OutcomeUnknown("cut off", retry_after_ms=1)
    waiting = asyncio.create_task(house.submit("w"))
    await asyncio.sleep(0.05)
    house.store.trouble = None

    run_id = await asyncio.wait_for(waiting, 10)

    assert (await house.engine.queries.run(run_id)).state == "active"
    rows = await house.engine.overview.journal(after=0, limit=1_000)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    await house.crash()


@pytest.mark.proves("F12")
async def test_a_full_store_refuses_what_is_new_and_goes_on_when_there_is_space():
    house = House(Troubled)
    await house.open()
    await house.define("w", task("a"))
    house.store.trouble = StoreFull("no space", retry_after_ms=1)
    waiting = asyncio.create_task(house.submit("w"))
    await asyncio.sleep(0.05)

    with pytest.raises(StoreFull):
        await house.submit("w")
    assert not house.engine.context.accepting and not waiting.done()
    house.store.trouble = None
    run_id = await asyncio.wait_for(waiting, 10)

    assert (await house.engine.queries.run(run_id)).state == "active" and house.engine.context.accepting
    assert "store_full" in house.engine.context.alarms.counts
    await house.crash()


@pytest.mark.proves("F3", "I2")
async def test_an_owner_that_was_replaced_stops_and_says_so(house):
    await house.define("w", task("a"))
    other = MemoryStore(house.disk)
    await other.open()
    await other.claim(0, owner="n2", settings=b"")

    with pytest.raises(Unavailable, match="is unknown"):
        await house.submit("w")
    with pytest.raises(Unavailable, match="stopped"):
        await house.submit("w")
    assert not house.engine.context.accepting


@pytest.mark.proves("F28")
async def test_an_input_that_cannot_be_decided_is_set_aside_and_the_partition_goes_on(house, monkeypatch):
    await house.define("w", task("a"))
    apply = Machine.apply

    def poisoned(self, tick, asked):
        if any(getattr(one, "run_id", "") == "poison" for one in asked):
            self.state.tick = tick
            self.state.live_runs += 7  # half done
            raise RuntimeError("a defect")
        return apply(self, tick, asked)

    monkeypatch.setattr(Machine, "apply", poisoned)
    good = [wire.Submission(workflow="w") for _ in range(3)]
    answers = await house.engine.runs.submit([*good, wire.Submission(workflow="w", id="poison"), *good], by="test")

    assert [getattr(one, "code", "ok") for one in answers] == ["ok"] * 3 + ["quarantined"] + ["ok"] * 3
    assert house.engine.context.state.live_runs == 6
    assert "quarantined" in house.engine.context.alarms.counts
    await house.submit("w")


async def test_a_report_that_cannot_be_decided_ends_its_task_with_an_error_and_an_alarm(house, monkeypatch):
    await house.define("w", task("a"), task("b", needs=["a"]))
    apply = Machine.apply

    def poisoned(self, tick, asked):
        if any(isinstance(one, Succeeded) and one.value == pack("poison") for one in asked):
            raise RuntimeError("a defect")
        return apply(self, tick, asked)

    monkeypatch.setattr(Machine, "apply", poisoned)
    values = iter(["poison", "good", "good"])
    async with serving(Hand(house), a=lambda: next(values), b=lambda: None):
        run, other = await house.submit("w"), await house.submit("w")
        failed = await house.until(run, "failed")
        await house.until(other, "completed")

    assert failed.error == "a: undecidable: RuntimeError: a defect"
    assert {"quarantined", "dead_letter"} <= set(house.engine.context.alarms.counts)
    await house.crash()
    await house.open()
    assert (await house.engine.queries.run(run)).state == "failed"


async def test_a_lookup_that_fails_refuses_its_input_and_the_partition_goes_on(house, monkeypatch):
    await house.define("w", task("a"))
    find_runs = house.store.find_runs

    async def damaged(tenant, *, ids=(), keys=()):
        if "damaged" in ids:
            raise Corrupt("a block of runs was damaged on disk")
        if "strange" in ids:
            raise ValueError("a text that the driver cannot encode")
        return await find_runs(tenant, ids=ids, keys=keys)

    monkeypatch.setattr(house.store, "find_runs", damaged)
    names = ["one", "damaged", "two", "strange", "three"]
    answers = await house.engine.runs.submit([wire.Submission(workflow="w", id=name) for name in names], by="test")
    with pytest.raises(Refused, match="cannot be read") as refused:
        await house.engine.runs.cancel("strange", by="test")

    assert [getattr(one, "code", "ok") for one in answers] == ["ok", "lookup_failed", "ok", "lookup_failed", "ok"]
    assert refused.value.code == "lookup_failed"
    assert house.engine.context.alarms.counts["lookup_failed"] == 3
    assert house.engine.context.partition.failed is None
    await house.submit("w")


async def test_an_input_that_no_journal_can_hold_is_set_aside_and_its_neighbours_are_decided(house):
    await house.define("w", task("a"))
    inputs = [Submit("test", "default", "one", "w"), Submit("\ud800", "default", "two", "w")]
    letter = house.engine.context.partition.submit_inputs([*inputs, Submit("test", "default", "three", "w")])
    await letter.done

    assert {place: answer.code for place, answer in letter.answers.items()} == {1: "quarantined"}
    assert house.engine.context.state.live_runs == 2
    assert house.engine.context.partition.failed is None
    await house.submit("w")


async def test_a_cached_value_that_cannot_be_read_counts_as_none_and_its_task_runs(house, monkeypatch):
    await house.define("w", task("a", args={"x": {"value": 1}}, cache={}))

    async def damaged(keys):
        raise Corrupt("a cached value was damaged on disk")

    monkeypatch.setattr(house.store, "read_cache", damaged)
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()
    await hand.call(worker_messages.Succeeded(work.task, work.attempt))

    assert house.engine.context.alarms.counts["lookup_failed"] == 1


@pytest.mark.proves("F17", "I15")
async def test_a_clock_that_jumps_ahead_is_a_gap_in_the_journal_once_it_is_believed(house):
    await house.define("w", task("a"))
    before = house.engine.context.state.now_ms
    house.clock.wall_offset_ms += 3_600_000
    await house.submit("w")
    assert house.engine.context.state.now_ms < before + 10_000

    house.clock.pass_ms(300_000)
    await house.submit("w")
    assert house.engine.context.state.now_ms >= before + 3_600_000
    assert house.engine.context.alarms.counts["clock_gap"] == 1


@pytest.mark.proves("F17", "I16")
async def test_a_clock_that_is_wrong_for_a_moment_starts_nothing_early_also_after_a_restart(house):
    await house.define("w", task("a"))
    due = await house.submit("w", delay_ms=1_800_000)
    house.clock.wall_offset_ms += 3_600_000
    await house.submit("w")
    await house.engine.context.clock_monitor.check()
    status = (await house.engine.overview.status()).clock
    assert (status.state, round(status.step_ms, -3)) == ("held", 3_600_000)
    assert house.engine.context.alarms.counts["clock_step"] == 1
    assert "tickwork clock confirm" in house.engine.overview.warnings[0]

    house.clock.wall_offset_ms -= 3_600_000
    await house.engine.stop()
    await house.open()
    assert (await house.engine.queries.run(due)).state == "pending"
    assert (await house.engine.overview.status()).clock.state == "steady"


@pytest.mark.proves("I16")
async def test_work_goes_on_and_timers_wait_while_logical_time_is_ahead_of_real_time(house):
    await house.define("w", task("a"))
    house.clock.pass_ms(3_600_000)
    due = await house.submit("w", delay_ms=2_000)
    await house.engine.stop()
    house.clock.pass_ms(-3_600_000)  # the clock was wrong all the time, and was corrected while nothing ran
    await house.open()
    async with serving(Hand(house), a=lambda: None):
        now = await house.submit("w")
        await house.until(now, "completed")
        assert house.engine.context.state.timers_held
        assert (await house.engine.overview.status()).clock.state == "ahead"

        house.clock.pass_ms(10_000)
        house.engine.context.live.refresh()
        await house.submit("w")
        assert (await house.engine.queries.run(due)).state == "pending"

        house.clock.pass_ms(3_600_000)
        await house.engine.context.clock_monitor.check()
        await house.until(due, "completed")
        assert not house.engine.context.state.timers_held


async def test_a_person_confirms_a_step_of_the_clock(house):
    await house.define("w", task("a"))
    before = house.engine.context.state.now_ms
    assert not await house.engine.admin.confirm_clock(by="ada")
    house.clock.wall_offset_ms += 3_600_000
    await house.submit("w")

    assert await house.engine.admin.confirm_clock(by="ada")
    assert house.engine.context.state.now_ms >= before + 3_600_000
    assert house.engine.context.alarms.counts["clock_gap"] == 1


@pytest.mark.proves("F17", "I15")
async def test_a_clock_that_jumps_back_does_not_turn_time_back(house):
    await house.define("w", task("a"))
    before = house.engine.context.state.now_ms
    house.clock.wall_offset_ms -= 3_600_000

    await house.submit("w")
    assert before <= house.engine.context.state.now_ms < before + 10_000
    await house.engine.stop()
    await house.open()
    await house.submit("w")

    assert before <= house.engine.context.state.now_ms < before + 20_000


async def test_a_clock_that_jumps_back_raises_an_alarm(house):
    await house.define("w", task("a"))
    house.clock.wall_offset_ms -= 3_600_000
    await house.submit("w")

    async with asyncio.timeout(10):
        while not any(alarm.kind == "clock_step" for alarm in house.engine.context.alarms.recent):
            await asyncio.sleep(0.05)
    assert "behind real time" in next(
        alarm.text for alarm in house.engine.context.alarms.recent if alarm.kind == "clock_step"
    )


async def test_a_delayed_run_starts_when_its_time_has_come(house):
    await house.define("w", task("a"))
    run_id = await house.submit("w", delay_ms=86_400_000)
    async with serving(Hand(house), a=lambda: None):
        await asyncio.sleep(0.05)
        assert (await house.engine.queries.run(run_id)).state == "pending"
        house.clock.pass_ms(86_400_000)
        house.engine.context.live._wake.set()

        await house.until(run_id, "completed")


async def test_views_wait_until_what_they_show_is_durable():
    house = House(Troubled)
    await house.open()
    await house.define("w", task("a"))
    house.store.trouble = StoreFull("no space", retry_after_ms=1)
    waiting = asyncio.create_task(house.submit("w", id="x"))
    await asyncio.sleep(0.02)
    view = asyncio.create_task(house.engine.queries.run("x"))
    await asyncio.sleep(0.02)

    assert not view.done()
    house.store.trouble = None
    assert (await asyncio.wait_for(view, 10)).id == "x"
    await waiting
    await house.crash()


async def test_calls_that_overtake_each_other_are_both_answered(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()

    await hand.call(worker_messages.Succeeded(work.task, work.attempt, b"\xc0"), seq=10)
    late = await hand.call(wait_ms=5_000, seq=9)

    assert not late.refused and not late.work


async def test_what_a_later_reply_brought_is_not_offered_again_to_an_earlier_call(house):
    await house.define("w", task("a"))
    hand = Hand(house)
    await hand.sit_down()
    await house.submit("w")
    while not (await hand.call(seq=hand.seq + 5)).work:
        await asyncio.sleep(0.005)

    late = await hand.call(seq=hand.seq - 1, held=())

    assert not late.work


async def test_what_a_former_session_was_told_late_is_offered_to_the_next(house):
    await house.define("w", task("a"))
    former = Hand(house)
    await former.sit_down()
    former.seq += 5
    await house.submit("w")
    [work] = await former.take()
    house.engine.workers.connection_closed("w1:1")

    reply = await Hand(house, session=f"{former.session}@2").sit_down()

    assert [(one.task, one.attempt) for one in reply.work] == [(work.task, work.attempt)]


async def test_the_end_of_an_idle_connection_beside_a_waiting_call_says_nothing(house):
    hand = Hand(house)
    await hand.sit_down()
    waiting = asyncio.create_task(hand.call(wait_ms=20_000))
    await asyncio.sleep(0.01)

    house.engine.workers.connection_closed("w1:2")
    assert not house.engine.workers.registered["w1"].session.closed_ms
    house.engine.workers.connection_closed("w1:1")

    assert house.engine.workers.registered["w1"].session.closed_ms
    await asyncio.wait_for(waiting, 10)


async def test_a_map_that_is_the_last_node_gives_all_of_its_results(house):
    await house.define(
        "fan",
        task("make"),
        {"kind": "map", "id": "each", "needs": ["make"], "over": "nodes.make",
         "body": {"kind": "task", "handler": "each", "args": {"x": {"from": "item"}}}},
        output="nodes.each",
    )  # fmt: skip
    async with serving(Hand(house), make=lambda: [1, 2, 3], each=lambda x: 10 * x):
        for _ in range(5):
            run = await house.until(await house.submit("fan"), "completed")

            assert run.output == [10, 20, 30]


async def test_why_of_an_unknown_id_is_answered_without_reading_the_journal(house, monkeypatch):
    await house.define("flow", task("a"))
    await house.submit("flow", id="known")
    read = house.engine.context.archives.journal
    asked = []

    async def journal(*numbers, **fields):
        asked.append(fields)
        return await read(*numbers, **fields)

    monkeypatch.setattr(house.engine.context.archives, "journal", journal)

    assert await house.engine.queries.why("unknown") is None
    assert asked == []
    story = await house.engine.queries.why("known")
    assert story is not None and asked


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_condition_over_a_large_value_is_decided_although_the_server_ends_before_it_has_read_it(
    house, monkeypatch, moment
):
    nodes = [task("a"), task("b", needs=["a"], when="results.a.rows.all(x, x.ok)"), task("c", needs=["b"])]
    await house.define("w", *nodes)
    read = EffectRunner._read_extract
    sought = asyncio.Event()

    async def hangs(self, effect):
        sought.set()
        await asyncio.sleep(60)

    if moment == "before":
        monkeypatch.setattr(EffectRunner, "_read_extract", hangs)
    value = {"rows": [{"ok": True, "text": "x" * 100}] * 100}
    async with serving(Hand(house), a=lambda: value, b=lambda: None, c=lambda: None):
        run = await house.submit("w")
        if moment == "before":
            async with asyncio.timeout(5):
                await sought.wait()
        else:
            await house.until(run, "completed")
    await house.crash()
    monkeypatch.setattr(EffectRunner, "_read_extract", read)
    await house.open()
    async with serving(Hand(house, session="s2"), b=lambda: None, c=lambda: None):
        ended = await house.until(run, "completed")

    assert [one.state for one in ended.tasks] == ["succeeded"] * 3


async def test_inputs_above_the_documented_limit_are_refused_with_both_sizes(house):
    await house.define("flow", task("a"), inputs={"text": {"type": "string"}})
    await house.submit("flow", id="fits", inputs={"text": "x" * (16 * 1024 * 1024 - 100)})

    answers = await house.engine.runs.submit(
        [wire.Submission(workflow="flow", inputs={"text": "x" * 16 * 1024 * 1024})], by="t"
    )
    assert answers[0].code == "inputs_too_large"
    assert "16777" in answers[0].detail and "(16 MiB)" in answers[0].detail
