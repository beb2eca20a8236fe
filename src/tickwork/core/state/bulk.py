"""Bulk operations: one action on each run of a frozen selection, with a report of what became of each."""

import msgspec

ACTIONS = ("cancel", "pause", "resume", "retry", "rerun")
JOBS_MAX = 10  # of one tenant that go on
ENDED_MAX = 50  # reports that are kept
SAMPLES_MAX = 20  # refused runs that a report names
RATE_MAX = 1_000  # runs a second
# The run is not what it was when it was selected: somebody or something else was first.
CHANGED = ("changed_since", "illegal_move", "unknown_run")


class BulkOperation(msgspec.Struct, array_like=True, gc=False):
    id: str
    by: str
    action: str
    selection: str
    count: int
    criteria: str
    per_second: int
    reason: str
    started: int  # tick
    position: int = 0  # of the next run
    done: int = 0
    changed: int = 0
    refused: dict[str, int] = {}  # by code
    samples: list[tuple[str, str]] = []  # refused runs and codes, the first ones
    ended: int = 0  # tick
    cancelled: str = ""  # by whom and why
