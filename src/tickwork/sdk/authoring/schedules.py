"""When a workflow runs by itself: what stands in code, checked where it is written.

`tw.cron(...)` and its siblings take the same policies as a schedule that is made at run time, and become the same
request; the server has the last word about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, get_origin

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_text, interval_ms
from tickwork.sdk.assets import Asset, as_trigger
from tickwork.sdk.authoring.options import duration
from tickwork.sdk.authoring.source_location import SourceLocation, at_place, here, placed
from tickwork.sdk.values.encode import plain

if TYPE_CHECKING:
    from tickwork.core.calendar.zones import Zones
    from tickwork.protocol.http_models import GovernorRequest, ScheduleRequest, TriggerSource
    from tickwork.protocol.worker_messages import DeclaredSchedule
    from tickwork.sdk.authoring.workflows import Workflow
    from tickwork.sdk.values.signature_codec import Codec, Parameter

Duration = str | timedelta
Instant = str | datetime
Day = str | date
# Any of these sources, each as a mapping of its fields (event, ended or asset); of a list in it, all.
ListenTo = Sequence[Mapping[str, str] | Sequence[Mapping[str, str]]]


class Policies(TypedDict, total=False):
    """All options of a schedule except its times. Defaults: UTC, the default queue, every
    occurrence starts on its own, and of what is late the last one runs."""

    inputs: Mapping[str, Any]
    context: Any  # the second argument of each run
    queue: str
    priority: int
    overlap: Literal["allow", "forbid", "replace", "buffer_one", "buffer_all"]
    buffer: int  # of buffer_all: how many may wait
    catch_up: Literal["none", "last", "all", "window", "coalesce", "spread"]
    catch_up_window: Duration  # of window: how far back; of spread: over how long
    catch_up_cap: int
    grace: Duration  # how late is still on time
    automatic_backfill: bool
    jitter: bool
    pause_after: int  # failures in a row
    depends_on_past: bool  # with an overlap that waits or forbids: nothing starts after a run that failed
    start: Instant  # a datetime without a zone is in the schedule's
    end: Instant
    max_runs: int
    include: Sequence[Day]
    exclude: Sequence[Day]
    business_days: bool
    holidays: str | Sequence[str]  # names of lists
    dst_gap: Literal["auto", "shift", "skip", "end"]
    dst_overlap: Literal["auto", "first", "second", "both"]
    group: str
    description: str
    tags: Sequence[str]  # of its runs, beside those of the workflow
    version: str  # of the application: its runs are pinned to it
    time_input: str  # the parameter that gets the scheduled time, where it is not the first
    context_input: str
    governor: "GovernorRequest"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that stands in code: made by `tw.cron`, `tw.every`, `tw.at`, `tw.rrule` or `tw.on`."""

    wanted: "ScheduleRequest"
    name: str = ""  # "": that of its workflow
    location: SourceLocation | None = None

    def __or__(self, other: "Schedule") -> "Schedule":
        """Times and updates in one schedule: of two that say something else about the same policy, the first counts."""
        if not isinstance(other, Schedule):
            return NotImplemented
        return Schedule(
            at_place(_joined, self.wanted, other.wanted, location=self.location), self.name or other.name, self.location
        )

    def timetable(self, *, name: str, workflow: "Workflow[..., Any]") -> "DeclaredSchedule":
        """Return the declaration for the server. Raises `Refused` if the workflow's parameters do not fit."""
        from tickwork.protocol.worker_messages import DeclaredSchedule

        request = at_place(fitted, self.wanted, workflow, location=self.location)
        at_place(_check_values, request, workflow.codec, location=self.location)
        return DeclaredSchedule(self.name or name, request, str(self.location or ""))


def cron(expression: str, /, *, tz: str = "UTC", name: str = "", **policies: Unpack[Policies]) -> Schedule:
    """Five fields, or six with seconds first: `tw.cron("0 9 * * 1-5", tz="America/New_York")`."""
    return _declared(name, tz, policies, cron=expression)


def every(
    interval: Duration,
    /,
    *,
    anchor: Instant = "",
    tz: str = "UTC",
    name: str = "",
    **policies: Unpack[Policies],
) -> Schedule:
    """At a fixed interval: `tw.every("5m")`. It counts from `anchor`, or from when it is first published."""
    return _declared(name, tz, policies, every=interval, anchor=anchor)


def at(instant: Instant, /, *, tz: str = "UTC", name: str = "", **policies: Unpack[Policies]) -> Schedule:
    """Once: `tw.at("2026-12-24T18:00:00Z")`. A datetime without a zone is in `tz`."""
    return _declared(name, tz, policies, at=instant)


def rrule(
    rule: str, /, *, anchor: Instant = "", tz: str = "UTC", name: str = "", **policies: Unpack[Policies]
) -> Schedule:
    """A recurrence rule of RFC 5545: `tw.rrule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", tz="Europe/Berlin")`."""
    return _declared(name, tz, policies, rrule=rule, anchor=anchor)


