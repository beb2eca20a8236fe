"""The disk of the database is full: nothing is accepted that is not kept, nobody dies of it, and it goes on by itself.

The database lives on a small disk of its own, made in memory; that needs the right to mount one. Data and log are on
the same disk, so the database itself gives up when its log has no room; whoever runs it starts it again.
"""

import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from chaos import checks
from chaos.campaign import Tell, drain, spread
from chaos.deployment import staged
from chaos.load import Load
from chaos.verdicts import Verdict
from chaos.watch import Epochs, Starts
from servers import PLACE

DISK_MB = 192
FULL_S = 6.0


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """Raises `OSError` where it may not be made."""
    folder = Path(tempfile.mkdtemp(prefix="tickwork-disk-", dir=PLACE))
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=1777", "tickwork", str(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    try:
        if made.returncode:
            raise OSError(f"a disk of its own could not be made: {made.stderr.decode().strip()}")
        yield folder
    finally:
        if not made.returncode:
            subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


async def run(folder: Path, tell: Tell) -> list[Verdict]:
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk())
        except OSError as error:
            tell(f"the full disk is left out: {error}")
            return []
        return await _run(folder, disk, tell)


async def _run(folder: Path, disk: Path, tell: Tell) -> list[Verdict]:
    async with staged(folder, workers=2, database_at=disk) as stage:
        load = Load([node.url for node in stage.nodes], rate=100, seed=1)
        starts, epochs = Starts(stage), Epochs(stage)
        jobs = [asyncio.create_task(job) for job in (starts.run(), epochs.run())]
        try:
            await spread(stage, load)
            jobs.append(asyncio.create_task(load.run()))
            await asyncio.sleep(4)
            accepted = len(load.accepted)
            ballast = disk / "ballast"
            await asyncio.to_thread(_fill, ballast)
            tell(f"the disk is full; {accepted} runs were acknowledged so far")
            await asyncio.sleep(FULL_S)
            alive = [node.name for node in stage.nodes if node.program.alive]
            before, asked = len(load.accepted), load.asked_again
            await asyncio.sleep(1)
            held = len(load.accepted) - before
            ballast.unlink()
            if not stage.database_alive:
                tell("the database had given up; it is started again")
                await stage.start_database()
            freed = time.monotonic()
            back = await starts.back(freed, 50, within_s=30)
            await asyncio.sleep(3)
            load.stop()
            await jobs[-1]
            await drain(stage, load, tell)
            return [
                Verdict(
                    "a full disk stops nobody for good",
                    len(alive) == len(stage.nodes) and back is not None and load.asked_again > asked,
                    f"{len(alive)} of {len(stage.nodes)} nodes lived on, {held} runs accepted in its last second, "
                    f"work again {'never' if back is None else f'after {back:.1f} s'}",
                    "F12",
                ),
                *(_renamed(one) for one in await checks.check_runs(stage, load)),
                *(_renamed(one) for one in await checks.check_journals(stage, epochs, load)),
            ]
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await load.close()


def _renamed(one: Verdict) -> Verdict:
    return Verdict(f"full disk: {one.name}", one.kept, one.text, one.proves)


def _fill(ballast: Path) -> None:
    handle = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.write(handle, bytes(size))
    finally:
        os.close(handle)
