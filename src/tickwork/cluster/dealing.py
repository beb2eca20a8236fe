"""How a worker's credit is dealt out to partitions, so that their sum never exceeds it. Pure functions."""

from collections.abc import Sequence


def split_credit(credit: int, held: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """A share for each partition, what it holds included. What is held stays; of what is free, those that want more
    get equal parts first, up to what they want, and the rest is spread over all. One that gets nothing and comes to
    want something says so."""
    shares = list(held)
    free = credit - sum(held)
    hungry = [place for place, more in enumerate(wanted) if more > 0]
    left = {place: wanted[place] for place in hungry}
    while free > 0 and left:
        part = max(1, free // len(left))
        for place in list(left):
            give = min(part, left[place], free)
            shares[place] += give
            free -= give
            left[place] -= give
            if not left[place]:
                del left[place]
    count = len(shares)
    if free > 0 and count:
        each, rest = divmod(free, count)
        for place in range(count):
            shares[place] += each + (place < rest)
    return shares
