"""What a parent gives to a child workflow is compared with its declared inputs, whatever its size."""

import pytest

import tickwork as tw
from tickwork.testing import World

LARGE = 5_000  # characters: not inline

begun: list[object] = []


@pytest.fixture
def world():
    begun.clear()
    with World() as opened:
        yield opened


@tw.task
def text(size: int):
    return "x" * size


@tw.task
def texts(size: int):
    return ["x"] * size


@tw.task
def begins(value: object) -> None:
    begun.append(value)


@tw.workflow
def takes_number(n: int) -> None:
    begins(n)


@tw.workflow
def takes_text(s: str) -> None:
    begins(s)


@tw.workflow
def takes_both(s: str, n: int) -> None:
    begins(n)
    begins(s)


@tw.workflow
def gives_text(size: int) -> None:
    takes_number(text(size))


@tw.workflow
def gives_list(size: int) -> None:
    takes_text(texts(size))


@tw.workflow
def gives_wrong_beside_large(size: int) -> None:
    takes_both(text(size), text(3))


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("workflow", [gives_text, gives_list, gives_wrong_beside_large])
def test_a_child_does_not_begin_with_inputs_of_another_type_however_large_they_are(world, workflow, size):
    run = world.run(workflow, size=size)

    assert (run.state, begun) == ("failed", [])
    assert "wrong_type: inputs." in run.error


def test_a_child_takes_large_inputs_of_its_types(world):
    @tw.workflow
    def gives_both(size: int) -> None:
        takes_both(text(size), size)

    assert world.run(gives_both, size=LARGE).state == "completed"
    assert sorted(map(str, begun)) == [str(LARGE), "x" * LARGE]
