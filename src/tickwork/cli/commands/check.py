"""`tickwork check`: whether new code of durable functions fits the runs that are under way."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions, File, whole_id

if TYPE_CHECKING:
    from tickwork.protocol.http_models import RunDetail
    from tickwork.sdk.client.client import Client

LIVE = ("active", "waiting", "paused")


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    runs: tuple[str, ...]  # that were replayed
    differ: dict[str, str]  # by run: where its replay leaves the history


def check(
    app: File, /, *, against: Annotated[tuple[str, ...], Parameter(negative="")] = (), to: ClientOptions = TO
) -> int:
    """Replay the histories of durable functions with this code, without running a step.

    The exit code is 1 if a run would fail with this code because its calls differ from what is recorded.

    Parameters
    ----------
    app
        The application: app.py, or a module.
    against
        Id of a run; repeat for several. Without it, all runs under way are checked.
    """
    from tickwork.cli.output import print_json, safe
    from tickwork.sdk.authoring.app_loader import load_app
    from tickwork.sdk.runner.history_check import difference

    handlers = {name: handler for name, handler in load_app(str(app)).handlers.items() if handler.durable}
    if not handlers:
        raise CommandExit(Exit.USAGE, f"{app} has no durable function")
    checked: list[str] = []
    changed: dict[str, str] = {}
    with to.client() as client:
        for run in _runs(client, against, tuple(handlers)):
            history = client.recorded(run.id)
            if history is None:
                continue
            checked.append(run.id)
            text = difference(handlers[run.workflow], history)
            if text:
                changed[run.id] = text
    if to.json:
        print_json(Checked(runs=tuple(checked), differ=changed))
    else:
        for run_id, text in changed.items():
            print(f"{run_id}: {safe(text)}")
        print(f"{len(checked)} runs checked, {len(changed)} differ")
    return Exit.FAILED if changed else Exit.OK


def _runs(client: "Client", chosen: tuple[str, ...], names: tuple[str, ...]) -> "list[RunDetail]":
    if not chosen:
        return [client.get(run) for name in names for run in client.list(name, state=LIVE)]
    runs = [client.get(whole_id(client, run)) for run in chosen]
    for run in runs:
        if run.workflow not in names:
            known = ", ".join(names)
            raise CommandExit(Exit.REFUSED, f"{run.id} is a run of {run.workflow}; the durable functions are: {known}")
    return runs
