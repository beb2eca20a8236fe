"""Runs that tasks start, in a world."""

import contextlib

import pytest

import tickwork as tw
from tickwork.testing import World

LARGE = "x" * 100_000


@tw.task
def note(text: str) -> int:
    return len(text)


@tw.workflow
def target(text: str) -> int:
    return note(text)


@tw.workflow
def waiter(key: str) -> dict:
    return tw.event("paid", key=key)


@tw.task(retries=2, retry_delay="1s")
def begin(ctx: tw.Context, texts: list[str], fail: int = 0) -> list[str]:
    ids = [ctx.start(target, text) for text in texts]
    ctx.signal("paid", {"texts": texts}, key="o-1")
    if ctx.attempt <= fail:
        raise ValueError("not yet")
    return ids


@tw.workflow
def parent(texts: list[str], fail: int = 0) -> list[str]:
    return begin(texts, fail=fail)


@tw.task
def keyed(ctx: tw.Context, key: str) -> str:
    return ctx.start(target, "x", key=key)


@tw.workflow
def by_key(key: str) -> str:
    return keyed(key)


@tw.task(retries=3)
def wrong(ctx: tw.Context, workflow: str) -> None:
    ctx.start(target, "fine")
    ctx.start(workflow, text=5)


@tw.workflow
def mistaken(workflow: str) -> None:
    wrong(workflow)


@pytest.fixture
def world():
    with World() as made:
        yield made


def test_a_task_starts_runs_and_gives_events_with_its_result(world):
    waiting = world.start(waiter, key="o-1")
    world.settle()
    run = world.start(parent, texts=["a", "bcd"])
    world.settle()

    assert [started.id for started in world.runs(target)] == run.output
    assert [started.output for started in world.runs(target)] == [1, 3]
    assert waiting.output == {"texts": ["a", "bcd"]}
    assert f"started by task begin of {run.id}" in world.runs(target)[0].why()
    assert f"run {run.output[0]} of target begins" in run.why()


def test_only_the_attempt_that_succeeds_starts_anything(world):
    run = world.start(parent, texts=["a"], fail=2)
    world.advance(minutes=1)

    assert run.state == "completed"
    assert [started.id for started in world.runs(target)] == run.output


def test_large_inputs_and_payloads_travel_too(world):
    waiting = world.start(waiter, key="o-1")
    world.settle()
    run = world.start(parent, texts=[LARGE, "y" * 2_000])
    world.settle()

    assert run.state == "completed"
    assert [started.output for started in world.runs(target)] == [100_000, 2_000]
    assert waiting.output == {"texts": [LARGE, "y" * 2_000]}


def test_a_key_starts_one_run(world):
    runs = [world.start(by_key, key="k") for _ in range(3)]
    world.settle()
    again = world.start(by_key, key="k")
    world.settle()

    assert [run.state for run in (*runs, again)] == ["completed"] * 4
    assert [started.id for started in world.runs(target)] == [runs[0].output]


@pytest.mark.parametrize(("workflow", "code"), [("nobody", "unknown_workflow"), ("target", "wrong_type")])
def test_what_is_refused_fails_the_task_and_starts_nothing(world, workflow, code):
    world.publish(target)
    run = world.start(mistaken, workflow=workflow)
    world.advance(minutes=1)

    assert run.state == "failed"
    assert code in run.why() and "commands[1]" in run.why()
    assert world.runs(target) == []


# ---- durable functions


def ask(text: str) -> str:
    here = tw.context()
    here.signal("paid", {"text": text}, key="o-2")
    return here.start(target, text)


def key_of_step() -> str:
    return tw.context().idempotency_key


@tw.durable
async def keys(ctx: tw.Durable) -> list[str]:
    first = await ctx.step(key_of_step)
    await ctx.sleep("1h")
    return [first, await ctx.step(key_of_step, retries=1), ctx.idempotency_key]


def ask_and_fail(text: str) -> None:
    ask(text)
    raise ValueError("no")


@tw.durable
async def dispatcher(ctx: tw.Durable, text: str) -> list[str]:
    by_itself = await ctx.start(target, text, key="once", delay="1h")
    await ctx.sleep("1h")
    in_a_step = await ctx.step(ask, text)
    with contextlib.suppress(tw.StepFailed):
        await ctx.step(ask_and_fail, text, retries=1)
    await ctx.signal("paid", {"text": "by itself"}, key="o-1")
    await ctx.sleep("1h")
    return [by_itself, in_a_step]


@tw.durable
async def careless(ctx: tw.Durable) -> None:
    tw.context().start(target, "x")


def test_a_function_starts_and_signals_once_however_often_it_is_replayed(world):
    first, second = world.start(waiter, key="o-1"), world.start(waiter, key="o-2")
    world.settle()
    run = world.start(dispatcher, text="four")
    world.advance(hours=3)

    run.assert_completed()
    started = world.runs(target)
    assert sorted(other.id for other in started) == sorted(run.output)
    assert all(other.output == 4 for other in started)
    first.assert_completed(output={"text": "by itself"})
    second.assert_completed(output={"text": "four"})


def test_each_step_has_an_idempotency_key_of_its_own(world):
    run = world.start(keys)
    world.advance(hours=2)

    first, second, whole = run.output
    assert [first, second] == [f"{whole}/0", f"{whole}/2"]


def test_a_function_that_starts_runs_outside_of_its_steps_fails_with_advice(world):
    run = world.run(careless)

    assert run.state == "failed"
    assert "await ctx.start(...)" in run.why()


@tw.durable
async def starts(ctx: tw.Durable, workflow: str) -> str:
    try:
        return await ctx.start(workflow, text=5)
    except tw.StepFailed as failed:
        return f"caught {failed}"


@tw.durable
async def starts_what_it_knows(ctx: tw.Durable) -> str:
    try:
        return await ctx.start(target, text=5)
    except tw.StepFailed as failed:
        return f"caught {failed}"


@tw.durable
async def calls(ctx: tw.Durable, workflow: str) -> str:
    try:
        return await ctx.call(workflow, text=5)
    except tw.CallFailed as failed:
        return f"caught {failed}"


@pytest.mark.parametrize(("workflow", "reason"), [("absent", "absent"), ("target", "text")])
def test_a_start_that_the_server_refuses_fails_the_function_and_a_call_can_be_caught(world, workflow, reason):
    world.publish(target)

    run = world.run(starts, workflow=workflow)
    assert run.state == "failed" and reason in run.why()
    assert world.runs(target) == []
    caught = world.run(calls, workflow=workflow)
    assert caught.state == "completed", caught.why()
    assert caught.output.startswith("caught ")


def test_wrong_inputs_of_a_workflow_that_the_code_knows_can_be_caught(world):
    run = world.run(starts_what_it_knows)

    assert run.state == "completed" and run.output.startswith("caught "), run.why()
