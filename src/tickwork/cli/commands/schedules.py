"""`tickwork schedules`: list schedules, with their next times, their occurrences and the reasons.

The command by itself lists them; each action is a command under it, from `schedules_put` and `named_actions`.
"""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tickwork.cli.commands import schedules_put as puts
from tickwork.cli.commands.named_actions import ResourceKind, add_actions
from tickwork.cli.commands.schedules_diff import diff
from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from rich.tree import Tree

    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client

TIMES_SHOWN = 10
DAYS_MAX = 3_660
ROWS_MAX = 5_000  # more rows take long to draw, and are not read

schedules = App(name="schedules", help_format="plaintext")
for command in (puts.put, puts.preview, puts.apply, diff):
    schedules.command(command)


def _print_state(client: "Client", name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, source_label, until

    schedule = client.schedule(name)
    if to.json:
        print_json(schedule)
        return Exit.OK
    source = source_label(schedule.governed.source, schedule.governed.hints) if schedule.governed is not None else ""
    by = f" ({source})" if source else ""
    rest = f"next {until(schedule.next_at)}{safe(by)}" if schedule.next_at else "nothing is due"
    if schedule.paused_until and not schedule.next_at:
        rest = f"goes on {until(schedule.paused_until)}"
    console().print(f"{safe(name)}: {safe(what)}; {rest}", soft_wrap=True)
    return Exit.OK


add_actions(
    schedules,
    ResourceKind(
        noun="schedule",
        summaries={
            "trigger": "Start a run of a schedule now, in addition to its times, and print the run's id.",
            "test": "Start a run as the schedule would, without any effect on the schedule.",
            "pause": "Pause a schedule, or a group of schedules, until it is resumed.",
            "resume": "Resume a paused schedule or group, from now on.",
            "reset-failures": "Reset the failure count of a schedule.",
            "hint": "Give the Governor of a schedule a hint: run at this interval, or once at this time.",
            "clear-hints": "Withdraw all hints for a schedule; its own times apply again.",
            "archive": "Archive a schedule with its history; it no longer fires.",
            "restore": "Restore a schedule from the archive.",
        },
        check=lambda _client, _name: None,  # the server refuses an unknown name
        archive=lambda client, name: client.archive_schedule(name),
        restore=lambda client, name: client.restore_schedule(name),
        trigger=lambda client, name, test: client.trigger_schedule(name, test=test),
        print_state=_print_state,
    ),
)


@schedules.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Remove a schedule. Its runs continue, and the fates of its occurrences are kept.

    Parameters
    ----------
    name
        Its name.
    """
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        client.delete_schedule(name)
    if to.json:
        print_json({"schedule": name})
    else:
        console().print(f"{safe(name)}: deleted", soft_wrap=True)
    return Exit.OK


@schedules.default
def listed(
    *,
    group: str = "",
    archived: Annotated[bool, Parameter(negative="")] = False,
    to: ClientOptions = TO,
) -> int:
    """List schedules, with the next time of each.

    Parameters
    ----------
    group
        Only those of this group.
    archived
        List archived ones instead.
    """
    from tickwork.cli.output import ago, console, print_json, safe, table, until
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        page = tuple(client.schedules(group=group, archived=archived))
    if to.json:
        print_json(wire.Schedules(schedules=page))
        return Exit.OK
    if not page:
        where = " in the archive" if archived else f" in the group {safe(group)}" if group else ""
        console(stderr=True).print(f"no schedules{where}; tickwork schedules put creates one")
        return Exit.OK
    rows = [
        (safe(item.name), safe(item.workflow), safe(_times(item)), until(item.next_at), ago(item.last_fired_at),
         ago(item.last_success_at), f"{item.fates.ran}/{item.fates.skipped}/{item.fates.missed}", _state(item))
        for item in page
    ]  # fmt: skip
    columns = ("schedule", "workflow", "times", "next", "last fired", "last success", ">ran/skipped/missed", "state")
    console().print(table(columns, rows))
    return Exit.OK


@schedules.command
def show(name: str, /, *, to: ClientOptions = TO) -> int:
    """Show a schedule with its policies, its next ten times, its fates, and the Governor's decision.

    Parameters
    ----------
    name
        Its name.
    """
    from tickwork.cli.output import console, print_json

    with to.client() as client:
        schedule = client.schedule(name)
        if to.json:
            print_json(schedule)
            return Exit.OK
        times = tuple(client.upcoming(days=DAYS_MAX, schedule=name, limit=TIMES_SHOWN))
    console().print(_tree(schedule, times))
    return Exit.OK


@schedules.command(name="next")
def upcoming(*, days: int = 30, schedule: str = "", to: ClientOptions = TO) -> int:
    """Show the occurrences expected in the next days, as a calendar.

    Parameters
    ----------
    days
        Number of days.
    schedule
        Only this schedule.
    """
    from tickwork.cli.exit_codes import CommandExit
    from tickwork.cli.output import clock, console, day, print_json, safe, table
    from tickwork.protocol import http_models as wire

    if not 1 <= days <= DAYS_MAX:
        raise CommandExit(Exit.USAGE, f"--days is 1 to {DAYS_MAX}")
    with to.client() as client:
        occurrences = tuple(client.upcoming(days=days, schedule=schedule, limit=None if to.json else ROWS_MAX))
    if to.json:
        print_json(wire.Upcoming(occurrences=occurrences))
        return Exit.OK
    if not occurrences:
        console(stderr=True).print(f"nothing is expected within {days} days")
        return Exit.OK
    rows, before = [], ""
    for item in occurrences:
        today = day(item.utc)
        rows.append((f"[bold]{today}[/]" if today != before else "", clock(item.utc), safe(item.schedule), item.local))
        before = today
    console().print(table(("day", "time", "schedule", "in its zone"), rows))
    if len(occurrences) == ROWS_MAX:
        until_ = f"{day(occurrences[-1].utc)} {clock(occurrences[-1].utc)}"
        text = f"these are the first {ROWS_MAX}, until {until_}; --json has all, --schedule those of one"
        console(stderr=True).print(text, soft_wrap=True)
    return Exit.OK


@schedules.command
def history(name: str, /, *, start: str | None = None, end: str | None = None, to: ClientOptions = TO) -> int:
    """Show the fates of a schedule's occurrences, as ranges with the same fate, oldest first.

    Parameters
    ----------
    name
        Its name; deleted schedules are found, too.
    start
        From this time on (RFC 3339).
    end
        Before this time (RFC 3339).
    """
    from tickwork.cli.output import console, print_json, safe, table, tinted, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        occurrences = tuple(client.occurrences(name, start=start, end=end))
    if to.json:
        print_json(wire.Occurrences(occurrences=occurrences))
        return Exit.OK
    if not occurrences:
        console(stderr=True).print(f"nothing is recorded of {safe(name)} in this time")
        return Exit.OK
    rows = [
        (when(occurrence.from_at), when(occurrence.to_at) if occurrence.count > 1 else "", str(occurrence.count),
        tinted(occurrence.fate),
         safe(occurrence.cause) + (f" (backfill {occurrence.backfill})" if occurrence.backfill else ""))
        for occurrence in occurrences
    ]  # fmt: skip
    console().print(table(("from", "to", ">count", "fate", "cause"), rows))
    return Exit.OK


def _times(schedule: "wire.Schedule") -> str:
    return schedule.expression if schedule.timezone == "UTC" else f"{schedule.expression} {schedule.timezone}"


def _state(schedule: "wire.Schedule") -> str:
    from tickwork.cli.output import safe, when

    words = []
    if schedule.broken:
        words.append(f"[red]broken[/]: {safe(schedule.broken)}")
    if schedule.archived:
        words.append("[dim]archived[/]")
    if schedule.paused and not schedule.archived:
        until_ = f" until {when(schedule.paused_until)}" if schedule.paused_until else ""
        reason = f": {safe(schedule.pause_reason)}" if schedule.pause_reason not in ("", "paused") else ""
        words.append(f"[yellow]paused[/]{until_}{reason}")
    if schedule.failures:
        words.append(f"[red]{schedule.failures} failed in a row[/]")
    if schedule.active:
        words.append(f"[cyan]{schedule.active} running[/]")
    if schedule.held:
        words.append(f"[yellow]{safe(schedule.held)}[/]")
    if schedule.buffered:
        words.append(f"{schedule.buffered} waiting")
    if schedule.updates is not None and schedule.updates.waiting:
        words.append(f"{schedule.updates.waiting} updates waiting")
    return ", ".join(words) or "[green]active[/]"


def _tree(schedule: "wire.Schedule", times: "tuple[wire.Due, ...]") -> "Tree":
    from rich.tree import Tree

    from tickwork.cli.output import ago, safe, table, until, when

    tree = Tree(f"[bold]{safe(schedule.name)}[/]  {_state(schedule)}")
    if schedule.description:
        tree.add(safe(schedule.description))
    tree.add(
        f"workflow {safe(schedule.workflow)}" + (f", declared by {safe(schedule.owner)}" if schedule.owner else "")
    )
    says = schedule.says if schedule.says.startswith(schedule.expression) else f"{_times(schedule)}  ({schedule.says})"
    tree.add(f"times {safe(says if schedule.says else _times(schedule))}")
    _add_terms(tree, schedule)
    tree.add(
        f"next {until(schedule.next_at)}"
        + (f", starts {when(schedule.starts_at)} by its jitter" if schedule.starts_at else "")
    )
    if schedule.etag:
        tree.add(f"ETag {safe(schedule.etag)}  [dim](schedules put --if-match)[/]")
    tree.add(f"last fired {ago(schedule.last_fired_at)}; last success {ago(schedule.last_success_at)}")
    fates = schedule.fates
    tree.add(
        f"fates {fates.ran} ran, {fates.coalesced} coalesced, {fates.skipped} skipped, {fates.missed} missed, "
        f"{fates.cancelled} cancelled"
    )
    if schedule.updates is not None:
        _add_updates(tree, schedule.updates)
    if schedule.governed is not None:
        _add_governed(tree, schedule.governed)
    if times:
        rows = [(safe(each.local), safe(each.utc), until(each.utc)) for each in times]
        tree.add("next times").add(table((f"in {schedule.timezone}", "UTC", "here"), rows))
    return tree


def _add_updates(tree: "Tree", updates: "wire.ScheduleUpdates") -> None:
    from tickwork.cli.output import ago, safe

    branch = tree.add(f"updates {updates.count}, {updates.waiting} waiting; last one {ago(updates.last_at)}")
    for missing in updates.missing:
        branch.add(f"[yellow]missing[/] {safe(missing)}")


def _add_terms(tree: "Tree", schedule: "wire.Schedule") -> None:
    from tickwork.cli.output import safe, value

    request = schedule.request
    terms = [
        f"overlap {schedule.overlap}",
        f"catch-up {'all (automatic backfill)' if schedule.automatic_backfill else schedule.catch_up}",
    ]
    if request is not None:
        terms[1] += f" {request.catch_up_window}" if request.catch_up_window else ""
        terms.append(f"at most {request.catch_up_cap} late ones" if not schedule.automatic_backfill else "")
        terms.append(f"grace {request.grace}" if request.grace else "no grace")
        terms.append(f"pause after {request.pause_after} failures" if request.pause_after else "")
        terms.append(f"pinned to {safe(request.version)}" if request.version else "")
        terms.append("depends on past" if request.depends_on_past else "")
        terms.append(f"priority {request.priority}" if request.priority is not None else "")
        terms.append(f"at most {request.max_runs} runs" if request.max_runs else "")
    terms += ["jitter" if schedule.jitter else "", f"queue {safe(schedule.queue)}" if schedule.queue else ""]
    terms.append(f"group {safe(schedule.group)}" if schedule.group else "")
    terms.append(f"tags {safe(', '.join(request.tags))}" if request is not None and request.tags else "")
    tree.add(", ".join(filter(None, terms)))
    if request is not None and request.inputs:
        tree.add(f"inputs {value(request.inputs, characters_max=500)}")
    if request is not None and request.context is not None:
        tree.add(f"context {value(request.context, characters_max=500)}")


def _add_governed(tree: "Tree", governed: "wire.Governed") -> None:
    from tickwork.cli.output import safe, source_label, until, when

    limits = [
        f"at least {governed.min} apart" if governed.min else "",
        f"at most {governed.max}" if governed.max else "",
    ]
    bounds = ", ".join(filter(None, limits))
    words = safe(source_label(governed.source, governed.hints))
    branch = tree.add(f"Governor: by {words or 'nothing yet'}" + (f" ({bounds})" if bounds else ""))
    for source, at in governed.candidates:
        chosen = " [green]chosen[/]" if source == governed.source else ""
        branch.add(f"candidate {safe(source_label(source, governed.hints))} {until(at)}{chosen}")
    if governed.failures:
        branch.add(f"{governed.failures} failures in a row")
    hints = governed.hints
    if hints is not None:
        rhythm = " and ".join(filter(None, (f"every {hints.interval}" if hints.interval else "",
                                          f"at {when(hints.at)}" if hints.at else "")))  # fmt: skip
        why = f": {safe(hints.reason)}" if hints.reason else ""
        cost = f", cost {hints.cost}" if hints.cost else ""
        branch.add(f"hint {rhythm} by {safe(hints.by)}{why} (expires {until(hints.expires_at)}{cost})")
