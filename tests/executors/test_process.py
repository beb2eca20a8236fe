"""Functions in child processes: real processes, real signals."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from executors.executor_fixture import APP, Stage, playing
from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref
from tickwork.core.definition.model import VALUE_HANDLER
from tickwork.executors.limits import Limits
from tickwork.executors.process import ProcessExecutor
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX, digest_of
from tickwork.protocol.task_commands import decode_commands
from tickwork.protocol.worker_messages import ArtifactArgument, Failed, HandedBack, Succeeded


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


async def test_a_function_gets_its_arguments_and_its_answer_comes_back():
    async with playing() as stage:
        assert await stage.value("add", a=2, b=3) == 5
        assert await stage.value("noop") is None
        assert "add" in stage.catalog.handlers
        assert stage.catalog.application == "tasks_app"  # which owns the schedules that stand in it


async def test_an_error_names_its_type_its_message_and_the_line_of_the_user():
    async with playing() as stage:
        broke = await stage.end(stage.start("fail"))

    assert isinstance(broke, Failed) and broke.error == "ValueError" and not broke.permanent
    assert broke.message.startswith("the day has no data")
    assert "tasks_app.py" in broke.message and 'raise ValueError("the day has no data")' in broke.message
    assert "host.py" not in broke.message and "registry.py" not in broke.message


async def test_a_breakpoint_says_how_to_debug_a_task():
    async with playing() as stage:
        broke = await stage.end(stage.start("stops_here"))

    assert isinstance(broke, Failed) and broke.error == "RuntimeError"
    assert "breakpoint() needs a terminal" in broke.message and "--pass-env PYTHONBREAKPOINT" in broke.message


@pytest.mark.parametrize(
    ("handler", "texts"),
    [
        ("fails_twice", ["second", 'raise RuntimeError("second")', "caused by KeyError: 'first'", 'KeyError("first")']),
        ("fails_in_a_group", ["both", "one of them is ValueError: one", "one of them is TypeError: two"]),
    ],
)
async def test_an_error_tells_what_led_to_it(handler, texts):
    async with playing() as stage:
        broke = await stage.end(stage.start(handler))

    places = [broke.message.find(text) for text in texts]
    assert -1 not in places and places == sorted(places)
    assert "host.py" not in broke.message


@pytest.mark.parametrize(
    ("handler", "args", "error", "text"),
    [
        ("add", {"a": 1}, "BadArguments", "no value for b"),
        ("add", {"a": "x", "b": 1}, "BadArguments", "declared as int"),
        ("unsendable", {}, "Unsendable", "unsendable"),
        ("absent", {}, "HandlerMissing", "it has add, "),
    ],
)
@pytest.mark.proves("F28")
async def test_what_trying_again_cannot_help_is_permanent(handler, args, error, text):
    async with playing() as stage:
        broke = await stage.end(stage.start(handler, args=args))

        assert await stage.value("add", a=1, b=1) == 2
    assert isinstance(broke, Failed) and broke.permanent
    assert (broke.error, text in broke.message) == (error, True), broke


async def test_an_application_that_does_not_load_is_one_clear_error(tmp_path):
    app = tmp_path / "broken.py"
    app.write_text("import os\n\nanswer = 1 / 0  # here\n")

    with pytest.raises(Refused) as caught:
        await ProcessExecutor(str(app)).start(Stage())
    assert "broken.py" in str(caught.value) and "answer = 1 / 0" in str(caught.value)
    assert "host.py" not in str(caught.value)


# ---- isolation


@pytest.mark.proves("S70")
async def test_a_child_sees_no_key_of_the_agent(monkeypatch):
    monkeypatch.setenv("TICKWORK_TOKEN", "secret-token")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-key")

    async with playing(env={"MINE": "yes"}) as stage:
        seen = await stage.value("whoami")

    assert "secret" not in str(seen["env"]) and seen["env"]["MINE"] == "yes" and "PATH" in seen["env"]
    assert seen["session"] != os.getsid(0)


@pytest.mark.proves("S72", "F29")
async def test_memory_beyond_the_limit_fails_the_attempt_and_nothing_else():
    async with playing(limits=Limits(memory_mb=512)) as stage:
        broke = await stage.end(stage.start("memory", args={"megabytes": 2_000}))

        assert await stage.value("memory", megabytes=1) == 1024 * 1024
    assert broke.error == "MemoryError"


@pytest.mark.proves("S70", "S72", "S73", "S74")
def test_each_executor_says_what_isolation_it_gives():
    executor = ProcessExecutor(APP)

    assert "weak" in executor.isolation and "no new privileges" in executor.isolation
    assert ("root" in executor.isolation) == (os.geteuid() == 0)


# ---- death


@pytest.mark.parametrize(
    ("handler", "args", "exit_code", "text"),
    [
        ("die", {"signal_number": 9}, -9, "out of memory"),
        ("die", {"signal_number": 11}, -11, "SIGSEGV"),
        ("leave", {"code": 3}, 3, "exit code 3"),
    ],
)
@pytest.mark.proves("F29")
async def test_a_child_that_dies_fails_the_attempt_it_ran(handler, args, exit_code, text):
    async with playing() as stage:
        broke = await stage.end(stage.start(handler, args=args))

        assert [await stage.value("add", a=1, b=one) for one in range(4)] == [1, 2, 3, 4]
    assert isinstance(broke, Failed) and (broke.error, broke.exit_code) == ("ProcessDied", exit_code)
    assert text in broke.message


async def test_sys_exit_is_an_error_and_the_child_lives():
    async with playing(processes=1) as stage:
        before = await stage.value("whoami")
        broke = await stage.end(stage.start("exit", args={"code": 4}))
        after = await stage.value("whoami")

    assert (broke.error, broke.exit_code) == ("SystemExit", 4) and before["pid"] == after["pid"]


async def test_a_fork_that_comes_back_reports_once():
    async with playing() as stage:
        key = stage.start("fork_back")
        await stage.end(key)
        await asyncio.sleep(0.05)

        assert len(stage.ends[key]) == 1
        assert await stage.value("add", a=1, b=1) == 2


# ---- time


async def test_a_time_limit_ends_the_work_for_real(tmp_path):
    async with playing() as stage:
        began = time.monotonic()
        broke = await stage.end(stage.start("sleep", args={"seconds": 60}, running_ms=300))
        took = time.monotonic() - began

        assert await stage.value("add", a=1, b=1) == 2
    assert isinstance(broke, Failed) and broke.error == "TimeoutError" and "300 ms" in broke.message
    assert 0.3 <= took < 20


@pytest.mark.proves("S72")
async def test_what_ignores_the_request_is_killed(tmp_path):
    path = tmp_path / "pid"
    async with playing() as stage:
        broke = await stage.end(stage.start("stubborn", args={"path": str(path)}, running_ms=300))

    assert broke.error == "TimeoutError" and not alive(int(path.read_text()))


@pytest.mark.proves("S72")
async def test_a_daemon_that_left_the_session_ends_with_its_task(tmp_path):
    path = tmp_path / "pid"
    async with playing() as stage:
        key = stage.start("double_fork", args={"path": str(path)}, running_ms=600)
        await stage.until(lambda: path.exists() and path.read_text() != "")
        daemon = int(path.read_text())
        assert alive(daemon)
        broke = await stage.end(key)
        await stage.until(lambda: not alive(daemon), seconds=20)

    assert broke.error == "TimeoutError"


async def test_a_checkpoint_that_nobody_stores_fails_its_attempt():
    async def refuse(data: bytes) -> str:
        raise Refused("too_large", "too large for this server")

    async with playing(processes=1) as stage:
        stage.store = refuse
        broke = await stage.end(stage.start("saves_much", args={"kilobytes": 100}))

        assert (broke.error, broke.message) == (
            "StorageError",
            "the checkpoint cannot be stored: too large for this server",
        )
        assert await stage.value("add", a=1, b=1) == 2


async def test_a_value_of_more_than_can_be_stored_is_an_error_at_the_call_that_made_it():
    async with playing(processes=1) as stage:
        mib = ARTIFACT_BYTES_MAX // 1024**2
        returned = await stage.end(stage.start("returns_much", args={"kilobytes": (mib + 1) * 1024}))
        saved = await stage.end(stage.start("saves_much", args={"kilobytes": (mib + 1) * 1024}))

    for broke, what in ((returned, "result"), (saved, "checkpoint")):
        assert broke.error == "Unsendable" and broke.permanent
        assert broke.message.startswith(what) and f"{mib + 1} MiB cannot travel" in broke.message


AGENT = """
import asyncio, sys
import msgspec
from executors.executor_fixture import playing
from tickwork.executors.shell import shell_executor

