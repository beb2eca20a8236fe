"""Bulk operations: their beginning and end, and requests that belong to one.

The journal has a request for each run, with its place in the selection of the job. It counts only if the job has come
to this place, in the same tick that decides it. So a job that another owner continues after a crash acts on each run
once, and its report adds up.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.tick_context import TickContext, answer, tenant_of
from tickwork.core.state import inputs
from tickwork.core.state.bulk import ACTIONS, JOBS_MAX, RATE_MAX, BulkOperation
from tickwork.core.state.events import BulkActed, BulkCancelled, BulkStarted, Duplicate
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.state import State

OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)
Rule = Callable[[TickContext, int, Any], None]


def _start(turn: TickContext, position: int, request: inputs.StartBulk) -> None:
    tenant = tenant_of(turn.state, request.tenant)
    check_name(request.bulk, path="id", kind="bulk operation")
    known = tenant.bulks.get(request.bulk)
    if known is not None:
        if (known.action, known.selection) != (request.action, request.selection):
            message = f"the bulk operation {request.bulk} acts on another selection; choose another id"
            raise Refused("key_reused", message, path="id")
        turn.emit(Duplicate(position, request.bulk))
        answer(turn, position, request.bulk)
        return
    if request.action not in ACTIONS:
        raise Refused("bad_action", f"an action is one of {', '.join(ACTIONS)}", path="action")
    if request.count < 1:
        raise Refused("empty_selection", "no run is selected: nothing would be done", path="selection")
    if not 1 <= request.per_second <= RATE_MAX:
        raise Refused("bad_rate", f"a job acts on 1 to {RATE_MAX} runs a second", path="per_second")
    if sum(not job.ended for job in tenant.bulks.values()) >= JOBS_MAX:
        raise Refused("too_many_bulks", f"{JOBS_MAX} bulk operations go on: wait until one has ended", path="id")
    turn.emit(BulkStarted(position))
    answer(turn, position, request.bulk)


def _cancel(turn: TickContext, position: int, request: inputs.CancelBulk) -> None:
    job = tenant_of(turn.state, request.tenant).bulks.get(request.bulk)
    if job is None:
        raise Refused("unknown_bulk", f"there is no bulk operation {shortened(request.bulk, 128)!r}", path="id")
    if job.ended:
        raise Refused("illegal_move", f"the bulk operation {job.id} has ended", path="id")
    turn.emit(BulkCancelled(position))


def _skip(turn: TickContext, _position: int, request: inputs.SkipInBulk) -> None:
    _job_at(turn.state, request.tenant, request.bulk)
    raise Refused(request.code, request.message)


def in_bulk(rule: Rule) -> Rule:
    """The rule of a request that a bulk operation may have sent."""

    def decide(turn: TickContext, position: int, request: Any) -> None:
        place: inputs.BulkPlace | None = request.bulk
        if place is None:
            rule(turn, position, request)
            return
        _job_at(turn.state, request.tenant, place)
        _check_unchanged(request, place)
        rule(turn, position, request)
        turn.emit(BulkActed(position))

    return decide


def _job_at(state: State, tenant: str, place: inputs.BulkPlace) -> BulkOperation:
    job = tenant_of(state, tenant).bulks.get(place.bulk)
    if job is None or job.ended or job.position != place.place:
        raise Refused(
            "not_its_turn", f"the bulk operation {place.bulk[:128]} is not at place {place.place}", path="bulk"
        )
    return job


def _check_unchanged(request: Any, place: inputs.BulkPlace) -> None:
    """A run that had ended when it was selected is acted on if it has ended in the same way."""
    record = getattr(request, "record", None)
    now = record.state if record is not None else request.left_as if hasattr(request, "left_as") else None
    if place.was in OVER and now is not None and now != place.was:
        message = f"the run was {RunState(place.was).name} when it was selected, and is {RunState(now).name}"
        raise Refused("changed_since", message, path="run_id")


BULK_COMMANDS: dict[type[Any], Rule] = {
    inputs.StartBulk: _start,
    inputs.SkipInBulk: _skip,
    inputs.CancelBulk: _cancel,
}
