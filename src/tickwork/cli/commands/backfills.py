"""Backfills: the past of a schedule, run again or for the first time."""

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from rich.console import Console

    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client

POLL_S = 0.25
IDS_SHOWN = 20
ENDED = ("done", "cancelled")


def backfill(
    name: str,
    /,
    *,
    start: str,
    end: str,
    preview: Annotated[bool, Parameter(negative="")] = False,
    newest_first: Annotated[bool, Parameter(negative="")] = False,
    concurrency: int = 10,
    priority: int | None = None,
    forced: Annotated[bool, Parameter(negative="")] = False,
    wait: Annotated[bool, Parameter(negative="")] = False,
    to: ClientOptions = TO,
) -> int:
    """Run the occurrences of a schedule in a past time range.

    What has already run is left out, so repeating a backfill is safe.

    Parameters
    ----------
    name
        The schedule.
    start
        Start of the range: RFC 3339, or a date or a local time in the zone of the schedule.
    end
        End of the range (exclusive), in the same form.
    preview
        Only show what would run.
    newest_first
        Start with the newest.
    concurrency
        Number of concurrent runs.
    priority
        Higher values come first (0, after live work).
    forced
        Also run what has run before, under new ids.
    wait
        Follow the backfill until it ends; exit code 1 if a run failed.
    """
    from tickwork.cli.output import print_json

    if preview and wait:
        raise CommandExit(Exit.USAGE, "give --preview or --wait, not both: a preview runs nothing")
    with to.client() as client:
        found = client.backfill_schedule(
            name, start, end, preview=preview, order="newest" if newest_first else "oldest", concurrency=concurrency,
            priority=priority, forced=forced,
        )  # fmt: skip
        if wait:
            return _follow(client, found, to)
    if to.json:
        print_json(found)
    else:
        _say(found, preview=preview)
    return Exit.OK


backfills = App(name="backfills", help_format="plaintext")


@backfills.default
def listed(*, to: ClientOptions = TO) -> int:
    """List backfills: active ones first, then those that ended."""
    from tickwork.cli.output import console, print_json, safe, table, tinted, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.backfills())
    if to.json:
        print_json(wire.Backfills(backfills=found))
        return Exit.OK
    rows = [
        (str(one.number), safe(one.schedule), tinted(one.state), when(one.start), when(one.end), when(one.position),
         str(one.started), str(one.running), str(one.succeeded), str(one.failed), str(one.known), safe(one.by))
        for one in found
    ]  # fmt: skip
    columns = (">number", "schedule", "state", "start", "end", "now at", ">started", ">running", ">succeeded",
               ">failed", ">ran before", "by")  # fmt: skip
    console().print(table(columns, rows))
    return Exit.OK


@backfills.command
def pause(number: int, /, *, to: ClientOptions = TO) -> int:
    """Pause a backfill: start no more of its runs until it is resumed.

    Parameters
    ----------
    number
        Its number.
    """
    with to.client() as client:
        client.pause_backfill(number)
        return _told(client, number, to)


@backfills.command
def resume(number: int, /, *, to: ClientOptions = TO) -> int:
    """Resume a paused backfill.

    Parameters
    ----------
    number
        Its number.
    """
    with to.client() as client:
        client.resume_backfill(number)
        return _told(client, number, to)


@backfills.command
def cancel(number: int, /, *, to: ClientOptions = TO) -> int:
    """Cancel a backfill: start no more of its runs. Active runs continue.

    Parameters
    ----------
    number
        Its number.
    """
    with to.client() as client:
        client.cancel_backfill(number)
        return _told(client, number, to)


def _told(client: "Client", number: int, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, tinted

    one = _one(client, number)
    if to.json:
        print_json(one)
    else:
        console().print(f"backfill {number} of {safe(one.schedule)} is {tinted(one.state)}; {_counts(one)}")
    return Exit.OK


def _one(client: "Client", number: int) -> "wire.Backfill":
    for one in client.backfills():
        if one.number == number:
            return one
    raise CommandExit(Exit.NOT_FOUND, f"backfill {number} is not among the latest; tickwork backfills lists them")


def _counts(one: "wire.Backfill") -> str:
    return (
        f"{one.started} started, {one.running} running, {one.succeeded} succeeded, {one.failed} failed, "
        f"{one.known} had run before"
    )


def _say(found: "wire.Backfill", *, preview: bool) -> None:
    from tickwork.cli.output import console, safe

    screen = console()
    for run_id in found.run_ids[:IDS_SHOWN] if preview else ():
        screen.print(safe(run_id), soft_wrap=True)
    count = f"more than {found.count}" if found.more else str(found.count)
    window = f"{count} occurrences of {safe(found.schedule)} from {found.start} up to {found.end}"
    if not preview:
        screen.print(f"backfill {found.number}: {window}; tickwork backfills tells how far it is", soft_wrap=True)
        return
    known = f"; {found.known} of them have run and are left out" if found.known else ""
    again = "; each runs again, under an id of its own" if found.forced else ""
    rest = f"; the first {IDS_SHOWN} are shown (--json has more)" if len(found.run_ids) > IDS_SHOWN else ""
    screen.print(f"{window}{known}{again}{rest}", soft_wrap=True)


def _follow(client: "Client", begun: "wire.Backfill", to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json

    screen = console(stderr=True)
    try:
        found = _until_ended(client, begun, screen, quiet=to.json)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED,
            f"interrupted; backfill {begun.number} goes on: tickwork backfills, "
            f"tickwork backfills cancel {begun.number}",
        ) from None
    if to.json:
        print_json(found)
    else:
        console().print(f"backfill {found.number} {found.state}: {_counts(found)}")
    return Exit.FAILED if found.failed or found.state == "cancelled" else Exit.OK


def _until_ended(client: "Client", begun: "wire.Backfill", screen: "Console", *, quiet: bool) -> "wire.Backfill":
    """A bar in a terminal, a line for each change in a pipe."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    live = screen.is_terminal and not quiet
    bar = Progress(
        TextColumn(f"backfill {begun.number}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
        TimeElapsedColumn(), console=screen, disable=not live, transient=True,
    )  # fmt: skip
    task, before = bar.add_task("", total=begun.count), ""
    with bar:
        while True:
            found = _one(client, begun.number)
            done = found.succeeded + found.failed + found.known
            bar.update(task, completed=min(done, begun.count), description=_counts(found))
            if not live and not quiet and _counts(found) != before:
                before = _counts(found)
                screen.print(f"backfill {begun.number}: {before}", soft_wrap=True)
            if found.state in ENDED and not found.running:
                return found
            time.sleep(POLL_S)