async def main(how, path):
    executor = shell_executor() if how == "shell" else None
    async with playing(executor=executor, processes=1) as stage:
        if how == "shell":
            argv = ["sh", "-c", "setsid sleep 300 & echo $! > '%s'; wait" % path]
            document = msgspec.json.encode({"kind": "shell", "id": "n", "argv": argv})
            stage.start("n", kind="shell", document=document)
        else:
            stage.start("double_fork", args={"path": path})
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.proves("S72", "F1")
@pytest.mark.parametrize("how", ["task", "shell"])
async def test_what_tasks_started_ends_with_a_worker_that_is_killed(tmp_path, how):
    path = tmp_path / "pid"
    env = os.environ | {"PYTHONPATH": str(Path(APP).parents[1])}
    agent = subprocess.Popen([sys.executable, "-c", AGENT, how, str(path)], env=env)
    try:
        await Stage().until(lambda: path.exists() and path.read_text().strip() != "")
        left = int(path.read_text())
        assert alive(left)
    finally:
        agent.kill()
        agent.wait()

    await Stage().until(lambda: not alive(left))


async def test_silence_ends_an_attempt_and_progress_keeps_it():
    async with playing() as stage:
        silent = stage.start("sleep", args={"seconds": 60}, silent_ms=300)
        talking = stage.start("keeps_in_touch", args={"seconds": 0.8}, silent_ms=300)
        broke, done = await stage.end(silent), await stage.end(talking)

    assert broke.error == "TimeoutError" and "no progress and no checkpoint" in broke.message
    assert isinstance(done, Succeeded)


