"""Tasks in this very process."""

import asyncio
import threading
import time

import msgspec
import pytest

from executors import tasks_app
from executors.executor_fixture import playing
from tickwork.protocol.worker_messages import Checkpointed, Failed, HandedBack, Succeeded
from tickwork.sdk.authoring.app_loader import app_of
from tickwork.sdk.runner.inline_executor import InlineExecutor

APP = app_of(tasks_app)


def inline(**options) -> InlineExecutor:
    return InlineExecutor(APP, **options)


@pytest.mark.parametrize("threads", [0, 4])
async def test_functions_run_and_answer(threads):
    async with playing(executor=inline(threads=threads)) as stage:
        assert await stage.value("add", a=1, b=2) == 3
        assert await stage.value("coroutine", seconds=0.01) == "awaited"
        assert await stage.value("checkpoints", size=1) is None
        assert await stage.value("checkpoint_in_coroutine") == 2
        assert await stage.value("checkpoints_beside_each_other") == [0, 1, 2, 3]
        assert await stage.value("checkpoints_in_threads") == [1] * 8
        assert await stage.value("checkpoints_in_both") == [0, 1, 2, 3, 4, 5]
        assert isinstance(await stage.end(stage.start("fail")), Failed)
        missing = await stage.end(stage.start("absent"))
        large = await stage.end(stage.start("large", args={"items": 50_000}))
    assert missing.permanent and "no handler 'absent'" in missing.message
    assert large.value.items == 50_000
    assert isinstance(stage.said[0], Checkpointed)


async def test_prints_go_to_the_log_and_still_appear(capsys):
    async with playing(executor=inline()) as stage:
        key = stage.start("says", args={"word": "hello"})
        await stage.end(key)
        await stage.until(lambda: len(stage.texts(key)) == 2)

    assert stage.texts(key) == ["hello", "no end of line"] and "hello\n" in capsys.readouterr().out


async def test_a_time_limit_gives_up_and_tells_the_function():
    async with playing(executor=inline(threads=1)) as stage:
        began = time.monotonic()
        broke = await stage.end(stage.start("sleep", args={"seconds": 1.5}, running_ms=200))
        assert time.monotonic() - began < 1.4
        assert await stage.value("add", a=1, b=1) == 2  # its thread is taken until it ends

    assert broke.error == "TimeoutError" and "cannot be killed in this process" in broke.message
    assert time.monotonic() - began > 0.7


async def test_a_function_that_ran_too_long_is_interrupted_and_cleans_up(tmp_path):
    path = tmp_path / "written"
    async with playing(executor=inline(threads=1)) as stage:
        broke = await stage.end(stage.start("spins", args={"path": str(path)}, running_ms=200))
        assert await stage.value("add", a=1, b=1) == 2
        again = await stage.end(stage.start("spins", args={"path": str(path)}, running_ms=200))

    assert broke.error == again.error == "TimeoutError"
    assert path.read_text() == "cancelled=True"


async def test_two_attempts_of_a_task_never_run_at_once(tmp_path):
    path = tmp_path / "notes"
    async with playing(executor=inline(threads=4)) as stage:
        first = stage.start("sleep_and_note", task=7, args={"path": str(path), "seconds": 1.0}, running_ms=200)
        await stage.end(first)
        second = stage.start("sleep_and_note", task=7, attempt=2, args={"path": str(path), "seconds": 0.0})
        assert await stage.value("add", a=1, b=1) == 2, "others do not wait"
        await stage.end(second)

    assert path.read_text().split() == ["begins", "ends", "begins", "ends"]


async def test_a_stop_after_the_time_limit_does_not_interrupt_the_clean_up(tmp_path):
    path = tmp_path / "notes"
    async with playing(executor=inline(threads=1)) as stage:
        key = stage.start("cleans_up_slowly", args={"path": str(path), "seconds": 1.0}, running_ms=200)
        await stage.end(key)
        await asyncio.sleep(0.3)  # the server stops it too, before and after its function is interrupted
        stage.executor.stop(*key)
        await stage.until(path.exists)
        stage.executor.stop(*key)
        assert await stage.value("add", a=1, b=1) == 2

    assert path.read_text() == "begins ends"


async def test_an_attempt_that_is_stopped_before_its_thread_starts_does_not_run(tmp_path, monkeypatch):
    path = tmp_path / "notes"
    threads = []
    async with playing(executor=inline(threads=2)) as stage:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", lambda thread: threads.append(thread))
            stage.executor.stop(*stage.start("sleep_and_note", args={"path": str(path), "seconds": 60.0}))
            stage.executor.stop(*stage.start("coroutine", args={"seconds": 60}))
        for thread in threads:
            thread.start()
        assert len(threads) == 2 and await stage.value("add", a=1, b=1) == 2

    assert not path.exists()


async def test_a_coroutine_is_cancelled():
    async with playing(executor=inline(threads=1)) as stage:
        broke = await stage.end(stage.start("coroutine", args={"seconds": 60}, running_ms=200))
        stopped = stage.start("coroutine", args={"seconds": 60})
        await asyncio.sleep(0.05)
        stage.executor.stop(*stopped)

        assert await stage.value("add", a=1, b=1) == 2
    assert broke.error == "TimeoutError" and stopped not in stage.ends


async def test_recall_and_close_hand_back():
    async with playing(executor=inline(threads=1)) as stage:
        runs = stage.start("sleep", args={"seconds": 0.3})
        waits = stage.start("noop")
        assert stage.executor.recall() == (waits,)
        await stage.executor.close(grace_s=0.01)

        assert stage.ends[runs] == [HandedBack(*runs, begun=True)]


async def test_on_the_loop_itself_everything_has_one_order():
    async with playing(executor=inline(threads=0, capture=False)) as stage:
        keys = [stage.start("add", args={"a": one, "b": 1}) for one in range(20)]
        for key in keys:
            await stage.end(key)

        assert list(stage.ends) == keys
        assert all(isinstance(ends[0], Succeeded) for ends in stage.ends.values())
        assert msgspec.msgpack.decode(stage.ends[keys[3]][0].value) == 4
