"""What an approval asks is shown to those who answer it, with the values of the run."""

import pytest

import tickwork as tw
from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.definition.plan import plan_of


@tw.task
def pack(number: int) -> dict:
    return {"parcels": number, "to": "Ada"}


@tw.workflow
def ship(number: int):
    packed = pack(number)
    tw.approval("plain", message="May it leave the house?")
    tw.approval("whole", message=packed)
    tw.approval("mixed", message=["Ship ", packed["parcels"], " parcels of order ", number, " to ", packed["to"], "?"])


def test_the_message_of_an_approval_is_shown_with_the_values_of_the_run(world):
    run = world.run(ship, number=3)
    expected = {
        "plain": "May it leave the house?",
        "whole": '{"parcels":3,"to":"Ada"}',
        "mixed": "Ship 3 parcels of order 3 to Ada?",
    }
    for node, message in expected.items():
        assert run.tasks[node].view.message == message
        assert message in run.why()
        world.approve(run, node)
    run.assert_completed()
    assert run.tasks["mixed"].view.message == expected["mixed"]


def test_a_message_names_only_what_comes_before_it():
    approval = b'{"kind": "approval", "id": "ok", "message": "Take ${nodes.a.n} of ${nodes.b}?", "needs": ["a"]}'
    tasks = b'{"kind": "task", "id": "a", "handler": "x"}, {"kind": "task", "id": "b", "handler": "x"}'
    with pytest.raises(InvalidDefinition) as caught:
        plan_of(b'{"name": "flow", "nodes": [' + approval + b", " + tasks + b"]}")

    assert [(one.path, one.code) for one in caught.value.problems] == [("nodes[0].message", "reference_not_upstream")]
