"""Forks servers that die at a named durable step: `python zygote.py FOLDER PORT`, then lines `FAILPOINT HITS` on stdin.

Everything is imported once, so a life costs milliseconds. Each server writes `ready` when its port answers. Its
death is told as `dead PID`.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from tickwork.compose.server import serving
from tickwork.compose.settings import Settings
from tickwork.runtime.partition import pacing

# Rows are flushed ten times as often as otherwise, so that a server that dies at its third flush lives for a second.
pacing.WHOLE_S, pacing.ENDED_S, pacing.ENDED_SOON_S = pacing.WHOLE_S / 10, pacing.ENDED_S / 10, pacing.ENDED_SOON_S / 10


def dies_at(hits: int) -> Callable[[], None]:
    left = hits

    def hit() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os._exit(137)

    return hit


async def live(folder: Path, port: int, failpoint: str, hits: int) -> None:
    settings = Settings(data=str(folder), port=port)
    failpoints = {failpoint: dies_at(hits)} if failpoint != "none" else None
    async with serving(settings, failpoints=failpoints):
        print("ready", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    for line in sys.stdin:
        failpoint, hits = line.split()
        pid = os.fork()
        if not pid:
            try:
                uvloop.run(live(folder, port, failpoint, int(hits)))
            finally:
                os._exit(1)
        print(f"alive {pid}", flush=True)
        os.waitpid(pid, 0)
        print(f"dead {pid}", flush=True)


if __name__ == "__main__":
    main()
