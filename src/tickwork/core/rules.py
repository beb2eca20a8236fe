"""The version of the rules: what a recorded decision depends on beside its inputs and the rows before it."""

from tickwork.core.calendar.zones import Zones
from tickwork.core.definition import cel

MACHINE = 1  # raised with every change of a rule


def rules_of(zones: Zones) -> str:
    """Name the rules that decide with this zone data."""
    return f"machine {MACHINE}; {cel.RULES}; tzdata {zones.version}"
