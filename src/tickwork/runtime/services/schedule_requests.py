"""Turns a request for a schedule into the input of the machine."""

from tickwork.core.base.errors import Refused
from tickwork.core.state import inputs as inp
from tickwork.core.state.schedule import GovernorLimits
from tickwork.protocol import http_models as wire
from tickwork.protocol.schedule_requests import length_ms, terms_of, when_of
from tickwork.runtime.storage.request_checks import packed

RESERVED = frozenset(("preview",))


def put_of(
    name: str,
    request: wire.ScheduleRequest,
    *,
    by: str,
    tenant: str,
    owner: str = "",
    path: str = "",
    new: bool = False,
) -> inp.PutSchedule:
    at = f"{path}." if path else ""
    if name in RESERVED:
        raise Refused(
            "reserved_name", f"a schedule cannot be named {name!r}: the API uses that path", path=path or "schedule"
        )
    return inp.PutSchedule(
        by,
        tenant,
        name,
        request.workflow,
        when_of(request, at),
        terms_of(request, at),
        packed(request.inputs, f"{at}inputs") if request.inputs else None,
        packed(request.context, f"{at}context") if request.context is not None else None,
        None if request.governor is None else _governing(request.governor, at),
        owner,
        request.description,
        new,
    )


def _governing(request: wire.GovernorRequest, at: str) -> GovernorLimits:
    return GovernorLimits(length_ms(request.min, f"{at}governor.min"), length_ms(request.max, f"{at}governor.max"))
