"""`tickwork queues`: what nodes, schedules and endpoints name and workers serve, with limits."""

from typing import Literal

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

queues = App(name="queues", help_format="plaintext")


@queues.default
def listed(*, to: ClientOptions = TO) -> int:
    """The queues, with what waits and runs in each."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.queues())
    if to.json:
        print_json(wire.Queues(queues=found))
        return Exit.OK
    rows = [
        (safe(one.name), str(one.ready), str(one.running), "-" if one.limit is None else str(one.limit),
         "[yellow]paused[/]" if one.paused else "")
        for one in found
    ]  # fmt: skip
    console().print(table(("queue", ">ready", ">running", ">limit", ""), rows))
    return Exit.OK


@queues.command
def put(
    name: str,
    /,
    *,
    limit: Count | None = None,
    rate: Count | None = None,
    per: str = "1s",
    burst: Count | None = None,
    window: Literal["bucket", "sliding"] = "bucket",
    to: ClientOptions = TO,
) -> int:
    """Declare a queue, or replace its limits.

    Parameters
    ----------
    name
        Its name.
    limit
        At most so many of its tasks run at once.
    rate
        On average so many of its tasks start in the time of --per; with --window sliding never more.
    per
        The time that --rate is for.
    burst
        So many may start at once after a rest (as many as --rate). Not with a sliding window.
    window
        How the rate is counted: a bucket that refills, or a sliding window in which there are never more.
    """
    with to.client() as client:
        client.put_queue(name, limit=limit, rate=rate, per=per, burst=burst, window=window)
    return _told(name, "declared", to)


@queues.command
def pause(name: str, /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """Let no task of a queue start until it is resumed.

    Parameters
    ----------
    name
        Its name.
    reason
        Why; it is recorded.
    """
    with to.client() as client:
        client.pause_queue(name, reason=reason)
    return _told(name, "paused", to)


@queues.command
def resume(name: str, /, *, to: ClientOptions = TO) -> int:
    """Let the tasks of a paused queue start again.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.resume_queue(name)
    return _told(name, "resumed", to)


def _told(name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"queue": name})
    else:
        console().print(f"queue {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK
