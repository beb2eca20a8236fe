"""The reading order around `tw.first`: what stands below a racer does not wait for it."""

from tickwork.sdk.authoring.graph_builder import Builder, NodeRecord


class RaceOrder:
    """In `tw.first(tw.event("paid"), tw.wait("3d"))` the wait stands below the event, and does not wait for it.

    Barriers that lead to one racer only belong to it: the other racers do not wait for them, and what follows waits for
    the end of the race instead.
    """

    def __init__(self, racers: list[NodeRecord]) -> None:
        self._above = [_made_from(racer) for racer in racers]
        racer_of: dict[NodeRecord, int] = {}
        shared: set[NodeRecord] = set()
        for number, records in enumerate(self._above):
            shared.update(record for record in records if record in racer_of)
            racer_of |= dict.fromkeys(records, number)
        self._racer_of = {record: number for record, number in racer_of.items() if record not in shared}

    def apply(self, builder: Builder, made: NodeRecord) -> None:
        orders = [
            (record, *self._order_of(record, number))
            for number, records in enumerate(self._above)
            for record in records
        ]
        barrier, _ = self._past(builder.scope.barrier, -1)
        if barrier is not builder.scope.barrier:
            made.barrier, builder.scope.barrier = barrier, made
        for record, own_barrier, before in orders:
            record.barrier, record.before = own_barrier, before

    def _order_of(self, record: NodeRecord, number: int) -> tuple[NodeRecord | None, list[NodeRecord]]:
        barrier, more = self._past(record.barrier, number)
        if not record.is_barrier:
            return barrier, record.before
        before = [entry for entry in (*record.before, *more) if self._racer_of.get(entry, number) == number]
        return barrier, list(dict.fromkeys(before))

    def _past(self, barrier: NodeRecord | None, number: int) -> tuple[NodeRecord | None, list[NodeRecord]]:
        """The next barrier above that belongs to no other racer, and what the skipped ones waited for."""
        before: list[NodeRecord] = []
        while barrier is not None and self._racer_of.get(barrier, number) != number:
            before += barrier.before
            barrier = barrier.barrier
        return barrier, before


def _made_from(record: NodeRecord) -> list[NodeRecord]:
    """Return the record and everything that it takes values from or comes after."""
    reached = {record: None}
    for entry in (todo := [record]):  # grows while it is walked
        read = [root for value in entry.values() if isinstance(root := value._tw_root, NodeRecord)]
        fresh = [other for other in dict.fromkeys([*entry.branches, *read, *entry.needs]) if other not in reached]
        reached |= dict.fromkeys(fresh)
        todo += fresh
    return list(reached)
