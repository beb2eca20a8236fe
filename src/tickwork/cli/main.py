"""Entry point: choose the command, and turn its errors into messages and exit codes.

Only the requested command is loaded. An exception becomes one message and an exit code.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tickwork.cli.exit_codes import CommandExit, Exit, report, tell

if TYPE_CHECKING:
    from cyclopts import App


LISTS = frozenset(
    (
        "alarms",
        "assets",
        "backfills",
        "dead-letters",
        "endpoints",
        "holidays",
        "inbox",
        "label-limits",
        "mailboxes",
        "policies",
        "queues",
        "runs",
        "schedules",
        "settings",
        "tenants",
        "versions",
        "webhooks",
        "workers",
        "workflows",
        "zones",
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code. Nothing but an exit of the interpreter itself passes through here."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return int(_run(args))
    except CommandExit as ended:
        if ended.text:
            tell(ended.text)
        return int(ended.code)
    except KeyboardInterrupt:
        tell("interrupted")
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output closed the pipe. The interpreter would report it again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except Exception as error:
        return int(report(error))


def _run(args: list[str]) -> int:
    if not args or args in (["--help"], ["-h"], ["help"]):
        from tickwork.cli.command_table import menu

        print(menu())
        return Exit.OK if args else Exit.USAGE
    if args == ["--version"]:
        from tickwork.version import VERSION

        print(f"tickwork {VERSION}")
        return Exit.OK
    if args[1:2] == ["list"] and args[0] in LISTS:  # as other tools have it
        del args[1]
    return _dispatch(args)


def _dispatch(args: list[str]) -> int:
    from cyclopts import CycloptsError

    from tickwork.cli.command_table import entries

    app = make_app(args[0])
    try:
        answer = app(args, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        known = any(entry.name == args[0] for entry in entries())
        words = app.parse_commands(args)[0] if known else ()
        hint = " ".join(("tickwork", *words, "--help"))
        raise CommandExit(Exit.USAGE, f"{_one_line(str(error))} See {hint}.") from None
    return int(answer) if isinstance(answer, int) else Exit.OK


def make_app(chosen: str = "") -> "App":
    """`chosen` is loaded, and has the whole of its docstring as help; of the others, one sentence is known."""
    from cyclopts import App, Group

    from tickwork.cli.command_table import GROUPS
    from tickwork.version import VERSION

    app = App(name="tickwork", help_format="plaintext", version=VERSION)
    for index, (title, entries) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=index)
        for entry in entries:
            about = {} if entry.name == chosen else {"help": entry.does}
            app.command(f"tickwork.cli.{entry.at}", name=entry.name, group=group, **about)
    app.register_install_completion_command()
    return app


def _one_line(text: str) -> str:
    return " ".join(text.split())
