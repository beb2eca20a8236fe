"""A reply that comes late, after the worker has said what it holds, brings nothing that is over by now."""

from typing import Any

from tickwork.protocol.worker_messages import AttemptJob, Call, Reply
from tickwork.worker.agent import Agent
from worker.scripted_server import TASK, Ids, LoopClock


class Taking:
    """An executor that remembers what it was given."""

    kinds, slots, isolation = frozenset({"task"}), 4, "none"

    def __init__(self):
        self.given = []

    def run(self, work, spec):
        self.given.append((work.task, work.attempt))


async def test_work_in_an_older_reply_is_left_to_the_server_to_offer_again():
    taking: Any = Taking()
    agent = Agent(None, [taking], clock=LoopClock(), ids=Ids(), name="w1")
    agent._by_kind = {"task": taking}
    work = AttemptJob(1, 1, TASK.id, "default", "run", b"\x80")
    agent._exchange._introduce = False
    older = agent._exchange.call(wait_ms=10_000)
    agent._exchange._doubt = True
    newer: Call = agent._exchange.call()
    assert older.held is None and newer.held == ()

    agent._exchange._follow(older, Reply(older.seq, (work,), (TASK,)))
    assert taking.given == []

    agent._exchange._follow(newer, Reply(newer.seq, (work,), (TASK,)))
    assert taking.given == [(1, 1)]
