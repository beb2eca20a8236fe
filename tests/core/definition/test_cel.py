"""Conditions answer, refuse or fail: never guess, never hang, never depend on the machine."""

import importlib.metadata
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel import (
    HTTP_VARIABLES,
    KEY_VARIABLES,
    RULES,
    RUN_VARIABLES,
    SNAPSHOT_DEPTH_MAX,
    TEXT_LENGTH_MAX,
    Condition,
    ConditionFailed,
)

SNAPSHOT = {
    "inputs": {"n": 3, "text": "abc", "ratio": 1.5, "none": None, "raw": b"x", "list": [1, 2], "map": {"b": 1, "a": 2}},
    "results": {"fetch": {"rows": 7}, "load-all": [1]},
    "outcome": {"fetch": "succeeded", "load-all": "failed"},
    "events": [{"name": "opened", "key": "k", "payload": {"n": 1}, "at_ms": 5}],
    "run": {"id": "r1", "workflow": "w", "submitted_ms": 1, "started_ms": 2, "priority": 5},
    "clock": {"now_ms": 1_000, "tick": 1_000},
    "iteration": 2,
    "last": {"done": True},
    "status": 200,
    "body": {"ok": True},
    "item": "x",
}
TEN = "[0,1,2,3,4,5,6,7,8,9]"


def nested(rounds):
    inner = "true"
    for name in "abcdefghijklmnop"[:rounds]:
        inner = f"{TEN}.all({name}, {inner})"
    return inner


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("inputs.n > 2 && inputs.text == 'abc'", True),
        ("inputs.n == 3.0", True),
        ("inputs.ratio < inputs.n", True),
        ("inputs.none == null", True),
        ("inputs.raw == b'x'", True),
        ("inputs['n'] == 4", False),
        ("has(inputs.n)", True),
        ("has(inputs.absent)", False),
        ("has(inputs.none)", True),
        ("has(inputs.absent) && inputs.absent > 1", False),
        ("inputs.n > 2 || inputs.absent > 1", True),  # an error counts only where it decides
        ("'fetch' in results && !('other' in results)", True),
        ("results.fetch.rows >= 7", True),
        ("outcome['load-all'] == 'failed'", True),
        ("outcome.all(id, outcome[id] == 'succeeded')", False),
        ("events.exists(e, e.name == 'opened' && e.payload.n == 1)", True),
        ("size(events) == 1", True),
        ("run.priority > 4 && run.id.startsWith('r')", True),
        ("clock.now_ms - run.submitted_ms > 500", True),
        ("iteration >= 2 && last.done", True),
        ("status == 200 && body.ok", True),
        ("item in ['x', 'y']", True),
        ("inputs.list.map(x, x * 2) == [2, 4]", True),
        ("inputs.map.map(key, key) == ['a', 'b']", True),
        ("inputs.text.matches('^[a-c]+$')", True),
        ("type(inputs.n) == int", True),
        ("timestamp(0).getHours() == 0", True),
        ("[1].all(results, results == 1)", True),
    ],
)
def test_a_condition_answers_from_its_snapshot(text, answer):
    assert Condition.compile(text).holds(SNAPSHOT) is answer


