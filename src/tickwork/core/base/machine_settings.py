"""The settings of a partition that may change while it runs: one table of names, bounds and meanings.

`PutSettings` checks its values by this table; API, command line, client and start settings take their names from it.
The clock's origin and resolution are not here: they are fixed when a store is created.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened

DAY_MS = 86_400_000


class SettingSpec(NamedTuple):
    """A setting that is a whole number from `low` to `high`."""

    low: int
    high: int
    does: str


CHANGEABLE: Mapping[str, SettingSpec] = {
    "max_runs_per_tick": SettingSpec(1, 100_000, "Runs that one tick visits at most; the others follow in the next."),
    "max_changes_per_tick": SettingSpec(10, 1_000_000, "Changes that one tick makes at most."),
    "max_live_runs": SettingSpec(1, 1 << 40, "Unfinished runs; more are refused until some have ended."),
    "ageing_ms": SettingSpec(0, 7 * DAY_MS, "Waiting this long counts as much as one level of priority."),
    "dedupe_window_ms": SettingSpec(0, 30 * DAY_MS, "How long a key returns the run that was submitted under it."),
    "shed_lag_ms": SettingSpec(0, DAY_MS, "Lag of important tasks from which less important ones wait; 0: never."),
    "shed_below": SettingSpec(-1_000, 1_000, "Tasks with a lower priority than this wait when load is shed."),
    "loss_allowance": SettingSpec(0, 1_000, "Attempts of a task that may end with their worker, beyond its retries."),
    "retry_gap_ms": SettingSpec(0, DAY_MS, "Time between two retries of one dependency, beyond its burst."),
    "retry_burst": SettingSpec(1, 1_000_000, "Retries of one dependency that may come at once."),
    "retry_earned_percent": SettingSpec(0, 100, "Part of a retry that each success at the first attempt earns."),
}


def check_settings(values: Mapping[str, int]) -> None:
    """Raises `Refused` for a name that is not in the table, and for a value out of its bounds."""
    for name, value in values.items():
        spec = CHANGEABLE.get(name)
        if spec is None:
            known = ", ".join(CHANGEABLE)
            message = f"there is no setting {shortened(name, 64)!r} that can be changed; there are {known}"
            raise Refused("unknown_setting", message, path="settings")
        if not spec.low <= value <= spec.high:
            message = f"{value} is out of its bounds: {spec.low:,} to {spec.high:,}"
            raise Refused("bad_setting", message, path=name)
