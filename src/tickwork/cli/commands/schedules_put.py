"""Create schedules: one from flags, or a set from a file. Each command prints what the schedule will do."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client


@Parameter(name="*")
@dataclass(frozen=True)
class ScheduleOptions:
    """The options of a schedule; the server has the defaults."""

    cron: str | None = None
    "Five fields, or six with seconds first; macros such as @daily."
    every: str | None = None
    "An interval: 5m, PT5M."
    at: str | None = None
    "One instant (RFC 3339)."
    rrule: str | None = None
    "A recurrence rule (RFC 5545)."
    event: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Start a run at each event of this name; repeat for other names."
    event_key: str | None = None
    "With --event: only events with this key."
    where: str | None = None
    "With --event: only events for which this CEL condition over event and key holds."
    ended: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Start a run at each end of a run of this workflow; WORKFLOW:failed, :cancelled or :any for another end."
    asset: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Start a run when this asset has new data; repeat for other assets."
    together: Annotated[bool, Parameter(negative="")] = False
    "Start a run only when all of these have come, not at each of them."
    updates: Literal["auto", "each", "coalesce"] | None = None
    "Updates that wait start a run each, or one together (coalesce)."
    anchor: str | None = None
    "Start of the interval or rule (RFC 3339; now)."
    timezone: str | None = None
    "A time zone such as Europe/Berlin (UTC); tickwork zones lists them."
    dst_gap: Literal["auto", "shift", "skip", "end"] | None = None
    "What happens to a time that does not exist because clocks change."
    dst_overlap: Literal["auto", "first", "second", "both"] | None = None
    "What happens to a time that occurs twice because clocks change."
    include: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "A date that always counts; repeat for each date."
    exclude: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "A date that never counts; repeat for each date."
    business_days: Annotated[bool, Parameter(negative="")] = False
    "Monday to Friday only."
    holidays: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "A list of holidays to leave out; repeat for each list."
    start: str | None = None
    "Due from this time on (RFC 3339)."
    end: str | None = None
    "Due before this time (RFC 3339)."
    max_runs: int | None = None
    "Maximum number of runs."
    input: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "An input of each run as name=value; repeat for each input. The value is JSON, or text if it is not valid JSON."
    inputs_json: str | None = None
    "All inputs as a JSON object, @file, or - for standard input."
    context: str | None = None
    "The context of each run: JSON, or text if it is not valid JSON."
    time_input: str | None = None
    "The input that receives the scheduled time (scheduled_time)."
    context_input: str | None = None
    "The input that receives the context (context)."
    queue: str | None = None
    "Queue for nodes that name none."
    priority: int | None = None
    "Higher values come first."
    overlap: Literal["allow", "forbid", "replace", "buffer_one", "buffer_all"] | None = None
    "What happens if the previous run is still active (allow)."
    buffer: int | None = None
    "With --overlap buffer_all: how many occurrences may wait (100)."
    catch_up: Literal["none", "last", "all", "window", "coalesce", "spread"] | None = None
    "What happens to late occurrences (last)."
    catch_up_window: str | None = None
    "For window: how far back; for spread: over how long."
    catch_up_cap: int | None = None
    "Maximum number of late occurrences that run (1000)."
    grace: str | None = None
    "Delay that still counts as on time (1m)."
    automatic_backfill: Annotated[bool, Parameter(negative="")] = False
    "Catch up on everything since the last firing, including pauses."
    jitter: Annotated[bool, Parameter(negative="")] = False
    "Delay the start a little, by a different amount for each occurrence, to spread load."
    pause_after: int | None = None
    "Pause after this many failures in a row."
    depends_on_past: Annotated[bool, Parameter(negative="")] = False
    "With --overlap buffer_all, buffer_one or forbid: start nothing after a failed run until it is mended."
    tags: Annotated[tuple[str, ...], Parameter(name="--tag", negative="")] = ()
    "A tag of each run; repeat for each tag."
    app_version: str | None = None
    "Pin its runs to this version of their application (tickwork versions). Otherwise they carry the latest."
    group: str | None = None
    "A group of schedules that are paused and resumed together."
    description: str | None = None
    "For people."
    governed: Annotated[bool, Parameter(negative="")] = False
    "Let the Governor decide the next time after each run, using hints."
    min: str | None = None
    "With the Governor: minimum time between runs."
    max: str | None = None
    "With the Governor: maximum time between runs."

    def given(self) -> dict[str, Any]:
        """Return the options as arguments of the client. Omitted options use the server's defaults."""
        from tickwork.cli.input_values import read_inputs, read_value
        from tickwork.protocol.http_models import GovernorRequest

        own = ("input", "inputs_json", "context", "governed", "min", "max", "app_version", *_TRIGGER)
        fields = {
            name: value for name, value in vars(self).items() if name not in own and value not in (None, (), False)
        }
        inputs = read_inputs(self.input, self.inputs_json, None)
        if inputs:
            fields["inputs"] = inputs
        if self.app_version is not None:
            fields["version"] = self.app_version
        if self.context is not None:
            fields["context"] = read_value(self.context)
        if self.governed or self.min or self.max:
            fields["governor"] = GovernorRequest(min=self.min or "", max=self.max or "")
        sources = self._sources()
        if sources:
            fields["listen_to"] = (tuple(sources),) if self.together else tuple(sources)
        rhythms = [name for name in ("cron", "every", "at", "rrule") if name in fields]
        if len(rhythms) != 1 and (rhythms or not sources):
            message = "say when, with one of --cron, --every, --at and --rrule, or with --event, --ended or --asset"
            raise CommandExit(Exit.USAGE, message)
        return fields

    def _sources(self) -> "list[wire.TriggerSource]":
        import msgspec

        from tickwork.protocol.http_models import TriggerSource

        if (self.event_key or self.where) and not self.event:
            raise CommandExit(Exit.USAGE, "--event-key and --where are about events: name them with --event")
        sources = [TriggerSource(event=event, key=self.event_key or "", where=self.where or "") for event in self.event]
        sources += [TriggerSource(asset=asset) for asset in self.asset]
        for text in self.ended:
            workflow, _, state = text.partition(":")
            try:
                sources.append(
                    msgspec.convert({"ended": workflow, **({"state": state} if state else {})}, TriggerSource)
                )
            except msgspec.ValidationError:
                message = f"--ended {text}: a run ends completed, failed or cancelled; :any is all of them"
                raise CommandExit(Exit.USAGE, message) from None
        return sources


