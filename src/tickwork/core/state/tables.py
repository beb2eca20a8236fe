"""Tables that never stop a partition: many small dicts instead of a large one, which would take long to grow."""

from collections import defaultdict
from collections.abc import ItemsView, Iterator
from typing import Generic, TypeVar
from zlib import crc32

import msgspec

T = TypeVar("T")
BLOCK_BITS = 12  # a block has numbers that differ in these bits only
_SHARDS = 256


class NumberTable(Generic[T]):
    """Values by number, in one small dict per block of neighbouring numbers.

    No insert is ever slow, because no dict ever grows large, and no two grow at the same moment.
    """

    __slots__ = ("blocks",)

    def __init__(self) -> None:
        self.blocks: defaultdict[int, dict[int, T]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks.values())

    def get(self, number: int) -> T | None:
        block = self.blocks.get(number >> BLOCK_BITS)
        return None if block is None else block.get(number)

    def __getitem__(self, number: int) -> T:
        return self.blocks[number >> BLOCK_BITS][number]

    def add(self, number: int, value: T) -> None:
        assert number not in self, "a number is used once"
        self.blocks[number >> BLOCK_BITS][number] = value

    def remove(self, number: int) -> None:
        block = self.blocks[number >> BLOCK_BITS]
        del block[number]
        if not block:
            del self.blocks[number >> BLOCK_BITS]

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def values(self) -> list[T]:
        """Return all values by number. For snapshots and checks, never for a tick."""
        return [value for _, value in sorted(pair for block in self.blocks.values() for pair in block.items())]


class NameTable(Generic[T]):
    """Values by name, spread over small dicts by a stable checksum."""

    __slots__ = ("last", "shard", "shards")

    def __init__(self) -> None:
        self.shards: list[dict[str, T]] = [{} for _ in range(_SHARDS)]
        self.last, self.shard = "", self.shards[0]

    def of(self, name: str) -> dict[str, T]:
        """Return the shard of a name. Most callers need it twice in a row: to look the name up, and to add it."""
        if name is not self.last:
            self.last, self.shard = name, self.shards[crc32(name.encode()) & 255]
        return self.shard

    def get(self, name: str) -> T | None:
        return self.of(name).get(name)

    def add(self, name: str, value: T) -> None:
        self.of(name)[name] = value

    def remove(self, name: str) -> None:
        del self.of(name)[name]

    def items(self) -> Iterator[tuple[str, T]]:
        yield from sorted((pair for shard in self.shards for pair in shard.items()), key=_name)

    def values(self) -> list[T]:
        """Return all values by name. For queries and checks, never for a tick."""
        return [value for _, value in self.items()]


def _name(pair: tuple[str, object]) -> str:
    return pair[0]


class OneEntry(msgspec.Struct, Generic[T], frozen=True, gc=False, eq=False):
    """A table with one entry. Most are, and a dict takes four times as much."""

    number: int
    value: T

    def keys(self) -> tuple[int, ...]:
        return (self.number,)

    def items(self) -> ItemsView[int, T]:
        return {self.number: self.value}.items()

    def values(self) -> tuple[T, ...]:
        return (self.value,)

    def get(self, number: int) -> T | None:
        return self.value if number == self.number else None

    def __getitem__(self, number: int) -> T:
        if number != self.number:
            raise KeyError(number)
        return self.value

    def __iter__(self) -> Iterator[int]:
        return iter((self.number,))

    def __len__(self) -> int:
        return 1

    def __contains__(self, number: object) -> bool:
        return number == self.number


SmallTable = dict[int, T] | OneEntry[T]


def with_entry(table: SmallTable[T] | None, number: int, value: T) -> SmallTable[T]:
    """The table with this entry. A dict is changed in place, because it may be large."""
    if not table or (isinstance(table, OneEntry) and table.number == number):
        return OneEntry(number, value)
    if isinstance(table, OneEntry):
        return {table.number: table.value, number: value}
    table[number] = value
    return table


def without_entry(table: SmallTable[T], number: int) -> SmallTable[T] | None:
    """The table without this entry; None where nothing is left. A dict is changed in place."""
    if isinstance(table, OneEntry):
        assert table.number == number, "what is removed is there"
        return None
    del table[number]
    return table or None
