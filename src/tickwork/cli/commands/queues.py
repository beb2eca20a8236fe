"""`tickwork queues`: what nodes, schedules and endpoints name and workers serve, with limits."""

from pathlib import Path
from typing import Literal

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

queues = App(name="queues", help_format="plaintext")


@queues.default
def listed(*, to: ClientOptions = TO) -> int:
    """List queues, with their waiting and running tasks."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.queues())
    if to.json:
        print_json(wire.Queues(queues=listing))
        return Exit.OK
    rows = [
        (safe(queue.name), str(queue.ready), str(queue.running), "-" if queue.limit is None else str(queue.limit),
         "[yellow]paused[/]" if queue.paused else "")
        for queue in listing
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
        Maximum number of concurrent tasks.
    rate
        Average number of starts within the time of --per; with --window sliding, the maximum.
    per
        The period of --rate.
    burst
        Number of tasks that may start at once after an idle time (--rate). Not with a sliding window.
    window
        How the rate is counted: a token bucket, or a sliding window that never has more starts.
    """
    with to.client() as client:
        client.put_queue(name, limit=limit, rate=rate, per=per, burst=burst, window=window)
    return _print_result(name, "declared", to)


@queues.command
def apply(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Declare the queues in a file, or replace their limits; others are not affected.

    Parameters
    ----------
    file
        YAML, JSON or TOML: a mapping from names to limit, rate, per, burst and window.
    """
    import msgspec

    from tickwork.cli.commands.resource_file import read_resources
    from tickwork.cli.output import console, print_json, safe
    from tickwork.protocol import http_models as wire

    requests = read_resources(file, "queues", wire.QueueRequest)
    with to.client() as client:
        for name, request in requests.items():
            client.put_queue(name, **msgspec.structs.asdict(request))
    if to.json:
        print_json({"queues": sorted(requests)})
    else:
        console().print(f"queues declared: {safe(', '.join(requests))}", soft_wrap=True)
    return Exit.OK


@queues.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Delete a queue that no workflow or schedule names and that has no tasks.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.delete_queue(name)
    return _print_result(name, "deleted", to)


@queues.command
def pause(name: str, /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """Pause a queue: start none of its tasks until it is resumed.

    Parameters
    ----------
    name
        Its name.
    reason
        The reason; it is recorded.
    """
    with to.client() as client:
        client.pause_queue(name, reason=reason)
    return _print_result(name, "paused", to)


@queues.command
def resume(name: str, /, *, to: ClientOptions = TO) -> int:
    """Resume a paused queue.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.resume_queue(name)
    return _print_result(name, "resumed", to)


def _print_result(name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"queue": name})
    else:
        console().print(f"queue {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK
