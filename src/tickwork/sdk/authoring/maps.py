"""What a map goes over beside one list: `tw.zip`, `tw.product` and `tw.entries`.

Each of them only names its parts. Inside a workflow these are values to come and the server makes the items; outside
of one they are lists, and a map is a plain loop over what `itertools` would give.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any, TypeVar

from tickwork.core.definition.model import MAP_LISTS_MAX, Combine
from tickwork.sdk.authoring.placeholders import Condition, Value
from tickwork.sdk.authoring.source_location import placed

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Combined:
    """Several lists whose items a map takes together. `names` are parameters; empty: the first ones that are free."""

    combine: Combine
    lists: tuple[Any, ...]
    names: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self.combine is Combine.ZIP:
            return iter(builtins.zip(*self.lists, strict=True))
        return iter(combinations(*self.lists))


@dataclass(frozen=True, slots=True)
class Entries:
    """A dict whose keys and values a map takes together."""

    mapping: Any


def zip_lists(*lists: Iterable[Any], **named: Iterable[Any]) -> Combined:
    """The first items of several lists together, then the second ones: `ship.map(tw.zip(orders, addresses))`.

    Each list goes to one parameter: the first ones that are not given otherwise, or those named here, as in
    `tw.zip(order=orders, address=addresses)`. Lists of different lengths make the map fail, and the error names them.
    """
    made = _combined(Combine.ZIP, "zip", lists, named)
    lengths = [len(items) for items in made.lists if isinstance(items, list | tuple)]
    if len(set(lengths)) > 1:
        message = f"tw.zip takes lists of one length, and these have {' and '.join(map(str, lengths))} items"
        raise placed("unequal_lists", f"{message}; tw.product takes every combination")
    return made


def product(*lists: Iterable[Any], **named: Iterable[Any]) -> Combined:
    """Every combination of the items of several lists: `train.map(tw.product(rate=rates, depth=depths))`.

    The last list changes fastest. Parameters are as in `tw.zip`. The server stores no list of the combinations.
    """
    return _combined(Combine.PRODUCT, "product", lists, named)


def entries(mapping: Mapping[str, Any], /) -> Entries:
    """Each key of a dict with its value: `check.map(tw.entries(prices))` gives a dict with the same keys.

    Key and value go to the first two parameters that are not given otherwise. Keys come in sorted order.
    """
    if isinstance(mapping, Mapping | Value):
        return Entries(mapping)
    raise placed("bad_map", f"tw.entries takes a dict, not {mapping!r}")


def _combined(combine: Combine, what: str, lists: tuple[Any, ...], named: Mapping[str, Any]) -> Combined:
    given = (*lists, *named.values())
    if lists and named:
        raise placed("bad_map", f"tw.{what} takes its lists by position or by the names of parameters, not both")
    if not 2 <= len(given) <= MAP_LISTS_MAX:
        raise placed("bad_map", f"tw.{what} takes 2 to {MAP_LISTS_MAX} lists, not {len(given)}; map one list itself")
    held = tuple(
        items if isinstance(items, Value | Condition | list | tuple) else _listed(items, what) for items in given
    )
    return Combined(combine, held, tuple(named))


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise placed("bad_map", f"tw.{what} takes lists, not {value!r}")
    return list(value)


# ---- for the map


def parts_of(over: Any) -> tuple[Combine, tuple[Any, ...], tuple[str, ...], int]:
    """How a map takes its items, what it goes over, the parameters that are named, and how many get a part."""
    if isinstance(over, Combined):
        return over.combine, over.lists, over.names, len(over.lists)
    if isinstance(over, Entries):
        return Combine.ENTRIES, (over.mapping,), (), 2
    return Combine.EACH, (over,), (), 1


def parameters_for(over: Any, constants: Mapping[str, Any], item_name: Callable[[dict[str, Any]], str]) -> list[str]:
    """The parameters that take the parts of an item. `item_name` gives the first that is not taken."""
    _, _, named, count = parts_of(over)
    if twice := [name for name in named if name in constants]:
        raise placed("bad_map", f"the parameter {twice[0]} is given twice, as a list and by itself")
    names = list(named)
    while len(names) < count:
        names.append(item_name({**constants, **dict.fromkeys(names)}))
    return names


def plain_loop(over: Any, names: list[str], call: Callable[[dict[str, Any]], R]) -> "list[R] | dict[str, R]":
    """A map outside of a workflow."""
    if isinstance(over, Entries):
        mapping = over.mapping
        pairs = [(key, mapping[key]) for key in sorted(mapping)]
        return {pair[0]: call(dict(builtins.zip(names, pair, strict=True))) for pair in pairs}
    if isinstance(over, Combined):
        return [call(dict(builtins.zip(names, parts, strict=True))) for parts in over]
    return [call({names[0]: item}) for item in over]