async def test_a_stopped_attempt_ends_and_nothing_is_said():
    async with playing(processes=1) as stage:
        key = stage.start("sleep", args={"seconds": 60})
        pid = stage.executor._pools["process"].children[0].pid
        await stage.until(lambda: bool(stage.executor._pools["process"].children[0].marked()))
        stage.executor.stop(*key)
        await stage.until(lambda: not alive(pid))

        assert await stage.value("add", a=1, b=1) == 2
        assert key not in stage.ends


@pytest.mark.proves("I35")
async def test_an_attempt_that_waits_and_is_stopped_never_starts(tmp_path):
    path = tmp_path / "notes"
    async with playing(processes=1) as stage:
        stage.start("sleep", args={"seconds": 0.3})
        keys = [stage.start("note", args={"path": str(path), "text": str(one)}) for one in range(10)]
        for key in keys[::2]:
            stage.executor.stop(*key)
        for key in keys[1::2]:
            await stage.end(key)

    assert path.read_text().split() == ["1", "3", "5", "7", "9"]


async def test_begun_is_said_only_of_what_takes_a_while():
    async with playing() as stage:
        short, long = stage.start("sleep", args={"seconds": 0.3}), stage.start("sleep", args={"seconds": 1.5})
        await stage.end(short)
        await stage.end(long)

        assert stage.began(long) and not stage.began(short)


@pytest.mark.proves("I51")
async def test_a_function_that_holds_the_interpreter_does_not_hold_the_agent():
    async with playing() as stage:
        key = stage.start("hog", args={"seconds": 1.0})
        turns, longest, last = 0, 0.0, time.monotonic()
        while key not in stage.ends:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            turns, longest, last = turns + 1, max(longest, now - last), now

    assert turns > 20 and longest < 0.5


@pytest.mark.proves("F3")
async def test_a_child_that_is_stopped_by_a_signal_times_out_and_is_replaced():
    async with playing(processes=1) as stage:
        key = stage.start("sleep", args={"seconds": 60}, running_ms=400)
        child = stage.executor._pools["process"].children[0]
        await stage.until(lambda: bool(child.marked()))
        os.kill(child.pid, signal.SIGSTOP)
        broke = await stage.end(key)

        assert await stage.value("add", a=1, b=1) == 2
    assert broke.error == "TimeoutError" and not alive(child.pid)


# ---- values


async def test_a_large_result_becomes_an_artifact_that_knows_its_length():
    async with playing() as stage:
        done = await stage.end(stage.start("large", args={"items": 50_000}))
        folder = Path(stage.executor._folder)

        assert isinstance(done.value, Ref) and done.value.items == 50_000 and done.value.place == "artifact"
        assert msgspec.msgpack.decode(stage.artifacts[done.value.digest]) == list(range(50_000))
        assert list(folder.iterdir()) == []
    assert not folder.exists()


