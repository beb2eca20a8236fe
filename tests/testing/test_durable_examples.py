"""The examples with durable functions, in a world."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    def load(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        return importlib.import_module(name)

    return load


def test_the_order_is_shipped(world, example):
    run = world.run(example("order_saga").sell, number="A-7")
    world.advance(seconds=1)

    assert run.output == "parcel with A-7, paid with payment for A-7"


def test_the_order_is_undone_in_reverse_order(world, example, capsys):
    run = world.run(example("order_saga").sell, number="A-7", fail=True)
    world.advance(minutes=5)

    assert run.state == "failed"
    assert "nobody takes A-7" in run.error or "ship" in run.error
    printed = capsys.readouterr().out
    assert printed.splitlines() == ["refunded: payment for A-7", "released: reservation of A-7"]


def test_the_assistant_uses_its_tools(world, example):
    run = world.run(example("agent_loop").assist, question="What does a night in Oslo cost?")

    assert run.output == "a night in Bergen costs 120 euros"


@pytest.mark.parametrize(
    ("decide", "text"), [("approve", "booked a night in Oslo"), ("reject", "book was not allowed")]
)
def test_a_tool_with_an_effect_waits_for_a_person(world, example, decide, text):
    run = world.run(example("agent_loop").assist, question="Please book")
    assert run.state == "paused"
    assert "its steps have cost 110, and its budget is 100" in run.why()
    world.resume(run)

    assert run.state == "waiting"
    getattr(world, decide)(run, "tool", by="eve")
    assert run.output == text
