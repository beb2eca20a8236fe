"""Which faults a run has, and how often: shares of operations, and events per hour of virtual time.

A share belongs to one operation (a message, a commit, an attempt); an event strikes a host, a path or the store out of
the blue. Each class is off in half of the seeds, so that no fault hides what another one would show.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

from tickwork.testing.seeded_random import Chance


class BadOption(ValueError):
    """Another run than the one that was meant would prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    # messages
    drop: float = 0.0
    duplicate: float = 0.0
    spike: float = 0.0  # a delay of seconds
    half_open: float = 0.0  # of crashes: the other side is not told
    # store operations
    store_fails: float = 0.0  # before anything happened
    store_answer_lost: float = 0.0  # it happened, and nobody says so
    store_late: float = 0.0  # it times out, and happens afterwards
    store_slow: float = 0.0  # a hundred times as long
    # attempts
    crash_before_effect: float = 0.0
    crash_after_effect: float = 0.0
    crash_after_report: float = 0.0
    zombie: float = 0.0  # its host stands still for longer than a lease, then goes on
    reports_twice: float = 0.0
    never_reports: float = 0.0
    poison: float = 0.0  # it takes its worker down, and every node with it
    neighbours: float = 0.0  # it hangs beyond its time limit, in a process that others share
    # events per hour
    node_crashes: int = 0
    worker_crashes: int = 0
    pauses: int = 0
    partitions: int = 0
    store_outages: int = 0
    disk_full: int = 0
    clock_steps: int = 0
    store_cuts: int = 0  # of one node's way to the store: both directions, or only the answers
    hangs: int = 0  # of all nodes but one, for longer than a lease
    foreign_stores: int = 0  # for a while another store answers a worker, with tasks of the same numbers
    spreads: int = 0  # of the tenant, at one node, beside a publication at another

    @classmethod
    def draw(cls, chance: Chance) -> Self:
        """A mix for one seed."""
        drawn = {
            name: _scaled(most, chance.between(1, 100)) for name, most in MOST.items() if chance.happens(0.5)
        }  # each class is off in half of the seeds
        return cls(**drawn)  # type: ignore[arg-type]  # shares are floats and events integers, as in MOST

    @classmethod
    def of(cls, text: str) -> Self:
        """From what `str` gave: `drop=0.05,pauses=3`, or nothing at all."""
        pairs = [pair.split("=") for pair in text.split(",") if pair]
        for name, *value in pairs:
            if name not in MOST or len(value) != 1:
                raise BadOption(f"{name!r} is no fault as name=share; there are {', '.join(MOST)}")
        return cls(**{name: int(value) if value.isdigit() else float(value) for name, value in pairs})  # type: ignore[arg-type]  # as in `draw`

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.named().items())

    def without(self, *names: str) -> Self:
        return replace(self, **dict.fromkeys(names, 0))

    def named(self) -> dict[str, float]:
        """Those that are on."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}


def _scaled(most: float, percent: int) -> float:
    return round(most * percent / 100, 6) if isinstance(most, float) else max(1, most * percent // 100)


MOST: dict[str, float] = {
    "drop": 0.1, "duplicate": 0.2, "spike": 0.02, "half_open": 0.5,
    "store_fails": 0.05, "store_answer_lost": 0.05, "store_late": 0.03, "store_slow": 0.05,
    "crash_before_effect": 0.01, "crash_after_effect": 0.01, "crash_after_report": 0.01, "zombie": 0.01,
    "reports_twice": 0.1, "never_reports": 0.02,
    "node_crashes": 30, "worker_crashes": 60, "pauses": 30, "partitions": 30, "store_outages": 12, "disk_full": 6,
    "clock_steps": 12, "store_cuts": 12, "spreads": 60, "poison": 0.01, "hangs": 12, "foreign_stores": 30,
    "neighbours": 0.1,
}  # fmt: skip

NONE = Faults()
