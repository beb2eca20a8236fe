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
        CommandEntry("init", "Create a starter project.", "commands.init:init"),
        CommandEntry(
            "dev",
            "Run server, engine and worker for an application, and reload it when a file is saved.",
            "commands.dev:dev",
        ),
        CommandEntry("run", "Start a run and follow it until it ends.", "commands.run:run"),
        CommandEntry("doctor", "Check the set-up and say how to correct problems.", "commands.doctor:doctor"),
    ),
    "Runs": (
        CommandEntry("runs", "List runs, newest first.", "commands.runs:runs"),
        CommandEntry("show", "Show a run with its tasks, attempts, errors and output.", "commands.runs:show"),
        CommandEntry("logs", "Show what the tasks of a run printed.", "commands.runs:logs"),
        CommandEntry("stream", "Show what the tasks of a run stream, while it goes on.", "commands.runs:stream"),
        CommandEntry(
            "why", "Explain a run: what was decided, when and why, and what it waits for now.", "commands.runs:why"
        ),
        CommandEntry("cancel", "Cancel a run and stop its running tasks.", "commands.run_actions:cancel"),
        CommandEntry(
            "pause", "Pause a run: start none of its tasks until it is resumed.", "commands.run_actions:pause"
        ),
        CommandEntry("resume", "Resume a paused run.", "commands.run_actions:resume"),
        CommandEntry("retry", "Retry the failed nodes of a failed run.", "commands.run_actions:retry"),
        CommandEntry("resolve", "Decide about each failed node of a failed run.", "commands.run_actions:resolve"),
        CommandEntry(
            "dead-letters",
            "List failed runs that nobody has brought back or dropped.",
            "commands.dead_letters:dead_letters",
        ),
        CommandEntry("rerun", "Run an ended run again, as a new run.", "commands.run_actions:rerun"),
        CommandEntry(
            "inbox",
            "List what waits for a person: approvals and forms, paused runs, and failed runs that nobody has resolved.",
            "commands.runs:inbox",
        ),
        CommandEntry(
            "bulk",
            "List bulk operations; cancel, pause, resume, retry or rerun all runs that fit a search.",
            "commands.bulk:bulk",
        ),
        CommandEntry("approve", "Approve an approval of a run, or fill in a form.", "commands.run_actions:approve"),
        CommandEntry("reject", "Reject an approval node of a run.", "commands.run_actions:reject"),
        CommandEntry("signal", "Send an event to the runs that wait for it.", "commands.run_actions:signal"),
        CommandEntry(
            "webhooks",
            "List the webhooks that the server receives, and the event that each becomes.",
            "commands.webhooks:webhooks",
        ),
        CommandEntry(
            "assets",
            "List assets: what tasks make and schedules listen to, with the last update of each.",
            "commands.assets:assets",
        ),
        CommandEntry(
            "mailboxes",
            "List the mailboxes, or the messages of one: kept, taken, expired and refused.",
            "commands.messages:mailboxes",
        ),
        CommandEntry(
            "ask", "Send an update to the durable function of a run, and print its reply.", "commands.messages:ask"
        ),
        CommandEntry("read", "Print a value that a run has published.", "commands.messages:read"),
    ),
    "Schedules": (
        CommandEntry("schedules", "List schedules, with the next time of each.", "commands.schedules:schedules"),
        CommandEntry(
            "endpoints",
            "List endpoints: URLs that are called automatically, with the reason for the next time.",
            "commands.endpoints:endpoints",
        ),
        CommandEntry(
            "backfill",
            "Run the occurrences of a schedule in a past time range.",
            "commands.backfills:backfill",
        ),
        CommandEntry(
            "backfills", "List backfills: active ones first, then those that ended.", "commands.backfills:backfills"
        ),
        CommandEntry(
            "catchup", "Show late occurrences and what would run, before anything runs.", "commands.catchup:catchup"
        ),
        CommandEntry("holidays", "List the lists of dates that schedules leave out.", "commands.holidays:holidays"),
        CommandEntry("zones", "List the time zones that a schedule can use.", "commands.holidays:zones"),
    ),
    "Server": (
        CommandEntry(
            "server", "Run the engine and its API until SIGTERM or Ctrl-C.", "commands.server_and_worker:server"
        ),
        CommandEntry(
            "worker",
            "Run a worker for an application until SIGTERM or Ctrl-C; a second signal stops it at once.",
            "commands.server_and_worker:worker",
        ),
        CommandEntry("cluster", "Show nodes, partitions and their owners.", "commands.cluster:cluster"),
        CommandEntry("status", "Show the state of the engine.", "commands.status:status"),
        CommandEntry(
            "clock",
            "Show the wall clock, real time and logical time of the server, and whether they agree.",
            "commands.clock:clock",
        ),
        CommandEntry(
            "page", "Print a link to the server's page for one browser; it works once.", "commands.status:page"
        ),
        CommandEntry("workflows", "List the workflows that the server knows.", "commands.workflows:workflows"),
        CommandEntry(
            "workers",
            "List the connected workers, with what each has and how much of it is in use.",
            "commands.status:workers",
        ),
        CommandEntry("queues", "List queues, with their waiting and running tasks.", "commands.queues:queues"),
        CommandEntry(
            "policies",
            "List policies, with the workflows that name each.",
            "commands.policies:policies",
        ),
        CommandEntry("tenants", "List tenants with their share, limits and work.", "commands.limits:tenants"),
        CommandEntry("label-limits", "List the limits of labels.", "commands.limits:label_limits"),
        CommandEntry("settings", "Show the settings that are in force.", "commands.machine_settings:settings"),
        CommandEntry("alarms", "List the latest alarms, newest first.", "commands.status:alarms"),
        CommandEntry("tick", "Show what one tick did.", "commands.status:tick"),
        CommandEntry("versions", "List the versions of an application, newest first.", "commands.versions:versions"),
        CommandEntry("db", "Manage the store: upgrade, check, backup, restore, copy.", "commands.db:db"),
        CommandEntry(
            "auditor",
            "Decide a journal again as it grows, and compare the hash of each tick.",
            "commands.auditor:auditor",
        ),
        CommandEntry(
            "release",
            "Resume the dispatches of a partition that an auditor or a person stopped.",
            "commands.auditor:release",
        ),
        CommandEntry("check", "Replay the histories of durable functions with this code.", "commands.check:check"),
        CommandEntry("replay", "Decide a journal again and compare each hash.", "commands.replay:replay"),
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
        "A deterministic scheduler: each decision is recorded and can be replayed.",
    ]
    width = max(len(entry.name) for entry in entries()) + 2
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {command.name:<{width}}{command.does}" for command in group)]
    lines += [
        "",
        "  tickwork COMMAND --help       help for a command",
        "  tickwork --version            the version",
        "  tickwork --install-completion completion for bash, zsh and fish",
        "",
        "Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 not found, 4 refused, 65 damaged data,",
        "69 no server, 75 try again, 78 wrong setting, 130 interrupted. Details: docs/cli.md.",
    ]
    return "\n".join(lines)
