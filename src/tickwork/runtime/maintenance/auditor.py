"""The auditor follows a journal, decides it again, and compares the hash of every tick.

An auditor owns no partition and writes nothing into the one it follows. It stops at the first difference: it raises an
alarm, stops dispatching for the partition, so that no work starts from a wrong decision, and writes a reproduction that
runs without the store. It does the same if the journal loses rows that it has seen.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.machine import Machine
from tickwork.core.state.state import Settings
from tickwork.journal import reproduction
from tickwork.journal.record import GENESIS, Row, SealedRow, unseal
from tickwork.journal.reproduction import Divergence, Reproduction, StateBefore
from tickwork.ports.store import Head, Store
from tickwork.ports.system import Clock
from tickwork.runtime.partition.recovery import at_watermark
from tickwork.runtime.storage.store_retry import retry_until_available

ROWS_PER_STEP = 64
POLL_S = 0.25
SNAPSHOT_ROWS = 2_000  # between two states that a reproduction can be built from; more where the state is large
REASON_CHARACTERS_MAX = 400


class JournalSource(Protocol):
    """The source of a journal; a store provides it."""

    async def read_head(self, partition: int) -> Head: ...

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]: ...


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    seq: int
    text: str
    reproduction: str = ""  # its name; "": there is nothing to decide again
    inputs: int = 0  # that are enough for it
    held: bool = False  # dispatch of the partition is


class AuditProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an auditor is."""

    partition: int
    seq: int
    hash: str
    rows: int  # decided again and found equal
    folded: int  # of other rules, so only folded
    lag_rows: int
    lag_ms: int
    difference: Difference | None = None


class AuditStart(msgspec.Struct, frozen=True):
    """Where an auditor begins: a machine as it stood after `seq`."""

    machine: Machine
    seq: int = 0
    hash: bytes = GENESIS


Hold = Callable[[int, str], Awaitable[None]]
Leave = Callable[[str, bytes], Awaitable[None]]


