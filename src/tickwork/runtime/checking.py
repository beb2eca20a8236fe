"""Whether a store is what it was: every checksum, every hash of the journal, and the rows against a fold of it.

Nothing is changed and nothing is repaired. The first damage that is found ends the check of its partition.
"""

from collections.abc import Callable

import msgspec

from tickwork.core.errors import Corrupt
from tickwork.core.machine import Machine
from tickwork.core.snapshot import digest, restore
from tickwork.core.zones import Zones
from tickwork.journal.record import GENESIS, unseal
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.store import Loaded, Store
from tickwork.ports.upkeep import Batch
from tickwork.runtime.archive import Archives
from tickwork.runtime.recovery import settings_of

ROWS_PER_READ = 256


class PartitionCheck(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    seq: int
    hash: str
    verified: int  # rows of the journal whose place in the chain is right
    archived: int  # of them in the archive
    folded: bool  # the rows were compared with a fold of the journal
    damage: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    rows: dict[str, int]  # read, by table
    partitions: tuple[PartitionCheck, ...]
    damage: str = ""  # outside of any partition

    @property
    def sound(self) -> bool:
        return not self.damage and not any(one.damage for one in self.partitions)


async def check(store: Store, artifacts: Artifacts, zones: Zones, say: Callable[[str, int], None]) -> Checked:
    rows: dict[str, int] = {}
    numbers: list[int] = []

    async def take(batch: Batch) -> None:
        rows[batch.table] = rows.get(batch.table, 0) + len(batch.rows)
        if batch.table == "partitions":
            numbers.extend(row[0] for row in batch.rows)
        say(batch.table, rows[batch.table])

    damage = ""
    try:
        await store.export(take)
    except Corrupt as error:
        damage = str(error)
    archives = Archives(store, artifacts)
    found = [await _partition(store, archives, number, zones, say) for number in numbers]
    return Checked(rows=rows, partitions=tuple(found), damage=damage)


async def _partition(
    store: Store, archives: Archives, number: int, zones: Zones, say: Callable[[str, int], None]
) -> PartitionCheck:
    head, verified, archived, folded, damage = await store.read_head(number), 0, 0, False, ""
    try:
        loaded = await store.load(number)
        head = loaded.head  # a server may have gone on meanwhile
        cut = await store.journal_cut(number)
        seq, hash_ = 0, GENESIS
        machine: Machine | None = Machine(settings=settings_of(loaded.settings), zones=zones)
        if cut and await store.journal_archive(number, seq=1) is None:  # its beginning is too old to be kept
            machine = None
            seq, hash_ = await _oldest(store, number, cut)
        while seq < head.seq:
            for sealed in await archives.journal(number, after=seq, limit=ROWS_PER_READ):
                if seq == head.watermark:
                    folded = _compare(loaded, machine, zones)
                row = unseal(sealed, hash_)
                if machine is not None:
                    machine.fold(row.tick, row.inputs, row.events)
                seq, hash_, verified = sealed.seq, sealed.hash, verified + 1
                archived += sealed.seq <= cut
            say(f"partition {number}", seq)
        if seq == head.watermark:
            folded = _compare(loaded, machine, zones)
        if hash_ != head.hash:
            damage = f"the journal ends with another hash than the head of partition {number} names"
    except Corrupt as error:
        damage = str(error)
    except Exception as error:  # events that cannot be applied are damage as well
        damage = f"the journal of partition {number} cannot be folded: {type(error).__name__}: {error}"
    return PartitionCheck(
        partition=number, seq=head.seq, hash=head.hash.hex(), verified=verified, archived=archived, folded=folded,
        damage=damage,
    )  # fmt: skip


async def _oldest(store: Store, partition: int, cut: int) -> tuple[int, bytes]:
    """Behind which row the archive begins, and the hash of that one."""
    first = await store.journal_archive(partition, seq=cut)
    if first is None:
        raise Corrupt(f"nobody knows the hash of seq {cut}, behind which the journal begins")
    while (earlier := await store.journal_archive(partition, seq=first.first - 1)) is not None:
        first = earlier
    return first.first - 1, first.before


def _compare(loaded: Loaded, machine: Machine | None, zones: Zones) -> bool:
    if machine is None or not loaded.header:
        return False
    rows = (loaded.documents, loaded.live_runs, loaded.live_tasks, loaded.schedules)
    state = restore(loaded.header, *rows, zones=zones)
    if digest(state) != digest(machine.state):
        raise Corrupt(f"the rows at seq {loaded.head.watermark} are not what the journal makes of them")
    return True
