"""Declared inputs, and the values of a run against them."""

import pytest

from core.definition.builders import flow, found
from tickwork.core.definition.document import check_inputs, parse, with_defaults


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"type": "text"}, (".type", "wrong_value")),
        ({"type": "integer", "default": "1"}, (".default", "wrong_type")),
        ({"type": "integer", "default": True}, (".default", "wrong_type")),
        ({"type": "datetime", "default": "today"}, (".default", "instant_syntax")),
        ({"type": "string", "enum": ["a", 1]}, (".enum[1]", "wrong_type")),
        ({"type": "string", "enum": ["a", ""]}, (".enum[1]", "wrong_value")),
        ({"type": "string", "enum": ["a"], "default": "b"}, (".default", "wrong_value")),
        ({"type": "integer", "minimum": 2, "maximum": 1}, (".minimum", "out_of_range")),
        ({"type": "integer", "maximum": 1, "default": 2}, (".default", "out_of_range")),
        ({"type": "string", "minimum": 2}, ("", "wrong_value")),
        ({"type": "integer", "max_length": 2}, (".max_length", "wrong_value")),
        ({"type": "string", "max_length": -1}, (".max_length", "out_of_range")),
        ({"secret": True, "default": "hunter2"}, (".default", "secret_value")),
        ({"secret": True, "default": "secret:a/b"}, (".default", "name_characters")),
        ({"secret": True, "type": "integer"}, (".type", "wrong_value")),
        ({"type": "any", "default": None}, None),
        ({"type": "number", "default": 1}, None),
    ],
)
def test_a_declared_input_must_agree_with_itself(field, problem):
    assert found(flow(inputs={"x": field})) == ([] if problem is None else [(f"inputs.x{problem[0]}", problem[1])])


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ({"type": "string"}, "x", None),
        ({"type": "string"}, 1, "wrong_type"),
        ({"type": "string", "max_length": 2}, "abc", "out_of_range"),
        ({"type": "integer"}, 1, None),
        ({"type": "integer"}, "1", "wrong_type"),
        ({"type": "integer"}, True, "wrong_type"),
        ({"type": "integer"}, 1.0, "wrong_type"),
        ({"type": "integer", "minimum": 1}, 0, "out_of_range"),
        ({"type": "integer"}, 2**64, "json_integer"),
        ({"type": "number", "maximum": 1}, 1.5, "out_of_range"),
        ({"type": "number"}, float("nan"), "json_number"),
        ({"type": "boolean"}, 1, "wrong_type"),
        ({"type": "boolean"}, True, None),
        ({"type": "array", "max_length": 1}, [1, 2], "out_of_range"),
        ({"type": "object"}, [], "wrong_type"),
        ({"type": "object"}, {"a": object()}, "json_type"),
        ({"type": "datetime"}, "2026-01-02T03:04:05+01:00", None),
        ({"type": "datetime"}, "2026-01-02T03:04:05", "instant_zone"),
        ({"type": "datetime"}, 1_700_000_000, "wrong_type"),
        ({"enum": [1, "a"]}, 1, None),
        ({"enum": [1, "a"]}, True, "wrong_value"),
        ({"enum": [1, "a"]}, 1.0, "wrong_value"),
        ({"secret": True}, "secret:db.password", None),
        ({"secret": True}, "hunter2", "secret_value"),
        ({"secret": True}, {"value": "hunter2"}, "secret_value"),
        ({}, None, None),
    ],
)
def test_a_value_is_checked_against_its_declaration(field, value, code):
    problems = check_inputs(parse(flow(inputs={"x": field})), {"x": value})

    assert [problem.code for problem in problems] == ([] if code is None else [code])
    assert not any("hunter2" in problem.message for problem in problems)


def test_required_inputs_are_asked_for_unknown_ones_refused_and_defaults_filled_in():
    definition = parse(flow(inputs={"a": {}, "b": {"default": 2}, "c": {"required": False}, "d": {"default": None}}))

    assert [(p.path, p.code) for p in check_inputs(definition, {"z": 1})] == [
        ("inputs.z", "unknown_input"),
        ("inputs.a", "missing_input"),
    ]
    assert check_inputs(definition, {"a": 1}) == []
    assert with_defaults(definition, {"a": 1}) == {"a": 1, "b": 2, "d": None}
