"""The part of `evolve` that keeps the versions of applications."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.definition.plan import Plan
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import PutSchedule, RegisterVersion
from tickwork.core.state.state import AppVersion, Schedule, State, Tenant

VERSIONS_KEPT = 100  # of an application: one that is forgotten and comes back is new, and so the latest
DECLARED_KEPT = 20  # of these, with what they declare

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(list[PutSchedule]).decode
_age = attrgetter("timestamp_ms", "number")


def pin_of(application: str, version: str) -> str:
    return f"{application}@{version}"


def declared_bytes(puts: Sequence[PutSchedule]) -> bytes:
    """A declared set as it is kept: without who put it, so that the same set is the same bytes."""
    return _encode([msgspec.structs.replace(put, by="") for put in puts])


def declared_puts(declared: bytes, by: str) -> list[PutSchedule]:
    return [msgspec.structs.replace(put, by=by) for put in _decode(declared)]


def by_age(versions: Mapping[str, AppVersion]) -> list[AppVersion]:
    """The latest last."""
    return sorted(versions.values(), key=_age)


def latest_of(versions: Mapping[str, AppVersion]) -> AppVersion | None:
    return max(versions.values(), key=_age) if versions else None


def _on_version(state: State, event: ev.VersionPut) -> None:
    request: Any = state.inputs[event.input]
    tenant = state.tenants[request.tenant]
    versions = tenant.applications.setdefault(request.application, {})
    version = versions.get(request.version)
    if version is None:
        state.next_number = max(state.next_number, event.version + 1)
        version = versions[request.version] = AppVersion(
            event.version, request.version, event.timestamp_ms, state.now_ms
        )
    version.timestamp_ms = event.timestamp_ms
    if isinstance(request, RegisterVersion):
        declared = declared_bytes(request.puts)
        version.workflows, version.carried = dict(request.workflows), request.carried
        # Most versions declare what those before them did: one object, in memory and in the header.
        version.declared = next((other.declared for other in versions.values() if other.declared == declared), declared)
    _forget_old(versions)
    if latest_of(versions) is version:
        tenant.plans.update({name: tenant.versions[plan] for name, plan in version.workflows.items()})
    know_newest(tenant)


def know_newest(tenant: Tenant) -> None:
    """Scheduled runs carry the latest version of the application that declares their definition."""
    tenant.newest = {}
    for application, versions in sorted(tenant.applications.items()):
        latest = latest_of(versions)
        if latest is not None and latest.carried:
            pin = pin_of(application, latest.name)
            for name, plan in latest.workflows.items():
                tenant.newest.setdefault((name, plan), pin)


def pinned(tenant: Tenant, workflow: str, version: str) -> tuple[str, str]:
    """What a run asks for that is pinned to a version, as `version` or `application@version`: the label's value
    and the hash of its definition. Raises `Refused`."""
    requested, _, name = version.rpartition("@")
    matches = [
        (application, versions[name].workflows[workflow])
        for application, versions in sorted(tenant.applications.items())
        if requested in ("", application) and name in versions and workflow in versions[name].workflows
    ]
    if not matches:
        message = f"no version {shortened(version, 128)!r} with a workflow {shortened(workflow, 128)!r} is registered"
        raise Refused("unknown_version", message, path="version")
    if len(matches) > 1:
        known = " or ".join(pin_of(application, name) for application, _ in matches)
        raise Refused("which_version", f"several applications have this version; say {known}", path="version")
    application, definition = matches[0]
    return pin_of(application, name), definition


def version_of_run(tenant: Tenant, schedule: Schedule) -> str:
    """The `application@version` that a run of this schedule carries; "": its workflow is of no version.

    It is the version to which the schedule is pinned, or the latest one, unless the workflow was put again since.
    """
    if schedule.terms.version:
        return schedule.terms.version
    plan = tenant.plans.get(schedule.workflow)
    return "" if plan is None else tenant.newest.get((schedule.workflow, plan.hash), "")


def plan_of_run(tenant: Tenant, schedule: Schedule) -> Plan | None:
    """The definition by which a run of this schedule goes; None: there is none."""
    if not schedule.terms.version:
        return tenant.plans.get(schedule.workflow)
    application, _, name = schedule.terms.version.rpartition("@")
    version = tenant.applications.get(application, {}).get(name)
    return None if version is None else tenant.versions.get(version.workflows.get(schedule.workflow, ""))


def _forget_old(versions: dict[str, AppVersion]) -> None:
    by_age = sorted(versions.values(), key=_age, reverse=True)
    for old in by_age[DECLARED_KEPT:]:
        old.declared = None
    for old in by_age[VERSIONS_KEPT:]:
        del versions[old.name]


VERSION_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {ev.VersionPut: _on_version}