async def test_an_argument_comes_from_an_artifact():
    async with playing() as stage:
        digest = await stage.store(msgspec.msgpack.encode({"rows": [[1, 2], list(range(70_000))]}))
        fetch = (ArtifactArgument("values", digest, ("rows", "1")),)
        done = await stage.end(stage.start("length", fetch=fetch))
        missing = await stage.end(stage.start("length", fetch=(ArtifactArgument("values", digest_of(b"other")),)))
        astray = await stage.end(stage.start("length", fetch=(ArtifactArgument("values", digest, ("rows", "7")),)))

        assert list(Path(stage.executor._folder).iterdir()) == []
    assert msgspec.msgpack.decode(done.value) == 70_000
    assert isinstance(missing, Failed) and "no artifact" in missing.message
    assert isinstance(astray, Failed) and "no '7'" in astray.message


async def test_arguments_too_large_for_a_packet_travel_as_a_file():
    async with playing() as stage:
        done = await stage.end(stage.start("length", args={"values": [1], "extra": "x" * 500_000}))

    assert msgspec.msgpack.decode(done.value) == 500_001


# ---- checkpoints and progress


async def test_a_step_that_was_recorded_does_not_run_again(tmp_path):
    path = tmp_path / "steps"
    async with playing() as stage:
        first = await stage.end(stage.start("steps", task=1_000, args={"path": str(path)}))
        saved = stage.said[-1]
        second = await stage.end(
            stage.start("steps", task=1_000, attempt=2, args={"path": str(path)}, checkpoint=saved.value)
        )

    assert first.error == "ProcessDied" and msgspec.msgpack.decode(second.value) == "AB"
    assert path.read_text().split() == ["a", "b"]


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_checkpoint_reaches_the_next_attempt_also_when_it_is_large(size):
    async with playing() as stage:
        first = await stage.end(stage.start("checkpoints", task=1_000, args={"size": size}))
        saved = stage.said[-1]
        second = await stage.end(
            stage.start("checkpoints", task=1_000, attempt=2, args={"size": 1}, checkpoint=saved.value)
        )

    assert first.value is None and isinstance(saved.value, Ref) == (size > 65_536)
    assert msgspec.msgpack.decode(second.value) == 1


async def test_a_checkpoint_waits_until_it_is_durable():
    async with playing() as stage:
        stage.slow = True
        key = stage.start("checkpoints", args={"size": 1})
        await stage.until(lambda: bool(stage.said))
        await asyncio.sleep(0.05)
        assert key not in stage.ends
        stage.executor.saved(*key)
        await stage.end(key)


async def test_parts_of_an_attempt_that_save_beside_each_other_each_wait_for_their_own():
    async with playing() as stage:
        assert await stage.value("checkpoints_beside_each_other") == [0, 1, 2, 3]
        assert await stage.value("checkpoints_in_threads") == [1] * 8
        assert await stage.value("checkpoints_in_both") == [0, 1, 2, 3, 4, 5]
        stage.slow = True
        key = stage.start("checkpoints_beside_each_other")
        for saved in range(4):
            await stage.until(lambda saved=saved: len(stage.saved(key)) > saved)
            assert key not in stage.ends
            stage.executor.saved(*key)
        await stage.end(key)

    assert stage.saved(key) == sorted(stage.saved(key), key=len), "each has what those before it have"


async def test_progress_is_passed_on_a_few_times_a_second():
    async with playing() as stage:
        await stage.end(stage.start("progress", args={"count": 20_000}))

    told = stage.progresses()
    assert (told[-1].done, told[-1].total) == (20_000, 20_000) and len(told) < 20


# ---- threads and coroutines


async def test_no_process_starts_for_what_gives_back_values_before_one_is_needed(tmp_path):
    app = tmp_path / "plain_app.py"
    app.write_text("import tickwork as tw\n\n@tw.task\ndef plain() -> int:\n    return 1\n")
    async with playing(str(app)) as stage:
        slots = stage.executor.slots
        assert list(stage.executor._pools) == ["process"] and slots > 2  # it is offered all the same
        assert await stage.value(VALUE_HANDLER, value=[1, 2]) == [1, 2]
        assert list(stage.executor._pools) == ["process", "thread"] and stage.executor.slots == slots


