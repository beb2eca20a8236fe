"""The items of a map: how many there are, and which one has a number.

A map over several lists stores no combination of them. Its item with the number `index` is made of one item of each
list, and where these are follows from the lengths alone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import EncryptedValue, Ref, Value, unpack
from tickwork.core.definition.cel_extracts import EXTRACT_BYTES_MAX
from tickwork.core.definition.model import Combine, MapNode
from tickwork.core.state.evaluation_context import (
    ELSEWHERE,
    OF_LENGTH,
    reference,
    resolve,
    resolved_by,
    stored_value,
)
from tickwork.core.state.state import Run


class MapItems(NamedTuple):
    """How many items a map has; over the entries of an object also its keys, in order."""

    total: int
    keys: tuple[str, ...] | None = None


def items_of(run: Run, node: MapNode) -> MapItems:
    """Raises `Refused`, and `ExtractMissing` where the shell has to look."""
    if node.combine is Combine.ENTRIES:
        keys = _keys_over(run, node.over)
        return MapItems(len(keys), keys)
    lengths = [_length_over(run, source) for source in node.sources]
    if node.combine is Combine.PRODUCT:
        total = 1
        for length in lengths:
            total *= length
        return MapItems(total)
    for source, length in zip(node.others, lengths[1:], strict=True):
        if length != lengths[0]:
            message = f"{node.over} has {lengths[0]} items and {source} has {length}"
            raise Refused("unequal_lists", f"{message}; zip takes lists of one length, product any")
    return MapItems(lengths[0])


def positions(combine: Combine, index: int, lengths: Sequence[int]) -> list[int]:
    """Where in each list the parts of an item are."""
    if combine is not Combine.PRODUCT:
        return [index] * len(lengths)
    positions = []
    for length in reversed(lengths):
        index, position = divmod(index, length)
        positions.append(position)
    return positions[::-1]


def item_names(run: Run, node: MapNode, index: int) -> dict[str, Any]:
    """What the body of a map may name beside inputs and nodes."""
    stored = [stored_value(run, reference(run, source)) for source in node.sources]
    if any(isinstance(value, Ref | EncryptedValue) for value in stored):
        return {"index": index, "item": ELSEWHERE}
    values = [resolve(run, source) for source in node.sources]
    if node.combine is Combine.EACH:
        return {"index": index, "item": values[0][index]}
    if node.combine is Combine.ENTRIES:
        key = sorted(values[0])[index]
        return {"index": index, "item": [key, values[0][key]]}
    where = positions(node.combine, index, [len(value) for value in values])
    return {"index": index, "item": [value[position] for value, position in zip(values, where, strict=True)]}


def turn_names(iteration: int, previous: Value) -> dict[str, Any]:
    """What the body of a repeat may name."""
    here = previous is None or isinstance(previous, bytes)
    return {"iteration": iteration, "previous": unpack(previous, what="previous") if here else ELSEWHERE}


def _length_over(run: Run, source: str) -> int:
    ref = reference(run, source)
    stored = stored_value(run, ref)
    if ref.root == "nodes" and not ref.walk and isinstance(stored, Ref):
        if stored.items is not None:
            return stored.items
        raise _no_list(source)
    value = resolved_by(run, source, f"{OF_LENGTH}{source}")
    if not isinstance(value, list):
        raise _no_list(source)
    return len(value)


def _no_list(source: str) -> Refused:
    return Refused("not_a_list", f"{source} is not a list, so a map cannot fan out over it")


def _keys_over(run: Run, source: str) -> tuple[str, ...]:
    try:
        value = resolved_by(run, source, f"{OF_LENGTH}{source}")
    except Refused as refused:
        if refused.code != "extract_too_large":
            raise
        message = f"the keys of {source} have more than {EXTRACT_BYTES_MAX:,} bytes together"
        raise Refused("too_many_keys", f"{message}; map over a list of pairs instead") from None
    if not isinstance(value, dict):
        raise Refused("not_an_object", f"{source} is not an object, so it has no entries that a map could go over")
    return tuple(sorted(value))
