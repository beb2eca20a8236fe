"""Versions of applications: which one is the latest, and what that moves.

A version is registered whenever a worker of it starts. A new version becomes the latest; a
known one does not, so an older worker that restarts changes nothing. A command may make another version the latest,
which restores what that one declares: its definitions, and its schedules in place of the application's others.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.schedules.schedule_commands import apply_set, check_set
from tickwork.core.decide.tick_context import TickContext, answer, tenant_of
from tickwork.core.evolve.versions import declared_bytes, latest_of
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import VersionPut
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.core.state.state import AppVersion, State, Tenant


def version_of(tenant: Tenant, application: str, version: str) -> AppVersion:
    versions = tenant.applications.get(application)
    if versions is None:
        raise Refused(
            "unknown_application", f"there is no application {shortened(application, 128)!r}", path="application"
        )
    registered = versions.get(version)
    if registered is None:
        message = (
            f"application {application} has no version {shortened(version, 128)!r}; `tickwork versions` lists them"
        )
        raise Refused("unknown_version", message, path="version")
    return registered


def _register(turn: TickContext, position: int, request: inp.RegisterVersion) -> None:
    state = turn.state
    tenant = tenant_of(state, request.tenant)
    check_name(request.application, path="application", kind="application")
    check_name(request.version, path="version", kind="version")
    missing = sorted(set(request.workflows.values()) - set(tenant.versions))
    if missing:
        raise Refused("unknown_definition", f"definition {missing[0][:64]!r} was never put", path="workflows")
    versions = tenant.applications.get(request.application, {})
    known, latest = versions.get(request.version), latest_of(versions)
    plans = tenant.plans | {name: tenant.versions[plan] for name, plan in request.workflows.items()}
    rhythms = check_set(state, request.tenant, request.application, request.puts, plans)
    if known is None:
        number = state.next_number
        timestamp_ms = state.now_ms if latest is None else max(state.now_ms, latest.timestamp_ms + 1)
    elif request.latest and known is not latest:
        assert latest is not None, "there is at least the one that is known"
        number, timestamp_ms = known.number, max(state.now_ms, latest.timestamp_ms + 1)
    else:
        number, timestamp_ms = known.number, known.timestamp_ms
    moves = known is None or request.latest or known is latest
    if (
        known is None
        or timestamp_ms != known.timestamp_ms
        or (known.workflows, known.declared) != (request.workflows, declared_bytes(request.puts))
        or known.carried is not request.carried
    ):
        turn.emit(VersionPut(position, number, timestamp_ms))
    if moves:
        apply_set(turn, position, request.tenant, request.application, request.puts, rhythms)
        latest = latest_of(tenant.applications[request.application])
    answer(turn, position, "" if latest is None else latest.name)


def _set_latest(turn: TickContext, position: int, request: inp.SetLatestVersion) -> None:
    state = turn.state
    tenant = tenant_of(state, request.tenant)
    requested = version_of(tenant, request.application, request.version)
    latest = latest_of(tenant.applications[request.application])
    assert latest is not None, "an application has at least the version that was found"
    if requested.declared is None:
        message = f"what version {request.version} declares is no longer kept; start a worker of it, then set it latest"
        raise Refused("version_too_old", message, path="version")
    if requested.declared != declared_bytes(request.puts):
        raise Refused("version_changed", "it was registered anew meanwhile; try again", path="version")
    plans = tenant.plans | {name: tenant.versions[plan] for name, plan in requested.workflows.items()}
    rhythms = check_set(state, request.tenant, request.application, request.puts, plans)
    timestamp_ms = state.now_ms if requested is latest else max(state.now_ms, latest.timestamp_ms + 1)
    turn.emit(VersionPut(position, requested.number, max(timestamp_ms, requested.timestamp_ms)))
    apply_set(turn, position, request.tenant, request.application, request.puts, rhythms)
    answer(turn, position, requested.name)


def stranded(state: State) -> list[tuple[str, str, int]]:
    """The tasks that wait for a version that no worker has: tenant, `application@version`, ready tasks."""
    counts: dict[tuple[str, str], int] = {}
    for lane in state.lanes.values():
        if lane.live and not lane.station.workers:
            for name, value in lane.station.labels:
                if name == PIN_LABEL:
                    key = (lane.tenant.id, value)
                    counts[key] = counts.get(key, 0) + lane.live
    return [(tenant, pin, count) for (tenant, pin), count in sorted(counts.items())]


VERSION_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inp.RegisterVersion: _register,
    inp.SetLatestVersion: _set_latest,
}
