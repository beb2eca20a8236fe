"""What several rules ask before they decide, and how they answer."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.inputs import KnownRun
from tickwork.core.state.state import State, Tenant


def tenant_of(state: State, name: str) -> Tenant:
    tenant = state.tenants.get(name)
    if tenant is None:
        raise Refused("unknown_tenant", f"there is no tenant {shortened(name, 128)!r}", path="tenant")
    return tenant


def check_room(state: State, tenant: Tenant, more: int) -> None:
    """Whatever brings runs into memory asks first: what is accepted is never dropped."""
    if state.live_runs + more > state.settings.max_live_runs or tenant.active + more > tenant.max_live_runs:
        raise Refused("overloaded", "too many unfinished runs: try again when some have ended", path="tenant")


def earlier_run(
    state: State, tenant: Tenant, key: str, body: str, known: KnownRun | None, *, run_id: str = ""
) -> str | None:
    """The run that a request with this key, or with this id, has begun already, within the window of keys."""
    window = state.settings.clock.ticks(state.settings.dedupe_window_ms)
    holder = tenant.keys.get(key) if key else None
    if holder is not None and holder.submitted + window > state.tick:
        check_same(holder.body, body, f"key {key}")
        return holder.id
    if known is not None and (known.run_id == run_id or known.submitted + window > state.tick):
        check_same(known.body, body, f"key {key}")
        return known.run_id
    if holder is not None:
        raise Refused("key_in_use", f"key {key} still belongs to the unfinished run {holder.id}", path="key")
    return None


def check_same(before: str, now: str, what: str) -> None:
    if before != now:
        raise Refused("key_reused", f"{what} was used for a different request", path="key")


def answer(turn: TickContext, position: int, run_id: str) -> None:
    turn.effects.append(CommandResult(position, run_id))
