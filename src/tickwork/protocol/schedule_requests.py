"""Requests for schedules as values of the core, and back.

One table has the fields of a request, their names in the core and how their values are converted. Refusals of the core
name the field as the request has it. The server and the code that declares a schedule read a request alike.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import duration_ms, duration_text, instant_ms, instant_text
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.trigger_spec import TriggerSpec, UpdateSource
from tickwork.core.calendar.zones import Zone
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.protocol import http_models as wire


class FieldKind(Enum):
    """How a value is written in a request, and what it is in the core."""

    PLAIN = "the same in both"
    TEXT = "a text; empty: None"
    INSTANT = "a time in RFC 3339, as milliseconds; empty: None"
    INTERVAL = "a duration, as milliseconds; empty: None"
    LENGTH = "a duration, as milliseconds; empty: 0"
    DAYS = "dates or names, as texts"
    PRIORITY = "a number; None: -1"


class ScheduleField(NamedTuple):
    """A field of a request, and the name of its value in `ScheduleSpec` or `SchedulePolicy`."""

    name: str
    core: str
    kind: FieldKind = FieldKind.PLAIN


SPEC_FIELDS = (
    ScheduleField("cron", "cron", FieldKind.TEXT),
    ScheduleField("every", "every_ms", FieldKind.INTERVAL),
    ScheduleField("at", "at_ms", FieldKind.INSTANT),
    ScheduleField("rrule", "rrule", FieldKind.TEXT),
    ScheduleField("anchor", "anchor_ms", FieldKind.INSTANT),
    ScheduleField("timezone", "zone"),
    ScheduleField("dst_gap", "gap"),
    ScheduleField("dst_overlap", "overlap"),
    ScheduleField("include", "include", FieldKind.DAYS),
    ScheduleField("exclude", "exclude", FieldKind.DAYS),
    ScheduleField("business_days", "business_days"),
    ScheduleField("holidays", "holidays", FieldKind.DAYS),
    ScheduleField("start", "start_ms", FieldKind.INSTANT),
    ScheduleField("end", "end_ms", FieldKind.INSTANT),
)
POLICY_FIELDS = (
    ScheduleField("queue", "queue"),
    ScheduleField("overlap", "overlap"),
    ScheduleField("catch_up", "catch_up"),
    ScheduleField("catch_up_window", "catch_up_ms", FieldKind.LENGTH),
    ScheduleField("catch_up_cap", "catch_up_cap"),
    ScheduleField("grace", "grace_ms", FieldKind.LENGTH),
    ScheduleField("jitter", "jitter"),
    ScheduleField("pause_after", "pause_after"),
    ScheduleField("priority", "priority", FieldKind.PRIORITY),
    ScheduleField("automatic_backfill", "automatic_backfill"),
    ScheduleField("max_runs", "runs_max"),
    ScheduleField("buffer", "buffer_max"),
    ScheduleField("group", "group"),
    ScheduleField("time_input", "time_input"),
    ScheduleField("context_input", "context_input"),
    ScheduleField("depends_on_past", "depends_on_past"),
    ScheduleField("tags", "tags"),
    ScheduleField("version", "version"),
)
SCHEDULE_FIELDS = {field.name: field for field in (*SPEC_FIELDS, *POLICY_FIELDS)}

_LOCAL_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?P<seconds>:\d\d(?:\.\d+)?)?)?", re.ASCII)
_REQUEST_FIELDS = {
    **{field.core: field.name for field in POLICY_FIELDS},
    **{f"when.{field.core}": field.name for field in SPEC_FIELDS},
    "governing.interval_ms": "every",
    "governing.max_ms": "governor.max",
    "governing.min_ms": "governor.min",
    "hint_interval_ms": "interval",
    "interval_ms": "interval",
    "ttl_ms": "ttl",
    "at_ms": "at",
    "when": "cron",
}


@contextmanager
def in_words(at: str = "") -> Iterator[None]:
    """A refusal inside names the field as the request has it; `at` is where the request itself is."""
    try:
        yield
    except Refused as refused:
        path = f"{at}.{request_field(refused.path)}".strip(".")
        raise Refused(refused.code, refused.message, path=path) from None


def request_field(path: str) -> str:
    """A field of the core, as the request has it."""
    if path.startswith("when.on"):
        return f"listen_to{path.removeprefix('when.on')}"
    return _REQUEST_FIELDS.get(path, path.removeprefix("when."))


def when_of(request: wire.ScheduleRequest, at: str = "") -> ScheduleSpec:
    given = [name for name in ("cron", "every", "at", "rrule") if getattr(request, name)]
    if len(given) != 1 and (given or not request.listen_to):
        listed = " and ".join(given) if given else "none of them"
        raise Refused("bad_schedule", f"give exactly one of cron, every, at and rrule, not {listed}", path=f"{at}cron")
    return ScheduleSpec(**_read(request, SPEC_FIELDS, at), on=_trigger_of(request, f"{at}updates"))


def _trigger_of(request: wire.ScheduleRequest, path: str) -> TriggerSpec | None:
    """Equal sources are one, so that an update counts once."""
    if not request.listen_to:
        if request.updates != "auto":
            raise Refused("bad_trigger", "only a schedule with `listen_to` has updates", path=path)
        return None
    sources: dict[UpdateSource, int] = {}
    groups = []
    for item in request.listen_to:
        group = [_source_of(source) for source in ((item,) if isinstance(item, wire.TriggerSource) else item)]
        groups.append(tuple(sorted({sources.setdefault(source, len(sources)) for source in group})))
    return TriggerSpec(sources=tuple(sources), groups=tuple(dict.fromkeys(groups)), coalesce=_coalesces(request))


def _coalesces(request: wire.ScheduleRequest) -> bool:
    """New data that waits is one reason to run; each event, and each end of a run, is one of its own."""
    if request.updates != "auto":
        return request.updates == "coalesce"
    return any(
        source.asset
        for item in request.listen_to
        for source in ((item,) if isinstance(item, wire.TriggerSource) else item)
    )


def _source_of(source: wire.TriggerSource) -> UpdateSource:
    return UpdateSource(**{name: getattr(source, name) for name in source.__struct_fields__})


def _updates_of(on: TriggerSpec | None) -> str:
    if on is None or on.coalesce == any(source.asset for source in on.sources):
        return "auto"
    return "coalesce" if on.coalesce else "each"


def _on_of(on: TriggerSpec | None) -> tuple[wire.TriggerSource | tuple[wire.TriggerSource, ...], ...]:
    if on is None:
        return ()
    sources = [
        wire.TriggerSource(**{name: getattr(source, name) for name in source.__struct_fields__})
        for source in on.sources
    ]
    return tuple(
        sources[group[0]] if len(group) == 1 else tuple(sources[index] for index in group) for group in on.groups
    )


def terms_of(request: wire.ScheduleRequest, at: str = "") -> SchedulePolicy:
    return SchedulePolicy(**_read(request, POLICY_FIELDS, at))


def fields_of(when: ScheduleSpec, terms: SchedulePolicy) -> dict[str, Any]:
    """Return the fields of the request that says the same, with times and durations in canonical form."""
    fields = {field.name: _written(field, getattr(when, field.core)) for field in SPEC_FIELDS}
    fields |= {
        "listen_to": _on_of(when.on),
        "updates": _updates_of(when.on),
    }
    return fields | {field.name: _written(field, getattr(terms, field.core)) for field in POLICY_FIELDS}


def _read(request: wire.ScheduleRequest, fields: Iterable[ScheduleField], at: str) -> dict[str, Any]:
    values = {}
    for name, core, kind in fields:
        value = getattr(request, name)
        match kind:
            case FieldKind.TEXT:
                value = value or None
            case FieldKind.INSTANT:
                value = instant_ms(value, path=f"{at}{name}") if value else None
            case FieldKind.INTERVAL:
                value = length_ms(value, f"{at}{name}")
            case FieldKind.LENGTH:
                value = length_ms(value, f"{at}{name}") or 0
            case FieldKind.PRIORITY:
                value = -1 if value is None else value
        values[core] = value
    return values


def _written(field: ScheduleField, value: Any) -> Any:
    match field.kind:
        case FieldKind.TEXT:
            return value or ""
        case FieldKind.INSTANT:
            return "" if value is None else instant_text(value)
        case FieldKind.INTERVAL:
            return "" if value is None else duration_text(value)
        case FieldKind.LENGTH:
            return duration_text(value) if value else ""
        case FieldKind.PRIORITY:
            return None if value == -1 else value
    return value


def length_ms(text: str, path: str) -> int | None:
    return duration_ms(text, path=path) if text else None


def reading_ms(text: str, zone: Zone, *, path: str) -> int:
    """An instant; or a date, or a date and time without a zone, as the zone's own clock shows it."""
    match = _LOCAL_TIME.fullmatch(text)
    if match is None:
        return instant_ms(text, path=path)
    whole = text if "T" in text else f"{text}T00:00:00"
    whole += "" if "T" not in text or match["seconds"] else ":00"
    local_s, ms = divmod(instant_ms(f"{whole}Z", path=path), 1_000)
    return zone.first_s(local_s) * 1_000 + ms
