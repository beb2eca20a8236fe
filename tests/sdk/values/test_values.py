"""Values of users: what travels, what comes back, and what is refused in which words."""

import enum
import math
import socket
import sys
import time
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as daytime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.sdk.values.signature_codec import EMPTY_MAP, BadArguments, Codec, Unsendable, encode, plain


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Size(enum.StrEnum):
    SMALL = "small"


@dataclass
class Row:
    name: str
    at: datetime
    where: Path = Path("x")
    tags: list[str] = field(default_factory=list)


class Packed(msgspec.Struct, rename="camel", tag=True):
    row_count: int
    where: Path


class Shape(TypedDict):
    width: int
    path: str


class Pair(NamedTuple):
    left: int
    right: str


class Order(BaseModel):
    id: uuid.UUID
    at: datetime
    lines: list[int] = []


NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))
ID = uuid.UUID(int=7)

ROUND_TRIPS = [
    (int, 3), (int, 2**63), (str, "ä"), (float, 1.5), (bool, True), (None, None), (Any, {"a": [1, None]}),
    (list[int], [1, 2]), (tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2)), (set[int], {3, 1}),
    (frozenset[str], frozenset(["a"])), (dict[str, float], {"a": 1.0}), (datetime, NOON),
    (datetime, NOON.replace(microsecond=5)), (datetime, datetime(2026, 1, 2, tzinfo=EAST)), (date, date(2026, 1, 2)),
    (daytime, daytime(3, 4)), (timedelta, timedelta(days=2, microseconds=3)), (Decimal, Decimal("1.10")),
    (uuid.UUID, ID), (Path, Path("a/b")), (list[Path], [Path("a")]), (Colour, Colour.RED), (Colour, Colour.BLUE),
    (Size, Size.SMALL), (bytes, b"\x00\xff"), (Row, Row("a", NOON, Path("y"), ["t"])), (list[Row], [Row("a", NOON)]),
    (Packed, Packed(2, Path("z"))), (Shape, {"width": 1, "path": "a"}), (Pair, Pair(1, "b")),
    (Order, Order(id=ID, at=NOON, lines=[1])), (list[Order], [Order(id=ID, at=NOON)]), (dict[str, Order], {}),
    (int | None, None), (Order | None, None), (Order | None, Order(id=ID, at=NOON)), (datetime | str, NOON),
    (datetime | str, "not a time"), (str | datetime, NOON), (Row | Order, Order(id=ID, at=NOON)),
    (Path | None, Path("a")),
    (Path | int, 3), (Path | int, Path("q")), (list[datetime | int], [NOON, 3]), (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(ge=1)], 3), (object, [1]), (dict[str, list[Path | int]], {"k": [Path("a"), 1]}),
    (set[Path | int], {Path("a")}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), ROUND_TRIPS, ids=lambda one: str(one)[:40])
def test_a_value_arrives_as_it_was_sent(kind, value):
    def function(x): ...

    function.__annotations__ = {"x": kind}
    back = Codec.of(function).unpack(encode({"x": value}))["x"]

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (deque([1]), [1]),
        (range(2), [0, 1]),
        (OrderedDict(a=1), {"a": 1}),
        ({Size.SMALL: 1}, {"small": 1}),
        ({"b", "a"}, ["a", "b"]),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(seconds=30))), "2026-01-02T02:59:30Z"),
        (Packed(1, Path("a")), {"type": "Packed", "rowCount": 1, "where": "a"}),
    ],
)
def test_what_is_nearly_plain_becomes_plain(value, expected):
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"rows": [1, 2, 3, object()]}, "result['rows'][3]", "an object cannot travel"),
        ([float("nan")], "result[0]", "nan"),
        ([1.0, math.inf], "result[1]", "inf"),
        ({1: 2}, "result[1]", "only text can be a key"),
        ({(1, 2): 2}, "result[(1, 2)]", "a tuple"),
        ("\ud800", "result", "surrogate"),
        (["a", "a\x00"], "result[1]", "NUL"),
        (2**64, "result", "64 bits"),
        (datetime(2026, 1, 1), "result", "without a zone"),
        (Row("a", datetime(2026, 1, 1)), "result.at", "without a zone"),
        ((n for n in ()), "result", "a list first"),
        (Packed(1, object()), "result", "object"),
        (lambda: 1, "result", "a function cannot travel"),
        (Row, "result", "cannot travel"),
    ],
)
def test_what_cannot_travel_is_named_with_its_place(value, path, words):
    with pytest.raises(Unsendable) as caught:
        encode(value)

    assert caught.value.path == path
    assert words in str(caught.value)


