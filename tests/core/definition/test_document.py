"""The document: its forms, its canonical form, its hash and its schema."""

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.definition.builders import FULL, flow, found, task
from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.definition.document import accept, canonical, content_hash, json_schema, parse, validate
from tickwork.core.definition.model import Definition, Retry, Timeout
from tickwork.core.definition.problems import PROBLEMS_MAX

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "definition.schema.json"


@pytest.mark.proves("S001-04", "S001-05")
def test_a_document_with_every_kind_of_node_is_accepted():
    definition = accept(json.dumps(FULL).encode())

    assert [type(node).__name__ for node in definition.nodes[:3]] == ["HttpNode", "BranchNode", "TaskNode"]
    assert accept(FULL) == definition


@pytest.mark.proves("S001-06")
@pytest.mark.parametrize(
    ("written", "retry"),
    [
        (3, Retry(attempts=3)),
        ({}, Retry()),
        (
            {"attempts": 5, "delay": "10s", "delay_max": "1h"},
            Retry(attempts=5, delay_ms=10_000, delay_ms_max=3_600_000),
        ),
        ({"delay_ms": 7}, Retry(delay_ms=7)),
        (None, None),
    ],
)
def test_retries_are_declared_per_task_and_for_the_whole_workflow(written, retry):
    assert parse(flow(task(retry=written))).nodes[0].retry == retry
    if written is not None:
        assert parse(flow(defaults={"retry": written})).defaults.retry == retry


@pytest.mark.proves("S001-07")
@pytest.mark.parametrize(
    ("written", "timeout"),
    [
        ("5m", Timeout(running_ms=300_000)),
        (2_000, Timeout(running_ms=2_000)),
        ({"queued": "1h", "silent_ms": 5}, Timeout(queued_ms=3_600_000, silent_ms=5)),
        (None, None),
    ],
)
def test_timeouts_are_declared_per_task_and_for_the_whole_workflow(written, timeout):
    assert parse(flow(task(timeout=written))).nodes[0].timeout == timeout
    if written is not None:
        assert parse(flow(defaults={"timeout": written})).defaults.timeout == timeout
    assert parse(flow(timeout="1h")).timeout_ms == 3_600_000


@pytest.mark.proves("B1", "B2")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "json_empty"),
        (b"{", "json_syntax"),
        (b"[]", "wrong_type"),
        (b'"x"', "wrong_type"),
        (b"null", "wrong_type"),
        (b"[" * 100_000, "json_too_deep"),
        (b'{"name": "a", "name": "b", "nodes": []}', "json_duplicate_key"),
        ({"name": {"a", "b"}}, "json_type"),
    ],
)
def test_what_is_no_document_is_refused_before_it_is_read(data, code):
    with pytest.raises(Refused) as caught:
        parse(data)

    assert caught.value.code == code


