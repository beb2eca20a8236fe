"""Write docs/cli.md from the help texts of the commands."""

import sys
from pathlib import Path

from cyclopts import App

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tickwork.cli.command_table import GROUPS, commands  # noqa: E402
from tickwork.cli.exit_codes import MEANINGS  # noqa: E402 - after the path
from tickwork.cli.main import make_app  # noqa: E402
from tickwork.core.state.bulk import ACTIONS  # noqa: E402

PAGE = ROOT / "docs" / "cli.md"
HEAD = """# The command line

`tools/cli_docs.py` generates this page from the help texts. Special words are in [the glossary](glossary.md).

Results go to standard output, everything else (progress, notes, errors) to standard error. `--json` prints the models
of the HTTP API (`/openapi.json`), one document on one line; `logs --follow --json` prints one document for each log
line. In pipes and with `NO_COLOR`, there are no colours and no redrawing. An error is one message without a traceback;
`TICKWORK_DEBUG=1` adds the traceback. Completion for bash, zsh and fish: `tickwork --install-completion`.

## Settings

The order of precedence is: flags, `TICKWORK_*` variables, `.env`, `tickwork.toml`, `[tool.tickwork]` in
`pyproject.toml`, defaults. An unknown name or a value of the wrong type is an error (78). The token is never an
argument: set `TICKWORK_TOKEN`, or `TICKWORK_TOKEN_FILE` with the name of a file that only its owner can read, but not
both.

## Exit codes

| code | meaning |
|---:|---|
"""
WIRE = {
    "cluster": "`Cluster`",
    "runs": "`Page`", "show": "`RunDetail`", "logs": "`Logs`, or `LogLine` for each line with --follow", "why": "`Why`",
    "stream": "`StreamPiece` for each piece",
    "run": "`RunDetail`", "cancel": "`RunDetail`", "pause": "`RunDetail`", "resume": "`RunDetail`",
    "retry": "`RunDetail`", "rerun": "`RunDetail`", "approve": "`RunDetail`", "reject": "`RunDetail`",
    "inbox": "`Inbox`",
    "bulk": "`BulkOperations`", "bulk show": "`BulkOperation`", "bulk stop": "`BulkOperation`",
    **{f"bulk {action}": "`BulkPreview`, or `BulkOperation` with --yes" for action in ACTIONS},
    "check": '`{"runs": [ID, …], "differ": {ID: TEXT}}`',
    "signal": '`{"event": NAME, "waiting": COUNT, "kept": BOOL, "schedules": COUNT, "duplicate": BOOL}`',
    "ask": "the reply", "read": "the value",
    "webhooks": "`Webhooks`", "assets": "`Assets`", "assets show": "`Asset`", "assets update": "`AssetHeard`",
    "mailboxes put": '`{"mailbox": NAME}`', "mailboxes delete": '`{"mailbox": NAME}`',
    "tenants pause": '`{"tenant": NAME}`', "tenants resume": '`{"tenant": NAME}`',
    "mailboxes": "`Mailboxes`, or `MailboxMessages` of one",
    "schedules": "`Schedules`", "schedules show": "`Schedule`", "schedules next": "`Upcoming`",
    "schedules history": "`Occurrences`", "schedules put": "`SchedulePreview`",
    "schedules preview": "`SchedulePreview`",
    "schedules apply": '`{"owner", "dry_run", "added", "changed": {NAME: {FIELD: [OLD, NEW]}}, "removed"}`',
    "schedules delete": '`{"schedule": NAME}`', "schedules pause": '`Schedule`, or `{"group": NAME}`',
    "schedules resume": '`Schedule`, or `{"group": NAME}`', "schedules archive": "`Schedule`",
    "schedules restore": "`Schedule`", "schedules reset-failures": "`Schedule`", "schedules trigger": "`Triggered`",
    "schedules test": "`Triggered`", "schedules hint": "`Schedule`", "schedules clear-hints": "`Schedule`",
    "schedules diff": '`{"days", "tzdata": [FIRST, SECOND], "differences": [{"sign", "schedule", "utc", "local"}]}`',
    "endpoints": "`EndpointPage`", "endpoints list": "`EndpointPage`", "endpoints show": "`Endpoint`",
    "endpoints history": "`EndpointRuns`", "endpoints put": "`EndpointPreview`",
    "endpoints apply": "`EndpointPreviews`", "endpoints trigger": "`Triggered`", "endpoints test": "`Triggered`",
    "endpoints pause": "`Endpoint`", "endpoints resume": "`Endpoint`", "endpoints reset-failures": "`Endpoint`",
    "endpoints hint": "`Endpoint`", "endpoints clear-hints": "`Endpoint`", "endpoints archive": "`Endpoint`",
    "endpoints restore": "`Endpoint`",
    "backfill": "`Backfill`", "backfills": "`Backfills`", "backfills pause": "`Backfill`",
    "backfills resume": "`Backfill`", "backfills cancel": "`Backfill`", "catchup": "`CatchUps`",
    "holidays": "`Holidays`", "holidays put": '`{"name", "dates"}`', "holidays delete": '`{"name"}`',
    "zones": "`ZoneNames`", "versions": "`AppVersions`",
    "policies": "`Policies`", "policies put": '`{"policy": NAME}`', "policies apply": '`{"policies": [NAME, …]}`',
    "policies delete": '`{"policy": NAME}`', "policies test": "`PolicyTest`",
    "tenants": "`Tenants`", "tenants put": '`{"tenant": NAME}`', "tenants apply": '`{"tenants": [NAME, …]}`',
    "label-limits": "`LabelLimits`", "label-limits put": '`{"label": LABEL}`',
    "label-limits apply": '`{"labels": [LABEL, …]}`', "label-limits delete": '`{"label": LABEL}`',
    "settings": "`Settings`", "settings put": '`{"settings": {NAME: VALUE}}`',
    "settings apply": '`{"settings": {NAME: VALUE}}`',
    "dead-letters": "`DeadLetters`", "dead-letters show": "`RunDetail`",
    "dead-letters redrive": "`DeadLetterResult`", "dead-letters drop": "`DeadLetterResult`",
    "resolve": "`RunDetail`", "alarms": "`Alarms`", "tick": "`TickTrace`",
    "queues apply": '`{"queues": [NAME, …]}`', "queues delete": '`{"queue": NAME}`',
    "workflows show": "`WorkflowDetail`", "workflows put": '`{"workflows": [NAME, …]}`',
    "workflows pause": '`{"workflow": NAME}`', "workflows resume": '`{"workflow": NAME}`',
    "workflows delete": '`{"workflow": NAME}`',
    "queues": "`Queues`", "queues put": '`{"queue": NAME}`', "queues pause": '`{"queue": NAME}`',
    "queues resume": '`{"queue": NAME}`',
    "workflows": "`Workflows`", "workers": "`Workers`", "status": "`Status`", "clock": "`ClockStatus`",
    "clock confirm": "`ClockStatus`",
    "page": "an object with `url`",
    "init": '`{"files": [PATH, …]}`',
    "db upgrade": '`{"store", "schema"}`',
    "db check": '`{"rows", "partitions": [{"partition", "seq", "hash", "verified", "archived", "folded", "damage"}], '
    '"damage"}`',
    "db backup": '`{"target", "rows": {TABLE: COUNT}, "partitions": {NUMBER: HASH}, "cluster"}`',
    "db restore": '`{"target", "rows": {TABLE: COUNT}, "partitions": {NUMBER: HASH}, "cluster"}`',
    "db copy": '`{"target", "rows": {TABLE: COUNT}, "partitions": {NUMBER: HASH}, "cluster"}`',
    "auditor": '`{"partition", "seq", "hash", "rows", "folded", "lag_rows", "lag_ms", "difference": null|{"seq", '
    '"text", "reproduction", "inputs", "held"}}`, one for each look and one at the end',
    "release": '`{"partition", "held"}`',
    "replay": '`{"rows", "seq", "hash", "equal", "detail"}`',
    "doctor": '`{"checks": [{"name", "result": "ok"|"warn"|"fail", "detail", "advice"}]}`',
}  # fmt: skip


