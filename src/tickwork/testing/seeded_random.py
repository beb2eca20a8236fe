"""Chance from one integer seed, in streams that do not disturb each other.

Each stream is seeded by a hash of the seed and its name, so one draw more in one place shifts nothing anywhere
else. Everything is built on `getrandbits`, whose numbers are the same in every version of Python; `shuffle`,
`choice` and `sample` are not used because their algorithms may change.
"""

from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from random import Random
from typing import Self, TypeVar

T = TypeVar("T")
PPM = 1_000_000


class Chance:
    def __init__(self, seed: int, name: str = "") -> None:
        self.seed = seed
        self.name = name
        text = f"{seed}/{name}".encode()
        self.bits = Random(int.from_bytes(blake2b(text, digest_size=16).digest(), "big")).getrandbits  # noqa: S311  (a simulation wants a seed)

    def stream(self, name: str) -> Self:
        """An independent stream: drawing from it changes nothing here."""
        return type(self)(self.seed, f"{self.name}/{name}")

    def below(self, limit: int) -> int:
        """A number in [0, limit), each equally likely."""
        assert limit > 0, "there is no number below this limit"
        wide = limit.bit_length()
        while (drawn := self.bits(wide)) >= limit:
            pass
        return drawn

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def happens(self, share: float) -> bool:
        """True in this share of the cases; exact to a millionth."""
        return self.below(PPM) < round(share * PPM)

    def pick(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]

    def some(self, things: Sequence[T], count: int) -> list[T]:
        """So many of them, without repetition, in their own order."""
        places = list(range(len(things)))
        self.mix(places)
        return [things[index] for index in sorted(places[:count])]

    def mix(self, things: MutableSequence[T]) -> None:
        """Into any order, in place."""
        for index in range(len(things) - 1, 0, -1):
            other = self.below(index + 1)
            things[index], things[other] = things[other], things[index]

    def delay_ns(self, mean_ns: int) -> int:
        """Mostly around the mean, sometimes many times as long, never zero: 1/8 to 1x, doubled with probability 1/2
        again and again. Integers only, so that no machine rounds it differently."""
        span = max(mean_ns, 8)
        low = span // 8 + self.below(span - span // 8)
        doublings = 0
        while doublings < 6 and self.bits(2) == 0:
            doublings += 1
        return low << doublings
