"""What several rules ask before they decide, and how they answer."""

from tickwork.core.effects import Answer
from tickwork.core.errors import Refused
from tickwork.core.model import State, Tenant
from tickwork.core.turn import Turn


def tenant_of(state: State, name: str) -> Tenant:
    tenant = state.tenants.get(name)
    if tenant is None:
        raise Refused("unknown_tenant", f"there is no tenant {name[:128]!r}", path="tenant")
    return tenant


def check_room(state: State, tenant: Tenant, more: int) -> None:
    """Whatever brings runs into memory asks first: what is accepted is never dropped."""
    if state.live_runs + more > state.settings.max_live_runs or tenant.active + more > tenant.max_live_runs:
        raise Refused("overloaded", "too many unfinished runs: try again when some have ended", path="tenant")


def answer(turn: Turn, place: int, run_id: str) -> None:
    turn.effects.append(Answer(place, run_id))