async def test_threads_run_side_by_side_in_one_child():
    async with playing() as stage:
        keys = [stage.start("in_thread", args={"seconds": 0.8}) for _ in range(8)]
        began = time.monotonic()
        names = {msgspec.msgpack.decode((await stage.end(key)).value) for key in keys}

        assert len(names) > 1 and time.monotonic() - began < 6
        assert stage.texts(keys[0]) == ["from a thread"]
        assert await stage.value("checkpoint_in_thread") == 1


@pytest.mark.parametrize("how", ["stopped", "timed_out"])
@pytest.mark.parametrize("name", ["looks_in_thread", "deaf_thread"])
async def test_a_thread_that_is_called_off_leaves_its_neighbours_alone(how, name, tmp_path):
    args = {"path": str(tmp_path / "looked")} if name == "looks_in_thread" else {"seconds": 3.0}
    async with playing(stop_grace_s=0.3) as stage:
        neighbour = stage.start("in_thread", args={"seconds": 2.5})
        key = stage.start(name, args=args, running_ms=300 if how == "timed_out" else 0)
        pool = stage.executor._pools["thread"]
        await stage.until(lambda: sum(len(child.marked()) for child in pool.children) == 2)
        if how == "stopped":
            stage.executor.stop(*key)
        done = await stage.end(neighbour)
        later = HandedBack(0, 0)
        while isinstance(later, HandedBack):  # a child that ends had taken it and not begun: a server sends it again
            assert not later.begun
            later = await stage.end(stage.start("in_thread", args={"seconds": 0}))

        assert isinstance(done, Succeeded) and stage.ends[neighbour] == [done] and isinstance(later, Succeeded)
        if how == "timed_out":
            assert (await stage.end(key)).error == "TimeoutError"
        else:
            await stage.until(lambda: key not in pool)
            assert key not in stage.ends
        if name == "looks_in_thread":
            assert (tmp_path / "looked").read_text() == "looked"
        await stage.until(lambda: len(pool.children) == 1 and not pool.ending)


@pytest.mark.parametrize(("name", "written"), [("cleans_up", "cancelled=True"), ("looks", "looked")])
async def test_what_is_called_off_sees_it_and_cleans_up_before_it_is_killed(name, written, tmp_path):
    path = tmp_path / "written"
    async with playing(processes=1) as stage:
        key = stage.start(name, args={"path": str(path)})
        await stage.until(lambda: bool(stage.executor._pools["process"].children[0].marked()))
        await asyncio.sleep(0.1)
        stage.executor.stop(*key)
        assert await stage.value("add", a=1, b=1) == 2

        assert key not in stage.ends
    assert path.read_text() == written


async def test_coroutines_run_side_by_side_in_one_child():
    async with playing() as stage:
        await stage.value("coroutine", seconds=0)
        began = time.monotonic()
        keys = [stage.start("coroutine", args={"seconds": 0.3}) for _ in range(100)]
        for key in keys:
            await stage.end(key)

        assert 0.6 <= time.monotonic() - began < 3  # 64 at once
        assert stage.texts(keys[0]) == ["from a coroutine"]
        assert await stage.value("checkpoint_in_coroutine") == 2


async def test_a_coroutine_is_cancelled_alone_and_its_siblings_go_on():
    async with playing() as stage:
        slow = stage.start("coroutine", args={"seconds": 1.0})
        late = stage.start("coroutine", args={"seconds": 60}, running_ms=200)
        broke, done = await stage.end(late), await stage.end(slow)

    assert isinstance(broke, Failed) and broke.error == "TimeoutError" and isinstance(done, Succeeded)


async def test_a_coroutine_that_does_not_listen_leaves_its_siblings_alone():
    async with playing(stop_grace_s=0.2) as stage:
        sibling = stage.start("coroutine", args={"seconds": 4.0})  # longer than any grace
        deaf = stage.start("deaf_coroutine", running_ms=200)
        pool = stage.executor._pools["async"]
        await stage.until(lambda: len(pool.children) == 2 and pool.children[1].ready)

        assert await stage.value("coroutine", seconds=0) == "awaited"
        assert stage.ends.get(sibling) is None and deaf not in stage.ends, "both are where they were"
        done, broke = await stage.end(sibling), await stage.end(deaf)
        await stage.until(lambda: len(pool.children) == 1 and not pool.ending)
    assert isinstance(done, Succeeded) and stage.ends[sibling] == [done] and broke.error == "TimeoutError"