@pytest.mark.proves("B13")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("a" * (TEXT_LENGTH_MAX + 1), "characters"),
        ("1 +", "line 1, column 4"),
        ("inputs.n >\n\n ) 3", "line 3, column 2"),
        ("nope == 1", "undeclared reference to 'nope'"),
        ("__import__('os')", "__import__"),
        ("import os", "line 1, column 1"),
        ("open('x')", "open"),
        ("(lambda: 1)()", "Syntax error"),
        ("[x for x in inputs]", "Syntax error"),
        ("while true", "line 1, column 1"),
        ("10 ** 10", "Syntax error"),
        ("pow(10, 10)", "pow"),
        ("now()", "now"),
        ("timestamp()", "timestamp"),
        ("getenv('HOME')", "getenv"),
        ("random()", "random"),
        ("iteration + 'a' == 'b'", "no matching overload"),
        ("'a'.matches('(a')", "regular expression"),
        ("inputs.text.matches('((a{1,100}){1,100}){1,100}')", "repetition"),
        ("timestamp(0).getHours('Europe/Berlin') == 1", "time zone"),
        ("google.protobuf.Int64Value{value: 1} == 1", "cannot make"),
        ("@ordered(inputs) == []", "Syntax error"),
        ("(" * 1_000 + "1" + ")" * 1_000, "recursion limit"),
        ("inputs" + ".a" * 1_000, "recursion depth"),
        ("'\ud800' == inputs.text", ""),
        (nested(10), "too much data"),
        ("'%.100000000f'.format([1.0]) == ''", "not available"),
        ("['a'].map(x, x + x)" + ".map(x, x + x)" * 24 + " == []", "too much data"),
        ("['a']" + ".map(x, x.replace('', x))" * 9 + " == []", "too much data"),
    ],
)
def test_what_is_outside_the_grammar_is_refused_at_once(text, reason):
    before = time.process_time()
    with pytest.raises(Refused) as refused:
        Condition.compile(text, path="nodes.a.when")

    assert (refused.value.code, refused.value.path) == ("bad_condition", "nodes.a.when")
    assert reason in refused.value.message
    assert time.process_time() - before < 5


@pytest.mark.proves("B13")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("inputs.absent == 1", "Key not found"),
        ("inputs.__class__ == 1", "Key not found"),
        ("inputs.text.__class__ == 1", "SELECT"),
        ("inputs.n.real == 3", "SELECT"),
        ("inputs.text + 1 == 2", "No matching overloads"),
        ("1 / (inputs.n - 3) == 1", "divide by zero"),
        ("inputs.n * 9223372036854775807 > 1", "overflow"),
        ("inputs.list[5] == 1", "index"),
        ("inputs.n", "not true or false"),
        ("'true'", "not true or false"),
        ("inputs.none", "not true or false"),
        ("inputs.text.matches(inputs.text + '(')", "regular expression"),
        ("inputs.n.all(x, true)", "No matching overloads"),
        (nested(5), "budget"),
        ("inputs.list.all(x, " + nested(5) + ")", "budget"),
    ],
)
def test_what_cannot_be_answered_is_an_error_and_never_false(text, reason):
    condition = Condition.compile(text)
    before = time.process_time()
    with pytest.raises(ConditionFailed) as failed:
        condition.holds(SNAPSHOT)

    assert failed.value.code == "condition_failed"
    assert reason.lower() in failed.value.message.lower()
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "values",
    [
        {"n": 2**64},
        {"n": -(2**63) - 1},
        {"n": "\ud800"},
        {"n": object()},
        {"n": (1, 2)},
        None,
    ],
)
def test_a_value_that_is_not_plain_data_fails_the_condition(values):
    with pytest.raises(ConditionFailed):
        Condition.compile("inputs.n == 1").holds({"inputs": values})


def test_a_variable_missing_from_the_snapshot_fails_the_condition():
    with pytest.raises(ConditionFailed, match="iteration"):
        Condition.compile("iteration == 1").holds({})


@pytest.mark.proves("B13", "S8")
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*)(.*)(.*)(.*)[^a]{500}$", "^(a|aa)+$"])
def test_a_catastrophic_pattern_takes_linear_time(pattern):
    condition = Condition.compile("inputs.text.matches(inputs.pattern)")
    before = time.process_time()
    held = condition.holds({"inputs": {"text": "a" * 100_000 + "!", "pattern": pattern}})

    assert held is False
    assert time.process_time() - before < 5