class Trigger:
    """Updates to listen to: assets, `tw.incoming` or `tw.ended`, combined by `&` and `|`."""

    def __init__(self, groups: "tuple[tuple[TriggerSource, ...], ...]") -> None:
        self.groups = groups  # any of these, and of each all sources

    def __and__(self, other: "Trigger | Asset") -> "Trigger":
        other = as_trigger(other)
        if not isinstance(other, Trigger):
            return NotImplemented
        return Trigger(tuple((*mine, *more) for mine in self.groups for more in other.groups))

    def __or__(self, other: "Trigger | Asset") -> "Trigger":
        other = as_trigger(other)
        if not isinstance(other, Trigger):
            return NotImplemented
        return Trigger((*self.groups, *other.groups))


def incoming(event: str, /, *, key: str = "", where: str = "") -> Trigger:
    """Each event of this name, as `tw.on(tw.incoming("order.created"))`. With `key`, only those with this key; with
    `where`, only those for which this CEL condition over `event` and `key` holds: `where="event.total > 100"`."""
    from tickwork.core.definition.cel import EVENT_VARIABLES, Condition
    from tickwork.protocol.http_models import TriggerSource

    location = here()
    at_place(check_name, event, path="event", kind="event", location=location)
    if where:
        at_place(lambda: Condition.compile(where, path="where", allowed=EVENT_VARIABLES), location=location)
    return Trigger(((TriggerSource(event=event, key=key, where=where),),))


def ended(
    workflow: "Workflow[..., Any] | str",
    /,
    *,
    state: Literal["completed", "failed", "cancelled", "any"] = "completed",
) -> Trigger:
    """Each run of this workflow that ends in this state. Runs that another run called do not count, nor do tests."""
    from tickwork.core.calendar.trigger_spec import STATES
    from tickwork.protocol.http_models import TriggerSource

    if state not in STATES:
        message = f"state is one of {', '.join(STATES)}, not {state!r}"
        raise placed("bad_trigger", message)
    return Trigger(((TriggerSource(ended=workflow if isinstance(workflow, str) else workflow.name, state=state),),))


def on(
    trigger: "Trigger | Asset",
    /,
    *,
    updates: Literal["auto", "each", "coalesce"] = "auto",
    name: str = "",
    **policies: Unpack[Policies],
) -> Schedule:
    """When updates come: `tw.on(orders & rates)`, `tw.on(tw.incoming("order.created"))`, `tw.on(tw.ended(load))`.

    With `updates="coalesce"`, as with assets, updates that wait start one run together; otherwise each its own. An
    input of the workflow named `event` gets the payload of the event, one named `because` all updates, one named
    `partition` which part of an asset is new. Combine it with times by `|`: `tw.on(...) | tw.cron("0 6 * * *")`.
    """
    given: object = as_trigger(trigger)
    if not isinstance(given, Trigger):
        made = "tw.on takes assets, tw.incoming(...) or tw.ended(...), combined by & and |"
        raise placed("bad_schedule", f"{made}, not {trigger!r}")
    groups = tuple(group[0] if len(group) == 1 else group for group in given.groups)
    return _declared(name, "UTC", policies, listen_to=groups, updates=updates)


def _declared(name: str, tz: str, policies: Policies, **when: Any) -> Schedule:
    location = here()
    if name:
        at_place(check_name, name, path="name", kind="schedule", location=location)
    given = {"timezone": tz, **when, **policies}
    request = at_place(request_of, "", given, location=location)
    at_place(_check, request, location=location)
    return Schedule(request, name, location)


def request_of(workflow: str, given: Mapping[str, Any]) -> "ScheduleRequest":
    """What was given, as the request for it: times, lengths and dates as texts. Raises `Refused`."""
    import msgspec

    from tickwork.protocol.http_models import ScheduleRequest
    from tickwork.protocol.schedule_requests import terms_of, when_of

    known = ScheduleRequest.__struct_fields__
    fields: dict[str, Any] = {"workflow": workflow}
    for name, value in given.items():
        if name not in known or name == "workflow":
            options = ", ".join(sorted(frozenset(known) - {"workflow"}))
            raise Refused("bad_option", f"a schedule has no option {name!r}; known are {options}")
        if value is not None and value != "":
            fields[name] = _field(name, value, given.get("timezone", "UTC"))
    try:
        request = msgspec.convert(fields, ScheduleRequest)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise Refused("bad_option", message, path=path.rstrip("`")) from None
    when_of(request)
    terms_of(request)
    return request


