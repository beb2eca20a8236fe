"""Failure and clean-up, as users write them."""

import pytest

import tickwork as tw

alerts_sent: list[str] = []


@pytest.fixture(autouse=True)
def no_alerts():
    alerts_sent.clear()


@tw.task
def load(day: str) -> int:
    return len(day)


@tw.task
def alert(failure: tw.Failure) -> None:
    alerts_sent.append(str(failure))


@tw.task
def cheer(ctx: tw.Context) -> None:
    alerts_sent.append(f"well done by {ctx.workflow}")


@tw.workflow(on_failure=alert, on_success=cheer, timeout="10m")
def nightly(day: str = "monday") -> int:
    return load(day)


@tw.workflow
def page_somebody(failure: tw.Failure) -> None:
    tw.wait("1h")
    alert(failure)


@tw.workflow(on_failure=page_somebody)
def important() -> int:
    return load("today")


def test_a_handler_learns_what_failed(world):
    world.fail(load, error=ValueError("no such day"))
    run = world.run(nightly)

    assert run.state == "failed"
    assert alerts_sent[0].startswith(f"nightly {run.id}: failed: load\n  load: ValueError: no such day")
    [handler] = world.runs(nightly.follow_ups()["on_failure"][1])
    handler.assert_completed()
    assert handler.id.startswith(f"{run.id}.on_failure.")


def test_a_handler_runs_again_when_the_retry_fails_too(world):
    world.fail(load, times=2)
    run = world.run(nightly)
    world.retry(run)
    assert len(alerts_sent) == 2

    world.retry(run)
    run.assert_completed(output=6)
    assert alerts_sent[2:] == ["well done by nightly.on_success"]


def test_a_handler_that_is_a_workflow_may_wait(world):
    world.fail(load, error=KeyError("x"))
    run = world.run(important)
    assert alerts_sent == []

    world.advance(hours=2)
    assert "load: KeyError: 'x'" in alerts_sent[0] and run.id in alerts_sent[0]


def test_a_handler_runs_after_a_time_out(world):
    @tw.workflow(on_failure=alert, timeout="1h")
    def slow() -> None:
        tw.wait("2h")

    run = world.run(slow)
    world.advance(hours=1, seconds=1)

    assert run.state == "failed"
    assert alerts_sent == [f"slow {run.id}: the run took too long"]


def test_why_names_the_run_that_follows_and_where_it_came_from(world):
    world.fail(load)
    run = world.run(nightly)
    [handler] = world.runs(nightly.follow_ups()["on_failure"][1])

    assert f"run {handler.id} begins" in world._why(run.id)
    assert f"run {run.id} has failed" in world._why(handler.id)


@tw.task(name="two")
def two(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (two, "two takes a, b, but on_failure gives one argument: tw.Failure"),
        (lambda: None, "on_failure names a task or a workflow, not <function"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_with_its_line(handler, words):
    @tw.workflow(on_failure=handler)
    def broken() -> None:
        load("x")

    with pytest.raises(tw.Refused, match=r"test_failure\.py") as refused:
        broken.build()
    assert words in str(refused.value)


class RateLimited(ConnectionError):
    pass


@tw.task(retries=3, retry_delay="1s", retry_on={ConnectionError: "2s", "OddError": "3s"}, fail_on=(RateLimited,))
def call_out() -> str:
    return "ok"


@tw.workflow
def calling() -> str:
    return call_out()


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ConnectionError("gone"), 4),
        (ConnectionResetError("derived from it"), 4),
        (type("OddError", (Exception,), {})("by its name"), 4),
        (RateLimited("the more special rule"), 1),
        (ValueError("no rule names it"), 1),
        (tw.Permanent("it says so itself"), 1),
    ],
)
def test_the_type_of_an_error_decides_whether_it_is_tried_again(world, error, attempts):
    world.fail(call_out, error=error)

    assert world.run(calling).tasks["call_out"].attempts == attempts


def test_an_attempt_that_takes_too_long_counts_as_a_timeout_error(world):
    import asyncio

    @tw.task(retries=2, timeout="1s", retry_on=TimeoutError)
    async def sleeps() -> None:
        await asyncio.sleep(5)

    @tw.workflow
    def sleeping() -> None:
        sleeps()

    assert world.run(sleeping).tasks["sleeps"].attempts == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry_on": (ValueError,)}, "say how often: retries=3"),
        ({"retries": 1, "retry_on": 5}, "a tuple of exceptions or their names, not 5"),
        ({"retries": 1, "fail_on": (5,)}, "names exceptions, as classes or by name, not 5"),
    ],
)
def test_retry_rules_that_make_no_sense_are_refused(options, words):
    with pytest.raises(tw.Refused, match=words):
        tw.task(**options)(load.function)


@tw.task
def find(rows: int) -> list[int]:
    if not rows:
        raise tw.Skip("no data")
    return list(range(rows))


@tw.task
def store(rows: list[int]) -> int:
    return len(rows)


@tw.task
def tidy() -> None:
    alerts_sent.append("tidied")


@tw.workflow
def sensed(rows: int) -> int:
    found = find(rows)
    stored = store(found)
    tidy.using(after=[stored], on="all_done")()
    return stored


def test_a_task_that_has_nothing_to_do_ends_without_a_failure_and_nothing_depends_on_it(world):
    run = world.run(sensed, rows=0)

    run.assert_completed(output=None)
    assert {name: task.state for name, task in run.tasks.items()} == {
        "find": "not_taken", "store": "not_taken", "tidy": "succeeded",
    }  # fmt: skip
    assert run.tasks["find"].attempts == 1 and alerts_sent == ["tidied"]
    assert "skipped: it says itself that there is nothing to do: no data" in world._why(run.id)
    world.run(sensed, rows=2).assert_completed(output=2)


def test_in_a_map_what_has_nothing_to_do_gives_none(world):
    @tw.workflow
    def many(rows: list[int]) -> list[list[int] | None]:
        return find.map(rows)  # type: ignore[return-value]  # the task itself never returns None

    world.run(many, rows=[2, 0, 1]).assert_completed(output=[[0, 1], None, [0]])


@tw.workflow
def importing(day: str) -> int:
    return load(day)


@tw.workflow
def whole_week() -> list[int]:
    first = importing.using(retries=2, retry_delay="1m", id="first")("monday")
    return importing.using(after=[first], id="others").map(["tuesday", "friday"])


def test_a_child_workflow_is_tried_again_as_a_new_run(world):
    world.fail(load, times=2)
    run = world.run(whole_week)

    run.assert_completed(output=[7, 6])
    assert [child.state for child in world.runs(importing)] == [
        "failed",
        "failed",
        "completed",
        "completed",
        "completed",
    ]


def test_an_abandoned_child_outlives_the_run_that_called_it(world):
    @tw.workflow
    def slow(day: str) -> int:
        tw.wait("1h")
        return load(day)

    @tw.workflow
    def leaving() -> None:
        slow.using(on_cancel="abandon")("monday")

    run = world.run(leaving)
    world.cancel(run)
    assert run.state == "cancelled"
    world.advance(hours=2)

    [child] = world.runs(slow)
    child.assert_completed(output=6)
    assert "its parent ended, and it goes on by itself" in world._why(child.id)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": "1m"}, "there is no option 'timeout' of a call"),
        ({"on_cancel": "forget"}, "on_cancel is 'abandon' or 'cancel', not 'forget'"),
    ],
)
def test_an_option_of_a_call_that_makes_no_sense_is_refused(options, words):
    with pytest.raises(tw.Refused, match=words):
        importing.using(**options)
