"""One row that was decided in two ways, with everything that is needed to decide it again.

A reproduction has the state as it stood before the row, the row as it is recorded, and the fewest of its inputs from
which the same wrong event, or the same missing one, still follows. It is one file, and needs neither store nor server.
"""

import struct
import zlib
from collections.abc import Callable

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.zones import Zones
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import Snapshot, capture, restore
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import Input
from tickwork.journal.record import Row, SealedRow, hash_of, unseal

MAGIC = b"TWR1"
_SIZE = struct.Struct(">II")  # length, checksum
BYTES_MAX = 1 << 31  # unpacked
TRIALS_MAX = 300  # each restores the whole state


class Divergence(msgspec.Struct, frozen=True):
    """The first thing in which two decisions differ. None: there is no such event on that side."""

    was: Event | None = None  # recorded
    again: Event | None = None  # what is decided now
    text: str = ""
    broken: str = ""  # what deciding it again raised
    taken: bool = False  # the number of inputs taken differs
    opaque: bool = False  # nothing of the row can be decided: it is not part of this chain


class StateBefore(msgspec.Struct, frozen=True):
    """The state before the row, in its pieces."""

    header: bytes
    documents: list[tuple[str, bytes]]
    runs: list[bytes]
    tasks: list[bytes]
    schedules: list[bytes]

    def machine(self, zones: Zones) -> Machine:
        return Machine(restore(self.header, self.documents, self.runs, self.tasks, self.schedules, zones=zones))


class Reproduction(msgspec.Struct, frozen=True):
    partition: int
    rules: str  # that decided it again
    zones: str
    hash: bytes  # of the row before
    before: StateBefore
    row: SealedRow
    claim: Divergence
    inputs: list[int]  # indexes of the inputs that suffice


class ReproductionResult(msgspec.Struct, frozen=True):
    """What running a reproduction showed."""

    seq: int
    inputs: list[int]
    differs: bool  # the whole row does
    still: bool  # so do the inputs that are enough
    text: str


def before(machine: Machine) -> StateBefore:
    pieces: Snapshot = capture(machine.state)
    return StateBefore(
        pieces.header, list(pieces.documents), list(pieces.runs), list(pieces.tasks), list(pieces.schedules)
    )


# ---- comparing


def decide(machine: Machine, row: Row, sealed: SealedRow, head: bytes) -> Divergence | None:
    """Decide the row again. None if its hash equals the recorded one. The machine advances in any case."""
    try:
        outcome = machine.apply(row.tick, row.inputs)
    except Exception as error:  # a defect on either side is a divergence to report
        return Divergence(text=f"it cannot be decided again: {_error_text(error)}", broken=type(error).__name__)
    if outcome.taken != len(row.inputs):
        return Divergence(text=f"{outcome.taken} of {len(row.inputs)} inputs were taken", taken=True)
    if outcome.events != row.events:
        return _first_difference(row.events, outcome.events)
    if hash_of(Row(row.seq, row.tick, row.rules, row.inputs, outcome.events), head) != sealed.hash:
        return Divergence(
            text="the events are equal, the bytes are not: the row was not written as rows are", opaque=True
        )
    return None


def fold(machine: Machine, row: Row) -> Divergence | None:
    """Apply the events of a row that other rules decided; they must at least fit the state."""
    try:
        machine.fold(row.tick, row.inputs, row.events)
    except Exception as error:
        return Divergence(text=f"its events do not fit the state: {_error_text(error)}", opaque=True)
    return None


def _first_difference(recorded: list[Event], decided: list[Event]) -> Divergence:
    for index, (was, now) in enumerate(zip(recorded, decided, strict=False)):
        if was != now:
            return Divergence(was, now, f"event {index} was {was}, is {now}")
    index = min(len(recorded), len(decided))
    if len(recorded) > len(decided):
        return Divergence(recorded[index], None, f"event {index} is no longer decided: {recorded[index]}")
    return Divergence(None, decided[index], f"event {index} is newly decided: {decided[index]}")


