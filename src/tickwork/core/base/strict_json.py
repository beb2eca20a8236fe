"""Strict JSON: bytes to values, or one clear refusal.

Whatever gets through here can be stored, hashed, sent as MessagePack and written back without
surprises: finite numbers of at most 64 bits, no key twice, text that every encoder accepts, and
nesting that no reader trips over. The work is linear in the size of the document.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused

BYTES_MAX = 16 * 1024 * 1024
SHORT_BYTES_MAX = 512
DEPTH_MAX = 64
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1  # what MessagePack can carry
NUMBER_CHARACTERS_MAX = 400  # longer than any finite double needs, written out in full
VALUES_MAX = 4_000_000  # of a value made elsewhere, where shared parts could multiply

# The closing quote is optional and nothing is ever given back, so an unclosed string costs one pass too.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_INFINITY = float("inf")
_TEXTS = msgspec.json.Decoder(dict[str, str])
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def loads(data: bytes, *, bytes_max: int = BYTES_MAX, depth_max: int = DEPTH_MAX) -> Any:
    """The value of one JSON document in UTF-8. Raises `Refused`; nothing else gets out."""
    if len(data) > bytes_max:
        raise Refused("json_too_large", f"the document has {len(data)} bytes; at most {bytes_max} are accepted")
    if len(data) <= SHORT_BYTES_MAX and (short := _short(data)) is not None:
        return short
    text = _text(data)
    _refuse_deep(data, depth_max)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _syntax_refusal(error) from None
    if b"\\u" in data:  # only an escape can bring in a lone surrogate or a NUL
        check(value, depth_max=depth_max)
    return value


def _short(data: bytes) -> dict[str, str] | None:
    """A fast path for an object of plain texts, which is the most frequent input. Every text has two quotes, so the
    count is right only if no name occurs twice."""
    if b"\\" in data or b"{" in data[1:] or b"[" in data:
        return None
    try:
        texts = _TEXTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return texts if data.count(b'"') == 4 * len(texts) else None


def check_keys(data: bytes) -> None:
    """Refuse a duplicate key in an object of a document that is otherwise known to be valid."""
    try:
        _KEYS.decode(data.decode("utf-8"))
    except RecursionError:
        raise Refused("json_too_deep", "the document nests too deep; make it flatter") from None


def check(value: Any, *, depth_max: int = DEPTH_MAX, values_max: int = VALUES_MAX) -> None:
    """The same promises for a value that was made elsewhere, by a YAML reader or by hand."""
    level, left = [value], values_max
    for _ in range(depth_max + 1):
        left -= len(level)
        if left < 0:
            raise Refused("json_too_large", f"the document has more than {values_max} values")
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _too_deep(depth_max)


def _text(data: bytes) -> str:
    if not data.strip(b" \t\r\n"):
        raise Refused("json_empty", "the document is empty; send one JSON value")
    if data.startswith(b"\xef\xbb\xbf"):
        raise Refused("json_bom", "the document starts with a byte order mark; send UTF-8 without it")
    if data.startswith(_WIDE_MARKS) or b"\x00" in data[:4]:
        raise Refused("json_encoding", "the document looks like UTF-16 or UTF-32; send UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("json_encoding", f"byte {error.start} is not valid UTF-8; send UTF-8") from None


def _refuse_deep(data: bytes, depth_max: int) -> None:
    """Before the parser sees it, because the parser recurses."""
    depth = 0
    for bracket in _STRINGS.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += _STEPS[bracket]
        if depth > depth_max:
            raise _too_deep(depth_max)


def _too_deep(depth_max: int) -> Refused:
    return Refused("json_too_deep", f"the document nests deeper than {depth_max} levels; make it flatter")


def _syntax_refusal(error: json.JSONDecodeError) -> Refused:
    where = f"line {error.lineno}, column {error.colno}"
    if error.msg == "Extra data":
        return Refused("json_trailing_data", f"there is more after the end of the document, at {where}; remove it")
    if error.msg.startswith("Invalid control character"):
        return Refused("json_text", f"a control character at {where} stands bare in a string; escape or remove it")
    return Refused("json_syntax", f"not valid JSON at {where}: {error.msg}")


def _integer(digits: str) -> int:
    if len(digits) > 20:  # before int() sees it: converting is quadratic, and refused beyond 4,300 digits
        raise _integer_refusal(f"{digits[:20]}...")
    return _check_integer(int(digits))


def _check_integer(value: int) -> int:
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _integer_refusal("one of them")
    return value


def _integer_refusal(shown: str) -> Refused:
    return Refused("json_integer", f"integers have at most 64 bits, {shown} has more; send it as a string")


def _number(digits: str) -> float:
    if len(digits) > NUMBER_CHARACTERS_MAX:
        raise Refused("json_number", f"the number {digits[:20]}... is too long; send it as a string")
    return _check_number(float(digits))


def _check_number(value: float) -> float:
    if not -_INFINITY < value < _INFINITY:  # false for NaN too
        raise Refused("json_number", "a number is not finite or too large for a double; send it as a string")
    return value


def _constant(word: str) -> Any:
    raise Refused("json_number", f"{word} is not a JSON number; use null or a string")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Refused("json_duplicate_key", f"the key {_first_twice(pairs)!a} is given twice in one object; keep one")
    return members


def _first_twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key[:100]
        seen.add(key)
    raise AssertionError("called only when a key is there twice")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


_KEYS = json.JSONDecoder(object_pairs_hook=_object, parse_int=len, parse_float=len)  # numbers are not checked


def _children(value: Any) -> Iterator[Any]:
    """The parts of one checked value; scalars have none."""
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is dict:
        for key in value:
            _check_key(key)
        yield from value.values()
    elif kind is list:
        yield from value
    elif kind is int:
        _check_integer(value)
    elif kind is float:
        _check_number(value)
    elif value is not None and kind is not bool:
        raise Refused("json_type", f"{kind.__name__} is not a JSON type; use text, numbers, lists and objects")


def _check_key(key: Any) -> None:
    if type(key) is not str:
        raise Refused("json_type", f"the key {key!a:.100} is not text; put it in quotes")
    _check_text(key)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise Refused("json_text", "a string contains a NUL character; remove it")
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("json_text", "a string contains half of a surrogate pair; send whole characters") from None