async def test_a_coroutine_that_blocks_its_loop_is_killed_and_its_siblings_are_handed_back():
    async with playing(stop_grace_s=0.2) as stage:
        sibling = stage.start("coroutine", args={"seconds": 60})
        blocking = stage.start("blocking_coroutine", running_ms=200)
        broke, returned = await stage.end(blocking), await stage.end(sibling)

        assert await stage.value("coroutine", seconds=0) == "awaited"
    assert broke.error == "TimeoutError" and isinstance(returned, HandedBack)


async def test_the_next_attempt_waits_in_a_worker_until_a_thread_that_does_not_listen_has_ended(tmp_path):
    path = tmp_path / "notes"
    async with playing(stop_grace_s=5.0) as stage:
        first = stage.start("thread_that_notes", task=7, args={"path": str(path), "seconds": 1.0})
        await stage.until(path.exists)
        stage.executor.stop(*first)  # as the server does when the attempt's time is over
        second = stage.start("thread_that_notes", task=7, attempt=2, args={"path": str(path), "seconds": 0.0})
        assert await stage.value("in_thread", seconds=0), "others do not wait"
        third = stage.start(
            "thread_that_notes", task=7, attempt=3, args={"path": str(path), "seconds": 0.0}, running_ms=400
        )
        returned, done = await stage.end(third), await stage.end(second)

    assert isinstance(returned, HandedBack) and not returned.begun, "before its limit is over, for another worker"
    assert isinstance(done, Succeeded) and path.read_text().split() == ["begins", "ends", "begins", "ends"]


# ---- the end


async def test_closing_lets_what_runs_end_and_hands_back_the_rest():
    async with playing(processes=1) as stage:
        runs = stage.start("sleep", args={"seconds": 0.4})
        await stage.until(lambda: bool(stage.executor._pools["process"].children[0].marked()))
        waits = [stage.start("noop") for _ in range(5)]
        back = stage.executor.recall()
        await stage.executor.close(grace_s=10)

        assert sorted(back) == waits and isinstance(stage.ends[runs][0], Succeeded)


async def test_closing_at_once_hands_back_what_runs():
    async with playing(processes=1) as stage:
        key = stage.start("sleep", args={"seconds": 60})
        pid = stage.executor._pools["process"].children[0].pid
        await stage.until(lambda: bool(stage.executor._pools["process"].children[0].marked()))
        await stage.executor.close(grace_s=0)

        assert isinstance(stage.ends[key][0], HandedBack) and not alive(pid)


@pytest.mark.proves("S73")
async def test_an_attempt_has_a_folder_of_its_own_that_is_removed():
    async with playing() as stage:
        first, second = await stage.value("in_folder"), await stage.value("in_folder")

        assert first != second and not Path(first).exists() and not Path(second).exists()


@pytest.mark.parametrize("handler", ["asks", "asks_in_a_thread", "asks_async"])
@pytest.mark.parametrize(("size", "value"), [(5, 0), (70_000, 0), (5, 70_000), (70_000, 70_000), (40_000, 40_000)])
async def test_what_a_task_asks_for_comes_with_its_result_also_where_it_is_large(handler, size, value):
    async with playing() as stage:
        done = await stage.end(stage.start(handler, args={"size": size, "value": value}))
        assert isinstance(done, Succeeded), done
        parts = [
            stage.artifacts[part.digest] if isinstance(part, Ref) else part for part in (done.value, done.commands)
        ]

    assert msgspec.msgpack.decode(parts[0]) == "y" * value
    start, event = decode_commands(parts[1])
    assert start.submission.inputs == {"text": "x" * size} and event.signal.payload == size
    inline = [part for part in (done.value, done.commands) if not isinstance(part, Ref)]
    assert sum(map(len, inline)) <= 65_536


@pytest.mark.parametrize("handler", ["streams", "streams_in_a_thread", "streams_async"])
async def test_what_a_task_streams_comes_in_order_and_with_numbers(handler):
    async with playing() as stage:
        key = stage.start(handler)
        await stage.end(key)

    assert stage.pieces[key] == [(0, "a"), (1, "b"), (2, "\\udcff")]
