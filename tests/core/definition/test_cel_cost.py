"""The size that is computed before an evaluation is never below the size of what the evaluation makes."""

from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import LONG
from tickwork.core.definition import cel_cost as conditioncost
from tickwork.core.definition.cel import _ENV
from tickwork.core.definition.cel_cost import TooCostly, check_cost, weight_of
from tickwork.core.definition.cel_tree import Tree

DATA = {
    "inputs": {"t": "ab c", "e": "", "l": ["x", "yy", ""], "n": [1, 2, 3], "m": {"k": "vvv", "w": ["q"]}, "z": None},
}
TEXTS = ["inputs.t", "inputs.e", "'lit'", "string(12345)", "inputs.m.k", "inputs.?m.?k.orValue('dd')"]
LISTS = [
    "inputs.l",
    "['a', inputs.t]",
    "inputs.t.split('')",
    "inputs.t.split(' ')",
    "inputs.m.w",
    "inputs.l.filter(q, q != '')",
]


@st.composite
def texts(draw, depth=3):
    if depth == 0:
        return draw(st.sampled_from(TEXTS))
    inner, other = draw(texts(depth - 1)), draw(texts(depth - 1))
    return draw(
        st.sampled_from(
            [
                inner,
                f"({inner} + {other})",
                f"{inner}.replace({other}, {inner})",
                f"{inner}.upperAscii().trim()",
                f"({inner} == {other} ? {inner} : {other})",
                f"{draw(lists(depth - 1))}.join({inner})",
                f"{draw(lists(depth - 1))}.map(v{depth}, v{depth} + {inner}).join('-')",
            ]
        )
    )


@st.composite
def lists(draw, depth=3):
    if depth == 0:
        return draw(st.sampled_from(LISTS))
    inner = draw(lists(depth - 1))
    return draw(
        st.sampled_from(
            [
                inner,
                f"({inner} + {draw(lists(depth - 1))})",
                f"{inner}.map(u{depth}, u{depth} + u{depth})",
                f"{inner}.map(u{depth}, u{depth} + {draw(texts(depth - 1))})",
                f"{inner}.filter(u{depth}, u{depth} != 'x')",
                f"{draw(texts(depth - 1))}.split({draw(texts(depth - 1))})",
                f"[{draw(texts(depth - 1))}, {draw(texts(depth - 1))}]",
            ]
        )
    )


@given(st.one_of(texts(), lists()))
@settings(max_examples=1_000 if LONG else 100, deadline=None)
def test_no_value_is_larger_than_the_size_that_was_computed_for_it(text):
    tree = Tree(_ENV.compile(text).serialize())
    try:
        bound = conditioncost._weight(conditioncost._Estimate(tree.overloads(), DATA).weigh(tree.root, {}, 1))
    except TooCostly:
        return
    answer = _ENV.deserialize(tree.prepared()).eval(data=DATA)
    if answer.type() != cel.Type.ERROR:
        real = weight_of(answer.plain_value())
        assert (real.size <= bound.size, real.items <= bound.items) == (True, True), text
    check_cost(tree.root, tree.overloads(), DATA)  # the prepared tree is within the limits as well
