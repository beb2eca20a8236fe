"""What conditions of a workflow can read of the values that it holds."""

import pytest

import tickwork as tw
from tickwork.testing import World


@pytest.fixture
def world():
    with World() as opened:
        yield opened


@tw.task
def give(value: str | None) -> str | None:
    return value


@tw.task
def note(text: str) -> str:
    return text


@tw.workflow
def hands_on(value: str | None) -> str | None:
    return give(value)


@tw.workflow
def reads_a_task(value: str | None) -> str:
    return tw.branch(give(value) == None, lambda: note("none"), lambda: note("some"))  # noqa: E711


@tw.workflow
def reads_a_child(value: str | None) -> str:
    return tw.branch(hands_on(value) == None, lambda: note("none"), lambda: note("some"))  # noqa: E711


@tw.workflow
def reads_a_side(value: str | None) -> str:
    taken = tw.branch(tw.cel("value != null", value=value), lambda: note("taken"))
    return tw.branch(taken == None, lambda: note("none"), lambda: note("some"))  # noqa: E711


@tw.workflow
def reads_an_event() -> str:
    paid = tw.event("paid", timeout="1h", on_timeout="continue")
    return tw.branch(paid == None, lambda: note("none"), lambda: note("some"))  # noqa: E711


@tw.workflow
def reads_an_approval() -> str:
    allowed = tw.approval("allow", timeout="1h", on_timeout="continue")
    return tw.branch(allowed == None, lambda: note("none"), lambda: note("some"))  # noqa: E711


@pytest.mark.parametrize("workflow", [reads_a_task, reads_a_child, reads_a_side])
def test_a_condition_reads_none_of_a_task_a_child_and_a_branch(world, workflow):
    assert world.run(workflow, value=None).output == "none"
    assert world.run(workflow, value="x").output == "some"


@pytest.mark.parametrize("workflow", [reads_an_event, reads_an_approval])
def test_a_condition_reads_the_none_of_a_time_out(world, workflow):
    run = world.start(workflow)
    world.advance(hours=2)

    assert run.output == "none"
