"""Strict JSON: what is refused, with which code, and that the work stays linear."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import LONG
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused

REFUSED = [
    (b"", "json_empty"),
    (b" \r\n\t", "json_empty"),
    (b"\xef\xbb\xbf{}", "json_bom"),
    ("{}".encode("utf-16"), "json_encoding"),
    ("{}".encode("utf-16-le"), "json_encoding"),
    ("{}".encode("utf-32-be"), "json_encoding"),
    (b'{"a": "\xff"}', "json_encoding"),
    (b'"\xed\xa0\x80"', "json_encoding"),  # a surrogate in UTF-8
    (b'"\xc0\xaf"', "json_encoding"),  # overlong
    (b"{} {}", "json_trailing_data"),
    (b"1,", "json_trailing_data"),
    (b"{", "json_syntax"),
    (b"]", "json_syntax"),
    (b"{'a': 1}", "json_syntax"),
    (b"[1,]", "json_syntax"),
    (b"[01]", "json_syntax"),
    (b"// note\n{}", "json_syntax"),
    (b'"tab\there"', "json_text"),
    (b'"\x00"', "json_encoding"),
    (b'["abcdef\x00"]', "json_text"),
    (b'["a\\u0000b"]', "json_text"),
    (b'{"\\u0000": 1}', "json_text"),
    (b'["\\ud800"]', "json_text"),
    (b'{"\\udc00": 1}', "json_text"),
    (b'[[{"a": ["\\ud83d x"]}]]', "json_text"),
    (b"NaN", "json_number"),
    (b"[Infinity]", "json_number"),
    (b"[-Infinity]", "json_number"),
    (b"[1e999]", "json_number"),
    (b"[-1e999]", "json_number"),
    (b"0." + b"1" * 5_000, "json_number"),
    (b"1" * 5_000, "json_integer"),
    (b"-" + b"9" * 5_000, "json_integer"),
    (b"18446744073709551616", "json_integer"),
    (b"-9223372036854775809", "json_integer"),
    (b'{"a": 1, "a": 1}', "json_duplicate_key"),
    (b'{"a": 1, "\\u0061": 2}', "json_duplicate_key"),
    (b'[{"b": {"a": 1, "c": 2, "a": 3}}]', "json_duplicate_key"),
    (b"[" * 65 + b"]" * 65, "json_too_deep"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "json_too_deep"),
    (b"[" * 100_000 + b"]" * 100_000, "json_too_deep"),
    (b"[" * 100_000, "json_too_deep"),
    (b'{"a":' * 100_000, "json_too_deep"),
]


@pytest.mark.proves("B1", "B2")
@pytest.mark.parametrize(("data", "code"), REFUSED, ids=[f"{code}-{i}" for i, (_, code) in enumerate(REFUSED)])
def test_a_faulty_document_is_refused_with_a_stable_code_and_a_short_message(data, code):
    with pytest.raises(Refused) as caught:
        strictjson.loads(data)

    assert caught.value.code == code
    assert 10 < len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" {} \n", {}),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"[1.5, -0.0, 1e3, true, null]", [1.5, -0.0, 1000.0, True, None]),
        (b'["\\ud83d\\ude00", "\\\\u0000", "[[[{{{"]', ["😀", "\\u0000", "[[[{{{"]),
        (b'"' + b"[" * 1_000 + b'"', "[" * 1_000),  # brackets in text are no nesting
        (b'"\\"' + b"[" * 1_000 + b'\\\\"', '"' + "[" * 1_000 + "\\"),
        (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
    ],
)
def test_a_proper_document_keeps_its_value(data, value):
    assert strictjson.loads(data) == value


def test_size_and_depth_limits_are_arguments():
    assert strictjson.loads(b"[[]]", bytes_max=4, depth_max=2) == [[]]

    with pytest.raises(Refused, match="5 bytes"):
        strictjson.loads(b"[[] ]", bytes_max=4)
    with pytest.raises(Refused, match="1 level"):
        strictjson.loads(b"[[]]", depth_max=1)


@pytest.mark.proves("B2")
def test_an_unclosed_string_of_escaped_quotes_costs_one_pass_only():
    with pytest.raises(Refused) as caught:
        strictjson.loads(b'"' + b'\\"' * 1_000_000)  # would take hours if the scan were quadratic

    assert caught.value.code == "json_syntax"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_every_proper_value_survives_the_round_trip(value, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert strictjson.loads(data) == value
    strictjson.check(value)


@given(st.binary(max_size=60) | st.text('[]{}",:\\u0d8e1-.NaI \n', max_size=60).map(str.encode))
def test_any_bytes_give_a_value_or_a_refusal_and_never_another_error(data):
    try:
        value = strictjson.loads(data)
    except Refused:
        return

    assert json.loads(data) == value


def looped() -> list:
    loop: list = []
    loop.append(loop)
    return loop


def bomb() -> list:
    level: list = ["x"] * 10
    for _ in range(20):
        level = [level] * 10
    return level


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (looped(), "json_too_deep"),
        (bomb(), "json_too_large"),
        ({1: 2}, "json_type"),
        ({"a": (1, 2)}, "json_type"),
        ([object()], "json_type"),
        ([b"x"], "json_type"),
        ([2**64], "json_integer"),
        ([math.nan], "json_number"),
        (["\ud800"], "json_text"),
        ({"\x00": 1}, "json_text"),
    ],
    ids=str.lower("loop bomb key tuple object bytes integer nan surrogate nul").split(),
)
def test_a_value_made_elsewhere_keeps_the_same_promises(value, code):
    with pytest.raises(Refused) as caught:
        strictjson.check(value, values_max=100_000)

    assert caught.value.code == code


_PIECES = (
    b"{", b"}", b'"', b":", b",", b"a", b" ", b"\\", b"[", b"]", b"1", b"null", b'"a"', b'"a":"b"', b"\x00", b"\x1f",
    b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "é".encode(), b'{"a":"b"}', b'"a":"b",', b'{"a":"b","a":"c"}',
)  # fmt: skip
_IN_PIECES = st.lists(st.sampled_from(_PIECES), max_size=9).map(b"".join)
_IN_QUOTES = st.binary(max_size=12).map(lambda inner: b'{"a":"' + inner + b'"}')


@given(data=_IN_PIECES | _IN_QUOTES)
@settings(max_examples=30_000 if LONG else 1_000, deadline=None)
def test_the_short_way_says_what_the_long_way_says(data):
    """Whatever it takes, it takes as the other would; what it does not take, it leaves to the other."""
    short = strictjson._short(data)

    if short is not None:
        assert strictjson.loads(data + b" " * strictjson.SHORT_BYTES_MAX) == short