def _field(name: str, value: Any, zone: str) -> Any:
    from tickwork.protocol.schedule_requests import SCHEDULE_FIELDS, FieldKind

    if name in ("inputs", "context", "governor"):
        return plain(dict(value) if name == "inputs" else value, what=name)
    if name not in SCHEDULE_FIELDS:
        return value
    match SCHEDULE_FIELDS[name].kind:
        case FieldKind.INTERVAL:
            interval_ms(duration(value, path=name), path=name)
            return value if isinstance(value, str) else duration_text(duration(value, path=name))
        case FieldKind.LENGTH:
            return value if isinstance(value, str) else duration_text(duration(value, path=name))
        case FieldKind.INSTANT:
            return _instant(value, zone, name) if isinstance(value, datetime) else value
        case FieldKind.DAYS:
            listed = [value] if isinstance(value, str | date) else list(value)
            return tuple(day.isoformat() if isinstance(day, date) else day for day in listed)
        case _:
            return value


def _instant(value: datetime, zone: str, path: str) -> str:
    if value.tzinfo is not None:
        return str(plain(value, what=path))
    from tickwork.core.calendar.durations import instant_text
    from tickwork.protocol.schedule_requests import reading_ms

    return instant_text(reading_ms(value.isoformat(), _zones(zone).get(zone, path="timezone"), path=path))


def _joined(first: "ScheduleRequest", second: "ScheduleRequest") -> "ScheduleRequest":
    import msgspec

    if bool(first.listen_to) is bool(second.listen_to):
        message = "| joins updates with times: tw.on(...) | tw.cron(...); give other schedules as a list"
        raise Refused("bad_schedule", message)
    bare = type(first)(workflow="")
    given = {name for name in bare.__struct_fields__ if getattr(first, name) != getattr(bare, name)}
    joined = {name: getattr(first if name in given else second, name) for name in bare.__struct_fields__}
    request = msgspec.structs.replace(first, **joined)
    _check(request)
    return request


def _check(request: "ScheduleRequest") -> None:
    """As far as it can be known without a server: which queues and lists of holidays there are, the server knows."""
    import msgspec

    from tickwork.core.calendar.schedule_spec import compile_when
    from tickwork.core.state.schedule import check_terms
    from tickwork.protocol.schedule_requests import in_words, terms_of, when_of

    with in_words():
        when = when_of(request)
        counts = when.every_ms is not None or when.rrule is not None
        if when.anchor_ms is None and when.start_ms is None and counts:
            when = msgspec.structs.replace(when, anchor_ms=0)  # the server says from where it counts
        compile_when(when, _zones(request.timezone), dict.fromkeys(request.holidays, frozenset()), path="when")
        check_terms(terms_of(request))


def _zones(name: str) -> "Zones":
    if name == "UTC":
        from tickwork.core.calendar.zones import UTC_ONLY

        return UTC_ONLY
    from tickwork.system.zone_data import load_zones

    return load_zones()


# ---- what the parameters of a workflow have to do with it


def fitted(request: "ScheduleRequest", workflow: "Workflow[..., Any]") -> "ScheduleRequest":
    """For this workflow: which parameter gets the scheduled time, and which the context. Its `overlap` is that of its
    schedules, where they say nothing else."""
    import msgspec

    codec = workflow.codec
    names, defaults = list(codec.parameters), type(request)(workflow="")
    time, context = request.time_input, request.context_input
    if time == defaults.time_input and time not in names and names and names[0] not in request.inputs:
        time = names[0] if _takes_time(codec.parameters[names[0]]) else time
    if request.context is not None and context not in names:
        after = names[names.index(time) + 1 :] if time in names else []
        if context != defaults.context_input or not after:
            message = f"there is a context, and {codec.name} has no parameter for it; add one after the scheduled time"
            raise Refused("bad_schedule", message, path="context")
        context = after[0]
    overlap = workflow.settings["overlap"].lower() if request.overlap == defaults.overlap else request.overlap
    return msgspec.structs.replace(
        request, workflow=workflow.name, time_input=time, context_input=context, overlap=overlap
    )


def _takes_time(parameter: "Parameter") -> bool:
    try:
        kind = parameter.type
    except Refused:
        return False
    return datetime in (kind, *(get_args(kind) if get_origin(kind) is not None else ()))


def _check_values(request: "ScheduleRequest", codec: "Codec") -> None:
    for name, value in request.inputs.items():
        if name not in codec.parameters:
            raise Refused("unknown_input", f"{codec.name} has no parameter {name!r}", path=f"inputs.{name}")
        codec.check_constant(name, value)
    filled = {request.time_input, *request.inputs, *([] if request.context is None else [request.context_input])}
    if request.listen_to and not (request.cron or request.every or request.at or request.rrule):
        filled |= {"event", "because", "partition"}
    missing = [
        parameter.name for parameter in codec.parameters.values() if parameter.required and parameter.name not in filled
    ]
    if missing:
        message = f"{codec.name} has a schedule, which has no value for {', '.join(missing)}; give it a default"
        raise Refused("bad_schedule", f"{message}, or name it in inputs=")
