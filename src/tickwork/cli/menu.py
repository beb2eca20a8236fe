"""All commands, as one table: the menu is drawn from it without loading any of them."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App


class Entry(NamedTuple):
    name: str
    does: str
    at: str  # module:function under tickwork.cli


GROUPS: dict[str, tuple[Entry, ...]] = {
    "Begin": (
        Entry("init", "A starter project.", "project:init"),
        Entry("dev", "Server, engine and worker for an application; new code runs as soon as it is saved.", "dev:dev"),
        Entry("run", "Start a run and follow it to its end.", "run:run"),
        Entry("doctor", "Whether everything is as it must be, and what to do where not.", "doctor:doctor"),
    ),
    "Runs": (
        Entry("runs", "Runs, newest first.", "runs:runs"),
        Entry("show", "A run with its tasks, attempts, errors and output.", "runs:show"),
        Entry("logs", "What the tasks of a run printed.", "runs:logs"),
        Entry("why", "The story of a run: what was decided, when, and what it waits for now.", "runs:why"),
        Entry("cancel", "End a run; what is running of it is stopped.", "deeds:cancel"),
        Entry("pause", "Start nothing more of a run until it is resumed.", "deeds:pause"),
        Entry("resume", "Go on with a paused run.", "deeds:resume"),
        Entry("retry", "Try again whatever failed in a failed run.", "deeds:retry"),
        Entry("rerun", "Run an ended run again, as a new run.", "deeds:rerun"),
        Entry("approve", "Let an approval of a run pass.", "deeds:approve"),
        Entry("reject", "Refuse an approval of a run.", "deeds:reject"),
        Entry("signal", "Tell an event to whoever waits for it.", "deeds:signal"),
    ),
    "Schedules": (
        Entry("schedules", "The schedules, and when each is due next.", "schedules:schedules"),
        Entry(
            "endpoints", "The endpoints: URLs that are called when they are due, and why then.", "endpoints:endpoints"
        ),
        Entry("backfill", "Run what a schedule had, or would have had, in a time that is past.", "backfills:backfill"),
        Entry("backfills", "Backfills: those under way, then those that ended.", "backfills:backfills"),
        Entry("catchup", "What is late, and what would run, before anything does.", "catchup:catchup"),
        Entry("holidays", "Lists of dates that schedules leave out.", "holidays:holidays"),
        Entry("zones", "The time zones that a schedule may name.", "holidays:zones"),
    ),
    "Server": (
        Entry("server", "The engine and its API, until SIGTERM or Ctrl-C.", "processes:server"),
        Entry(
            "worker",
            "A worker for an application, until SIGTERM or Ctrl-C; a second one ends it at once.",
            "processes:worker",
        ),
        Entry("cluster", "Nodes, partitions and who owns them.", "cluster:cluster"),
        Entry("status", "How the engine is.", "overview:status"),
        Entry("clock", "Wall clock, real time and logical time of the server, and whether they agree.", "clock:clock"),
        Entry("page", "A link to the server's page for one browser; it works once.", "overview:page"),
        Entry("workflows", "The workflows that the server knows.", "overview:workflows"),
        Entry("workers", "The workers that are connected.", "overview:workers"),
        Entry("queues", "The queues, with what waits and runs in each.", "queues:queues"),
        Entry("versions", "The versions of an application, newest first.", "versions:versions"),
        Entry("db", "The store as a whole: upgrade, check, backup, restore, copy.", "db:db"),
        Entry("auditor", "Decide a journal again as it grows, and compare the hash of every tick.", "auditor:auditor"),
        Entry(
            "release",
            "Give the work of a partition to workers again, after an auditor or a person had it held.",
            "auditor:release",
        ),
        Entry("replay", "Decide a journal again and compare every hash.", "replay:replay"),
    ),
}


def entries() -> list[Entry]:
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