@pytest.mark.proves("B4")
@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (flow(id="x"), ("id", "server_field")),
        (flow(tenant_id="x"), ("tenant_id", "server_field")),
        (flow(status="ok"), ("status", "server_field")),
        (flow(epoch=1), ("epoch", "server_field")),
        (flow(created_by="me"), ("created_by", "server_field")),
        (flow(task(status="ok")), ("nodes[0].status", "server_field")),
        (flow(task(created_by="x")), ("nodes[0].created_by", "server_field")),
        (flow(task(retry={"id": 1})), ("nodes[0].retry.id", "server_field")),
        (flow(nmae="x"), ("nmae", "unknown_field")),
        (flow(kind="task"), ("kind", "unknown_field")),
        (flow(task(source="x")), ("nodes[0].source", "unknown_field")),
        (flow(task(args={"a": {"source": "inputs"}})), ("nodes[0].args.a.source", "unknown_field")),
        (flow(task(retry={"attempts": "1"})), ("nodes[0].retry.attempts", "wrong_type")),
        (flow(task(retry={"attempts": True})), ("nodes[0].retry.attempts", "wrong_type")),
        (flow(task(retry={"attempts": 1.0})), ("nodes[0].retry.attempts", "wrong_type")),
        (flow(task(retry="3")), ("nodes[0].retry", "wrong_type")),
        (flow(task(retry=True)), ("nodes[0].retry", "wrong_type")),
        (flow(task(timeout=True)), ("nodes[0].timeout", "wrong_type")),
        (flow(task(timeout="soon")), ("nodes[0].timeout", "duration_syntax")),
        (flow(task(timeout="5m", timeout_ms=1)), ("nodes[0].timeout_ms", "unknown_field")),
        (flow(timeout="5m", timeout_ms=1), ("timeout", "given_twice")),
        (flow(timeout_ms="5m"), ("timeout_ms", "wrong_type")),
        (flow(timeout=1.5), ("timeout", "duration_type")),
        (flow(sla={"breach": "P1M"}), ("sla.breach", "duration_months")),
        (flow(sla={"warn": "1s"}), ("sla.breach_ms", "missing_field")),
        (flow(task(priority="5")), ("nodes[0].priority", "wrong_type")),
        (flow(task(needs="a")), ("nodes[0].needs", "wrong_type")),
        (flow(task(needs=[1])), ("nodes[0].needs[0]", "wrong_type")),
        (flow(task(args={"a": ["inputs.x"]})), ("nodes[0].args.a", "wrong_type")),
        (flow(task(args=[])), ("nodes[0].args", "wrong_type")),
        (flow(task(trigger="sometimes")), ("nodes[0].trigger", "wrong_value")),
        (flow(overlap="forbid"), ("overlap", "wrong_value")),
        (flow(7), ("nodes[0]", "wrong_type")),
        (flow({"id": "a"}), ("nodes[0].kind", "unknown_kind")),
        (flow({"kind": ["task"], "id": "a"}), ("nodes[0].kind", "unknown_kind")),
        (flow({"kind": "task", "id": "a"}), ("nodes[0].handler", "missing_field")),
        (
            flow({"kind": "map", "id": "a", "over": "inputs", "body": {"kind": "map"}}),
            ("nodes[0].body.kind", "unknown_kind"),
        ),
        ({"name": "x", "nodes": {}}, ("nodes", "wrong_type")),
        ({"name": "x"}, ("nodes", "missing_field")),
        ({"nodes": []}, ("name", "missing_field")),
        (flow(**{"a\nb\u202e": 1}), ("a\\nb\\u202e", "unknown_field")),
    ],
)
def test_a_wrong_form_is_refused_and_names_the_field(document, problem):
    with pytest.raises(InvalidDefinition) as caught:
        parse(document)

    assert [(one.path, one.code) for one in caught.value.problems] == [problem]


@pytest.mark.proves("B4")
def test_no_struct_of_the_document_takes_a_field_of_the_server():
    for part in json_schema()["$defs"].values():
        fields = part.get("properties", {})
        assert not {"tenant_id", "status", "epoch", "created_by", "created_at", "hash"} & set(fields), part["title"]
        assert "properties" not in part or part["additionalProperties"] is False, part["title"]


def test_all_problems_of_form_are_reported_together():
    document = flow(task(retry={"attempts": "1"}), task("b", priority=1.5, nope=1), 3, timeout="x", sla={})

    assert sorted(found(document)) == [
        ("nodes[0].retry.attempts", "wrong_type"),
        ("nodes[1].nope", "unknown_field"),
        ("nodes[1].priority", "wrong_type"),
        ("nodes[2]", "wrong_type"),
        ("sla.breach_ms", "missing_field"),
        ("timeout", "duration_syntax"),
    ]


def test_the_list_of_problems_is_bounded_and_says_so():
    problems = found(flow(*[task(f"n{number}", priority=99) for number in range(1_000)]))

    assert len(problems) == PROBLEMS_MAX + 1
    assert problems[-1] == ("", "more_problems")


def test_the_canonical_form_is_sorted_compact_and_without_defaults():
    document = flow(
        task(retry={"attempts": 1, "delay": "1s"}, args={}, trigger="all_succeeded", timeout="5m", priority=None),
        format=1,
        defaults={"queue": "default", "retry": {"factor": 2}},
        exits=[],
        overlap="Allow",
    )

    assert canonical(parse(document)) == (
        b'{"name":"flow","nodes":[{"handler":"work","id":"a","kind":"task","retry":{},"timeout":{"running_ms":300000}}]}'
    )


@pytest.mark.proves("B14")
def test_the_same_content_has_the_same_hash_however_it_is_written():
    short = parse(flow(task(timeout="5m", retry=3), timeout="1h"))
    long = parse(flow(task(retry={"attempts": 3, "factor": 2}, timeout={"running_ms": 300_000}), timeout_ms=3_600_000))

    assert content_hash(short) == content_hash(long)
    assert content_hash(short) == content_hash(parse(canonical(short)))