class Auditor:
    def __init__(
        self,
        source: JournalSource,
        partition: int,
        start: AuditStart,
        *,
        zones: Zones,
        clock: Clock,
        hold: Hold,
        keep: Leave,
        on_alarm: Callable[[str, str], None] = lambda _kind, _text: None,
    ) -> None:
        self.partition = partition
        self.difference: Difference | None = None
        self.rows = self.folded = 0
        self._source = source
        self._zones = zones
        self._clock = clock
        self._hold = hold
        self._keep = keep
        self._on_alarm = on_alarm
        self._machine, self._seq, self._hash = start.machine, start.seq, start.hash
        self._epoch = 0  # the highest that was seen
        self._end = start.seq
        self._kept = (self._seq, self._hash, reproduction.before(self._machine))

    # ---- from outside

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def lag_rows(self) -> int:
        return max(0, self._end - self._seq)

    def view(self) -> AuditProgress:
        settled_ms = self._machine.state.settings.clock.ms_of(self._machine.state.tick)
        lag_ms = max(0, self._clock.wall_ms() - settled_ms) if self.lag_rows else 0
        return AuditProgress(
            partition=self.partition,
            seq=self._seq,
            hash=self._hash.hex(),
            rows=self.rows,
            folded=self.folded,
            lag_rows=self.lag_rows,
            lag_ms=lag_ms,
            difference=self.difference,
        )

    async def follow(self) -> Difference:
        """Follow until there is a difference. An unreachable source is retried."""
        while self.difference is None:
            if not await retry_until_available(self.step):
                await asyncio.sleep(POLL_S)
        return self.difference

    async def catch_up(self) -> Difference | None:
        """Audit the rows that exist now."""
        while self.difference is None and await self.step():
            pass
        return self.difference

    async def step(self) -> int:
        """Compare some rows; how many were equal. 0 where nothing is left, or a difference was found."""
        if self.difference is not None:
            return 0
        head = await self._source.read_head(self.partition)
        if head.seq < self._seq or head.epoch < self._epoch:
            await self._went_back(head)
            return 0
        self._end, self._epoch = head.seq, head.epoch
        if head.seq == self._seq:
            return 0
        equal = 0
        for sealed in await self._rows():
            claim, row = self._compare(sealed)
            if claim is not None:
                await self._differs(sealed, row, claim)
                return 0
            equal += 1
            await asyncio.sleep(0)
        self._keep_state()
        return equal

    async def _rows(self) -> list[SealedRow]:
        """What stands behind the last equal row. Where it cannot be had, that is a difference as well."""
        try:
            rows = await self._source.journal(self.partition, after=self._seq, limit=ROWS_PER_STEP)
        except Corrupt as error:
            await self._cannot_go_on(str(error))
            return []
        if not rows:
            await self._cannot_go_on(f"the journal is at seq {self._end}, and has no row after seq {self._seq}")
        return rows

    # ---- comparing

    def _compare(self, sealed: SealedRow) -> tuple[Divergence | None, Row | None]:
        machine = self._machine
        try:
            if sealed.seq != self._seq + 1 or sealed.tick <= machine.state.tick:
                raise Corrupt(f"seq {sealed.seq}, tick {sealed.tick} cannot follow seq {self._seq}")
            row = unseal(sealed, self._hash)
        except Corrupt as error:
            return Divergence(text=str(error), opaque=True), None
        decided = row.rules == machine.rules
        claim = reproduction.decide(machine, row, sealed, self._hash) if decided else reproduction.fold(machine, row)
        if claim is None:
            self._seq, self._hash = sealed.seq, sealed.hash
            self.rows += decided
            self.folded += not decided
        return claim, row

    def _keep_state(self) -> None:
        """Now and then: a reproduction is built from the last state kept and the rows behind it."""
        between = max(SNAPSHOT_ROWS, len(self._machine.state.tasks) // 8)
        if self._seq - self._kept[0] >= between:
            self._kept = (self._seq, self._hash, reproduction.before(self._machine))

    # ---- a difference

    async def _differs(self, sealed: SealedRow, row: Row | None, claim: Divergence) -> None:
        name = f"audit-p{self.partition}-seq{sealed.seq}.twr"
        text = f"seq {sealed.seq}: {claim.text}"
        self._on_alarm(
            "audit_difference", f"partition {self.partition}, {shortened(text, REASON_CHARACTERS_MAX)}; see {name}"
        )
        self.difference = Difference(partition=self.partition, seq=sealed.seq, text=text, reproduction=name)
        await self._stop_dispatch(f"{text}; see {name}")
        # A row that does not even verify was never applied.
        state = await retry_until_available(self._before) if row is not None else reproduction.before(self._machine)
        if state is None:
            self.difference = msgspec.structs.replace(self.difference, reproduction="")
            return
        places = reproduction.shrink(state, row, claim, self._zones) if row is not None else []
        made = Reproduction(
            partition=self.partition,
            rules=self._machine.rules,
            zones=self._zones.version,
            hash=self._hash,
            before=state,
            row=sealed,
            claim=claim,
            inputs=places,
        )
        await self._keep(name, reproduction.write(made))
        self.difference = msgspec.structs.replace(self.difference, inputs=len(places))

    async def _before(self) -> StateBefore | None:
        """The state at the last equal seq, once more: the machine has moved on from it. None where the journal tells
        another story of the same rows by now."""
        seq, head, kept = self._kept
        rows: list[Row] = []
        try:
            while seq < self._seq:
                limit = min(ROWS_PER_STEP, self._seq - seq)
                for sealed in await self._source.journal(self.partition, after=seq, limit=limit):
                    rows.append(unseal(sealed, head))
                    seq, head = sealed.seq, sealed.hash
        except Corrupt:
            return None
        if head != self._hash:
            return None
        machine = kept.machine(self._zones)
        for row in rows:
            machine.fold(row.tick, row.inputs, row.events)
        return reproduction.before(machine)

    async def _went_back(self, head: Head) -> None:
        await self._cannot_go_on(
            f"the journal is at seq {head.seq}, epoch {head.epoch}, and was at seq {self._seq}, "
            f"epoch {self._epoch}: the store has lost committed rows",
            seq=head.seq,
        )

    async def _cannot_go_on(self, text: str, *, seq: int = -1) -> None:
        """Report a difference without a row to decide again."""
        self._on_alarm("audit_difference", f"partition {self.partition}: {text}")
        self.difference = Difference(partition=self.partition, seq=self._seq + 1 if seq < 0 else seq, text=text)
        await self._stop_dispatch(text)

    async def _stop_dispatch(self, reason: str) -> None:
        text = shortened(f"audit_difference at {reason}", REASON_CHARACTERS_MAX)
        try:
            await retry_until_available(lambda: self._hold(self.partition, text))
        except Refused as refused:
            if refused.code != "illegal_move":  # it was already paused
                self._on_alarm("audit_not_held", f"partition {self.partition} goes on: {refused}")
                return
        assert self.difference is not None
        self.difference = msgspec.structs.replace(self.difference, held=True)


# ---- where to begin


def at_the_beginning(settings: Settings, zones: Zones = UTC_ONLY) -> AuditStart:
    return AuditStart(Machine(settings=settings, zones=zones))


async def at_the_watermark(store: Store, partition: int, zones: Zones = UTC_ONLY) -> AuditStart:
    """Start from the stored rows: the decisions before them are taken as correct."""
    loaded = await store.load(partition)
    if not loaded.settings:
        raise Unavailable(f"partition {partition} has not started yet; try again later", retry_after_ms=1_000)
    machine = await at_watermark(loaded, zones)
    return AuditStart(machine, loaded.head.watermark, loaded.watermark_hash) if loaded.header else AuditStart(machine)
