"""`tickwork dev`: everything one person needs, in one terminal."""

import time
from typing import TYPE_CHECKING

from tickwork.cli.commands.server_and_worker import HANDS, PLACE, run_loop
from tickwork.cli.options import File, ServerOptions, WorkerOptions, settings

if TYPE_CHECKING:
    from rich.console import Console

    from tickwork.compose.dev import Note
    from tickwork.protocol import http_models as wire


def dev(app: File, /, *, options: ServerOptions = PLACE, hands: WorkerOptions = HANDS, reload: bool = True) -> int:
    """Run server, engine and worker for an application, and reload it when a file is saved.

    Ctrl-C lets running tasks finish and hands back the rest. A second Ctrl-C stops at once.

    Parameters
    ----------
    app
        The application: a file (app.py) or a module (package.module).
    reload
        Restart the worker when a Python file next to the application changes.
    """
    from tickwork.compose.dev import develop

    chosen = settings(options.flags(), hands.flags())
    run_loop(develop(chosen, str(app), say=NotePrinter(str(app)).say, reload=reload))
    return 0


NAMED = 12  # workflows; more are counted


class NotePrinter:
    """Notes as lines. What draws them is loaded with the first one: by then the server answers already."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._screen: Console | None = None
        self._address = ""
        self._workflows: tuple[str, ...] | None = None  # those that were printed last

    def say(self, note: "Note") -> None:
        from tickwork.cli.output import safe
        from tickwork.compose import dev as notes

        match note:
            case notes.Serving(address, link):
                self._address = address
                self._line(f"[bold]tickwork[/] is running at [link={link}]{address}[/link]")
                if link != address:
                    self._line(f"[dim]single-use link for a browser (tickwork page prints another):[/] {link}")
            case notes.WorkerServes(seconds, files, workflows, starts):
                what = f"new code ({safe(', '.join(files[:3]))}{' …' if len(files) > 3 else ''})" if files else "worker"
                self._line(f"{what} ready after {seconds:.1f} s")
                self._hint(workflows, starts)
            case notes.WorkerBroken(message, old_goes_on):
                rest = "the previous code keeps running" if old_goes_on else "waiting for a change"
                self._line(f"[red]{safe(message)}[/]\n           {rest}")
            case notes.WorkerDied(code, message):
                self._line(f"[red]the worker ended with {code}[/]; starting it again\n{safe(message)}".rstrip())
            case notes.RunChanged(run):
                self._line(run_line(run))
            case notes.RunsSkipped(count):
                self._line(f"… and {count} more runs")
            case notes.Draining(grace_s):
                self._line(f"ending; running tasks have {grace_s:g} s (Ctrl-C again: at once)")

    def _hint(self, workflows: tuple[str, ...], starts: tuple[str, ...]) -> None:
        """What there is and what a newcomer does next: at first, and where it has changed."""
        if workflows == self._workflows:
            return
        from tickwork.cli.output import safe
        from tickwork.compose.settings import PORT

        self._workflows = workflows
        if not workflows:
            self._line(f"[yellow]{safe(self._app)} has no workflow[/]: decorate a function with @tw.workflow")
            return
        shown = ", ".join(workflows[:NAMED]) + (f" and {len(workflows) - NAMED} more" if len(workflows) > NAMED else "")
        self._line(f"workflows: {safe(shown)}")
        where = "" if self._address.endswith(f":{PORT}") else f" --url {self._address}"
        given = "".join(f" --input {name}=…" for name in starts[1:])
        self._line(f"[dim]in another terminal: tickwork run {safe(starts[0] + given)}{where}[/]")

    def _line(self, text: str) -> None:
        if self._screen is None:
            from tickwork.cli.output import console

            self._screen = console()
        self._screen.print(f"[dim]{time.strftime('%H:%M:%S')}[/]  {text}", soft_wrap=True)


def run_line(run: "wire.Run") -> str:
    """Workflow, state, duration, id; where it failed, why."""
    from tickwork.cli.output import safe, tinted, took

    time_ = took(run.started_at, run.ended_at)
    lines = safe(run.error).replace("\n", "\n           ")
    error = f"\n           [red]{lines}[/]" if run.error else ""
    return f"{safe(run.workflow):<20} {tinted(run.state, width=10)} {time_:>9}  [dim]{safe(run.id)}[/]{error}"