def page() -> str:
    parts = [HEAD + "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANINGS.items())]
    for title, entries in GROUPS.items():
        parts.append(f"\n## {title}\n")
        parts += [_command(*one) for entry in entries for one in commands(make_app(entry.name)[entry.name], entry.name)]
    return "".join(parts)


def _command(path: tuple[str, ...], command: App) -> str:
    name = " ".join(path)
    function = command.default_command
    assert function is not None and function.__doc__, f"{name} says what it does"
    about = " ".join(function.__doc__.partition("Parameters\n")[0].split())
    arguments, flags = [], []
    for one in command.assemble_argument_collection(parse_docstring=True):
        if not one.show:
            continue
        assert one.parameter.help, f"{name}: {one.name} says what it is"
        if one.name.startswith("-"):
            flags.append(f"- `{'`, `'.join(one.names)}`: {one.parameter.help}\n")
        else:
            arguments.append((one.name, one.required, one.parameter.help))
    shown = "".join(f" {argument}" if required else f" [{argument}]" for argument, required, _ in arguments)
    lines = [f"\n### tickwork {name}{shown}\n\n{about}\n"]
    listed = [f"- `{argument}`: {text}\n" for argument, _, text in arguments]
    lines += ["\n", *listed, *flags] if arguments or flags else []
    if name in WIRE:
        lines.append(f"\nAs JSON: {WIRE[name]}.\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