@pytest.mark.proves("B14")
@pytest.mark.parametrize(
    "changed",
    [
        flow(task(timeout="6m")),
        flow(task("b", timeout="5m")),
        flow(task(timeout="5m", handler_version="2")),
        flow(task(timeout="5m", args={"a": {"value": 1}})),
        flow(task(timeout="5m", args={"a": {"value": 1.0}})),
        flow(task(timeout="5m", args={"a": {"value": True}})),
        flow(task(timeout="5m", args={"a": {"value": None}})),
        flow(task(timeout="5m", retry={})),
        flow(task(timeout="5m"), description="x"),
    ],
)
def test_the_same_name_with_other_content_has_another_hash(changed):
    assert content_hash(parse(changed)) != content_hash(parse(flow(task(timeout="5m"))))
    assert content_hash(parse(changed)).startswith("sha256:")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aé\u2028\\"\n😀', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES, st.integers(1, 1_000), st.integers(0, 10**9), st.sampled_from(["all_done", "any_failed"]))
def test_reading_the_canonical_form_gives_the_same_definition(value, attempts, delay_ms, trigger):
    retry = {"attempts": attempts, "delay_ms": delay_ms}
    document = flow(
        task(args={"a": {"value": value}}, retry=retry, trigger=trigger),
        {"kind": "http", "id": "h", "url": "http://h", "body": value},
        inputs={"x": {"default": value}},
    )
    definition = parse(document)
    text = canonical(definition)

    assert parse(text) == definition
    assert canonical(parse(text)) == text


def test_a_document_with_everything_survives_its_canonical_form():
    definition = parse(FULL)

    assert parse(canonical(definition)) == definition


@given(st.data())
def test_any_mutilated_document_gives_problems_and_never_another_error(data):
    document = json.loads(json.dumps(FULL))
    holder, key = data.draw(st.sampled_from(list(spots(document))))
    holder[key] = data.draw(JSON_VALUES)
    with contextlib.suppress(Refused):
        validate(parse(document))


def spots(document):
    """Every (container, key) of a document."""
    todo = [document]
    for holder in todo:
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(value, dict | list):
                todo.append(value)


def test_the_published_schema_is_current():
    assert json.loads(SCHEMA_FILE.read_text()) == json_schema(), "run tools/schema.py"


@pytest.mark.parametrize("document", [FULL, flow(), flow(task(needs=[]), task("b", needs=["a"]))])
def test_every_valid_document_fits_the_published_schema(document):
    schema = json_schema()

    assert misfits(document, schema, schema) == []
    assert msgspec.json.decode(canonical(parse(document)), type=Definition) == parse(document)


@pytest.mark.parametrize("document", [flow(nope=1), flow({"kind": "task", "id": "a"}), flow(sla={}), {"name": "x"}])
def test_a_document_of_another_form_does_not_fit_the_published_schema(document):
    schema = json_schema()

    assert misfits(document, schema, schema) != []


TYPES = {"string": str, "integer": int, "object": dict, "array": list, "null": type(None), "boolean": bool}


def misfits(value, schema, root):
    """As much of JSON Schema as the published one uses."""
    wrong = []
    if "$ref" in schema:
        wrong += misfits(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and type(value) not in [TYPES[kind] for kind in kinds]:
        return [*wrong, (value, kinds)]
    if "enum" in schema and value not in schema["enum"]:
        wrong.append((value, "enum"))
    if "anyOf" in schema and all(misfits(value, one, root) for one in schema["anyOf"]):
        wrong.append((value, "anyOf"))
    if "oneOf" in schema and sum(not misfits(value, one, root) for one in schema["oneOf"]) != 1:
        wrong.append((value, "oneOf"))
    if isinstance(value, list) and "items" in schema:
        wrong += [misfit for item in value for misfit in misfits(item, schema["items"], root)]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        wrong += [(name, "missing") for name in schema.get("required", []) if name not in value]
        for name, item in value.items():
            inner = properties.get(name, others)
            wrong += [(name, "unknown")] if inner is False else misfits(item, inner, root) if inner is not True else []
    return wrong
