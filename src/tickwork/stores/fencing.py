"""Fencing: how a store refuses the writes of an owner that has been replaced.

1. `Store.claim` raises the epoch of a partition by one and gives it to the new owner.
2. Whatever an owner writes names its epoch. The store compares it with the latest one in the same transaction, and
   `commit` also compares the seq: of two writers of one epoch only the first gets through.
3. An older epoch gets `Fenced`. Its owner drops the partition and writes nothing more (`runtime/partition`).

A lease only chooses who claims; if two nodes hold one, the epoch still decides. These are the errors of the third step.
"""

from tickwork.ports.store import Fenced


def commit_fenced(partition: int, epoch: int, *, seq: int) -> Fenced:
    return Fenced(f"partition {partition}: epoch {epoch} may not write seq {seq}: another owner wrote first")


def rows_fenced(partition: int, epoch: int, *, through: int) -> Fenced:
    return Fenced(f"partition {partition}: epoch {epoch} may not write rows through seq {through}")


def not_the_owner(partition: int, epoch: int) -> Fenced:
    return Fenced(f"partition {partition}: epoch {epoch} is not the owner's")


def journal_needed(partition: int, *, watermark: int) -> Fenced:
    """Rows behind the watermark may leave the journal, and no others."""
    return Fenced(f"partition {partition}: the journal is needed from seq {watermark} on")
