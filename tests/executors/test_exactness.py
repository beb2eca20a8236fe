"""No attempt is lost, and none runs twice: kills, recalls and stops at random moments."""

import asyncio
import os
import random
import signal
from collections import Counter

import pytest

from executors.executor_fixture import Stage, playing
from tickwork.protocol.worker_messages import Failed, HandedBack, Succeeded


@pytest.mark.slow
@pytest.mark.proves("I35", "F1", "F29")
async def test_through_two_thousand_kills_stops_and_recalls_everything_ends_once(tmp_path):
    chance = random.Random(7)
    path = tmp_path / "ran"
    async with playing(processes=2) as stage:
        pool = stage.executor._pools["process"]
        recalled: Counter = Counter()
        stopped: set[tuple[int, int]] = set()
        keys: list[tuple[int, int]] = []
        kills = recalls = shared = 0
        while kills + recalls < 2_000:
            for _ in range(chance.randrange(1, 30)):
                keys.append(stage.start("note", args={"path": str(path), "text": str(len(keys) + 1)}))
            if chance.random() < 0.02:
                await stage.until(lambda: any(child.ready for child in pool.children))
                kills += 1
                os.kill(chance.choice([child for child in pool.children if child.ready]).pid, signal.SIGKILL)
            elif chance.random() < 0.2:
                key = chance.choice(keys[-60:])
                if key in pool:
                    stopped.add(key)
                    stage.executor.stop(*key)
            else:
                recalls += 1
                recalled.update(stage.executor.recall())
            await asyncio.sleep(chance.choice([0, 0, 0.001]))
            shared += pool._box.shared > 0
        await stage.until(lambda: len(stage.ends) + len(recalled) + len(stopped) == len(keys), seconds=60)
        await asyncio.sleep(0.05)

    ran = Counter(int(line) for line in path.read_text().split())
    assert kills >= 30 and shared >= 30 and len(stopped) >= 30 and max(recalled.values()) == 1
    assert all(len(ends) == 1 for ends in stage.ends.values())
    for key in stopped:
        assert key not in stage.ends and key not in recalled and ran[key[0]] <= 1, "stopped: nothing is said of it"
    for key in keys:
        if key in stopped:
            continue
        reports = stage.ends.get(key, [])
        assert (key in recalled) != bool(reports), "recalled or ended, never both, never neither"
        kind = type(reports[0]) if reports else None
        assert ran[key[0]] == 1 if kind is Succeeded else ran[key[0]] <= (kind is not None), key
    kinds = Counter(type(reports[0]) for reports in stage.ends.values())
    assert kinds[Succeeded] > 200 and set(kinds) <= {Succeeded, Failed, HandedBack}


async def test_a_job_that_dies_between_being_taken_and_being_marked_is_handed_back():
    """Taken from the socket by nobody who will ever run it: what the death of a child looks like then."""
    async with playing(processes=1) as stage:
        pool = stage.executor._pools["process"]
        (child,) = pool.children
        busy = stage.start("sleep", args={"seconds": 60})
        await stage.until(lambda: bool(child.marked()))
        key = stage.start("noop")
        await stage.until(lambda: key in pool._box.out)
        assert pool._box.theirs.recv(100_000)
        os.kill(child.pid, signal.SIGKILL)

        assert isinstance(await stage.end(busy), Failed)
        assert await stage.end(key) == HandedBack(*key)
        assert await stage.value("add", a=1, b=1) == 2


async def test_children_that_die_at_once_are_not_started_in_a_storm(tmp_path):
    app = tmp_path / "fragile.py"
    app.write_text("from tickwork.sdk.authoring.tasks import task\n\n@task(name='noop')\ndef noop() -> None: ...\n")
    async with playing(str(app), processes=1) as stage:
        app.write_text("raise RuntimeError('gone bad')\n")
        pool = stage.executor._pools["process"]
        os.kill(pool.children[0].pid, signal.SIGKILL)
        broke = await stage.end(stage.start("noop"))
        if isinstance(broke, HandedBack):  # the killed child had taken it and not begun
            broke = await stage.end(stage.start("noop"))
        born = pool._born
        await asyncio.sleep(0.3)

        assert isinstance(broke, Failed) and "gone bad" in broke.message and "fragile.py" in broke.message
        assert pool._born - born <= 3
        app.write_text(
            "from tickwork.sdk.authoring.tasks import task\n\n@task(name='noop')\ndef noop() -> int: return 1\n"
        )
        await stage.until(lambda: any(child.ready for child in pool.children), seconds=10)
        assert await stage.value("noop") == 1


async def test_an_executor_that_never_ran_closes_clean():
    async with playing() as stage:
        assert isinstance(stage, Stage)
