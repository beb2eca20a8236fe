"""One worker's session, apart from whoever handles its calls."""

import asyncio

import pytest

from tickwork.core.base.errors import Unavailable
from tickwork.protocol.worker_messages import AttemptJob, Call, NodeSpec, Reply, Succeeded
from tickwork.runtime.workers.worker_session import REPLY_BYTES_MAX, WorkerSession

SPEC = NodeSpec(7, "task", "flow", "a", "hash")


def job(task):
    return (AttemptJob(task, 1, SPEC.id, "t", "r", b"\x80"), SPEC)


class Handler:
    """Replies to each call with its number, as soon as it may."""

    def __init__(self):
        self.calls, self.previous = [], []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, call, previous):
        self.calls.append(call.seq)
        self.previous.append(previous)
        await self.open.wait()
        return Reply(call.seq)


def called(session, handler, seq, *, peer="p1", now_ms=0, **fields):
    return session.exchange(Call("w1", "s1", seq, **fields), handler, peer=peer, now_ms=now_ms)


async def test_a_repeated_call_gets_the_same_reply_and_is_handled_once():
    session, handler = WorkerSession("w1", "s1", 0), Handler()
    handler.open.clear()
    first = asyncio.create_task(called(session, handler, 1))
    again = asyncio.create_task(called(session, handler, 1, peer="p2"))
    await asyncio.sleep(0)
    assert session.calls == {"p1": 1, "p2": 1}
    handler.open.set()

    assert await first is await again is await called(session, handler, 1)
    assert handler.calls == [1] and session.calls == {}


async def test_a_call_whose_handling_failed_is_handled_again():
    session, handler = WorkerSession("w1", "s1", 0), Handler()

    async def fails(call, previous):
        raise Unavailable("not now", retry_after_ms=1)

    with pytest.raises(Unavailable):
        await called(session, fails, 1)

    assert (await called(session, handler, 1)).seq == 1
    assert handler.calls == [1]


async def test_whoever_repeats_a_call_that_was_given_up_is_told_to_ask_again():
    session, handler = WorkerSession("w1", "s1", 0), Handler()
    handler.open.clear()
    first = asyncio.create_task(called(session, handler, 1))
    again = asyncio.create_task(called(session, handler, 1))
    await asyncio.sleep(0)
    first.cancel()

    with pytest.raises(Unavailable, match="was cancelled"):
        await again


async def test_a_late_call_is_handled_and_leaves_the_kept_reply():
    session, handler = WorkerSession("w1", "s1", 0), Handler()
    kept = await called(session, handler, 2)
    late = await called(session, handler, 1)

    assert (late.seq, handler.calls) == (1, [2, 1])
    assert await called(session, handler, 2) is kept


async def test_the_handler_gets_the_reply_to_the_call_before():
    session, handler = WorkerSession("w1", "s1", 0), Handler()
    replies = [await called(session, handler, seq) for seq in (1, 2)]
    first, second = handler.previous

    assert first is None and second.result() is replies[0]


@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({}, True),
        ({"reports": (Succeeded(1, 1),)}, False),  # beside reports, the call that waits for work goes on waiting
        ({"reports": (Succeeded(1, 1),), "held": ()}, True),
    ],
)
async def test_a_newer_call_ends_the_one_that_waits_for_work(fields, ended):
    session = WorkerSession("w1", "s1", 0)

    async def waits(call, _previous):
        await session.wait_for_work(60_000)
        return session.reply(call)

    waiting = asyncio.create_task(called(session, waits, 1))
    await asyncio.sleep(0)
    assert session.waits_for_work
    await called(session, Handler(), 2, **fields)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert waiting.done() is ended
    waiting.cancel()


async def test_a_reply_carries_what_is_pending_once_and_a_spec_once_per_session():
    session, call = WorkerSession("w1", "s1", 0), Call("w1", "s1", 1)
    session.offer([job(1), job(2), job(3)])
    assert session.withdraw((2, 1)) and not session.withdraw((9, 1))
    session.cancel((9, 1))
    first = session.reply(call, store="x")
    session.offer([job(4)])
    second = session.reply(call)
    session.forget_specs()
    session.offer([job(5)])

    assert [one.task for one in first.work] == [1, 3] and first.specs == (SPEC,) and first.stop == ((9, 1),)
    assert [one.task for one in second.work] == [4] and second.specs == () and second.stop == ()
    assert session.reply(call).specs == (SPEC,)
    assert first.store == "", "only the reply to an introduction names the store"


async def test_a_reply_holds_as_many_attempts_as_a_worker_can_read():
    session, call = WorkerSession("w1", "s1", 0), Call("w1", "s1", 1)
    half = b"x" * (REPLY_BYTES_MAX // 2)
    large = AttemptJob(9, 1, SPEC.id, "t", "r", b"", checkpoint=b"x" * 2 * REPLY_BYTES_MAX)
    session.offer([*((AttemptJob(task, 1, SPEC.id, "t", "r", half), SPEC) for task in range(5)), (large, SPEC)])
    sent = [[one.task for one in session.reply(call).work] for _ in range(5)]

    assert sent == [[0, 1], [2, 3], [4], [9], []]


@pytest.mark.parametrize(
    ("reporting", "beside_reports", "woken"), [(0, False, True), (1, False, False), (1, True, True)]
)
async def test_work_goes_out_with_the_reply_to_reports_that_are_under_way(reporting, beside_reports, woken):
    session = WorkerSession("w1", "s1", 0)
    waiting = asyncio.create_task(session.wait_for_work(60_000))
    await asyncio.sleep(0)
    session.reporting = reporting
    session.offer([job(1)], beside_reports=beside_reports)
    await asyncio.sleep(0)

    assert waiting.done() is woken
    waiting.cancel()


async def test_a_call_says_that_its_worker_lives_and_is_back():
    session = WorkerSession("w1", "s1", 0)
    session.closed_ms = 5
    await called(session, Handler(), 1, peer="p2", now_ms=9)

    assert (session.heard_ms, session.closed_ms, session.peer) == (9, 0, "p2")