@pytest.mark.proves("B13")
@pytest.mark.parametrize(
    "text",
    [
        "inputs.list.all(x, inputs.list == inputs.list)",
        "inputs.list.all(x, x in inputs.list)",
        "inputs.list.map(x, inputs.text + inputs.text) == []",
        "inputs.list.all(x, inputs.text.matches('(a|b)*c'))",
        "inputs.list.all(x, inputs.list.all(y, inputs.list.all(z, true)))",
    ],
)
def test_a_loop_that_reads_much_in_every_round_is_stopped_before_it_starts(text):
    snapshot = {"inputs": {"list": list(range(9_000)), "text": "ab" * 32_000}}
    before = time.process_time()
    with pytest.raises(ConditionFailed, match="too much data"):
        Condition.compile(text).holds(snapshot)

    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    "text",
    [
        "[inputs.text]" + ".map(x, x + x)" * 15 + ".size() == 1",
        "inputs.list.map(x, string(x))" + ".map(x, x + x)" * 12 + ".size() == 100",
        "[inputs.list]" + ".map(x, x + x)" * 15 + ".size() == 1",
        "[inputs.list]" + ".map(x, [x, x])" * 14 + ".size() == 1",
        "[inputs.text]" + ".map(x, x.replace('', x))" * 2 + ".size() == 1",
        "[inputs.text]" + ".map(x, [x, x].join(x))" * 8 + ".size() == 1",
        "[inputs.map.?t.orValue('')]" + ".map(x, x + x)" * 15 + ".size() == 1",
    ],
)
def test_a_condition_that_would_need_much_memory_is_refused_before_it_is_evaluated(text):
    condition = Condition.compile(text)
    snapshot = {"inputs": {"list": list(range(100)), "text": "ab" * 500, "map": {"t": "ab" * 500}}}
    with pytest.raises(ConditionFailed, match="too much data") as failed:
        condition.holds(snapshot)

    assert failed.value.code == "condition_too_costly"


@pytest.mark.parametrize(
    "text",
    [
        "[1]" + ".map(x, x + x)" * 20 + "[0] == 1048576",
        "inputs.list.map(x, x + x).map(x, x + x).filter(x, x > 4).size() == 98",
        "inputs.list.map(x, string(x) + inputs.text).exists(x, x == '7' + inputs.text)",
        "inputs.words.split(' ').map(x, x.trim().lowerAscii() + x).size() == 1000",
    ],
)
def test_ordinary_work_with_lists_and_texts_is_within_the_limits(text):
    snapshot = {"inputs": {"list": list(range(100)), "text": "ab" * 500, "words": " ".join(["Word"] * 1_000)}}

    assert Condition.compile(text).holds(snapshot)


@pytest.mark.parametrize(
    "text",
    [
        "results.fetch.?rows.orValue(0) == 7",
        "results.fetch.?other.orValue(0) == 0",
        "results.?other.?rows.orValue(5) == 5",
        "inputs.none.?a.?b.orValue(1) == 1",
        "inputs[?'none'].hasValue()",
        "!inputs.?absent.hasValue()",
        "inputs.map.?a.optMap(n, n + 1).orValue(0) == 3",
        "inputs.list[?7].orValue(-1) == -1",
        "' A,b '.trim().lowerAscii().split(',') == ['a', 'b']",
        "inputs.text.replace('b', '-') == 'a-c' && inputs.text.upperAscii() == 'ABC'",
        "['a', 'b'].join('+') == 'a+b'",
    ],
)
def test_optional_access_and_functions_of_texts_belong_to_the_language(text):
    assert Condition.compile(text).holds(SNAPSHOT)


def test_a_long_list_is_no_trouble_when_each_round_reads_its_own_element():
    snapshot = {"inputs": {"list": [{"id": n, "ok": True} for n in range(9_000)]}}

    assert Condition.compile("inputs.list.all(x, x.ok && x.id >= 0)").holds(snapshot)


def test_a_list_longer_than_the_budget_fails():
    with pytest.raises(ConditionFailed, match="budget"):
        Condition.compile("inputs.list.all(x, x == 0)").holds({"inputs": {"list": [0] * 10_001}})


@pytest.mark.parametrize(
    ("depth", "fits"), [(SNAPSHOT_DEPTH_MAX, True), (SNAPSHOT_DEPTH_MAX + 1, False), (100_000, False)]
)
def test_a_deep_value_fails_instead_of_ending_the_process(depth, fits):
    value = 1
    for _ in range(depth):
        value = [value]
    condition = Condition.compile("last == last")

    if fits:
        assert condition.holds({"last": value})
    else:
        with pytest.raises(ConditionFailed, match="nested deeper"):
            condition.holds({"last": value})


