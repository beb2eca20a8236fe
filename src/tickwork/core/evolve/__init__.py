"""State changes here and nowhere else.

`evolve(state, event)` applies one recorded decision, in place, for live ticks and for replay
alike. It never decides: given the same events it rebuilds the same state, whatever the rules
that once decided them. A handler per event, found in one table; a test checks that no event
is without one.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.evolve.backfills import BACKFILL_HANDLERS
from tickwork.core.evolve.bulk import BULK_HANDLERS, note_refusal
from tickwork.core.evolve.capacity import SETUP_HANDLERS
from tickwork.core.evolve.functions import FUNCTION_HANDLERS
from tickwork.core.evolve.mailboxes import MAILBOX_HANDLERS
from tickwork.core.evolve.outbox import OUTBOX_HANDLERS
from tickwork.core.evolve.run_creation import ARRIVAL_HANDLERS, record_of_run, run_of_record
from tickwork.core.evolve.run_rates import RATE_HANDLERS
from tickwork.core.evolve.runs import RUN_HANDLERS, output_of
from tickwork.core.evolve.schedules import SCHEDULE_HANDLERS
from tickwork.core.evolve.tasks.attempts import ATTEMPT_HANDLERS, has_children_to_give, live_tasks
from tickwork.core.evolve.tasks.children import CHILD_HANDLERS
from tickwork.core.evolve.tasks.nodes import NODE_HANDLERS
from tickwork.core.evolve.tasks.waits import WAIT_HANDLERS
from tickwork.core.evolve.updates import UPDATE_HANDLERS
from tickwork.core.evolve.versions import VERSION_HANDLERS
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Input
from tickwork.core.state.state import State

__all__ = [
    "HANDLERS",
    "begin_tick",
    "evolve",
    "has_children_to_give",
    "live_tasks",
    "output_of",
    "record_of_run",
    "run_of_record",
]


def begin_tick(state: State, tick: int, inputs: list[Input]) -> None:
    assert tick > state.tick, "ticks of a partition strictly rise"
    state.tick = state.stamp = tick
    state.now_ms = state.settings.clock.ms_of(tick)
    state.inputs = inputs
    state.closed, state.ended, state.let_in = [], [], []
    state.spans, state.left_backfills = [], []
    state.released, state.fired, state.changed_messages = [], [], []


def evolve(state: State, event: ev.Event) -> None:
    HANDLERS[type(event)](state, event)


def _nothing(_state: State, _event: ev.Event) -> None:
    """Recorded for those who ask; the state does not depend on it."""


def _on_refused(state: State, event: ev.InputRefused) -> None:
    state.refused += 1
    note_refusal(state, event)


def _on_stale(state: State, _event: ev.StaleReport) -> None:
    state.stale += 1


def _on_timers_held(state: State, event: ev.TimersHeld) -> None:
    state.timers_held = event.held


HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    **SETUP_HANDLERS,
    **ARRIVAL_HANDLERS,
    **RUN_HANDLERS,
    **RATE_HANDLERS,
    **SCHEDULE_HANDLERS,
    **BACKFILL_HANDLERS,
    **VERSION_HANDLERS,
    **NODE_HANDLERS,
    **ATTEMPT_HANDLERS,
    **WAIT_HANDLERS,
    **CHILD_HANDLERS,
    **OUTBOX_HANDLERS,
    **FUNCTION_HANDLERS,
    **MAILBOX_HANDLERS,
    **UPDATE_HANDLERS,
    **BULK_HANDLERS,
    ev.InputRefused: _on_refused,
    ev.StaleReport: _on_stale,
    ev.Duplicate: _nothing,
    ev.ClockGapRecorded: _nothing,
    ev.TimersHeld: _on_timers_held,
    ev.PolicyDecided: _nothing,
}
