"""Rows of earlier formats, brought to today's.

A row keeps the bytes and the hash it was written with for ever; only its reader changes. One step per
format: a plain row (lists, numbers, texts) of format n to the same of format n + 1.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Corrupt, Newer

FORMAT = 1

Step = Callable[[list[Any]], list[Any]]
STEPS: dict[int, Step] = {}  # nothing older than format 1 was ever written


def upcast(version: int, row: list[Any], *, steps: dict[int, Step] = STEPS, to: int = FORMAT) -> list[Any]:
    if version > to:
        raise Newer(f"the journal is of format {version}, this version of tickwork reads up to {to}: upgrade it")
    while version < to:
        if version not in steps:
            raise Corrupt(f"nobody can read format {version} of the journal")
        row = steps[version](row)
        version += 1
    return row
