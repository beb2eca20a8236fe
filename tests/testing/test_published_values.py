"""`tw.publish`: values of a graph that others read while it runs and afterwards."""

from typing import Any

import pytest

import tickwork as tw
from tickwork.core.definition.document import accept

LARGE = "x" * 5_000


@tw.task
def find(day: str) -> dict[str, Any]:
    return {"count": len(day), "text": LARGE}


@tw.task
def check(count: int) -> str:
    return f"checked {count}"


@tw.workflow
def load(day: str, more: bool = True) -> str:
    tw.publish("day", day)
    found = find(day)
    tw.publish("rows", found["count"])
    tw.publish("stage", found["text"])
    tw.publish("summary", {"rows": found["count"], "of": day})
    tw.approval("go_on")
    checked = check(found["count"])
    tw.publish("stage", checked)
    return checked


@tw.workflow
def sides(large: bool) -> object:
    result = tw.branch(large, lambda: check(100), lambda: find("a"))
    tw.publish("result", result)
    return result


def test_a_value_is_read_as_soon_as_it_is_there_and_after_the_end(world):
    run = world.start(load, day="monday")
    world.settle()

    assert [world.read(run, name) for name in ("day", "rows", "stage")] == ["monday", 6, LARGE]
    assert world.read(run, "summary") == {"rows": 6, "of": "monday"}
    world.approve(run, "go_on")
    run.assert_completed()
    assert [world.read(run, name) for name in ("day", "rows", "stage")] == ["monday", 6, "checked 6"]


def test_what_is_not_there_yet_says_so(world):
    world.fail(find, times=1)
    run = world.start(load, day="monday")
    world.settle()

    with pytest.raises(tw.Refused, match="has published day, and this one is not there yet"):
        world.read(run, "rows")
    with pytest.raises(tw.Refused, match=r"'other': it has published day$"):
        world.read(run, "other")


@pytest.mark.parametrize(("large", "value"), [(True, "checked 100"), (False, {"count": 1, "text": LARGE})])
def test_the_result_of_a_branch_is_published(world, large, value):
    run = world.run(sides, large=large)

    assert world.read(run, "result") == value


def test_a_name_that_cannot_be_one_is_refused_with_its_line():
    @tw.workflow
    def wrong() -> None:
        tw.publish("no name", find("x"))

    with pytest.raises(tw.Refused, match=r"test_published_values.py:\d+"):
        wrong.document()


@pytest.mark.parametrize(
    ("publish", "code"),
    [({"rows": ["nodes.nowhere"]}, "unknown_reference"), ({"a b": ["inputs.day"]}, "name"), ({"a": ["now"]}, "syntax")],
)
def test_a_document_that_publishes_what_is_not_there_is_refused(publish, code):
    document = {"name": "w", "nodes": [{"kind": "task", "id": "a", "handler": "h"}], "publish": publish}
    with pytest.raises(tw.InvalidDefinition) as invalid:
        accept(document)
    assert code in str(invalid.value.problems[0].code) + invalid.value.problems[0].message