def _error_text(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 300)


# ---- shrinking


def shrink(state: StateBefore, row: Row, claim: Divergence, zones: Zones, *, trials: int = TRIALS_MAX) -> list[int]:
    """Places of the fewest inputs from which the same difference follows, as far as dropping some of them finds it."""
    if claim.opaque:
        return list(range(len(row.inputs)))

    def differs(indexes: list[int]) -> bool:
        return holds(state, row, claim, indexes, zones)

    return _fewest(list(range(len(row.inputs))), differs, trials)


def _fewest(indexes: list[int], differs: Callable[[list[int]], bool], trials: int) -> list[int]:
    size = len(indexes)
    while size:
        at = 0
        while at < len(indexes) and trials > 0:
            rest = indexes[:at] + indexes[at + size :]
            trials -= 1
            if differs(rest):
                indexes = rest
            else:
                at += size
        size = min(size, len(indexes)) // 2 if trials > 0 else 0
    return indexes


def holds(state: StateBefore, row: Row, claim: Divergence, indexes: list[int], zones: Zones) -> bool:
    """Whether the inputs at these indexes alone lead to the same difference."""
    machine = state.machine(zones)
    try:
        outcome = machine.apply(row.tick, [row.inputs[index] for index in indexes])
    except Exception as error:
        return type(error).__name__ == claim.broken
    if claim.taken or claim.broken:
        return claim.taken and outcome.taken != len(indexes)
    new_index = {old: new for new, old in enumerate(indexes)} | {-1: -1}
    for event, expected in ((claim.again, True), (claim.was, False)):
        if event is None:
            continue
        moved = _moved(event, new_index)
        if moved is None or (moved in outcome.events) is not expected:
            return False
    return True


def _moved(event: Event, new_index: dict[int, int]) -> Event | None:
    """The event with its input renumbered for a shorter list; None if that input was removed."""
    position = getattr(event, "input", None)
    if position is None:
        return event
    return msgspec.structs.replace(event, input=new_index[position]) if position in new_index else None


# ---- the file


def write(made: Reproduction) -> bytes:
    body = zlib.compress(msgspec.msgpack.encode(made), 6)
    return MAGIC + _SIZE.pack(len(body), zlib.crc32(body)) + body


def read(data: bytes) -> Reproduction:
    begin = len(MAGIC) + _SIZE.size
    if not data.startswith(MAGIC) or len(data) < begin:
        raise Corrupt("this is not a reproduction, or only the beginning of one")
    length, checksum = _SIZE.unpack_from(data, len(MAGIC))
    body = data[begin:]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise Corrupt("the reproduction is cut off or damaged: its checksum does not match")
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body, BYTES_MAX)
        if not unpacker.eof:
            raise Corrupt(f"the reproduction has more than {BYTES_MAX} bytes")
        return msgspec.msgpack.decode(plain, type=Reproduction)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the reproduction cannot be read: {error}") from None


def run(made: Reproduction, zones: Zones) -> ReproductionResult:
    """Decide the row again from the state before it, whole and with the few inputs."""
    machine = made.before.machine(zones)
    row = _row_of(made)
    if row is None:
        return ReproductionResult(made.row.seq, made.inputs, True, True, made.claim.text)
    again = decide(machine, row, made.row, made.hash) if row.rules == machine.rules else fold(machine, row)
    still = again is not None and (made.claim.opaque or holds(made.before, row, made.claim, made.inputs, zones))
    return ReproductionResult(made.row.seq, made.inputs, again is not None, still, "" if again is None else again.text)


def _row_of(made: Reproduction) -> Row | None:
    try:
        return unseal(made.row, made.hash)
    except Corrupt:
        return None


def inputs_of(made: Reproduction) -> list[Input]:
    """The inputs that reproduce the difference, for display."""
    row = _row_of(made)
    return [row.inputs[position] for position in made.inputs] if row is not None else []
