"""Small journals, sealed, read back and sealed again around what a test changes."""

from functools import lru_cache

from histories import History
from tickwork.core.state.state import Settings
from tickwork.journal.record import GENESIS, Row, SealedRow, seal, unseal
from tickwork.journal.replay import Recorder


@lru_cache(maxsize=8)
def lived(seed: int = 5, steps: int = 40) -> History:
    history = History(seed)
    history.check = False
    return history.run(steps)


@lru_cache(maxsize=8)
def journal(seed: int = 5, steps: int = 40) -> tuple[SealedRow, ...]:
    recorder = Recorder()
    return tuple(recorder.row(tick, asked, events) for tick, asked, events in lived(seed, steps).driver.rows)


def settings_of(seed: int = 5, steps: int = 40) -> Settings:
    return lived(seed, steps).driver.settings


def read(rows) -> list[Row]:
    """Every row, verified in its place."""
    before, found = GENESIS, []
    for sealed in rows:
        found.append(unseal(sealed, before))
        before = sealed.hash
    return found


def resealed(rows: list[Row]) -> list[SealedRow]:
    """A chain that verifies, around whatever these rows say."""
    before, found = GENESIS, []
    for row in rows:
        found.append(seal(row, before))
        before = found[-1].hash
    return found
