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


DOUBLED = "[x]" + ".map(s, s + s)" * 16 + ".size() == 1"


@tw.workflow
def asks_too_much(value: str) -> str:
    return tw.branch(tw.cel(DOUBLED, x=give(value)), lambda: note("yes"), lambda: note("no"))


def test_a_condition_that_asks_for_much_memory_fails_its_node_and_the_next_run_goes_on(world):
    run = world.run(asks_too_much, value="x" * 500)

    assert run.state == "failed" and "condition_too_costly" in run.error
    assert world.run(asks_too_much, value="").output == "yes"


def test_a_condition_that_asks_for_much_memory_whatever_it_is_given_is_refused_when_it_is_published(world):
    @tw.workflow
    def never() -> str:
        return tw.branch(tw.cel(f"['x']{'.map(s, s + s)' * 25}.size() == 1"), lambda: note("yes"), lambda: note("no"))

    with pytest.raises(tw.TickworkError, match="makes too much data"):
        world.run(never)
