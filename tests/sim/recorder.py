"""What the stores of a run accepted, in the order in which they did, and which node believed to own what: written down
beside them, for the checkers.

A store that lies about its own journal is found by comparing the two.
"""

from dataclasses import dataclass, field

from tickwork.journal.record import SealedRow


@dataclass(frozen=True, slots=True)
class Grant:
    partition: int
    epoch: int
    owner: str
    at: int  # number in the trace


@dataclass(frozen=True, slots=True)
class Commit:
    partition: int
    epoch: int
    owner: str
    row: SealedRow
    at: int
    at_ns: int = 0  # true time


@dataclass(frozen=True, slots=True)
class RowsWritten:
    partition: int
    epoch: int
    owner: str
    through: int
    at: int


@dataclass(slots=True)
class Belief:
    """A partition ticks at a node, from when it was taken up until it is let go, in true time."""

    partition: int
    owner: str
    begin_ns: int
    end_ns: int | None = None  # None: it still does


@dataclass(slots=True)
class Journals:
    written: list[Grant | Commit | RowsWritten] = field(default_factory=list)
    acknowledged: list[Commit] = field(default_factory=list)  # the owner was told so
    beliefs: list[Belief] = field(default_factory=list)

    def commits(self, partition: int) -> list[Commit]:
        return [item for item in self.written if isinstance(item, Commit) and item.partition == partition]

    def partitions(self) -> list[int]:
        return sorted({item.partition for item in self.written})
