"""`tickwork run`: start a run, follow it, and print its output.

If a server responds, it executes the run. Otherwise a private server is started on the data folder for the duration
of the run. The run's id is chosen here, so that it is known after Ctrl-C.
"""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit, tell
from tickwork.cli.options import REACH_S, TO, ClientOptions, File, private, settings
from tickwork.core.base.shortened import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tickwork.compose.settings import Settings
    from tickwork.sdk.authoring.workflows import Workflow
    from tickwork.sdk.client.client import Client
    from tickwork.sdk.client.submission_options import Options


def run(
    what: File,
    /,
    *,
    input: Annotated[tuple[str, ...], Parameter(negative="")] = (),  # noqa: A002 - the flag's name
    inputs_json: str | None = None,
    wait: bool = True,
    detach: Annotated[bool, Parameter(negative="")] = False,
    key: str = "",
    priority: int | None = None,
    delay: str | None = None,
    debounce: str = "",
    at_most: str | None = None,
    timeout: str | None = None,
    queue: str = "",
    retries: int | None = None,
    retry_delay: str | None = None,
    app_version: str = "",
    tag: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    data: str | None = None,
    pass_env: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Start a run and follow it until it ends.

    If no server answers, a private server is started on the data folder.

    Parameters
    ----------
    what
        app.py:workflow, app.py:task, module:workflow, or the name of a workflow that the server knows.
    input
        An input as name=value; repeat for each input. The value is JSON, or text if it is not valid JSON.
    inputs_json
        All inputs as a JSON object, @file, or - for standard input.
    wait
        Follow the run until it ends; the exit code shows its result.
    detach
        Only start the run and print its id, like --no-wait.
    key
        The same key gives the same run for 24 hours.
    priority
        Higher values come first.
    delay
        Start after this time: 5m, PT5M.
    debounce
        With --delay: a run that still waits under this key takes the new inputs, and its delay starts over.
    at_most
        Start a debounced run no later than this after its first submission: 30m.
    timeout
        Limit this run, instead of the timeout of its workflow: 1h.
    queue
        Queue for tasks of this run that name none.
    retries
        Retries for tasks of this run that have none of their own.
    retry_delay
        Time before their first retry: 10s.
    app_version
        Pin the run to this version of its application: its definition and its workers only (tickwork versions).
    tag
        A tag by which the run is found (tickwork runs --tag); repeat for each tag.
    data
        Data folder of a private server (TICKWORK_DATA; .tickwork).
    pass_env
        Environment variables to pass to tasks of a private server, comma-separated (TICKWORK_PASS_ENV; none).
    """
    from tickwork.cli.input_values import read_inputs
    from tickwork.sdk.client.submission_options import Options
    from tickwork.system.clock import SystemIds

    app, workflow, name = _resolve(str(what))
    inputs = read_inputs(input, inputs_json, workflow)
    options = Options(timeout=timeout, queue=queue, retries=retries, retry_delay=retry_delay)
    command = SubmitCommand(
        workflow or name,
        inputs,
        SystemIds().new(),
        key,
        priority,
        delay,
        debounce,
        at_most,
        app_version,
        tag,
        options,
    )
    command.check()
    with to.client(deadline_s=REACH_S) as client:
        answers = _answers(client)
    if answers:
        with to.client() as client:
            return _on_server(client, command, app, wait=wait and not detach, as_json=to.json)
    if to.settings().url:
        raise CommandExit(Exit.UNREACHABLE, f"no server responds at {client.address.url}")
    if not app:
        raise CommandExit(
            Exit.UNREACHABLE,
            f"no server responds at {client.address.url}; start one (tickwork dev app.py), or name the file: "
            f"tickwork run app.py:{name}",
        )
    if detach or not wait:
        raise CommandExit(Exit.UNREACHABLE, f"no server responds at {client.address.url}, "
                    "so the run would not start; leave out --detach, or start one: tickwork dev " + app)  # fmt: skip
    return _in_private(app, command, settings({"data": data, "pass_env": pass_env}), as_json=to.json)


class SubmitCommand:
    """The run to submit."""

    def __init__(
        self,
        workflow: "Workflow[..., Any] | str",
        inputs: dict[str, Any],
        run_id: str,
        key: str,
        priority: int | None,
        delay: str | None,
        debounce: str,
        at_most: str | None,
        app_version: str,
        tags: tuple[str, ...],
        options: "Options",
    ) -> None:
        self.workflow, self.inputs, self.id, self.key = workflow, inputs, run_id, key
        self.options: dict[str, Any] = {
            "priority": priority, "delay": delay, "debounce": debounce, "at_most": at_most, "app_version": app_version,
            "tags": tags, "options": options,
        }  # fmt: skip

    @property
    def name(self) -> str:
        return self.workflow if isinstance(self.workflow, str) else self.workflow.name

    def check(self) -> None:
        """Inputs that do not fit are refused before anything is started for them."""
        from tickwork.sdk.client.calls import submission

        submission(self.workflow, self.inputs, {}, key=self.key, **self.options)

    def submit(self, client: "Client") -> str:
        """Its id. Asking again is safe: the id is ours, and every try carries the same key."""
        try:
            handle = client.submit(self.workflow, self.inputs, id=self.id, key=self.key, **self.options)
        except KeyboardInterrupt:
            raise CommandExit(
                Exit.INTERRUPTED, f"interrupted while submitting; tickwork show {self.id} tells whether the run exists"
            ) from None
        if handle.duplicate and self.options["debounce"]:
            tell(f"run {handle.id} had not started: its inputs are replaced, and its delay starts over")
        elif handle.duplicate:
            tell(f"the key was used before: this is the earlier run, {handle.id}")
        for warning in handle.warnings:
            tell(f"warning: {warning} (tickwork worker --resources)")
        return handle.id


def _resolve(what: str) -> "tuple[str, Workflow[..., Any] | None, str]":
    """The application, the workflow where it can be loaded, and the name."""
    is_file = what.endswith(".py") or "/" in what
    if not is_file and ":" not in what:
        return "", None, what
    from tickwork.sdk.authoring.app_loader import load_app
    from tickwork.sdk.authoring.durable import as_workflow
    from tickwork.sdk.authoring.tasks import BoundTask, Task
    from tickwork.sdk.authoring.workflows import Workflow

    app = load_app(what)
    target, chosen = what, app.chosen
    if chosen is None:
        written = [workflow for workflow in app.workflows.values() if not workflow.follows]
        if len(written) != 1:
            names = ", ".join(sorted(workflow.name for workflow in written)) or "none"
            raise CommandExit(Exit.USAGE, f"name one of the workflows in {what} ({names}): {what}:workflow")
        chosen = written[0]
    else:
        target = what.rpartition(":")[0]
    if isinstance(chosen, Task | BoundTask):
        chosen = as_workflow(chosen)
    if not isinstance(chosen, Workflow):
        raise CommandExit(
            Exit.USAGE, f"{what} is not a workflow; the file has {', '.join(sorted(app.workflows)) or 'none'}"
        )
    return target, chosen, chosen.name


def _answers(client: "Client") -> bool:
    return client.alive()


def _on_server(client: "Client", command: SubmitCommand, app: str, *, wait: bool, as_json: bool) -> int:
    from tickwork.core.base.errors import Refused

    try:
        run_id = command.submit(client)
    except Refused as refused:
        if refused.code != "unknown_workflow":
            raise
        known: Sequence[str] = sorted(workflow.name for workflow in client.workflows())
        start = app or "app.py"
        raise CommandExit(
            Exit.NOT_FOUND,
            f"the server at {client.address.url} does not know the workflow {command.name!r} "
            f"(it knows: {shortened(', '.join(known), 400) or 'none'}); "
            f"publish it with a worker: tickwork worker {start}",
        ) from None
    if not wait:
        return _only_started(client, run_id, as_json=as_json)
    if not client.workers():
        tell("no worker is connected: the run waits for one (tickwork worker app.py)")
    return _follow(client, run_id, as_json=as_json)


def _only_started(client: "Client", run_id: str, *, as_json: bool) -> int:
    from tickwork.cli.output import print_json

    if as_json:
        print_json(client.get(run_id))
    else:
        print(run_id)
    return Exit.OK


def _in_private(app: str, command: SubmitCommand, chosen: "Settings", *, as_json: bool) -> int:
    from tickwork.sdk.client.client import Client

    with private(chosen, app) as server, Client(server.address, token=server.token) as client:
        run_id = command.submit(client)
        try:
            return _follow(client, run_id, as_json=as_json, alone=True)
        except CommandExit as ended:
            if ended.code != Exit.INTERRUPTED:
                raise
            tell(f"interrupted; the run {run_id} stays in {chosen.folder}; to continue it: tickwork dev {app}")
            tell(f"running tasks have {chosen.grace_s:g} s to end (Ctrl-C again: at once)")
            raise CommandExit(Exit.INTERRUPTED) from None


def _follow(client: "Client", run_id: str, *, as_json: bool, alone: bool = False) -> int:
    from tickwork.cli.output import console, print_json, print_output, safe
    from tickwork.cli.progress import follow
    from tickwork.core.base.errors import Unavailable
    from tickwork.sdk.client.calls import is_left_out

    try:
        detail = client.wait(run_id) if as_json else follow(client, run_id)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED,
            f"interrupted; the run {run_id} continues: tickwork show {run_id}, tickwork cancel {run_id}",
        ) from None
    except Unavailable as gone:
        again = f"the run {run_id} is kept, and continues when the server does: tickwork show {run_id}"
        raise CommandExit(Exit.UNREACHABLE, f"{gone}; {again}") from None
    if as_json:
        print_json(detail)
    elif detail.state == "completed":
        output = client.result(run_id) if is_left_out(detail) else detail.output
        if output is not None:
            print_output(output)
    else:
        screen = console(stderr=True)
        reason = safe(detail.error or detail.reason or "no reason was given")
        screen.print(f"[red]{safe(detail.state)}[/]: {reason}", soft_wrap=True)
        again = ""
        if not alone:  # what did not fail has nothing to try again
            failed = detail.state == "failed"
            again = f"; tickwork {f'retry {run_id} tries' if failed else f'rerun {run_id} runs it'} again"
        screen.print(f"tickwork why {run_id} explains it{again}", soft_wrap=True)
    return Exit.OK if detail.state == "completed" else Exit.FAILED
