"""Requests that could never be sent are refused where they come in, and nowhere else."""

import json

import pytest

from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.definition.plan import new_plan, plan_of


def flow(**fields) -> bytes:
    request = {"kind": "http", "url": "https://shop.example/", **fields}
    each = {"kind": "map", "id": "m", "over": "inputs.all", "body": request}
    nodes = [{**request, "id": "call"}, each]
    return json.dumps({"name": "f", "inputs": {"all": {"type": "array"}}, "nodes": nodes}).encode()


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"headers": {"Content-Length": "5"}}, "headers.Content-Length"),
        ({"headers": {"TE": "trailers"}}, "headers.TE"),
        ({"headers": {"X-A": "\u20ac"}}, "headers.X-A"),
        ({"headers": {"X-A": "a "}}, "headers.X-A"),
        ({"headers": {"X-A": "1", "X-B": "1", "x-a": "1"}}, "headers.x-a"),
        ({"success": "1 + 1"}, "success"),
        ({"success": "'yes'"}, "success"),
        ({"success": "results.other == 1"}, "success"),
    ],
)
def test_what_could_never_be_sent_is_refused_with_its_place_also_in_a_body(fields, where):
    with pytest.raises(InvalidDefinition) as refused:
        new_plan(flow(**fields))

    assert [one.path for one in refused.value.problems] == [f"nodes[0].{where}", f"nodes[1].body.{where}"]
    assert plan_of(flow(**fields)).name == "f", "what a store has is read as it was"


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-A": "b", "X-B": "", "Host": "inner.example", "Content-Type": "text/plain"}},
        {"success": "body.ok"},
        {"success": "status == 200 ? body.ok : false"},
    ],
)
def test_what_can_be_sent_comes_in(fields):
    assert new_plan(flow(**fields)).name == "f"
