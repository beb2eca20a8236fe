"""An extract answers a condition as the whole value does."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel import Condition, ConditionFailed
from tickwork.core.definition.cel_extracts import EXTRACT_BYTES_MAX, Need, extract, read_extract

CONDITIONS = [
    "results.f.a == 1",
    "results.f.a.b > 1",
    "results.f == null",
    "results.f.a != null",
    "has(results.f.a) && results.f.b == results.f.a",
    "size(results.f) == 2",
    "size(results.f.a) > 1",
    "'a' in results.f",
    "'a' in results.f.b",
    "results.f.all(x, x.a == 1)",
    "results.f.exists(x, x == 'a')",
    "results.f.a.filter(x, x.b == 1).size() == 1",
    "results.f.filter(x, x.a == 1)[0].b == 2",
    "results.f.map(x, x.a).exists(y, y == 1)",
    "results.f[1].a == 2",
    "results.f.?a.?b.orValue(3) == 3",
    "results.f[inputs.k] == 1",
    "results[inputs.n].a == 1",
    "results.exists(n, results[n] == null)",
    "results.f.a.lowerAscii() == 'a'",
    "(results.f.a == 1 ? results.f.b : results.f.a) == 2",
    "results.f.all(k, results.f[k] == 1)",
    "[results.f.a, results.f.b] == [1, 2]",
    "{'x': results.f.a} == {'x': 1}",
    "type(results.f) == string",
]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b", "A", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "k"]), inner, max_size=3),
    max_leaves=10,
)


def answer(condition, results):
    try:
        return condition.holds({"results": results, "inputs": {"k": "a", "n": "f"}})
    except ConditionFailed:
        return "failed"


@given(st.sampled_from(CONDITIONS), PLAIN)
@settings(max_examples=1_500, deadline=None)
def test_a_condition_answers_from_an_extract_as_from_the_whole(text, value):
    condition = Condition.compile(text)
    whole = {"f": value}

    taken = read_extract(extract(msgspec.msgpack.encode(whole), condition.needs["results"], what="f"))

    assert answer(condition, taken) == answer(condition, whole)


@pytest.mark.parametrize("text", ["results.f.a == 1", "size(results.f.big) == 9", "results.f.rows.all(x, x.ok)"])
def test_an_extract_holds_little_of_a_large_value(text):
    rows = [{"ok": True, "text": "x" * 1_000}] * 100
    value = {"f": {"a": 1, "big": ["x" * 100_000] * 9, "rows": rows, "more": "x" * 100_000}}

    packed = extract(msgspec.msgpack.encode(value), Condition.compile(text).needs["results"], what="f")

    assert len(packed) < 1_000
    assert answer(Condition.compile(text), read_extract(packed)) is True


def test_the_length_of_a_long_list_is_read_without_its_items():
    condition = Condition.compile("size(results.f) == 1000000")
    packed = extract(msgspec.msgpack.encode({"f": [0] * 1_000_000}), condition.needs["results"], what="f")

    assert len(packed) < 20
    assert answer(condition, read_extract(packed)) is True


def test_an_extract_that_is_too_large_is_refused_with_its_limit():
    need = Need()
    need.mark_whole()
    with pytest.raises(Refused, match=str(EXTRACT_BYTES_MAX)):
        extract(msgspec.msgpack.encode("x" * EXTRACT_BYTES_MAX), need, what="f")
