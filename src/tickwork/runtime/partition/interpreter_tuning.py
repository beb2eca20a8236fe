"""Policy of the tick loop: how a process of ours sets the interpreter."""

import asyncio
import gc
import sys

BUSY_INPUTS = 100  # in one tick
SWITCH_S, SWITCH_BUSY_S = 0.0002, 0.005
COLLECT_TICKS, COLLECT_S = 64, 5.0


class InterpreterTuning:
    """GIL switch interval and garbage collection, where the process is ours. A host process keeps its own settings.

    A commit needs the GIL a few times. After a tick of at most 100 inputs the switch interval is 0.2 ms, so that the
    commit thread runs promptly; after a larger one it is 5 ms, because every switch costs. Automatic collection is off:
    a full collection over a million tasks would stop the partition. Young garbage is collected every 64 ticks and every
    5 s, and what survives is frozen, so that it is never traversed again.
    """

    def __init__(self, *, own_process: bool) -> None:
        self.own_process = own_process
        self._busy: bool | None = None
        self._ticks = 0  # since the last collection

    def ticked(self, *, inputs: int) -> None:
        if not self.own_process:
            return
        busy = inputs > BUSY_INPUTS
        if busy is not self._busy:
            self._busy = busy
            sys.setswitchinterval(SWITCH_BUSY_S if busy else SWITCH_S)
        self._ticks += 1
        if self._ticks >= COLLECT_TICKS:
            self.collect()

    def collect(self) -> None:
        self._ticks = 0
        gc.collect(1)
        gc.freeze()

    async def run(self) -> None:
        """Collect while nothing ticks, too, until cancelled."""
        gc.disable()
        while True:
            self.collect()
            await asyncio.sleep(COLLECT_S)
