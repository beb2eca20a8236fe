"""Runs that tasks start, in a world."""

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
