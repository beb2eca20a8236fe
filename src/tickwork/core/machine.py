"""One tick: inputs and due timers to events and effects.

The order inside a tick is fixed: inputs as they came, due timers by (tick, kind, number), then
the runs that want a visit by run id, then admission. Two caps bound a tick; what does not fit
stays first in line. Inputs may use half of the changes and timers half of the rest, so that no flood
of either keeps runs from moving. Same state, same inputs, same outcome, on every machine.
"""

from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.decide.admission import admit, has_room, shed_load
from tickwork.core.decide.commands.run_commands import COMMANDS
from tickwork.core.decide.runs.advance import visit
from tickwork.core.decide.schedules.updates import hear_ends
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.decide.timers import TIMERS
from tickwork.core.decide.worker_reports import REPORTS
from tickwork.core.evolve import begin_tick, evolve
from tickwork.core.evolve.indexes import end_admission, merge_fresh
from tickwork.core.rules import rules_of
from tickwork.core.state import inputs
from tickwork.core.state.effects import CommandResult, Effect
from tickwork.core.state.events import Deferred, Event, InputRefused, LoadShed, Visited
from tickwork.core.state.state import Run, Settings, State, first_state
from tickwork.core.state.timing_wheel import KIND_BITS, KIND_MASK

TIMERS_PER_TICK = 300  # those due at one instant are dealt with in portions, so that the first do not wait for the last

_RULES: dict[type[Any], Callable[[TickContext, int, Any], None]] = {**COMMANDS, **REPORTS}


class Outcome(msgspec.Struct):
    tick: int
    taken: int  # inputs decided upon; the rest come first next time
    events: list[Event]
    effects: list[Effect]
    closed: list[Run]  # runs that ended and left memory
    fired: int  # timers that were due


class Machine:
    """The pure state machine of one partition."""

    def __init__(
        self, state: State | None = None, *, settings: Settings | None = None, zones: Zones = UTC_ONLY
    ) -> None:
        self.state = state if state is not None else first_state(settings, zones)
        self.rules = rules_of(self.state.zones)

    def apply(self, tick: int, requests: list[inputs.Input]) -> Outcome:
        state = self.state
        begin_tick(state, tick, requests)
        turn = TickContext(state)
        taken = _take_inputs(turn, requests)
        fired = _take_timers(turn)
        _visit_runs(turn)
        if state.listening:
            hear_ends(turn)
        admit(turn)
        shed_load(turn)
        return Outcome(tick, taken, turn.events, turn.effects, state.closed, fired)

    def fold(self, tick: int, requests: list[inputs.Input], events: list[Event]) -> None:
        """Apply recorded events without deciding again."""
        state = self.state
        begin_tick(state, tick, requests)
        changes_max = state.settings.max_changes_per_tick  # of this tick, also where it changes in it
        admitted = len(events) - (bool(events) and isinstance(events[-1], LoadShed))  # load is judged after admission
        for event in events[:admitted]:
            evolve(state, event)
        end_admission(state, full=admitted >= changes_max)
        for event in events[admitted:]:
            evolve(state, event)

    def next_tick(self) -> int | None:
        """Return the tick at which this partition is due if no input comes, or `None`."""
        state = self.state
        if (
            any(run.wanted for run in chain(state.line, state.fresh))
            or any(lane.live and not lane.held for lane in state.open)
            or any(blocker.parked and has_room(blocker, state.now_ms) for blocker in state.stirred)
        ):
            return state.tick + 1
        due = None if state.timers_held else state.wheel.next_due()
        return None if due is None else max(due, state.tick + 1)


def _take_inputs(turn: TickContext, requests: list[inputs.Input]) -> int:
    events, changes_max = turn.events, max(1, turn.changes_max // 2)
    for index, item in enumerate(requests):
        if len(events) >= changes_max:
            return index
        try:
            _RULES[type(item)](turn, index, item)
        except Refused as refused:
            refuse(turn, index, refused)
    return len(requests)


def refuse(turn: TickContext, position: int, refused: Refused) -> None:
    """A rule raises before it emits anything, so nothing of the input is half done."""
    turn.emit(InputRefused(position, refused.code, str(refused)))
    turn.effects.append(CommandResult(position, "", refused.code, str(refused)))


def _take_timers(turn: TickContext) -> int:
    """How many. Not all that are due at one instant at once: what the first of them began goes out while others are
    decided."""
    if turn.state.timers_held:
        return 0
    wheel, tick = turn.state.wheel, turn.state.tick
    changes_max = max(1, turn.changes_max * 3 // 4)
    for fired in range(TIMERS_PER_TICK):
        if len(turn.events) >= changes_max:
            return fired
        timer = wheel.first(tick)
        if timer is None:
            return fired
        decided = len(turn.events)
        TIMERS[timer[1] & KIND_MASK](turn, timer[1] >> KIND_BITS)
        assert len(turn.events) > decided, "a timer that fires is ended by an event"
    return TIMERS_PER_TICK


def _visit_runs(turn: TickContext) -> None:
    state = turn.state
    runs = [] if turn.full else _next_in_line(state)
    if not runs:
        return
    turn.emit(Visited([run.number for run in runs]))
    events, changes_max = turn.events, turn.changes_max
    for index, run in enumerate(runs):
        if len(events) >= changes_max and index:  # one visit at least, or a small cap would stop everything
            turn.deferred.extend(later.number for later in runs[index:] if later.number in state.runs)
            break
        visit(turn, run)
    if turn.deferred:
        turn.emit(Deferred(turn.deferred))


def _next_in_line(state: State) -> list[Run]:
    """At most `max_runs_per_tick` runs: those left over first, then the new ones by run id."""
    merge_fresh(state)
    waiting = (run for run in state.line if run.wanted)
    return list(islice(waiting, state.settings.max_runs_per_tick))
