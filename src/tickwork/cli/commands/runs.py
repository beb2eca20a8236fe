"""Looking at runs: which there are, what they did, what they printed, and why."""

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count, whole_id
from tickwork.cli.search_options import SEARCH, SearchOptions

if TYPE_CHECKING:
    from rich.tree import Tree

    from tickwork.protocol import http_models as wire

TASKS_SHOWN = 500
WIDE = 100  # columns; on a narrower screen not all columns fit


def runs(
    *,
    search: SearchOptions = SEARCH,
    limit: Count = 20,
    data: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """List runs, newest first.

    Parameters
    ----------
    limit
        Maximum number.
    data
        A data folder that no server uses, instead of a server. If no server answers, .tickwork is read.
    """
    from tickwork.cli.output import console, print_json, safe, table, tinted, took, when
    from tickwork.protocol import http_models as wire

    with to.reader(to.folder(data)) as client:
        matches = client.list(search.workflow, page_size=min(limit + 1, 500), **search.filters())
        matching = tuple(islice(matches, limit + 1))
    page = matching[:limit]
    if to.json:
        print_json(wire.Page(runs=page))
        return Exit.OK
    screen = console()
    if not page:
        console(stderr=True).print("no such runs" if search.given else "no runs")
        return Exit.OK
    rows: list[tuple[str, ...]] = [
        (safe(run.id), safe(run.workflow), tinted(run.state), when(run.submitted_at),
         f"{run.tasks_ended}/{run.tasks_total}", took(run.started_at, run.ended_at),
         safe(_first_line(run.error or run.reason)))
        for run in page
    ]  # fmt: skip
    columns: tuple[str, ...] = ("=run", "workflow", "state", "submitted", ">tasks", ">time", "")
    shown = len(columns) if screen.width >= WIDE else 4
    if any(run.tags for run in page):
        columns = (*columns[:4], "tags", *columns[4:])
        rows = [(*row[:4], safe(", ".join(run.tags)), *row[4:]) for row, run in zip(rows, page, strict=True)]
        shown += 1
    screen.print(table(columns[:shown], [row[:shown] for row in rows]), soft_wrap=True)
    if shown < len(columns):
        text = f"tasks, times and errors are shown from {WIDE} columns on, and by --json"
        console(stderr=True).print(text, soft_wrap=True)
    if len(matching) > limit:
        console(stderr=True).print(f"… there are more than {limit} (--limit)")
    return Exit.OK


def show(run: str, /, *, attempts_before: int = 0, data: str | None = None, to: ClientOptions = TO) -> int:
    """Show a run with its tasks, attempts, errors and output.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    attempts_before
        Each task is shown with its latest 100 attempts; this shows those before an attempt.
    data
        A data folder that no server uses, instead of a server. If no server answers, .tickwork is read.
    """
    from tickwork.cli.output import console, print_json

    with to.reader(to.folder(data)) as client:
        detail = client.get(whole_id(client, run), attempts_before=attempts_before)
    if to.json:
        print_json(detail)
    else:
        console().print(_tree(detail), soft_wrap=True)
    return Exit.OK


def inbox(
    *,
    kind: Annotated[tuple[Literal["approval", "form", "paused", "failed"], ...], Parameter(negative="")] = (),
    workflow: str = "",
    person: str = "",
    limit: int = 100,
    to: ClientOptions = TO,
) -> int:
    """List what waits for a person: approvals and forms, paused runs, and failed runs that nobody has resolved.

    `tickwork approve`, `tickwork resume` and `tickwork retry` answer them.

    Parameters
    ----------
    kind
        Only of this kind. May be repeated.
    workflow
        Only in runs of this workflow.
    person
        Leave out approvals and forms that this person may not decide.
    limit
        Maximum number of entries, up to 1000.
    """
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        entries = tuple(client.inbox(kind, workflow=workflow, person=person, limit=limit))
    if to.json:
        print_json(wire.Inbox(entries=entries, more=len(entries) >= limit))
        return Exit.OK
    if not entries:
        console(stderr=True).print("nothing waits for a person")
        return Exit.OK
    rows = [
        (entry.kind, safe(entry.run), safe(entry.node), safe(_first_line(entry.message)), safe(", ".join(entry.fields)),
         safe(", ".join(entry.approvers)), when(entry.due_at) if entry.due_at else "")
        for entry in entries
    ]  # fmt: skip
    console().print(table(("kind", "=run", "node", "message", "fields", "approvers", "until"), rows), soft_wrap=True)
    if len(entries) >= limit:
        console(stderr=True).print(f"there may be more than these {limit}: give --limit")
    return Exit.OK


def stream(run: str, /, *, node: str = "", to: ClientOptions = TO) -> int:
    """Show what the tasks of a run stream, while it goes on.

    From the beginning, and until the run has ended.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    node
        Only what this node streams.
    """
    import msgspec

    from tickwork.cli.output import console, safe

    screen, before = console(), ("", 0)
    with to.client() as client:
        for piece in client.stream(whole_id(client, run), node=node):
            if to.json:
                print(msgspec.json.encode(piece).decode(), flush=True)
                continue
            if piece.dead and piece.number is None:
                screen.print(f"\n[red]{safe(piece.node)}#{piece.attempt} ended without a result[/]", soft_wrap=True)
                before = ("", 0)
                continue
            if (piece.task, piece.attempt) != before:
                dead = " [red]without a result[/]" if piece.dead else ""
                lead = "\n" if before[0] else ""
                screen.print(f"{lead}[dim]{safe(piece.node)}#{piece.attempt}[/]{dead}", soft_wrap=True)
                before = (piece.task, piece.attempt)
            screen.print(safe(piece.text), end="", soft_wrap=True)
    if before[0] and not to.json:
        screen.print()
    return Exit.OK


def logs(
    run: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    node: str = "",
    data: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Show what the tasks of a run printed.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    follow
        Keep printing new lines until the run has ended.
    node
        Only lines of this node.
    data
        A data folder that no server uses, instead of a server. If no server answers, .tickwork is read.
    """
    import msgspec

    from tickwork.cli.output import console, print_json, safe, when
    from tickwork.protocol import http_models as wire

    screen = console()
    lines: list[wire.LogLine] = []
    folder = to.folder(data)
    live = follow and folder is None  # nothing is to come where no server runs
    with to.reader(folder) as client, closing(_lines(client.logs(whole_id(client, run), follow=live), node)) as output:
        for line in output:
            if not to.json:
                colour = "red" if line.stream == "stderr" else "default"
                head = f"[dim]{when(line.at)} {safe(line.node)}#{line.attempt}[/]"
                screen.print(f"{head} [{colour}]{safe(line.text)}[/]", soft_wrap=True)
            elif follow:
                print(msgspec.json.encode(line).decode(), flush=True)
            else:
                lines.append(line)
    if to.json and not follow:
        print_json(wire.Logs(lines=tuple(lines)))
    return Exit.OK


def why(run: str, /, *, data: str | None = None, to: ClientOptions = TO) -> int:
    """Explain a run: what was decided, when and why, and what it waits for now.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    data
        A data folder that no server uses, instead of a server. If no server answers, .tickwork is read.
    """
    from tickwork.cli.output import console, in_words, print_json, safe, tinted, when

    with to.reader(to.folder(data)) as client:
        story = client.why(whole_id(client, run))
    if to.json:
        print_json(story)
        return Exit.OK
    screen = console()
    screen.print(f"[bold]{safe(story.run)}[/]  {tinted(story.state)}", soft_wrap=True)
    for step in story.steps:
        text = in_words(step.text).replace("\n", "\n" + 24 * " ")
        screen.print(f"  [dim]{when(step.at)} seq {step.seq:<6}[/] {safe(text)}", soft_wrap=True)
    for reason in story.waiting_for:
        screen.print(f"  [yellow]waiting for:[/] {safe(in_words(reason))}", soft_wrap=True)
    return Exit.OK


def _lines(lines: "Iterator[wire.LogLine]", node: str) -> "Generator[wire.LogLine, None, None]":
    for line in lines:
        if not node or line.node == node:
            yield line


def _tree(detail: "wire.RunDetail") -> "Tree":
    from rich.tree import Tree

    from tickwork.cli.output import safe, tinted, took, value, when

    time = took(detail.started_at, detail.ended_at)
    tree = Tree(f"[bold]{safe(detail.workflow)}[/]  {tinted(detail.state)}  {time}  [dim]{safe(detail.id)}[/]")
    by = f" by {safe(detail.by)}" if detail.by else ""
    tree.add(f"submitted {when(detail.submitted_at)} ({safe(detail.source)}{by})")
    if detail.schedule:
        tree.add(f"schedule {safe(detail.schedule)}, due {when(detail.scheduled_at)}")
    if detail.tags:
        tree.add(f"tags {safe(', '.join(detail.tags))}")
    if detail.version:
        tree.add(f"version {safe(detail.version)}{', pinned' if detail.pinned else ''}")
    if detail.inputs:
        tree.add(f"inputs {value(detail.inputs)}")
    tasks = tree.add(f"tasks {detail.tasks_ended}/{detail.tasks_total}")
    for task in detail.tasks[:TASKS_SHOWN]:
        _add_task(tasks, task)
    _add_function(tasks, detail)
    for name, published in detail.published.items():
        tree.add(f"published {safe(name)} {value(published)}")
    if len(detail.tasks) > TASKS_SHOWN:
        tasks.add(f"… and {len(detail.tasks) - TASKS_SHOWN} more (--json has all)")
    if detail.error or detail.reason:
        tree.add(f"[red]{safe(detail.error)}[/] {safe(detail.reason)}".strip())
    if detail.output is not None:
        tree.add(f"output {value(detail.output)}")
    elif detail.output_size:
        tree.add(f"output of {detail.output_size} bytes, too large to show")
    return tree


def _add_function(tree: "Tree", detail: "wire.RunDetail") -> None:
    """The steps of a durable function in the order in which it got their outcomes, and what it waits for."""
    from tickwork.cli.output import safe, tinted, value, when

    if not detail.steps_total and not detail.awaits:
        return
    branch = tree.add(f"steps {detail.steps_total}")
    if len(detail.steps) < detail.steps_total:
        branch.add(f"… {detail.steps_total - len(detail.steps)} earlier ones (GET /v1/runs/{safe(detail.id)}/history)")
    for step in detail.steps:
        time = f" {step.took_ms} ms" if step.took_ms else ""
        tries = f" try {step.tries}" if step.tries > 1 else ""
        tries += f" attempt {step.attempt}" if step.attempt > 1 else ""
        size = f" {step.value_size} bytes" if step.value_size else ""
        cost = f" cost {step.cost}" if step.cost else ""
        name = f" {safe(step.name)}" if step.name else ""
        line = branch.add(f"{step.position} {step.kind}{name}  {tinted(step.state)}{time}{tries}{size}{cost}")
        if step.error and step.state != "timed_out":
            line.add(f"[red]{safe(step.error)}[/]: {safe(step.message)}")
        elif step.value is not None:
            line.add(value(step.value))
        elif step.value_size:
            line.add("too large to show")
    for pending in detail.awaits:
        name = f" {safe(pending.name)}" if pending.name else ""
        key = f" key {safe(pending.key)}" if pending.key else ""
        due = f", until {when(pending.due_at)}" if pending.due_at else ""
        line = branch.add(f"{pending.position} {pending.kind}{name}{key}  {tinted('waiting')}{due}")
        _add_fields(line, pending.fields)
        for words in (pending.message, pending.run, f"[dim]{safe(pending.line)}[/]" if pending.line else ""):
            if words:
                line.add(words if words.startswith("[dim]") else safe(words))


def _add_fields(branch: "Tree", fields: "dict[str, Any]") -> None:
    """What a form asks for: how (string: all, failed only), limit (integer, otherwise 5)."""
    from tickwork.cli.output import safe

    for name, field in fields.items():
        words = [field.get("type", "any")]
        if field.get("enum"):
            words[0] += f": {', '.join(map(str, field['enum']))}"
        if "default" in field:
            words.append(f"otherwise {field['default']!r}")
        elif field.get("required") is False:
            words.append("optional")
        branch.add(safe(f"{name} ({', '.join(words)})"))


def _add_task(tree: "Tree", task: "wire.Task") -> None:
    from tickwork.cli.output import safe, tinted, took, value, when
    from tickwork.cli.progress import children_words, name_of, task_took

    time = task_took(task)
    branch = tree.add(f"{name_of(task)}  {tinted(task.state)}{f'  {time}' if time else ''}  [dim]{safe(task.kind)}[/]")
    if task.children:
        branch.add(children_words(task.children))
    if task.attempts_earlier:
        branch.add(f"… {task.attempts_earlier} earlier attempts (--attempts-before {task.attempts[0].attempt})")
    for attempt in task.attempts:
        line = branch.add(
            f"attempt {attempt.attempt} {tinted(attempt.state)} "
            f"{took(attempt.started_at or attempt.dispatched_at, attempt.ended_at)} "
            f"[dim]on {safe(attempt.worker)}[/]"
        )
        if attempt.error:
            code = f" (exit {attempt.exit_code})" if attempt.exit_code is not None else ""
            line.add(f"[red]{safe(attempt.error)}{code}[/]: {safe(attempt.message)}")
    if task.message:
        branch.add(safe(task.message))
    _add_fields(branch, task.fields if task.state == "waiting" else {})
    if task.due_at:
        branch.add(f"due {when(task.due_at)}")
    if task.reason:
        branch.add(safe(task.reason))
    if task.result is not None:
        branch.add(f"result {value(task.result, characters_max=500)}")


def _first_line(text: str) -> str:
    line, more, _ = text.strip().partition("\n")
    return f"{line} …" if more else line
