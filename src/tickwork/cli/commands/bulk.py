"""`tickwork bulk`: act on all runs that fit a search, after a look at what that would be."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit, tell
from tickwork.cli.options import TO, ClientOptions
from tickwork.cli.search_options import SEARCH, SearchOptions

if TYPE_CHECKING:
    from rich.tree import Tree

    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client

POLL_S = 0.25

bulk = App(name="bulk", help_format="plaintext")


@Parameter(name="*")
@dataclass(frozen=True)
class ActOptions:
    """How to act."""

    yes: Annotated[bool, Parameter(negative="")] = False
    "Do it. Without, only show how many runs that would be, and some of them."
    expect: int | None = None
    "With --yes: do nothing unless exactly so many runs fit."
    rate: int = 50
    "Runs acted on per second, 1 to 1000."
    reason: str = ""
    "For the record."
    wait: bool = True
    "Wait until it has ended, and print its report."


ACT = ActOptions()


@bulk.default
def jobs(*, to: ClientOptions = TO) -> int:
    """List bulk operations; cancel, pause, resume, retry or rerun all runs that fit a search."""
    from tickwork.cli.output import console, print_json, safe, table, tinted, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.bulk_operations())
    if to.json:
        print_json(wire.BulkOperations(operations=listing))
        return Exit.OK
    if not listing:
        console(stderr=True).print("no bulk operations")
        return Exit.OK
    rows = [
        (safe(job.id), safe(job.action), tinted(job.state), when(job.started_at), str(job.count), str(job.done),
         str(job.changed), str(sum(job.refused.values())), str(job.left))
        for job in listing
    ]  # fmt: skip
    columns = ("=operation", "action", "state", "started", ">runs", ">done", ">changed", ">refused", ">left")
    console().print(table(columns, rows), soft_wrap=True)
    return Exit.OK


@bulk.command
def show(operation: str, /, *, to: ClientOptions = TO) -> int:
    """Show a bulk operation with its report.

    Parameters
    ----------
    operation
        Its id.
    """
    with to.client() as client:
        return _report(client.bulk_operation(operation), as_json=to.json, always_ok=True)


@bulk.command
def stop(operation: str, /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """End a bulk operation before its next run. What is done stays done.

    Parameters
    ----------
    operation
        Its id.
    reason
        For the record.
    """
    with to.client() as client:
        client.cancel_bulk(operation, reason=reason)
        return _report(client.bulk_operation(operation), as_json=to.json, always_ok=True)


@bulk.command(name="cancel")
def cancel_runs(*, search: SearchOptions = SEARCH, act: ActOptions = ACT, to: ClientOptions = TO) -> int:
    """Cancel all unfinished runs that fit a search."""
    return _act("cancel", search, act, to)


@bulk.command(name="pause")
def pause_runs(*, search: SearchOptions = SEARCH, act: ActOptions = ACT, to: ClientOptions = TO) -> int:
    """Pause all unfinished runs that fit a search."""
    return _act("pause", search, act, to)


@bulk.command(name="resume")
def resume_runs(*, search: SearchOptions = SEARCH, act: ActOptions = ACT, to: ClientOptions = TO) -> int:
    """Resume all paused runs that fit a search."""
    return _act("resume", search, act, to)


@bulk.command(name="retry")
def retry_runs(*, search: SearchOptions = SEARCH, act: ActOptions = ACT, to: ClientOptions = TO) -> int:
    """Retry all failed runs that fit a search."""
    return _act("retry", search, act, to)


@bulk.command(name="rerun")
def rerun_runs(*, search: SearchOptions = SEARCH, act: ActOptions = ACT, to: ClientOptions = TO) -> int:
    """Run all ended runs that fit a search again, as new runs."""
    return _act("rerun", search, act, to)


def _act(action: str, search: SearchOptions, options: ActOptions, to: ClientOptions) -> int:
    """The runs that fit now are frozen, so runs that come later are left alone."""
    from tickwork.cli.output import print_json

    with to.client() as client:
        preview = client.preview_bulk(action, search.workflow, **search.filters())
        if not preview.count:
            if to.json:
                print_json(preview)
            tell("no run fits: nothing to do")
            return Exit.OK
        if not options.yes:
            return _shown(preview, as_json=to.json)
        if options.expect not in (None, preview.count):
            raise CommandExit(Exit.REFUSED, f"{preview.count} runs fit, not {options.expect}: nothing was done")
        job = client.start_bulk(preview, reason=options.reason, per_second=options.rate)
        if options.wait:
            job = _followed(client, job, quiet=to.json)
    return _report(job, as_json=to.json)


def _shown(preview: "wire.BulkPreview", *, as_json: bool) -> int:
    from tickwork.cli.output import console, print_json, safe, table, tinted, when

    if as_json:
        print_json(preview)
        return Exit.OK
    states = ", ".join(f"{count} {state}" for state, count in sorted(preview.states.items()))
    screen = console()
    screen.print(f"[bold]{preview.action}[/] would act on {preview.count} runs: {states}", soft_wrap=True)
    rows = [
        (safe(run.id), safe(run.workflow), tinted(run.state), when(run.submitted_at), safe(", ".join(run.tags)))
        for run in preview.sample
    ]
    screen.print(table(("=run", "workflow", "state", "submitted", "tags"), rows), soft_wrap=True)
    if preview.count > len(rows):
        screen.print(f"… and {preview.count - len(rows)} more", soft_wrap=True)
    tell(f"nothing was done; repeat it with --yes --expect {preview.count}")
    return Exit.OK


def _followed(client: "Client", job: "wire.BulkOperation", *, quiet: bool) -> "wire.BulkOperation":
    said = -1
    try:
        while job.state == "running":
            if not quiet and job.left != said:
                said = job.left
                tell(f"{job.count - job.left} of {job.count}")
            time.sleep(POLL_S)
            job = client.bulk_operation(job.id)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED, f"interrupted; it goes on: tickwork bulk show {job.id}, tickwork bulk stop {job.id}"
        ) from None
    return job


def _report(job: "wire.BulkOperation", *, as_json: bool, always_ok: bool = False) -> int:
    from tickwork.cli.output import console, print_json

    if as_json:
        print_json(job)
    else:
        console().print(_tree(job), soft_wrap=True)
    return Exit.FAILED if job.refused and not always_ok else Exit.OK


def _tree(job: "wire.BulkOperation") -> "Tree":
    from rich.tree import Tree

    from tickwork.cli.output import safe, tinted, when

    tree = Tree(f"[bold]{safe(job.action)}[/]  {tinted(job.state)}  {job.count} runs  [dim]{safe(job.id)}[/]")
    why = f": {safe(job.reason)}" if job.reason else ""
    tree.add(f"started {when(job.started_at)} by {safe(job.by)}{why}, at most {job.per_second} runs a second")
    tree.add(f"done {job.done}")
    tree.add(f"changed meanwhile {job.changed}")
    refused = tree.add(f"refused {sum(job.refused.values())}")
    for code, count in sorted(job.refused.items()):
        runs = [refusal.run for refusal in job.refused_runs if refusal.code == code]
        refused.add(safe(f"{code}: {count} ({', '.join(runs[:3])}{', …' if count > 3 else ''})"))
    if job.left:
        tree.add(f"left {job.left}")
    if job.cancelled:
        tree.add(f"cancelled by {safe(job.cancelled)}")
    return tree
