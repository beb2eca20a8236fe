"""Writes the golden journal of today's rules: tests/replay/golden-vN.journal, and what it must end with.

A golden journal is kept for ever: later versions must fold it, and the version that wrote it must decide it again.
So it is written once for each `core.rules.MACHINE`; `--again` writes it anew while that version is unreleased, and
`--digest` only takes down the digest anew, for when the layout of a snapshot changed and no decision did.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import msgspec

from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.machine import Machine
from tickwork.core.rules import MACHINE, rules_of
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import Input
from tickwork.core.state.state import Settings
from tickwork.journal.record import SealedRow
from tickwork.journal.replay import Recorder, fold
from tickwork.journal.stream import RowReader, write

RULES = rules_of(UTC_ONLY)

TESTS = Path(__file__).parent.parent / "tests"
FILE = TESTS / "replay" / f"golden-v{MACHINE}.journal"
STEPS = 600
FIRST_SEED = 360  # the search for a history in which everything happens begins here


class End(msgspec.Struct, frozen=True):
    """What is kept beside a golden journal."""

    rules: str
    settings: Settings
    rows: int
    head: str
    digest: str


def load(file: Path) -> tuple[list[SealedRow], End]:
    reader = RowReader()
    rows = reader.feed(file.read_bytes())
    assert not reader.torn, f"{file.name} is torn"
    return rows, msgspec.json.decode(file.with_suffix(".json").read_bytes(), type=End)


def everything_happens(driver: Any) -> bool:
    asked = {type(item) for _, inputs, _ in driver.rows for item in inputs}
    decided = {type(event) for _, _, events in driver.rows for event in events}
    return asked == set(get_args(Input)) and decided == set(get_args(Event))


def history() -> Any:
    sys.path.insert(0, str(TESTS))
    make = import_module("histories").History
    for seed in range(FIRST_SEED, FIRST_SEED + 500):
        found = make(seed, shed_lag_ms=400)
        found.check = False  # the test that folds the journal looks for what is wrong
        found.run(STEPS)
        if found.driver.state.gauge.paused:
            continue  # nothing would run
        try:
            for part in (
                found.of_schedules, found.of_operators, found.of_functions, found.of_teardowns, found.of_tasks,
                found.of_updates,
            ):  # fmt: skip
                part()
        except AssertionError:
            continue  # chance left something behind that the fixed order does not expect
        if everything_happens(found.driver):
            return found
    raise SystemExit("no history covers every input and event: give tests/histories.py a way to the new ones")


def make() -> None:
    driver, recorder = history().driver, Recorder()
    rows = [recorder.row(tick, asked, events) for tick, asked, events in driver.rows]
    FILE.write_bytes(b"".join(write(rows)))
    _write_end(FILE, End(RULES, driver.settings, len(rows), recorder.head.hex(), digest(driver.state)))


def take_digest() -> None:
    rows, end = load(FILE)
    machine = Machine(settings=end.settings)
    fold(rows, machine)
    _write_end(FILE, msgspec.structs.replace(end, digest=digest(machine.state)))


def _write_end(file: Path, end: End) -> None:
    file.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(end), indent=2) + b"\n")


def main() -> int:
    if "--digest" in sys.argv:
        take_digest()
    elif FILE.exists() and "--again" not in sys.argv:
        print(f"{FILE.name} is there: raise core.rules.MACHINE, or say --again if version {MACHINE} was never released")
        return 1
    else:
        make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
