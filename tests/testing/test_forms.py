"""Forms in durable functions, and the types of their fields in graphs and functions."""

from datetime import date, datetime
from enum import Enum
from typing import Literal

import pytest

import tickwork as tw
from tickwork.core.base.errors import InvalidDefinition


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@tw.durable
async def order(ctx: tw.Durable, number: str) -> str:
    form = await ctx.form(
        "size",
        f"How large is parcel {number}?",
        approvers=["eve"],
        fields={"size": Size, "when": date, "copies": 1, "note": str | None},
        timeout="1h",
        default={"size": Size.SMALL},
    )
    if form.rejected:
        return f"rejected by {form.by}: {form.comment}"
    if form.timed_out:
        return f"nobody answered: {form.size.name}, {form.when}"
    assert isinstance(form.size, Size) and isinstance(form["when"], date)
    return f"{form.copies} of {form.size.name} on {form.when:%d.%m.} for {form.by}, {form.note}"


@pytest.fixture
def run(world):
    run = world.run(order, number="A-7")
    run.assert_waiting()
    return run


def test_a_function_gets_what_was_filled_in_with_its_types(world, run):
    world.fill(run, "size", size=Size.LARGE, when=date(2026, 5, 17), by="eve")

    run.assert_completed(output="1 of LARGE on 17.05. for eve, None")


def test_a_function_gets_the_default_where_nobody_answers(world, run):
    assert "to fill in: size (one of small, large), when (string), copies (integer), note (string)" in run.why()
    world.advance(hours=2)

    run.assert_completed(output="nobody answered: SMALL, None")


def test_a_function_decides_what_follows_from_a_rejection(world, run):
    world.reject(run, "size", by="eve", comment="no parcels today")

    run.assert_completed(output="rejected by eve: no parcels today")


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"size": "huge", "when": "2026-05-17"}, "wrong_value"), ({"size": "small"}, "missing_field"),
     ({"size": "small", "when": "x", "copies": "2"}, "wrong_type"), ({"siz": "small"}, "unknown_field")],
)  # fmt: skip
def test_the_answer_to_a_function_is_checked_when_it_is_given(world, run, fields, code):
    with pytest.raises(tw.Refused) as refused:
        world.fill(run, "size", by="eve", **fields)

    assert refused.value.code == code
    run.assert_waiting()


@tw.task
def told(size: Size, at: datetime) -> str:
    return f"{size.name} {at:%H:%M}"


@tw.workflow
def typed() -> str:
    form = tw.form("when", fields={"size": Size, "at": datetime, "how": Literal[1, 2], "rate": 0.5})
    return told(form.size, form.at)


def test_a_graph_declares_the_types_of_its_fields(world):
    run = world.run(typed)
    assert run.tasks["when"].fields == {
        "size": {"type": "string", "enum": ("small", "large")},
        "at": {"type": "datetime"},
        "how": {"type": "integer", "enum": (1, 2)},
        "rate": {"type": "number", "required": False, "default": 0.5},
    }
    world.fill(run, "when", size=Size.LARGE, at="2026-05-17T08:30:00Z", how=2)

    run.assert_completed(output="LARGE 08:30")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fields": {}}, "a form has fields"),
        ({"fields": {"by": str}}, "say who answered"),
        ({"fields": {"how": Literal["a"]}, "default": {"how": "b"}}, "not one of"),
        ({"fields": {"how": str}, "default": {"when": 1}}, "no such field"),
        ({"fields": {"how": str}, "default": {"how": "x" * 1_100}}, "at most 1024 bytes"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_with_its_line(options, text):
    @tw.workflow
    def wrong():
        tw.form("ok", **options)

    with pytest.raises((InvalidDefinition, tw.Refused), match=text) as refused:
        wrong.document()

    assert "test_forms.py" in str(refused.value)
