"""A worker's line to the owner of a partition: what that believes of the worker's credit."""

import asyncio

from tickwork.cluster.owner_session import OwnerSession
from tickwork.protocol.worker_messages import Reply, WorkerProfile


class Worker:
    def offer(self, job, spec): ...
    def cancel(self, key): ...
    def owner_replied(self, owner): ...
    def owner_session_ended(self, error): ...


async def test_the_reply_to_a_call_that_waited_does_not_say_what_the_owner_believes():
    waits = [asyncio.get_running_loop().create_future() for _ in range(2)]
    left = iter(waits)

    async def way(partition, call):
        if call.wait_ms:
            await next(left)
        return Reply(call.seq)

    line = OwnerSession(Worker(), 3, route=way, name="w1", session="s", profile=WorkerProfile(), via="n1")
    line.share = 10
    line.start(())
    async with asyncio.timeout(5):
        while line._exchange._poll is None or line._exchange._introduce:
            await asyncio.sleep(0)
    assert line.believed_share == 10
    line.set_share(4)
    async with asyncio.timeout(5):
        while line.believed_share != 4:
            await asyncio.sleep(0)

    waited = line._exchange._poll
    waits[0].set_result(None)
    await waited

    assert line.believed_share == 4
    await line.hang_up()
