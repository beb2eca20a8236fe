"""Programs as tasks."""

import json
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest

from executors.executor_fixture import playing
from executors.test_process import alive
from tickwork.executors.limits import Limits
from tickwork.executors.shell import shell_executor
from tickwork.protocol.worker_messages import Failed, HandedBack, Succeeded


def program(*argv: str, **more) -> dict:
    return {"kind": "shell", "document": json.dumps({"kind": "shell", "id": "node", "argv": argv, **more}).encode()}


def python(code: str, *argv: str, **more) -> dict:
    return program(sys.executable, "-c", code, *argv, **more)


async def test_a_program_gets_its_arguments_and_its_output_is_the_result():
    code = "import json, sys, os; print(json.load(sys.stdin)['day'], sys.argv[1], os.environ['MODE'], os.getcwd())"
    async with playing(executor=shell_executor()) as stage:
        key = stage.start("s", args={"day": "monday"}, **python(code, "; rm -rf x", env={"MODE": "fast"}))
        done = await stage.end(key)

    value = msgspec.msgpack.decode(done.value)
    folder = value["output"].split()[-1]
    assert value["exit_code"] == 0 and value["output"].startswith("monday ; rm -rf x fast ")
    assert stage.texts(key) == [value["output"].rstrip("\n")] and not Path(folder).exists()


@pytest.mark.proves("S70")
async def test_a_program_sees_no_key_of_the_agent(monkeypatch):
    monkeypatch.setenv("TICKWORK_TOKEN", "secret-token")
    async with playing(executor=shell_executor()) as stage:
        done = await stage.end(stage.start("s", **program("/usr/bin/env")))

    output = msgspec.msgpack.decode(done.value)["output"]
    assert "secret-token" not in output and "TICKWORK_IDEMPOTENCY_KEY=acme/run/s" in output


async def test_an_exit_code_other_than_zero_fails():
    async with playing(executor=shell_executor()) as stage:
        key = stage.start("s", **python("import sys; print('why', file=sys.stderr); sys.exit(3)"))
        broke = await stage.end(key)

    assert isinstance(broke, Failed) and (broke.error, broke.exit_code) == ("ExitCode", 3)
    assert stage.texts(key, "stderr") == ["why"]


async def test_a_program_that_is_not_there_fails_for_good():
    async with playing(executor=shell_executor()) as stage:
        broke = await stage.end(stage.start("s", **program("no-such-program")))

    assert broke.permanent and "no program 'no-such-program'" in broke.message


@pytest.mark.proves("S72")
async def test_a_time_limit_ends_the_program_and_its_daemons(tmp_path):
    path = tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n os.setsid()\n"
        " if os.fork() == 0:\n  open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)\n os._exit(0)\n"
        "time.sleep(60)"
    )
    async with playing(executor=shell_executor()) as stage:
        began = time.monotonic()
        broke = await stage.end(stage.start("s", running_ms=1_000, **python(code, str(path))))

    assert broke.error == "TimeoutError" and time.monotonic() - began < 5
    for _ in range(100):  # SIGKILL takes effect a moment after it was sent
        if not alive(int(path.read_text())):
            break
        time.sleep(0.02)
    assert not alive(int(path.read_text()))


@pytest.mark.proves("S72")
async def test_limits_hold_for_programs():
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)); bytearray(2_000_000_000)"
    async with playing(executor=shell_executor(limits=Limits(memory_mb=512, files=64))) as stage:
        key = stage.start("s", **python(code))
        broke = await stage.end(key)

    assert isinstance(broke, Failed) and stage.texts(key) == ["(64, 64)"]
    assert "MemoryError" in stage.texts(key, "stderr")[-1]


async def test_stop_recall_and_close(tmp_path):
    async with playing(executor=shell_executor(at_once=1)) as stage:
        path = tmp_path / "pid"
        code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
        first = stage.start("s", **python(code, str(path)))
        waits = stage.start("s", **python("print(1)"))
        await stage.until(lambda: path.exists() and path.read_text() != "")
        assert stage.executor.recall() == (waits,)
        stage.executor.stop(*first)
        done = await stage.end(stage.start("s", **python("print(2)")))
        assert isinstance(done, Succeeded) and first not in stage.ends and not alive(int(path.read_text()))

        last = stage.start("s", **python("import time; time.sleep(60)"))
        await stage.until(lambda: bool(stage.executor._running))
        await stage.executor.close(grace_s=0)
        assert stage.ends[last] == [HandedBack(*last, begun=True)]
    assert os.getpid()
