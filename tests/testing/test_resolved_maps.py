"""A map that is tried again after its run failed: nothing of its first life is in its result, or in its children."""

import pytest

import tickwork as tw
from tickwork.testing import World

LARGE = 2_000  # characters: not inline


@pytest.fixture
def world():
    with World() as opened:
        yield opened


@tw.task
def one(item: int):
    return f"real {item}"


@tw.workflow
def one_as_a_child(item: int):
    return one(item)


@tw.workflow
def of_tasks(items: list[int]):
    return one.map(items, tolerate=1)


@tw.workflow
def of_workflows(items: list[int]):
    return one_as_a_child.map(items, tolerate=1)


@tw.task
def before() -> None:
    pass


@tw.task
def made() -> dict[str, str]:
    return {"text": "x" * LARGE}


@tw.task
def length(text: str):
    return len(text)


@tw.workflow
def length_as_a_child(text: str):
    return length(text)


@tw.workflow
def of_a_part():
    begun = before()
    value = made.using(id="made", on="all_done", after=[begun])()
    return length_as_a_child(value["text"])


def failing(*items: int):
    def stand_in(item: int):
        if item in items:
            raise ValueError(item)
        return f"tried {item}"

    return stand_in


@pytest.mark.parametrize("workflow", [of_tasks, of_workflows])
def test_an_item_that_fails_in_a_later_life_has_no_result_of_an_earlier_one(world, workflow):
    world.replace(one, failing(1, 2))
    run = world.run(workflow, items=[0, 1, 2])
    assert run.state == "failed"

    world.replace(one, failing(0))
    world.retry(run)

    assert (run.state, run.output) == ("completed", [None, "tried 1", "tried 2"])


@pytest.mark.parametrize("workflow", [of_tasks, of_workflows])
def test_an_item_that_has_nothing_to_do_in_a_later_life_has_no_result_of_an_earlier_one(world, workflow):
    world.replace(one, failing(1, 2))
    run = world.run(workflow, items=[0, 1, 2])

    def nothing_for_0(item: int):
        if not item:
            raise tw.Skip("nothing to do")
        return f"tried {item}"

    world.replace(one, nothing_for_0)
    world.retry(run)

    assert (run.state, run.output) == ("completed", [None, "tried 1", "tried 2"])


def test_inputs_of_a_child_run_that_cannot_be_made_in_a_later_life_are_not_those_of_an_earlier_one(world):
    world.fail(before, times=1)
    run = world.run(of_a_part)
    assert run.state == "failed" and len(world.calls(length)) == 1

    world.replace(made, {"other": "x" * LARGE})
    world.retry(run)

    assert (run.state, len(world.calls(length))) == ("failed", 1)
    assert "there is no 'text'" in run.error
