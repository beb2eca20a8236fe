"""Commands that schedules and endpoints share: pause, archive, trigger, hints to the Governor, and their opposites.

An endpoint is a schedule with a call. Its commands differ in their help, in what they print, and in refusing the name
of a schedule that is no endpoint. Each is durable when the command returns, and the journal names its author.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import App

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.sdk.client.client import Client


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """What differs between the two kinds."""

    noun: str
    summaries: Mapping[str, str]  # the first line of the help, by the name of the command
    check: "Callable[[Client, str], object]"  # raises if the name belongs to no resource of the kind
    archive: "Callable[[Client, str], None]"
    restore: "Callable[[Client, str], None]"
    trigger: "Callable[[Client, str, bool], str]"  # the flag: as a test
    print_state: "Callable[[Client, str, str, ClientOptions], int]"  # with a word for what was done


def add_actions(app: App, kind: ResourceKind) -> None:
    """Add the commands to the app of a kind."""

    def pause(
        name: str = "", /, *, group: str = "", reason: str = "", until: str | None = None, to: ClientOptions = TO
    ) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        group
            All {noun}s of this group, instead of a single {noun}.
        reason
            The reason; it is recorded and shown.
        until
            Resume automatically at this time (RFC 3339); for a single {noun} only.
        """
        _check_name_or_group(kind, name, group)
        with to.client() as client:
            if group:
                if until is not None:
                    raise CommandExit(Exit.USAGE, "the pause of a group ends when it is resumed; leave out --until")
                client.pause_group(group, reason=reason)
                return _print_group(group, "paused", to)
            kind.check(client, name)
            client.pause_schedule(name, reason=reason, until=until)
            return kind.print_state(client, name, "paused", to)

    def resume(name: str = "", /, *, group: str = "", to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        group
            All {noun}s of this group, instead of a single {noun}.
        """
        _check_name_or_group(kind, name, group)
        with to.client() as client:
            if group:
                client.resume_group(group)
                return _print_group(group, "resumed", to)
            kind.check(client, name)
            client.resume_schedule(name)
            return kind.print_state(client, name, "resumed", to)

    def archive(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        with to.client() as client:
            kind.archive(client, name)
            return kind.print_state(client, name, "archived", to)

    def restore(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        with to.client() as client:
            kind.restore(client, name)
            return kind.print_state(client, name, "restored", to)

    def reset_failures(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        with to.client() as client:
            kind.check(client, name)
            client.reset_failures(name)
            return kind.print_state(client, name, "failures reset", to)

    def trigger(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        return _trigger(kind, name, to, test=False)

    def test(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        return _trigger(kind, name, to, test=True)

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
        """{summary}

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
            clear = f"tickwork {kind.noun}s clear-hints withdraws hints"
            raise CommandExit(Exit.USAGE, f"a hint has --every, --at, or both; {clear}")
        with to.client() as client:
            kind.check(client, name)
            client.hint(name, interval=every, at=at, ttl=ttl, reason=reason, cost=cost)
            return kind.print_state(client, name, "hint taken", to)

    def clear_hints(name: str, /, *, to: ClientOptions = TO) -> int:
        """{summary}

        Parameters
        ----------
        name
            Its name.
        """
        with to.client() as client:
            kind.check(client, name)
            client.clear_hints(name)
            return kind.print_state(client, name, "hints cleared", to)

    commands: dict[str, Callable[..., int]] = {
        "pause": pause,
        "resume": resume,
        "archive": archive,
        "restore": restore,
        "reset-failures": reset_failures,
        "trigger": trigger,
        "test": test,
        "hint": hint,
        "clear-hints": clear_hints,
    }
    for name, command in commands.items():
        assert command.__doc__ is not None
        command.__doc__ = command.__doc__.format(noun=kind.noun, summary=kind.summaries[name])
        app.command(command, name=name)


def _check_name_or_group(kind: ResourceKind, name: str, group: str) -> None:
    if bool(name) is bool(group):
        raise CommandExit(Exit.USAGE, f"name one {kind.noun}, or a group with --group")


def _trigger(kind: ResourceKind, name: str, to: ClientOptions, *, test: bool) -> int:
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        run_id = kind.trigger(client, name, test)
    if to.json:
        print_json(wire.Triggered(run_id=run_id))
    else:
        print(run_id)
    return Exit.OK


def _print_group(group: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"group": group})
    else:
        console().print(f"group {safe(group)}: {what}", soft_wrap=True)
    return Exit.OK
