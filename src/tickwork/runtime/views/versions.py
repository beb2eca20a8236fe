"""Versions of applications in words: the latest one, and those that no worker has."""

from tickwork.core.decide.commands.versions import stranded
from tickwork.core.evolve.versions import latest_of
from tickwork.core.state.state import State, Tenant


def latest_name(owner: Tenant | None, application: str) -> str:
    """Empty where the application has no versions."""
    latest = latest_of(owner.applications.get(application, {})) if owner is not None else None
    return "" if latest is None else latest.name


def stranded_words(state: State) -> list[str]:
    """Describe the tasks that would wait forever, one line for each version."""
    return [
        f"stranded: {count} ready task{'s' if count != 1 else ''} of {tenant} wait for {pin}, which no worker has: "
        f"start a worker of that version, or cancel the runs"
        for tenant, pin, count in stranded(state)
    ]
