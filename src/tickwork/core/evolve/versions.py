"""The part of `evolve` that keeps the versions of applications."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from tickwork.core.state import events as ev
from tickwork.core.state.inputs import PutSchedule, RegisterVersion
from tickwork.core.state.state import AppVersion, State

VERSIONS_KEPT = 100  # of an application: one that is forgotten and comes back is new, and so the latest
DECLARED_KEPT = 20  # of these, with what they declare

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(list[PutSchedule]).decode
_age = attrgetter("timestamp_ms", "number")


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
        version.workflows = dict(request.workflows)
        # Most versions declare what those before them did: one object, in memory and in the header.
        version.declared = next((other.declared for other in versions.values() if other.declared == declared), declared)
    _forget_old(versions)
    if latest_of(versions) is version:
        tenant.plans.update({name: tenant.versions[plan] for name, plan in version.workflows.items()})


def _forget_old(versions: dict[str, AppVersion]) -> None:
    by_age = sorted(versions.values(), key=_age, reverse=True)
    for old in by_age[DECLARED_KEPT:]:
        old.declared = None
    for old in by_age[VERSIONS_KEPT:]:
        del versions[old.name]


VERSION_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {ev.VersionPut: _on_version}