def test_a_socket_cannot_travel():
    with socket.socket() as it, pytest.raises(Unsendable, match=r"a socket\.socket cannot travel; send"):
        encode({"it": it})


def test_a_coroutine_that_nobody_awaited_is_recognised():
    async def forgotten(): ...

    coroutine = forgotten()
    with pytest.raises(Unsendable, match="never awaited"):
        encode(coroutine)
    coroutine.close()


def test_a_value_that_contains_itself_is_refused():
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(Unsendable, match="contains itself"):
        encode(loop)


def test_equal_values_are_equal_bytes():
    assert encode({"b": 1, "a": {3, 1, 2}}) == encode({"a": {2, 1, 3}, "b": 1})


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


@given(TREES)
def test_whatever_is_encoded_passes_the_strict_reader(value):
    try:
        data = encode(value)
    except Unsendable:
        return

    strictjson.check(msgspec.msgpack.decode(data))


def score(path: str, *, weight: float = 1.0, tags: list[str] | None = None) -> float:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "score: no value for path"),
        ({"path": 5}, r"score: path is declared as str, but an int is not a str; it came as 5"),
        ({"path": "a", "wieght": 1}, "score has no parameter 'wieght'; it has: path, weight, tags"),
        ({"path": "a", "weight": "1"}, "weight is declared as float"),
        ({"path": "a", "tags": ["a", 1]}, r"tags is declared as .*expected str, got int at \[1\]"),
    ],
)
def test_a_wrong_argument_is_named(raw, words):
    with pytest.raises(BadArguments, match=words):
        Codec.of(score).arguments(raw)


def test_arguments_that_travel_in_parts_arrive_whole():
    def function(rows: list[int], row: dict[str, Any], taken: str, n: int): ...

    raw = {"rows.1": 2, "rows.0": 1, "row.a": 1, "row.b.0": 3, "taken.-0": None, "taken.-1": "b", "n": 4}
    whole = {"rows": [1, 2], "row": {"a": 1, "b": [3]}, "taken": "b", "n": 4}
    assert Codec.of(function).arguments(raw) == whole
    with pytest.raises(BadArguments, match="has no parameter 'other'"):
        Codec.of(function).arguments({**raw, "other.0": 1})


def test_defaults_are_left_to_the_function():
    assert Codec.of(score).arguments({"path": "a"}) == {"path": "a"}
    assert Codec.of(score).arguments({"path": "a", "weight": 2}) == {"path": "a", "weight": 2.0}


def test_a_default_of_none_lets_none_through():
    def function(x: int = None): ...  # noqa: RUF013 - what people write

    assert Codec.of(function).arguments({"x": None}) == {"x": None}


def test_an_instant_without_a_zone_is_refused():
    def function(at: datetime): ...

    with pytest.raises(BadArguments, match="zone"):
        Codec.of(function).arguments({"at": "2026-01-02T03:04:05"})


@pytest.mark.parametrize(("stars", "words"), [("args", r"\*args.*a list"), ("kwargs", r"\*\*kwargs.*a dict")])
def test_arguments_without_a_name_are_refused_with_the_reason(stars, words):
    def args(*args): ...
    def kwargs(**kwargs): ...

    with pytest.raises(Refused, match=words) as caught:
        Codec.of(locals()[stars])

    assert "test_values.py:" in str(caught.value)


def test_a_name_that_is_defined_later_or_outside_is_found():
    class Local(msgspec.Struct):
        x: int

    def function(a: "Local", b: "Later") -> "Local":
        return Local(1)

    assert Codec.of(function).arguments({"a": {"x": 1}, "b": {"y": 2}}) == {"a": Local(1), "b": Later(2)}


class Later(msgspec.Struct):
    y: int


def test_a_name_that_nobody_defines_is_refused_by_name():
    def function(a: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(Refused, match=r"parameter a cannot be found.*Nowhere"):
        Codec.of(function).arguments({"a": 1})


def test_a_result_becomes_its_declared_type():
    def function() -> list[Row]:
        raise NotImplementedError

    value = [Row("a", NOON)]
    assert Codec.of(function).result(plain(value)) == value


def test_a_call_without_values_costs_next_to_nothing():
    def function() -> None: ...

    codec = Codec.of(function)
    rounds, best, trace = 2_000, math.inf, sys.gettrace()
    sys.settrace(None)  # coverage costs more than what is measured
    try:
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(rounds):
                codec.unpack(EMPTY_MAP)
                encode(None)
            best = min(best, (time.perf_counter() - began) / rounds)
    finally:
        sys.settrace(trace)

    assert best < 1e-6