@pytest.mark.parametrize(
    ("text", "names", "nodes"),
    [
        ("true", (), ()),
        ("results.b.x > results['a'].y && outcome.c == 'x'", ("outcome", "results"), ("a", "b", "c")),
        ("has(results.a) || 'b' in outcome", ("outcome", "results"), ("a", "b")),
        ("size(results) > 1", ("results",), None),
        ("results[inputs.which] == 1", ("inputs", "results"), None),
        ("results.a == 1 && results.exists(k, k == 'b')", ("results",), None),
        ("[1].all(results, results == 1)", (), ()),
        ("results.a.all(results, results.b == 1)", ("results",), ("a",)),
        ("events.exists(inputs, inputs.name == run.id)", ("events", "run"), ()),
        ("type(last) == string", ("last",), ()),
        (".results.a == 1", ("results",), ("a",)),
    ],
)
def test_a_condition_says_what_it_reads(text, names, nodes):
    condition = Condition.compile(text)

    assert (condition.names, condition.nodes) == (names, nodes)


@pytest.mark.parametrize(("allowed", "text"), [(RUN_VARIABLES, "iteration > 1"), (HTTP_VARIABLES, "inputs.n == 1")])
def test_a_condition_reads_only_what_its_place_allows(allowed, text):
    with pytest.raises(Refused, match="cannot be read here"):
        Condition.compile(text, allowed=allowed)


def test_what_is_not_in_the_snapshot_is_invisible_and_the_snapshot_stays_as_it_was():
    condition = Condition.compile("events.exists(e, e.name == 'late')", allowed=RUN_VARIABLES)
    snapshot = {"events": [{"name": "early"}]}
    later = {"events": [*snapshot["events"], {"name": "late"}]}

    assert (condition.holds(snapshot), condition.holds(later), condition.holds(snapshot)) == (False, True, False)
    assert snapshot == {"events": [{"name": "early"}]}


@pytest.mark.parametrize(
    ("text", "value"), [("inputs.text", "abc"), ("inputs.n + 1", 4), ("inputs.text + string(inputs.n)", "abc3")]
)
def test_a_key_is_a_text_or_an_integer(text, value):
    assert Condition.compile(text, allowed=KEY_VARIABLES).value(SNAPSHOT) == value


@pytest.mark.parametrize("text", ["inputs.ratio", "inputs.n > 1", "inputs.list", "inputs.none", "inputs.absent"])
def test_anything_else_is_no_key(text):
    with pytest.raises(ConditionFailed):
        Condition.compile(text).value(SNAPSHOT)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
QUESTIONS = [
    "inputs.map(k, k).size() > 0 && inputs.map(k, k)[0] == 'a'",
    "inputs.filter(k, inputs[k] != null).map(k, inputs[k])[0] == inputs.a",
    "inputs.exists_one(k, inputs[k] == 1)",
    "inputs.a > inputs.b",
    "inputs.a.map(k, k)[0] == inputs.b",
    "inputs.all(k, has(inputs.a) && k >= 'a')",
]


def told(condition, snapshot):
    try:
        return condition.holds(snapshot)
    except ConditionFailed as failed:
        return failed.message


@pytest.mark.proves("P20")
@given(st.dictionaries(st.text(max_size=4) | st.sampled_from("ab"), plain, max_size=6), st.sampled_from(QUESTIONS))
def test_the_same_snapshot_gives_the_same_answer_in_any_order_of_keys(inputs, text):
    condition = Condition.compile(text)
    turned = dict(reversed(inputs.items()))

    first = told(condition, {"inputs": inputs})
    assert all(told(condition, {"inputs": again}) == first for again in (inputs, turned, inputs, turned))


@pytest.mark.proves("P20")
def test_a_loop_over_a_map_goes_the_same_way_in_every_process():
    program = (
        "from tickwork.core.definition.cel import Condition\n"
        "snapshot = {'inputs': {chr(97 + n * 7 % 26): n for n in range(26)}}\n"
        'print(Condition.compile("string(inputs.map(k, inputs[k])[0]) + inputs.map(k, k)[25]").value(snapshot))\n'
    )
    answers = [
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)} for seed in "12")
    ]

    assert answers == ["0z\n", "0z\n"]


def test_the_rules_in_the_journal_name_the_installed_library():
    major, minor, *_ = importlib.metadata.version("cel-expr-python").split(".")

    assert f"cel-expr-python {major}.{minor}" == RULES
