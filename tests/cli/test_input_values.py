"""Inputs from the command line."""

import io
from types import SimpleNamespace

import pytest

import tickwork as tw
from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.input_values import read_inputs, read_payload


@pytest.mark.parametrize(
    ("pair", "found"),
    [
        ("a=1", 1),
        ("a=1.5", 1.5),
        ("a=true", True),
        ("a=null", None),
        ("a=[1, 2]", [1, 2]),
        ('a={"b": 1}', {"b": 1}),
        ('a="1"', "1"),
        ("a=text", "text"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ],
)
def test_a_value_is_json_or_else_text(pair, found):
    assert read_inputs([pair], None, None) == {"a": found}


def test_a_parameter_that_is_text_gets_the_text_as_it_stands():
    @tw.workflow(name="inputs_text")
    def flow(zip_code: str, maybe: str | None = None, count: int = 1) -> str:
        return tw.task(str)(zip_code)

    found = read_inputs(["zip_code=01234", "maybe=5", "count=7"], None, flow)

    assert found == {"zip_code": "01234", "maybe": "5", "count": 7}


def test_all_inputs_as_a_document(tmp_path, monkeypatch):
    path = tmp_path / "inputs.json"
    path.write_text('{"a": [1]}')
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"b": 2}')))

    assert read_inputs([], '{"c": 3}', None) == {"c": 3}
    assert read_inputs([], f"@{path}", None) == {"a": [1]}
    assert read_inputs([], "-", None) == {"b": 2}


@pytest.mark.proves("B25")
@pytest.mark.parametrize(
    ("pairs", "document", "stdin"),
    [
        (["a"], None, b""),
        (["=1"], None, b""),
        (["a=1", "a=2"], None, b""),
        (["a=1"], "{}", b""),
        ([], "[1]", b""),
        ([], "{", b""),
        ([], "@missing", b""),
        ([], "@.", b""),
        ([], "-", b"\xff\xfe\x00binary"),
        ([], "[" * 100_000, b""),
    ],
)
def test_what_is_no_input_is_wrong_usage(pairs, document, stdin, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
    with pytest.raises(CommandExit) as ended:
        read_inputs(pairs, document, None)

    assert ended.value.code == Exit.USAGE


def test_the_payload_of_an_event_is_a_value_or_a_document(tmp_path, monkeypatch):
    path = tmp_path / "payload.json"
    path.write_text('{"a": [1]}')
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"[2]")))

    assert (read_payload(None, None), read_payload("5", None), read_payload("text", None)) == (None, 5, "text")
    assert (read_payload(None, f"@{path}"), read_payload(None, "-"), read_payload(None, "3")) == ({"a": [1]}, [2], 3)


@pytest.mark.parametrize(("text", "document"), [("1", "2"), (None, "text"), (None, "@/no/such/file")])
def test_a_payload_that_cannot_be_read_says_which_option(text, document):
    with pytest.raises(CommandExit, match="--payload-json") as ended:
        read_payload(text, document)
    assert ended.value.code == Exit.USAGE
