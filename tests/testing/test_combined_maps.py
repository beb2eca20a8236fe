"""Maps over several lists and over dicts, with values of any size, through the whole engine."""

import pytest

import tickwork as tw
from tickwork.testing import World

PAD = "x" * 2_000  # makes a value too large to be inline


@pytest.fixture
def world():
    with World() as opened:
        yield opened


@tw.task
def padded(count: int) -> list[str]:
    return [f"{number}{PAD}" for number in range(count)]


@tw.task
def plain(count: int) -> list[int]:
    return list(range(count))


@tw.task
def both(number: int, text: str) -> str:
    return f"{number}:{text[:1]}:{len(text)}"


@tw.workflow
def both_as_a_child(number: int, text: str) -> str:
    return both(number, text)


@tw.workflow
def zipped(left: int, right: int) -> list[str]:
    return both.map(tw.zip(plain(left), padded(right)), max_parallel=2)


@tw.workflow
def children(left: int, right: int) -> list[str]:
    return both_as_a_child.map(tw.zip(plain(left), padded(right)))


@tw.workflow
def crossed(left: int, right: int) -> list[str]:
    return both.map(tw.product(text=padded(right), number=plain(left)))


@tw.workflow
def crossed_inputs(numbers: list[int], texts: list[str]) -> list[str]:
    return both_as_a_child.map(tw.product(numbers, texts))


@tw.task
def prices(count: int, pad: int) -> dict[str, str]:
    return {f"k{number:03}": f"{number}" + "p" * pad for number in reversed(range(count))}


@tw.task
def told(key: str, value: str) -> str:
    if value == "3":
        raise ValueError(key)
    return f"{key}={value[:1]}"


@tw.task
def keys(of: dict[str, str | None]) -> str:
    return " ".join(of)


@tw.workflow
def checked(count: int, pad: int) -> dict[str, object]:
    made = told.map(tw.entries(prices(count, pad)), tolerate=1)
    again = told.map(tw.entries(made), tolerate=9)  # over the entries of a result that was gathered
    return {"made": made, "first": made["k000"], "keys": keys(again)}


@pytest.mark.parametrize("flow", [zipped, children])
def test_a_zip_takes_the_items_of_lists_together(world, flow):
    world.run(flow, left=3, right=3).assert_completed(output=[f"{n}:{n}:2001" for n in range(3)])


@pytest.mark.parametrize("flow", [zipped, children])
def test_a_zip_of_lists_of_different_lengths_names_both(world, flow):
    run = world.run(flow, left=2, right=3)

    run.assert_failed()
    assert "nodes.plain has 2 items and nodes.padded has 3" in str(run.why())


def test_a_product_gives_every_combination_and_the_last_list_changes_fastest(world):
    run = world.run(crossed, left=3, right=2)

    run.assert_completed(output=[f"{number}:{text}:2001" for text in range(2) for number in range(3)])


@pytest.mark.parametrize("size", [1, 2_000])
def test_a_product_of_inputs_is_made_in_child_runs(world, size):
    run = world.run(crossed_inputs, numbers=[1, 2], texts=["a" * size, "b" * size])

    run.assert_completed(output=[f"{number}:{text}:{size}" for number in (1, 2) for text in "ab"])


def test_a_product_with_an_empty_list_is_empty(world):
    world.run(crossed, left=3, right=0).assert_completed(output=[])


def test_a_product_above_the_limit_fails_and_stores_none_of_it(world):
    numbers = list(range(1_001))
    run = world.run(crossed_inputs, numbers=numbers, texts=["a"] * 1_000)

    run.assert_failed()
    assert "the product of inputs.numbers and inputs.texts has 1001000 items" in str(run.why())


@pytest.mark.parametrize(("count", "pad"), [(3, 0), (3, 2_000), (300, 0)])
def test_a_map_over_a_dict_gives_a_dict_with_the_same_keys(world, count, pad):
    run = world.run(checked, count=count, pad=pad)
    names = [f"k{number:03}" for number in range(count)]
    run.assert_completed()
    output = run.output

    assert list(output["made"]) == names
    assert output["first"] == "k000=0"
    assert output["keys"] == " ".join(names)


def test_a_tolerated_failure_in_a_map_over_a_dict_is_none(world):
    run = world.run(checked, count=4, pad=0)

    run.assert_completed()
    assert run.output["made"] == {"k000": "k000=0", "k001": "k001=1", "k002": "k002=2", "k003": None}


def test_too_many_keys_are_refused_with_what_to_do(world):
    run = world.run(checked, count=20_000, pad=0)

    run.assert_failed()
    assert "map over a list of pairs instead" in str(run.why())


def test_outside_of_a_workflow_these_maps_are_plain_loops():
    assert both.map(tw.zip([1, 2], ["a", "b"])) == ["1:a:1", "2:b:1"]
    assert both.map(tw.product(text=["a", "b"], number=[1, 2])) == ["1:a:1", "2:a:1", "1:b:1", "2:b:1"]
    assert told.map(tw.entries({"b": "1", "a": "2"})) == {"a": "a=2", "b": "b=1"}


def test_a_map_over_a_dict_that_is_tried_again_has_nothing_of_its_first_life(world):
    @tw.task
    def grown(count: int) -> dict[str, str]:
        return dict.fromkeys((f"k{number}" for number in range(count)), PAD)

    @tw.task
    def length(key: str, value: str) -> int:
        return len(value)

    @tw.workflow
    def grows(count: int) -> dict[str, int]:
        return length.map(tw.entries(grown(count)))

    world.replace(length, _fails)
    run = world.run(grows, count=3)
    run.assert_failed(node="length")
    world.replace(length, _again)
    world.retry(run)
    world.settle()

    run.assert_completed(output={f"k{number}": f"k{number} again" for number in range(3)})


def _fails(key: str, value: str) -> int:
    raise ValueError(key)


def _again(key: str, value: str) -> str:
    return f"{key} again{value[:0]}"
