"""Actions on schedules. Each is durable when the command returns, and the journal names its author."""

from typing import TYPE_CHECKING

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.sdk.client.client import Client


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


def pause(
    name: str = "", /, *, group: str = "", reason: str = "", until: str | None = None, to: ClientOptions = TO
) -> int:
    """Pause a schedule, or a group of schedules, until it is resumed.

    Parameters
    ----------
    name
        Its name.
    group
        All schedules of this group, instead of a single schedule.
    reason
        The reason; it is recorded and shown.
    until
        Resume automatically at this time (RFC 3339); for a single schedule only.
    """
    _one_of(name, group)
    with to.client() as client:
        if group:
            if until is not None:
                raise CommandExit(Exit.USAGE, "the pause of a group ends when it is resumed; leave out --until")
            client.pause_group(group, reason=reason)
            return _group_told(group, "paused", to)
        client.pause_schedule(name, reason=reason, until=until)
        return _print_result(client, name, "paused", to)


def resume(name: str = "", /, *, group: str = "", to: ClientOptions = TO) -> int:
    """Resume a paused schedule or group, from now on.

    Parameters
    ----------
    name
        Its name.
    group
        All schedules of this group, instead of a single schedule.
    """
    _one_of(name, group)
    with to.client() as client:
        if group:
            client.resume_group(group)
            return _group_told(group, "resumed", to)
        client.resume_schedule(name)
        return _print_result(client, name, "resumed", to)


def archive(name: str, /, *, to: ClientOptions = TO) -> int:
    """Archive a schedule with its history; it no longer fires.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.archive_schedule(name)
        return _print_result(client, name, "archived", to)


def restore(name: str, /, *, to: ClientOptions = TO) -> int:
    """Restore a schedule from the archive.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.restore_schedule(name)
        return _print_result(client, name, "restored", to)


def reset_failures(name: str, /, *, to: ClientOptions = TO) -> int:
    """Reset the failure count of a schedule.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.reset_failures(name)
        return _print_result(client, name, "failures reset", to)


def trigger(name: str, /, *, to: ClientOptions = TO) -> int:
    """Start a run of a schedule now, in addition to its times, and print the run's id.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=False)


def try_(name: str, /, *, to: ClientOptions = TO) -> int:
    """Start a run as the schedule would, without any effect on the schedule.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=True)


def hint(
    name: str,
    /,
    *,
    every: str | None = None,
    at: str | None = None,
    ttl: str | None = None,
    reason: str = "",
    cost: int = 0,
    to: ClientOptions = TO,
) -> int:
    """Give the Governor of a schedule a hint: run at this interval, or once at this time.

    Parameters
    ----------
    name
        Its name.
    every
        The interval: 30s, PT30S.
    at
        The single time (RFC 3339).
    ttl
        How long the hint is valid (1h; with --at, until 1h after that time).
    reason
        The reason; it is recorded and shown.
    cost
        The cost of the hint, in a unit of the author's choice.
    """
    if every is None and at is None:
        raise CommandExit(
            Exit.USAGE, "a hint has --every, --at, or both; tickwork schedules clear-hints takes hints back"
        )
    with to.client() as client:
        client.hint(name, interval=every, at=at, ttl=ttl, reason=reason, cost=cost)
        return _print_result(client, name, "hint taken", to)


def clear_hints(name: str, /, *, to: ClientOptions = TO) -> int:
    """Withdraw all hints for a schedule; its own times apply again.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.clear_hints(name)
        return _print_result(client, name, "hints cleared", to)


def _one_of(name: str, group: str) -> None:
    if bool(name) is bool(group):
        raise CommandExit(Exit.USAGE, "name one schedule, or a group with --group")


def _fired(name: str, to: ClientOptions, *, test: bool) -> int:
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        run_id = client.trigger_schedule(name, test=test)
    if to.json:
        print_json(wire.Triggered(run_id=run_id))
    else:
        print(run_id)
    return Exit.OK


def _group_told(group: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"group": group})
    else:
        console().print(f"group {safe(group)}: {what}", soft_wrap=True)
    return Exit.OK


def _print_result(client: "Client", name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, until

    schedule = client.schedule(name)
    if to.json:
        print_json(schedule)
        return Exit.OK
    by = f" ({schedule.governed.source})" if schedule.governed is not None and schedule.governed.source else ""
    rest = f"next {until(schedule.next_at)}{safe(by)}" if schedule.next_at else "nothing is due"
    if schedule.paused_until and not schedule.next_at:
        rest = f"goes on {until(schedule.paused_until)}"
    console().print(f"{safe(name)}: {safe(what)}; {rest}", soft_wrap=True)
    return Exit.OK
