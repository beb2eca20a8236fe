"""`rate` and `singleton` as users write them, in a world of virtual time."""

from datetime import timedelta

import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused


@tw.task
def doubled(n: int) -> int:
    return 2 * n


@tw.workflow(rate=(2, "1m", "customer"))
def paced(customer: str, n: int) -> int:
    return doubled(n)


@tw.workflow(rate=(1, timedelta(minutes=1)), over="last")
def newest(n: int) -> int:
    return doubled(n)


@tw.workflow(rate=(1, "1m"), over="drop")
def dropping(n: int) -> int:
    return doubled(n)


@tw.workflow(singleton="customer", second="replace")
def replacing(customer: str, n: int) -> int:
    return doubled.using(after=tw.wait("1h"))(n)


@tw.workflow(singleton=True)
def only(n: int) -> None:
    tw.wait("1h")


@tw.workflow(singleton=True, second="buffer_one")
def two(n: int) -> None:
    tw.wait("1h")


@tw.durable(singleton="customer", second="skip")
async def cared_for(customer: str, ctx: tw.Durable) -> None:
    await ctx.sleep("1h")


def test_a_rate_spaces_the_runs_of_each_value(world):
    runs = [world.start(paced, customer="x", n=n) for n in range(4)]
    other = world.start(paced, customer="y", n=9)
    world.settle()
    assert [run.state for run in (*runs, other)] == ["completed", "completed", "pending", "pending", "completed"]
    assert "2 runs may begin in 1m for 'x': it starts at" in str(runs[2].why())

    world.advance(seconds=31)
    assert [run.state for run in runs[2:]] == ["completed", "pending"]
    world.advance(seconds=30)
    runs[3].assert_completed(output=6)


def test_the_last_of_a_burst_takes_the_next_turn(world):
    runs = [world.start(newest, n=n) for n in range(4)]
    world.advance(minutes=2)

    assert [run.state for run in runs] == ["completed", "cancelled", "cancelled", "completed"]
    assert f"the later run {runs[2].id} takes its place" in str(runs[1].why())


def test_runs_beyond_a_rate_are_dropped_with_the_reason(world):
    runs = [world.start(dropping, n=n) for n in range(2)]
    world.settle()

    assert [run.state for run in runs] == ["completed", "cancelled"]
    assert "1 runs may begin in 1m" in str(runs[1].why()) and "the next may begin at" in str(runs[1].why())


def test_a_later_run_replaces_the_one_of_the_same_value(world):
    first, other = world.start(replacing, customer="x", n=1), world.start(replacing, customer="y", n=2)
    world.settle()
    second = world.start(replacing, customer="x", n=3)
    world.advance(hours=2)

    assert first.state == "cancelled" and f"the later run {second.id} takes" in str(first.why())
    second.assert_completed(output=6)
    other.assert_completed(output=4)


@pytest.mark.parametrize(
    ("workflow", "states"), [(only, ["waiting", "cancelled", "cancelled"]), (two, ["waiting", "pending", "cancelled"])]
)
def test_a_second_run_is_skipped_or_one_waits(world, workflow, states):
    runs = []
    for n in range(3):
        runs.append(world.start(workflow, n=n))
        world.settle()

    assert [run.state for run in runs] == states


def test_a_function_takes_the_same_options(world):
    runs = [world.start(cared_for, customer="x"), world.start(cared_for, customer="x")]
    world.settle()

    assert [run.state for run in runs] == ["waiting", "cancelled"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"singleton": "n", "concurrency": 2}, "singleton is concurrency=1"),
        ({"singleton": 5}, "singleton is True or the name of an input"),
        ({"second": "skip"}, "whose singleton or concurrency is taken"),
        ({"singleton": True, "second": "queue"}, "second is one of wait, skip, replace, buffer_one"),
        ({"over": "drop"}, "give a rate"),
        ({"rate": 5}, "a rate is"),
        ({"rate": (5, "soon")}, "soon"),
        ({"rate": (5, "1m"), "over": "first"}, "over is one of wait, drop, last"),
        ({"rate": (0, "1m")}, "rate.limit"),
        ({"concurrency": (2, "n"), "second": "replace"}, "set limit to 1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(world, options, words):
    def flow(n: int) -> int:
        return doubled(n)

    def begin():
        world.start(tw.workflow(**options)(flow), n=1)

    with pytest.raises((Refused, tw.InvalidDefinition), match=words):
        begin()
