"""All commands, as one table: the menu is drawn from it without loading any of them."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App


class CommandEntry(NamedTuple):
    name: str
    does: str
    at: str  # module:function under tickwork.cli


GROUPS: dict[str, tuple[CommandEntry, ...]] = {
    "Begin": (
        CommandEntry("init", "A starter project.", "commands.init:init"),
        CommandEntry(
            "dev",
            "Server, engine and worker for an application; new code runs as soon as it is saved.",
            "commands.dev:dev",
        ),
        CommandEntry("run", "Start a run and follow it to its end.", "commands.run:run"),
        CommandEntry(
            "doctor", "Whether everything is as it must be, and what to do where not.", "commands.doctor:doctor"
        ),
    ),
    "Runs": (
        CommandEntry("runs", "Runs, newest first.", "commands.runs:runs"),
        CommandEntry("show", "A run with its tasks, attempts, errors and output.", "commands.runs:show"),
        CommandEntry("logs", "What the tasks of a run printed.", "commands.runs:logs"),
        CommandEntry(
            "why", "The story of a run: what was decided, when, and what it waits for now.", "commands.runs:why"
        ),
        CommandEntry("cancel", "End a run; what is running of it is stopped.", "commands.deeds:cancel"),
        CommandEntry("pause", "Start nothing more of a run until it is resumed.", "commands.deeds:pause"),
        CommandEntry("resume", "Go on with a paused run.", "commands.deeds:resume"),
        CommandEntry("retry", "Try again whatever failed in a failed run.", "commands.deeds:retry"),
        CommandEntry("rerun", "Run an ended run again, as a new run.", "commands.deeds:rerun"),
        CommandEntry("approve", "Let an approval of a run pass.", "commands.deeds:approve"),
        CommandEntry("reject", "Refuse an approval of a run.", "commands.deeds:reject"),
        CommandEntry("signal", "Tell an event to whoever waits for it.", "commands.deeds:signal"),
    ),
    "Schedules": (
        CommandEntry("schedules", "The schedules, and when each is due next.", "commands.schedules:schedules"),
        CommandEntry(
            "endpoints",
            "The endpoints: URLs that are called when they are due, and why then.",
            "commands.endpoints:endpoints",
        ),
        CommandEntry(
            "backfill",
            "Run what a schedule had, or would have had, in a time that is past.",
            "commands.backfills:backfill",
        ),
        CommandEntry("backfills", "Backfills: those under way, then those that ended.", "commands.backfills:backfills"),
        CommandEntry("catchup", "What is late, and what would run, before anything does.", "commands.catchup:catchup"),
        CommandEntry("holidays", "Lists of dates that schedules leave out.", "commands.holidays:holidays"),
        CommandEntry("zones", "The time zones that a schedule may name.", "commands.holidays:zones"),
    ),
    "Server": (
        CommandEntry("server", "The engine and its API, until SIGTERM or Ctrl-C.", "commands.server_and_worker:server"),
        CommandEntry(
            "worker",
            "A worker for an application, until SIGTERM or Ctrl-C; a second one ends it at once.",
            "commands.server_and_worker:worker",
        ),
        CommandEntry("cluster", "Nodes, partitions and who owns them.", "commands.cluster:cluster"),
        CommandEntry("status", "How the engine is.", "commands.status:status"),
        CommandEntry(
            "clock",
            "Wall clock, real time and logical time of the server, and whether they agree.",
            "commands.clock:clock",
        ),
        CommandEntry("page", "A link to the server's page for one browser; it works once.", "commands.status:page"),
        CommandEntry("workflows", "The workflows that the server knows.", "commands.status:workflows"),
        CommandEntry("workers", "The workers that are connected.", "commands.status:workers"),
        CommandEntry("queues", "The queues, with what waits and runs in each.", "commands.queues:queues"),
        CommandEntry("versions", "The versions of an application, newest first.", "commands.versions:versions"),
        CommandEntry("db", "The store as a whole: upgrade, check, backup, restore, copy.", "commands.db:db"),
        CommandEntry(
            "auditor",
            "Decide a journal again as it grows, and compare the hash of every tick.",
            "commands.auditor:auditor",
        ),
        CommandEntry(
            "release",
            "Give the work of a partition to workers again, after an auditor or a person had it held.",
            "commands.auditor:release",
        ),
        CommandEntry("replay", "Decide a journal again and compare every hash.", "commands.replay:replay"),
    ),
}


def entries() -> list[CommandEntry]:
    return [entry for group in GROUPS.values() for entry in group]


def commands(app: "App", *path: str) -> "Iterator[tuple[tuple[str, ...], App]]":
    """What stands under a command, itself first; each with the words that lead to it."""
    yield path, app
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], *path, name)


def menu() -> str:
    """What `tickwork` and `tickwork --help` print."""
    lines = [
        "Usage: tickwork COMMAND [ARGUMENTS]",
        "",
        "A deterministic scheduler: every decision is recorded and can be replayed.",
    ]
    width = max(len(entry.name) for entry in entries()) + 2
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {one.name:<{width}}{one.does}" for one in group)]
    lines += [
        "",
        "  tickwork COMMAND --help       what a command takes",
        "  tickwork --version            the version",
        "  tickwork --install-completion completion for bash, zsh and fish",
        "",
        "Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 not found, 4 refused, 65 damaged data,",
        "69 no server, 75 try again, 78 wrong setting, 130 interrupted. Details: docs/cli.md.",
    ]
    return "\n".join(lines)
