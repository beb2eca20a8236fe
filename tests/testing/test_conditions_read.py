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


# ---- values over the inline limit


@tw.task
def make(size: int, ok: bool) -> dict[str, object]:
    return {"text": "x" * size, "ok": ok, "rows": [{"id": number, "ok": ok} for number in range(size)]}


@tw.workflow
def makes(size: int, ok: bool) -> dict[str, object]:
    return make(size, ok)


@tw.workflow
def reads_into_a_task(size: int, ok: bool) -> str:
    return tw.branch(make(size, ok)["ok"] == True, lambda: note("yes"), lambda: note("no"))  # noqa: E712


@tw.workflow
def reads_into_a_child(size: int, ok: bool) -> str:
    return tw.branch(makes(size, ok)["ok"] == True, lambda: note("yes"), lambda: note("no"))  # noqa: E712


@tw.workflow
def reads_every_row(size: int, ok: bool) -> str:
    made = make(size, ok)
    every = tw.cel("rows.all(row, row.ok) && size(rows) == count", rows=made["rows"], count=size)
    return tw.branch(every, lambda: note("yes"), lambda: note("no"))


@tw.workflow
def reads_when(size: int, ok: bool) -> str | None:
    return note.using(when=make(size, ok)["ok"] == True)("yes")  # noqa: E712


@tw.task
def is_ok(number: int, ok: bool) -> dict[str, object]:
    return {"number": number, "ok": ok, "text": "x" * 2_000}


@tw.workflow
def reads_a_map(size: int, ok: bool) -> str:
    checked = is_ok.map(list(range(5)), ok=ok)
    every = tw.cel("checked.all(one, one.ok) && checked[4].number == 4", checked=checked)
    return tw.branch(every, lambda: note("yes"), lambda: note("no"))


@tw.workflow
def reads_a_small_map(size: int, ok: bool) -> str:
    checked = give.map(["a", "b"])
    both = tw.cel("checked == ['a', 'b'] && ok", checked=checked, ok=ok)
    return tw.branch(both, lambda: note("yes"), lambda: note("no"))


@tw.workflow
def reads_inputs(texts: list[str], ok: bool) -> str:
    return tw.branch(ok == True, lambda: note("yes"), lambda: note("no"))  # noqa: E712


@tw.workflow
def reads_the_length_of_an_input(texts: list[str], ok: bool) -> str:
    return tw.branch(tw.cel("size(texts) == 100 && ok", texts=texts, ok=ok), lambda: note("yes"), lambda: note("no"))


@tw.task
def turn(number: int, ok: bool) -> dict[str, object]:
    return {"done": ok and number >= 2, "number": number, "text": "x" * 5_000}


@tw.workflow
def reads_the_last_turn(size: int, ok: bool) -> dict[str, object]:
    return tw.repeat(
        lambda: turn(tw.iteration, ok),
        until=lambda last: last["done"] == True,  # noqa: E712
        max_iterations=4,
        on_max="continue",
    )


LARGE = [reads_into_a_task, reads_into_a_child, reads_every_row, reads_a_map, reads_a_small_map]


@pytest.mark.parametrize("workflow", LARGE)
@pytest.mark.parametrize("size", [1, 3_000])
def test_a_condition_reads_parts_of_values_of_any_size(world, workflow, size):
    assert world.run(workflow, size=size, ok=True).output == "yes"
    assert world.run(workflow, size=size, ok=False).output == "no"


def test_a_condition_of_a_node_reads_parts_of_a_large_value(world):
    assert world.run(reads_when, size=3_000, ok=True).output == "yes"
    assert world.run(reads_when, size=3_000, ok=False).output is None


@pytest.mark.parametrize("workflow", [reads_inputs, reads_the_length_of_an_input])
def test_a_condition_reads_small_inputs_beside_large_ones(world, workflow):
    assert world.run(workflow, texts=["x" * 100] * 100, ok=True).output == "yes"
    assert world.run(workflow, texts=["x" * 100] * 100, ok=False).output == "no"


def test_the_condition_of_a_repeat_reads_large_results(world):
    assert world.run(reads_the_last_turn, size=1, ok=True).output["number"] == 2
    assert world.run(reads_the_last_turn, size=1, ok=False).output["number"] == 3


@tw.workflow
def maps_an_input(texts: list[str]) -> list[str | None]:
    return give.map(texts)


def test_a_map_goes_over_a_large_input(world):
    texts = [f"{number:04}" * 10 for number in range(100)]

    assert world.run(maps_an_input, texts=texts).output == texts


@tw.workflow
def reads_too_much(size: int, ok: bool) -> str:
    return tw.branch(make(size, ok)["text"] == "x", lambda: note("yes"), lambda: note("no"))


def test_a_condition_that_reads_more_than_an_extract_may_hold_fails_with_the_limit(world):
    run = world.run(reads_too_much, size=70_000, ok=True)

    assert run.state == "failed" and "extract_too_large" in run.error and "65536" in run.error


@tw.workflow
def reads_what_may_be_missing(value: dict[str, object] | None) -> str:
    return tw.branch(hand_on(value).get("discount", 0) > 10, lambda: note("much"), lambda: note("little"))


@tw.task
def hand_on(value: dict[str, object] | None) -> dict[str, object] | None:
    return value


@pytest.mark.parametrize(
    ("value", "answer"),
    [(None, "little"), ({}, "little"), ({"discount": 11}, "much"), ({"discount": 11, "text": "x" * 5_000}, "much")],
)
def test_a_condition_reads_what_may_be_missing(world, value, answer):
    assert world.run(reads_what_may_be_missing, value=value).output == answer


def test_a_part_with_a_default_is_for_conditions_only(world):
    @tw.workflow
    def passes_it_on() -> object:
        return give(hand_on(None).get("discount", 0))

    with pytest.raises(tw.TickworkError, match="for conditions"):
        world.run(passes_it_on)


# ---- outputs and events


@tw.workflow
def returns_a_part(value: dict[str, object] | None) -> object:
    return hand_on(value)["foo"]


def test_a_missing_part_of_the_output_fails_the_run(world):
    run = world.run(returns_a_part, value={"bar": 1})

    assert run.state == "failed"
    assert world.run(returns_a_part, value={"foo": 1}).output == 1
    assert world.run(returns_a_part, value={"foo": 1, "text": "x" * 5_000}).output == 1
    assert world.run(returns_a_part, value={"text": "x" * 5_000}).state == "failed"


@tw.workflow
def returns_nothing(value: str) -> None:
    give(value)


def test_a_workflow_that_returns_nothing_has_no_output(world):
    run = world.run(returns_nothing, value="x")

    assert run.state == "completed" and run.output is None


def test_an_event_without_payload_is_told_apart_from_a_time_out(world):
    run = world.start(reads_an_event)
    world.signal("paid")
    world.settle()
    assert run.output == "some"


def test_an_approval_is_told_apart_from_a_time_out(world):
    run = world.start(reads_an_approval)
    world.approve(run, "allow")
    world.settle()
    assert run.output == "some"
