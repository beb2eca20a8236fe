"""`tickwork dead-letters`: failed runs that nobody has brought back or dropped."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from collections.abc import Callable

    from tickwork.protocol import http_models as wire

dead_letters = App(name="dead-letters", help_format="plaintext")

All = Annotated[bool, Parameter(name="--all", negative="")]


@dead_letters.default
def listed(*, workflow: str = "", limit: Count = 20, to: ClientOptions = TO) -> int:
    """List failed runs that nobody has brought back or dropped, newest first.

    Parameters
    ----------
    workflow
        Only runs of this workflow.
    limit
        Maximum number.
    """
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = list(islice(client.dead_letters(workflow, page_size=min(limit + 1, 500)), limit + 1))
    page = tuple(found[:limit])
    if to.json:
        print_json(wire.DeadLetters(runs=page))
        return Exit.OK
    if not page:
        console(stderr=True).print("no dead letters")
        return Exit.OK
    rows = [
        (safe(letter.id), safe(letter.workflow), when(letter.ended_at), safe(", ".join(letter.nodes)),
         str(letter.attempts), safe(letter.error.partition("\n")[0]))
        for letter in page
    ]  # fmt: skip
    console().print(table(("=run", "workflow", "failed", "nodes", ">attempts", ""), rows), soft_wrap=True)
    if len(found) > limit:
        console(stderr=True).print(f"… there are more than {limit} (--limit)")
    return Exit.OK


@dead_letters.command
def show(run: str, /, *, to: ClientOptions = TO) -> int:
    """Show a failed run with its tasks, attempts and errors, and what can be done about it.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    """
    from tickwork.cli.commands.runs import show as show_run
    from tickwork.cli.output import console, safe

    code = show_run(run, to=to)
    if not to.json and code == Exit.OK:
        console().print(
            f"\ntickwork retry {safe(run)} tries again what failed; tickwork resolve decides each node; "
            "tickwork dead-letters drop ends it for a reason",
            soft_wrap=True,
        )
    return code


@dead_letters.command
def redrive(
    *runs: str,
    workflow: str = "",
    all: All = False,  # noqa: A002 - the flag's name
    per_second: Count = 10,
    reason: str = "",
    to: ClientOptions = TO,
) -> int:
    """Bring failed runs back: what failed in them is tried again, at a bounded rate.

    Parameters
    ----------
    runs
        Their ids, or the beginnings of them.
    workflow
        Instead of ids: the newest 1000 of this workflow.
    all
        With --workflow: all of them.
    per_second
        Runs that go on in any second, at most.
    reason
        The reason; it is recorded.
    """
    with to.client() as client:
        ids = [client.find_run(run) for run in runs]
        return _in_portions(
            lambda: client.redrive(ids, workflow=workflow, per_second=per_second, reason=reason),
            bool(ids), workflow, "redriven", to, all_of_them=all,
        )  # fmt: skip


@dead_letters.command
def drop(
    *runs: str,
    reason: str,
    workflow: str = "",
    all: All = False,  # noqa: A002 - the flag's name
    to: ClientOptions = TO,
) -> int:
    """Drop failed runs: they end as cancelled, for a reason.

    Parameters
    ----------
    runs
        Their ids, or the beginnings of them.
    reason
        The reason; it is recorded.
    workflow
        Instead of ids: the newest 1000 of this workflow.
    all
        With --workflow: all of them.
    """
    with to.client() as client:
        ids = [client.find_run(run) for run in runs]
        return _in_portions(
            lambda: client.drop(ids, workflow=workflow, reason=reason), bool(ids), workflow, "dropped", to,
            all_of_them=all,
        )  # fmt: skip


def _in_portions(
    act: "Callable[[], wire.DeadLetterResult]",
    has_ids: bool,
    workflow: str,
    what: str,
    to: ClientOptions,
    *,
    all_of_them: bool,
) -> int:
    from tickwork.cli.output import console, print_json, safe
    from tickwork.protocol import http_models as wire

    if has_ids is bool(workflow):
        raise CommandExit(Exit.USAGE, "name runs, or a workflow with --workflow")
    done: list[str] = []
    refused: list[wire.DeadLetterProblem] = []
    while True:
        result = act()
        done += result.done
        refused += result.refused
        if not (all_of_them and result.more and result.done):
            break
    if to.json:
        print_json(wire.DeadLetterResult(done=tuple(done), refused=tuple(refused), more=result.more))
    else:
        more = "; there are more (--all)" if result.more else ""
        console().print(f"{len(done)} {what}{more}", soft_wrap=True)
        for problem in refused:
            console(stderr=True).print(f"[yellow]{safe(problem.run)}[/] {safe(problem.detail)}", soft_wrap=True)
    return Exit.REFUSED if refused else Exit.OK
