"""States, times and numbers as text for people and programs, so that all views use the same words."""

from tickwork.core.calendar.durations import instant_text
from tickwork.core.state.lifecycle import AttemptState, Phase, RunState

RUN_STATES = {int(state): state.name.lower() for state in RunState}
TASK_STATES = {int(phase): phase.name.lower() for phase in Phase}
ATTEMPT_STATES = {
    int(AttemptState.ASSIGNED): "assigned",
    int(AttemptState.STARTED): "running",
    int(AttemptState.SUCCEEDED): "succeeded",
    int(AttemptState.FAILED): "failed",
    int(AttemptState.TIMED_OUT): "timed_out",
    int(AttemptState.LOST): "lost",
    int(AttemptState.HANDED_BACK): "handed_back",
    int(AttemptState.SUSPENDED): "suspended",
    int(AttemptState.CANCELLED): "cancelled",
}
STATE_NUMBERS = {name: number for number, name in RUN_STATES.items()}


def instant(ms: int) -> str:
    return instant_text(ms)


def instant_or_none(ms: int) -> str | None:
    return instant_text(ms) if ms else None
