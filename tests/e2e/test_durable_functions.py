"""Durable functions with real processes: a private server, a worker and its children."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
APP = """
import decimal, os, subprocess, sys, time
import tickwork as tw


def large(size: int) -> str:
    return "x" * size


async def process() -> int:
    return os.getpid()


def once(path: str) -> int:
    with open(path, "a") as file:
        file.write("tried\\n")
    if len(open(path).readlines()) < 2:
        raise OSError("away")
    return 7


@tw.task
def pack(number: str) -> str:
    return f"parcel {number}"


@tw.durable
async def order(ctx: tw.Durable, number: str, path: str) -> list[object]:
    text = await ctx.step(large, 200_000)
    await ctx.sleep(0.2)
    parcel, tries = await ctx.gather(ctx.call(pack, number), ctx.step(once, path, retries=3, retry_delay="100ms"))
    pages = await ctx.call(count, text=text)
    await ctx.step(process)
    return [len(text), parcel, tries, pages]


@tw.durable
async def sleeps(ctx: tw.Durable, path: str) -> None:
    with open(path, "a") as file:
        file.write("begun\\n")
    for _ in range(3):
        await ctx.sleep(0.05)


@tw.durable
async def scoped(ctx: tw.Durable) -> list[str]:
    with decimal.localcontext(prec=3):
        before = await ctx.step(third)
        await ctx.sleep(0.05)
        after = await ctx.step("again", third)
    return [before, after, third()]


def third() -> str:
    return str(decimal.Decimal(1) / 3)


@tw.durable
async def delayed(ctx: tw.Durable) -> None:
    now = ctx.now().isoformat()
    await ctx.step(str, now)
    await ctx.sleep(0.05)


def ask_twice() -> str:
    tw.context().start(target, "large " + "x" * 100_000, key="large")
    return tw.context().start(target, "from a step")


@tw.durable
async def starts(ctx: tw.Durable) -> list[str]:
    waiting = await ctx.start(waiter)
    named = await ctx.start("target", text="by name", key="named")
    await ctx.sleep(0.2)
    asked = await ctx.step(ask_twice)
    await ctx.signal("told", {"by": named}, key="waiter")
    return [waiting, named, asked]


def state_of(run: str) -> str:
    with tw.context().client() as client:
        return client.get(run).state + str(client.read(run, "large")[:1])


@tw.task
def look(run: str) -> str:
    return state_of(run)


@tw.task(executor="thread")
def look_in_a_thread(run: str) -> str:
    return state_of(run)


@tw.task
async def look_on_the_loop(ctx: tw.Context, run: str) -> str:
    async with ctx.async_client() as client:
        return (await client.get(run)).state


@tw.task
def write(ctx: tw.Context) -> str:
    with ctx.client() as client:
        try:
            client.cancel("01")
        except tw.Refused as refused:
            return refused.code
    return "cancelled"


@tw.durable
async def reads(ctx: tw.Durable) -> list[object]:
    ctx.publish("large", ["x" * 100_000])
    tasks = [ctx.call(task, ctx.run_id) for task in (look, look_in_a_thread, look_on_the_loop)]
    called = await ctx.gather(*tasks, ctx.call(write))
    return [len(text) for text in (called[0], called[1])] + called[2:] + [len(await ctx.step(state_of, ctx.run_id))]


@tw.durable
async def waiter(ctx: tw.Durable) -> object:
    return await ctx.event("told", "waiter", timeout="30s")


@tw.durable
async def target(ctx: tw.Durable, text: str) -> int:
    return len(text)


@tw.durable
async def waits(ctx: tw.Durable, text: str) -> None:
    await ctx.step(large, 200_000)
    await ctx.step(f"{ctx.randint(1, 1_000_000)}", large, len(text))
    await ctx.event("never")


@tw.durable
async def count(ctx: tw.Durable, text: str, page: int = 1) -> int:
    await ctx.sleep(0.05)
    if page < 3:
        ctx.continue_as_new(text=text, page=page + 1)
    return page + len(text)


if __name__ == "__main__":
    with tw.embedded(data="embedded") as client:
        print(client.result(client.submit(order, number="7", path="tries")))
        print(client.result(client.submit(pack, number="8")))
        waiting, named, asked = client.result(client.submit(starts))
        assert client.result(waiting) == {"by": named}
        print(client.result(client.submit(reads)))
        print([client.result(run) for run in (named, asked)], len(list(client.list("target"))))
        waiting = client.submit(waits, text="x" * 100_000)
        while client.get(waiting).state != "waiting":
            time.sleep(0.05)
        os.environ["TICKWORK_TOKEN"] = client.address.token
        for code in ("app.py", "changed.py"):
            command = [sys.executable, "-m", "tickwork", "check", code, "--url", client.address.url]
            done = subprocess.run(command, capture_output=True, text=True)
            print(done.returncode, done.stdout.splitlines()[-1], done.stderr)
        client.cancel(waiting)
"""


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "changed.py").write_text(APP.replace("large, len(text)", "large, len(text) + 1"))

    def run(*command: str) -> str:
        kept = {
            name: value for name, value in os.environ.items() if name[:9] != "TICKWORK_" or name == "TICKWORK_PARKED"
        }
        env = kept | {"PYTHONPATH": str(SOURCE), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_durable_function_runs_in_child_processes(shell, tmp_path):
    printed = shell("-m", "tickwork", "run", "app.py:order", "--input", "number=7", "--input", f"path={tmp_path}/tries")

    assert json.loads(printed.splitlines()[-1]) == [200_000, "parcel 7", 7, 200_003]
    assert (tmp_path / "tries").read_text() == "tried\n" * 2


def test_a_task_runs_by_itself(shell):
    assert json.loads(shell("-m", "tickwork", "run", "app.py:pack", "--input", "number=7")) == "parcel 7"


def test_a_durable_function_runs_in_an_embedded_engine(shell):
    assert shell("app.py").splitlines()[-6:] == [
        "[200000, 'parcel 7', 7, 200003]",
        "parcel 8",
        "[100011, 100011, 'waiting', 'read_only', 100010]",
        "[7, 11] 3",
        "0 1 runs checked, 0 differ ",
        "1 1 runs checked, 1 differ ",
    ]


def test_tasks_and_steps_read_over_the_connection_of_their_worker(shell):
    printed = shell("-m", "tickwork", "run", "app.py:reads")

    assert json.loads(printed.splitlines()[-1]) == [100_011, 100_011, "waiting", "read_only", 100_010]


@pytest.mark.parametrize(("parked", "begun"), [("1000", 1), ("0", 4)])
def test_a_function_that_its_worker_still_has_goes_on_without_a_replay(shell, tmp_path, monkeypatch, parked, begun):
    monkeypatch.setenv("TICKWORK_PARKED", parked)
    shell("-m", "tickwork", "run", "app.py:sleeps", "--input", f"path={tmp_path}/begun")

    assert (tmp_path / "begun").read_text() == "begun\n" * begun


@pytest.mark.parametrize("parked", ["1000", "0"])
@pytest.mark.parametrize(
    ("run", "output"),
    [("scoped", ["0.333", "0.333", "0.3333333333333333333333333333"]), ("delayed --delay 200ms", None)],
)
def test_a_replay_and_a_function_in_memory_go_on_alike(shell, monkeypatch, parked, run, output):
    monkeypatch.setenv("TICKWORK_PARKED", parked)
    name, *words = run.split()
    printed = shell("-m", "tickwork", "run", f"app.py:{name}", *words)

    assert output is None or json.loads(printed.splitlines()[-1]) == output
