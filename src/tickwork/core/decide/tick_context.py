"""One tick in progress: what has been decided so far, and the way to decide more."""

from collections.abc import Callable

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import KEY_CHARACTERS_MAX
from tickwork.core.base.shortened import shortened
from tickwork.core.evolve import HANDLERS
from tickwork.core.state.effects import CommandResult, Effect, ReadExtract
from tickwork.core.state.evaluation_context import ExtractMissing
from tickwork.core.state.events import Event, ExtractRequested
from tickwork.core.state.inputs import KnownRun
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.state import Run, State, Tenant


class TickContext:
    """Rules emit events; each one changes the state at once, so that the next rule sees it.

    The events that every task has are recorded and evolved by their rules directly: the detour
    through `emit` and the table of handlers would be a tenth of a task's cost.
    """

    __slots__ = ("changes_max", "deferred", "effects", "emit", "events", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.deferred: list[int] = []
        self.changes_max = state.settings.max_changes_per_tick
        self.emit = _emitter(state, self.events)

    @property
    def full(self) -> bool:
        return len(self.events) >= self.changes_max


def _emitter(state: State, events: list[Event]) -> Callable[[Event], None]:
    """Record the event, then let it change the state. A closure, because every decision passes through it."""
    record, handlers = events.append, HANDLERS

    def emit(event: Event) -> None:
        record(event)
        handlers[type(event)](state, event)

    return emit


# ---- What several rules ask before they decide, and how they answer.


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


def request_extracts(turn: TickContext, run: Run, missing: ExtractMissing) -> None:
    """The shell reads what is missing; the run is visited again when it has come."""
    for source, key in missing.places:
        if (source, key) not in (run.extracts or {}):
            turn.emit(ExtractRequested(run.number, source, key))
            turn.effects.append(ReadExtract(run.number, source, key))


def live_run(state: State, tenant: str, run_id: str, left_as: int | None = None) -> Run:
    """The run in memory. Without the fact beside it, one that ended and one that never was look the same."""
    run = tenant_of(state, tenant).runs.get(run_id)
    if run is None and left_as is not None:
        message = f"run {run_id[:128]} is {RunState(left_as).name}: it only moves if it failed, by resolve"
        raise Refused("illegal_move", message, path="run_id")
    if run is None:
        raise Refused("unknown_run", f"there is no unfinished run {shortened(run_id, 128)!r}", path="run_id")
    return run


def check_key(key: str, path: str) -> None:
    if len(key) > KEY_CHARACTERS_MAX:
        raise Refused("key_too_long", f"at most {KEY_CHARACTERS_MAX} characters", path=path)


def answer(turn: TickContext, position: int, run_id: str) -> None:
    turn.effects.append(CommandResult(position, run_id))
