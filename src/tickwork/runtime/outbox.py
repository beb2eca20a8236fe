"""Sends commands of tasks to other partitions, until the receiving partition has decided about them.

The machine numbers the commands and keeps them until they are acknowledged. They are sent in order, one batch at a time
for each partition. After a crash they are sent again, and the receiver recognizes duplicates by their number.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from tickwork.core.base.errors import Unavailable
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import SendCommand
from tickwork.core.state.state import QueuedCommand
from tickwork.runtime.context import EngineContext

BATCH_MAX = 200
PAUSE_S, PAUSE_S_MAX = 0.05, 2.0
ALARM_S = 60.0  # a partition that has decided nothing for so long is more than between two owners
UNDECIDED = frozenset(("overloaded", "out_of_order"))  # the receiver has not decided: it is sent again


class Outbox:
    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._waiting: dict[int, deque[QueuedCommand]] = {}  # durable, by partition; a job sends those of each

    def resume(self) -> None:
        """Send the commands that the previous owner's receivers did not acknowledge."""
        for partition, commands in self._context.state.outbox.items():
            self._add(partition, commands)

    def send(self, effect: SendCommand) -> None:
        self._add(effect.partition, [effect.command])

    def _add(self, partition: int, commands: Sequence[QueuedCommand]) -> None:
        waiting = self._waiting.get(partition)
        if waiting is not None:
            waiting.extend(commands)
        else:
            self._waiting[partition] = deque(commands)
            self._context.spawn(self._send_all(partition))

    async def _send_all(self, partition: int) -> None:
        waiting, pause_s, loop = self._waiting[partition], PAUSE_S, asyncio.get_running_loop()
        since_s = loop.time()
        while waiting:
            decided = 0
            try:
                decided = await self._send(partition, [*waiting][:BATCH_MAX])
            except Exception as error:  # after any error: an accepted command is sent until it is decided
                if loop.time() - since_s >= ALARM_S or not isinstance(error, Unavailable):
                    since_s = loop.time()
                    reason = f"{type(error).__name__}: {error}"
                    text = f"{len(waiting)} commands of tasks wait for partition {partition}: {reason}"
                    self._context.alarms.add("commands_wait", text)
            for _ in range(decided):
                waiting.popleft()
            if decided:
                pause_s, since_s = PAUSE_S, loop.time()
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        del self._waiting[partition]

    async def _send(self, partition: int, commands: list[QueuedCommand]) -> int:
        """How many of them the partition has decided about; the others are still to be sent."""
        context = self._context
        assert context.neighbours is not None, "only a cluster has other partitions"
        outcomes = await context.neighbours.deliver(partition, context.number, commands)
        replies: list[inp.Input] = []
        for command, outcome in zip(commands, outcomes, strict=False):
            if outcome.code in UNDECIDED:
                break
            replies.append(inp.Acknowledged(partition, command.number, outcome.code, outcome.message))
        if replies:
            await context.live.submit_inputs(replies).done
        return len(replies)
