"""Progress of a run: a live table in a terminal, a line for each change in a pipe.

It is written to standard error, so that standard output contains only the run's output.
"""

import contextlib
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from tickwork.cli.output import console, safe, table, tinted, took
from tickwork.core.base.errors import TickworkError
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table

    from tickwork.sdk.client.client import Client

TASKS_SHOWN = 30
DRAWN_PER_S = 8
LOOKED_S = 0.5
JOINED_S = 5.0  # for a look that is under way


def follow(client: "Client", run_id: str) -> wire.RunDetail:
    """The run at its end."""
    screen = console(stderr=True)
    screen.print(f"run {safe(run_id)}", soft_wrap=True)
    if screen.is_terminal:
        return _live(client, run_id, screen)
    return _lines(client, run_id, screen)


def _live(client: "Client", run_id: str, screen: "Console") -> wire.RunDetail:
    from rich.live import Live

    latest = [client.get(run_id)]
    over = threading.Event()

    def look() -> None:
        """Read progress by polling, because it is not a change of the run."""
        while not over.wait(LOOKED_S):
            with contextlib.suppress(TickworkError):
                latest[0] = client.get(run_id)

    looking = threading.Thread(target=look, name="tickwork-progress", daemon=True)
    with Live(console=screen, refresh_per_second=DRAWN_PER_S, get_renderable=lambda: tasks_table(latest[0])):
        looking.start()
        try:
            with closing(client.watch(run_id)) as changes:
                for _ in changes:
                    latest[0] = client.get(run_id)
        finally:
            over.set()
            looking.join(JOINED_S)
        latest[0] = client.get(run_id)
    return latest[0]


def _lines(client: "Client", run_id: str, screen: "Console") -> wire.RunDetail:
    states: dict[str, str] = {}
    with closing(client.watch(run_id)) as changes:
        for _ in changes:
            _tell(client.get(run_id), states, screen)
    detail = client.get(run_id)
    _tell(detail, states, screen)
    line = f"{safe(detail.workflow)}: {tinted(detail.state)} after {took(detail.started_at, detail.ended_at)}"
    screen.print(line, soft_wrap=True)
    return detail


def _tell(detail: wire.RunDetail, states: dict[str, str], screen: "Console") -> None:
    for task in _children_first(detail.tasks):
        if states.get(task.id) != task.state and (task.state != "pending" or task.id in states):
            states[task.id] = task.state
            seconds = task_took(task)
            error = task_error(task)
            text = f"  {name_of(task)} {tinted(task.state)}{f' {seconds}' if seconds else ''}"
            screen.print(text + (f"  {safe(error)}" if error else ""), soft_wrap=True)


def _children_first(tasks: "Sequence[wire.Task]") -> "Iterator[wire.Task]":
    """A map that has ended comes after the last of its children, as it did."""
    children: dict[str, list[wire.Task]] = {}
    for task in tasks:
        if task.child is not None:
            children.setdefault(task.node, []).append(task)
    for task in tasks:
        if task.child is None:
            own = children.get(task.node, [])
            yield from [*own, task] if task.state in ("succeeded", "failed") else [task, *own]


def tasks_table(detail: wire.RunDetail) -> "Table":
    head = f"{safe(detail.workflow)}  {tinted(detail.state)}  {took(detail.started_at, detail.ended_at)}"
    tasks = table(
        ("task", "state", ">tries", ">time", ""),
        [
            (name_of(task), tinted(task.state), str(_tries(task) or "-"), task_took(task) or "-", remark(task))
            for task in detail.tasks[:TASKS_SHOWN]
        ],
    )
    tasks.title, tasks.title_justify, tasks.title_style = head, "left", "bold"
    if len(detail.tasks) > TASKS_SHOWN:
        tasks.caption = f"… and {len(detail.tasks) - TASKS_SHOWN} more (tickwork show {safe(detail.id)})"
    return tasks


def _tries(task: wire.Task) -> int:
    return task.attempts_earlier + len(task.attempts)


def name_of(task: wire.Task) -> str:
    return safe(task.node if task.child is None else f"{task.node}[{task.child}]")


def remark(task: wire.Task) -> str:
    """What a person wants to know of it now."""
    last = task.attempts[-1] if task.attempts else None
    if task.children:
        return children_words(task.children)
    if last is not None and last.progress is not None and last.state == "running":
        done, total = last.progress
        return safe(f"{done}/{total} {last.progress_message}".strip())
    return safe(task_error(task) or task.reason)


def children_words(counts: "Mapping[str, int]") -> str:
    """2 running, 5 succeeded, 1 failed of 20."""
    parts = [f"{counts[state]} {state}" for state in ("running", "succeeded", "failed") if counts.get(state)]
    of = f" of {counts['total']}" if counts.get("total") else ""
    return f"{', '.join(parts) or 'none started'}{of}"


def task_error(task: wire.Task) -> str:
    last = task.attempts[-1] if task.attempts else None
    if last is None or not last.error:
        return ""
    return f"{last.error}: {last.message.strip().splitlines()[0]}" if last.message.strip() else last.error


def task_took(task: wire.Task) -> str:
    """From the first attempt's start to the last one's end; empty before that, and if the first is not shown."""
    if not task.attempts or task.attempts_earlier:
        return ""
    first, last = task.attempts[0], task.attempts[-1]
    return took(first.started_at or first.dispatched_at, last.ended_at)
