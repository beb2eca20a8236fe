"""How many: a few seeds and examples for each `make test`, all of them for `make long`.

What a seed once found is a test of its own and runs always; here are those that have found nothing yet.
"""

import os

LONG = os.environ.get("TICKWORK_LONG") == "1"


def seeds(first: int, *, few: int, many: int) -> range:
    return range(first, first + (many if LONG else few))


def examples(*, few: int, many: int) -> int:
    return many if LONG else few
