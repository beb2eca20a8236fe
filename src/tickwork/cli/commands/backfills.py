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
        begun = client.backfill_schedule(
            name, start, end, preview=preview, order="newest" if newest_first else "oldest", concurrency=concurrency,
            priority=priority, forced=forced,
        )  # fmt: skip
        if wait:
            return _follow(client, begun, to)
    if to.json:
        print_json(begun)
    else:
        _say(begun, preview=preview)
    return Exit.OK


backfills = App(name="backfills", help_format="plaintext")


@backfills.default
def listed(*, to: ClientOptions = TO) -> int:
    """List backfills: active ones first, then those that ended."""
    from tickwork.cli.output import console, print_json, safe, table, tinted, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        fills = tuple(client.backfills())
    if to.json:
        print_json(wire.Backfills(backfills=fills))
        return Exit.OK
    rows = [
        (str(row.number), safe(row.schedule), tinted(row.state), when(row.start), when(row.end), when(row.position),
         str(row.started), str(row.running), str(row.succeeded), str(row.failed), str(row.known), safe(row.by))
        for row in fills
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
        return _print_result(client, number, to)


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
        return _print_result(client, number, to)


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
        return _print_result(client, number, to)


def _print_result(client: "Client", number: int, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, tinted

    fill = _backfill_numbered(client, number)
    if to.json:
        print_json(fill)
    else:
        console().print(f"backfill {number} of {safe(fill.schedule)} is {tinted(fill.state)}; {_counts(fill)}")
    return Exit.OK


def _backfill_numbered(client: "Client", number: int) -> "wire.Backfill":
    for fill in client.backfills():
        if fill.number == number:
            return fill
    raise CommandExit(Exit.NOT_FOUND, f"backfill {number} is not among the latest; tickwork backfills lists them")


def _counts(fill: "wire.Backfill") -> str:
    return (
        f"{fill.started} started, {fill.running} running, {fill.succeeded} succeeded, {fill.failed} failed, "
        f"{fill.known} had run before"
    )


def _say(fill: "wire.Backfill", *, preview: bool) -> None:
    from tickwork.cli.output import console, safe

    screen = console()
    for run_id in fill.run_ids[:IDS_SHOWN] if preview else ():
        screen.print(safe(run_id), soft_wrap=True)
    count = f"more than {fill.count}" if fill.more else str(fill.count)
    window = f"{count} occurrences of {safe(fill.schedule)} from {fill.start} up to {fill.end}"
    if not preview:
        screen.print(f"backfill {fill.number}: {window}; tickwork backfills shows its progress", soft_wrap=True)
        return
    known = f"; {fill.known} of them have run and are left out" if fill.known else ""
    again = "; each runs again, under its own new id" if fill.forced else ""
    rest = f"; the first {IDS_SHOWN} are shown (--json has more)" if len(fill.run_ids) > IDS_SHOWN else ""
    screen.print(f"{window}{known}{again}{rest}", soft_wrap=True)


def _follow(client: "Client", begun: "wire.Backfill", to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json

    screen = console(stderr=True)
    try:
        fill = _until_ended(client, begun, screen, quiet=to.json)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED,
            f"interrupted; backfill {begun.number} continues: tickwork backfills, "
            f"tickwork backfills cancel {begun.number}",
        ) from None
    if to.json:
        print_json(fill)
    else:
        console().print(f"backfill {fill.number} {fill.state}: {_counts(fill)}")
    return Exit.FAILED if fill.failed or fill.state == "cancelled" else Exit.OK


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
            fill = _backfill_numbered(client, begun.number)
            done = fill.succeeded + fill.failed + fill.known
            bar.update(task, completed=min(done, begun.count), description=_counts(fill))
            if not live and not quiet and _counts(fill) != before:
                before = _counts(fill)
                screen.print(f"backfill {begun.number}: {before}", soft_wrap=True)
            if fill.state in ENDED and not fill.running:
                return fill
            time.sleep(POLL_S)