_TRIGGER = ("event", "event_key", "where", "ended", "asset", "together")
TERMS = ScheduleOptions()


def put(
    name: str,
    /,
    *,
    workflow: str,
    new: Annotated[bool, Parameter(negative="")] = False,
    if_match: str = "",
    terms: ScheduleOptions = TERMS,
    to: ClientOptions = TO,
) -> int:
    """Create or replace a schedule, and print what it will do.

    Parameters
    ----------
    name
        Its name.
    workflow
        The workflow to run.
    new
        Fail if a schedule of this name exists.
    if_match
        Fail if the schedule has changed since it was shown with this ETag.
    """
    given = terms.given()
    with to.client() as client:
        make = client.create_schedule if new else partial(client.put_schedule, if_match=if_match)
        return _print_preview(name, make(name, workflow, **given), to, done=True, governed="governor" in given)


def preview(name: str = "", /, *, workflow: str = "", terms: ScheduleOptions = TERMS, to: ClientOptions = TO) -> int:
    """Show what a schedule would do, without creating it.

    Parameters
    ----------
    name
        The name the schedule would have; it determines the values of H in a cron expression.
    workflow
        The workflow it would run.
    """
    given = terms.given()
    with to.client() as client:
        answer = client.preview_schedule(workflow, name=name, **given)
    return _print_preview(name, answer, to, done=False, governed="governor" in given)


def apply(
    file: Path,
    /,
    *,
    owner: str = "",
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    to: ClientOptions = TO,
) -> int:
    """Replace the schedules of an owner with those in a file, all or none. First shows what is added, changed and
    removed.

    Parameters
    ----------
    file
        YAML or JSON: a mapping from names to the options of `put`.
    owner
        The owner of the schedules; schedules of the owner that are not in the file are removed.
    dry_run
        Only show the changes; errors are reported as usual.
    """
    from tickwork.cli.commands.schedule_file import read_schedules
    from tickwork.cli.output import console, print_json

    document = read_schedules(file)
    owner = owner or document.owner
    if not owner:
        raise CommandExit(
            Exit.USAGE, "name the owner of these schedules with --owner; other schedules of this owner are removed"
        )
    with to.client() as client:
        _check_holidays(client, document.holidays)
        changes = _changes(client, owner, document.schedules)
        if not to.json:
            console(stderr=not dry_run).print("\n".join(_lines(changes)) or "nothing changes", soft_wrap=True)
        client.apply_schedules(owner, document.schedules, dry_run=dry_run)
    if to.json:
        print_json({"owner": owner, "dry_run": dry_run, **changes})
    elif not dry_run:
        console().print(f"applied: {len(document.schedules)} schedules of {owner}", soft_wrap=True, markup=False)
    return Exit.OK


