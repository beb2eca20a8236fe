"""The part of `evolve` by which bulk operations begin, go on and end."""

from collections.abc import Callable
from typing import Any

from tickwork.core.state import events as ev
from tickwork.core.state.bulk import CHANGED, ENDED_MAX, SAMPLES_MAX, BulkOperation
from tickwork.core.state.inputs import BulkPlace
from tickwork.core.state.state import State


def _on_started(state: State, event: ev.BulkStarted) -> None:
    request: Any = state.inputs[event.input]
    jobs = state.tenants[request.tenant].bulks
    over = [job.id for job in jobs.values() if job.ended]
    for job_id in over[: max(0, len(over) - ENDED_MAX + 1)]:
        del jobs[job_id]
    jobs[request.bulk] = BulkOperation(
        request.bulk, request.by, request.action, request.selection, request.count, request.criteria,
        request.per_second, request.reason, state.tick,
    )  # fmt: skip


def _on_acted(state: State, event: ev.BulkActed) -> None:
    request: Any = state.inputs[event.input]
    job = state.tenants[request.tenant].bulks[request.bulk.bulk]
    job.done += 1
    _go_on(state, job)


def note_refusal(state: State, event: ev.InputRefused) -> None:
    """The next run of a job was refused. A request that came again, or after the end of its job, does not count."""
    request: Any = state.inputs[event.input]
    place = getattr(request, "bulk", None)
    if not isinstance(place, BulkPlace):
        return
    tenant = state.tenants.get(request.tenant)
    job = tenant.bulks.get(place.bulk) if tenant is not None else None
    if job is None or job.ended or job.position != place.place:
        return
    if event.code in CHANGED:
        job.changed += 1
    else:
        job.refused[event.code] = job.refused.get(event.code, 0) + 1
        if len(job.samples) < SAMPLES_MAX:
            job.samples.append((getattr(request, "run_id", "") or request.name, event.code))
    _go_on(state, job)


def _go_on(state: State, job: BulkOperation) -> None:
    job.position += 1
    if job.position == job.count:
        job.ended = state.tick


def _on_cancelled(state: State, event: ev.BulkCancelled) -> None:
    request: Any = state.inputs[event.input]
    job = state.tenants[request.tenant].bulks[request.bulk]
    job.ended = state.tick
    job.cancelled = f"{request.by}: {request.reason}" if request.reason else request.by


BULK_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.BulkStarted: _on_started,
    ev.BulkActed: _on_acted,
    ev.BulkCancelled: _on_cancelled,
}