def _print_preview(name: str, preview: "wire.SchedulePreview", to: ClientOptions, *, done: bool, governed: bool) -> int:
    from tickwork.cli.output import console, print_json, safe, table, until

    if to.json:
        print_json(preview)
        return Exit.OK
    screen = console()
    screen.print(f"{safe(name) + ': ' if name else ''}{safe(preview.says)}", soft_wrap=True)
    if preview.next:
        screen.print(
            table(("in its zone", "UTC", "here"), [(safe(x.local), safe(x.utc), until(x.utc)) for x in preview.next])
        )
    for warning in preview.warnings:
        screen.print(f"[yellow]warning[/] {safe(warning.text)}", soft_wrap=True)
    if governed:
        screen.print("[dim]these are its times without the Governor, which decides after each run[/]")
    if not done:
        screen.print(f"[dim]nothing was made; times by tzdata {safe(preview.tzdata)}[/]")
    return Exit.OK


def _check_holidays(client: "Client", lists: "dict[str, tuple[str, ...]]") -> None:
    known = client.holidays() if lists else {}
    for name, dates in lists.items():
        if tuple(sorted(dates)) != tuple(known.get(name, ())):
            raise CommandExit(
                Exit.REFUSED,
                f"the list of holidays {name!r} of the file is not the server's; tickwork holidays put {name} puts it",
            )


def _changes(client: "Client", owner: str, requests: "dict[str, wire.ScheduleRequest]") -> dict[str, Any]:
    """Names that are added and removed, and of those that change, what."""
    from tickwork.core.base.errors import Refused

    owned = [
        schedule.name
        for away in (False, True)
        for schedule in client.schedules(archived=away)
        if schedule.owner == owner
    ]
    added: list[str] = []
    changed: dict[str, dict[str, tuple[Any, Any]]] = {}
    for name, request in sorted(requests.items()):
        try:
            live = client.schedule(name)
        except Refused as refused:
            if refused.code != "unknown_schedule":
                raise
            added.append(name)
            continue
        fields = _differing(live, request, owner)
        if fields:
            changed[name] = fields
    return {"added": added, "changed": changed, "removed": sorted(name for name in owned if name not in requests)}


def _differing(live: "wire.Schedule", request: "wire.ScheduleRequest", owner: str) -> dict[str, tuple[Any, Any]]:
    """Return the changed fields with their old and new values, in the same notation."""
    assert live.request is not None
    before, after = live.request, _in_one_way(request)
    differing = {
        name: (getattr(before, name), getattr(after, name))
        for name in after.__struct_fields__
        if getattr(before, name) != getattr(after, name)
    }
    if not after.anchor and (before.every, before.rrule) == (after.every, after.rrule):
        differing.pop("anchor", None)  # an edit of other things leaves it where it is
    if live.owner != owner:
        differing["owner"] = (live.owner, owner)
    return differing


def _in_one_way(request: "wire.ScheduleRequest") -> "wire.ScheduleRequest":
    """Lengths and instants as the server writes them."""
    import msgspec

    from tickwork.core.calendar.durations import duration_ms, duration_text, instant_ms, instant_text

    fields = {
        name: duration_text(duration_ms(getattr(request, name), path=name))
        for name in ("every", "catch_up_window", "grace")
        if getattr(request, name)
    }
    fields |= {
        name: instant_text(instant_ms(getattr(request, name), path=name))
        for name in ("at", "anchor", "start", "end")
        if getattr(request, name)
    }
    return msgspec.structs.replace(request, **fields)


def _lines(changes: dict[str, Any]) -> list[str]:
    from tickwork.cli.output import safe

    lines = [f"[green]+ {safe(name)}[/]" for name in changes["added"]]
    for name, fields in changes["changed"].items():
        edits = "; ".join(f"{field} {_short(old)} -> {_short(new)}" for field, (old, new) in fields.items())
        lines.append(f"[yellow]~ {safe(name)}[/] {edits}")
    return lines + [f"[red]- {safe(name)}[/]" for name in changes["removed"]]


def _short(data: Any) -> str:
    from tickwork.cli.output import value

    return value(data, characters_max=80) if data not in ("", None, (), {}) else "-"
