"""Actions on runs. Each is durable when the command returns, and the journal names its author."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions, whole_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tickwork.sdk.client.client import Client


Names = Annotated[tuple[str, ...], Parameter(negative="")]


def cancel(run: str, /, *, node: str = "", reason: str = "", to: ClientOptions = TO) -> int:
    """Cancel a run and stop its running tasks.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    node
        Cancel only this node: it fails, and the run goes on by its rules.
    reason
        The reason; it is recorded.
    """
    with to.client() as client, _in_words(client, run, "" if node else "cancelled") as run:
        client.cancel(run, node=node, reason=reason)
        return _print_result(client, run, f"{node} is cancelled" if node else "cancelled", to)


def pause(run: str, /, *, reason: str = "", until: str | None = None, to: ClientOptions = TO) -> int:
    """Pause a run: start none of its tasks until it is resumed.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    reason
        The reason; it is recorded.
    until
        Resume automatically at this time (RFC 3339).
    """
    with to.client() as client, _in_words(client, run, "paused") as run:
        client.pause(run, reason=reason, until=until)
        return _print_result(client, run, "paused", to)


def resume(run: str, /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """Resume a paused run.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    reason
        The reason; it is recorded.
    """
    with to.client() as client, _in_words(client, run, "resumed") as run:
        client.resume(run, reason=reason)
        return _print_result(client, run, "resumed", to)


def retry(run: str, /, *, node: str = "", reason: str = "", to: ClientOptions = TO) -> int:
    """Retry the failed nodes of a failed run.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    node
        Retry only this node, and leave the others failed; in a run that goes on, start its waiting retry now.
    reason
        The reason; it is recorded.
    """
    with to.client() as client, _in_words(client, run, "" if node else "tried again; only a failed run can") as run:
        client.retry(run, node=node, reason=reason)
        return _print_result(client, run, f"{node} is tried again" if node else "tried again", to)


def resolve(
    run: str,
    /,
    *,
    retry: Names = (),
    accept: Names = (),
    skip: Names = (),
    reason: str = "",
    to: ClientOptions = TO,
) -> int:
    """Decide about each failed node of a failed run: retry it, accept it with a value, or skip it.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    retry
        Run this node again; repeat for each node.
    accept
        Take this node as succeeded: NODE, or NODE=VALUE with a value that is JSON, or text if it is not valid JSON.
    skip
        Take this node as skipped; repeat for each node.
    reason
        The reason; it is recorded.
    """
    from tickwork.cli.input_values import read_value

    decisions, values = {}, {}
    for text, decision in [*((name, "retry") for name in retry), *((name, "accept") for name in accept),
                           *((name, "skip") for name in skip)]:  # fmt: skip
        node, mark, value = text.partition("=") if decision == "accept" else (text, "", "")
        if node in decisions:
            raise CommandExit(Exit.USAGE, f"{node} has two decisions; give one")
        decisions[node] = decision
        if mark:
            values[node] = read_value(value)
    if not decisions:
        raise CommandExit(Exit.USAGE, "decide about each failed node with --retry, --accept or --skip")
    with to.client() as client, _in_words(client, run, "resolved; only a failed run can") as run:
        client.resolve(run, decisions, values=values, reason=reason)
        return _print_result(client, run, "resolved", to)


def rerun(
    run: str,
    /,
    *,
    from_node: str = "",
    from_start: bool = False,
    definition: str = "",
    input: Names = (),  # noqa: A002 - the flag's name
    inputs_json: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Run an ended run again, as a new run.

    For a completed run, everything runs again. For any other run, only what did not succeed runs, and the other results
    are kept.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    from_node
        Run this node and what comes after it, and keep all other results.
    from_start
        Keep no results.
    definition
        Use the version of the workflow with this hash.
    input
        Another input as name=value, instead of all inputs of the run; repeat for each input.
    inputs_json
        All other inputs as a JSON object, @file, or - for standard input.
    """
    from tickwork.cli.input_values import read_inputs

    inputs = read_inputs(input, inputs_json, None) if input or inputs_json is not None else None
    with to.client() as client, _in_words(client, run, "repeated; only an ended run can") as run:
        again = client.rerun(run, from_node=from_node, from_start=from_start, definition=definition, inputs=inputs)
        return _print_result(client, again.id, f"runs {run} again", to)


def approve(
    run: str,
    node: str,
    /,
    *,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),  # noqa: A002 - the flag's name
    comment: str = "",
    to: ClientOptions = TO,
) -> int:
    """Approve an approval of a run, or fill in a form.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    node
        The approval node, or the form.
    set
        A field of a form as name=value; repeat for each field. The value is JSON, or text if it is not valid JSON.
    comment
        A comment to record.
    """
    from tickwork.cli.input_values import read_fields

    with to.client() as client, _in_words(client, run, "approved") as run:
        if not set:
            client.approve(run, node, comment=comment)
            return _print_result(client, run, f"{node} approved", to)
        client.fill(run, node, read_fields(set, _fields_of(client, run, node)), comment=comment)
        return _print_result(client, run, f"{node} filled in", to)


def _fields_of(client: "Client", run: str, node: str) -> "dict[str, Any]":
    """Of the form that a run waits for."""
    detail = client.get(run)
    forms = [task.fields for task in detail.tasks if task.node == node]
    forms += [pending.fields for pending in detail.awaits if pending.name == node]
    return next((fields for fields in forms if fields), {})


def reject(run: str, node: str, /, *, comment: str = "", to: ClientOptions = TO) -> int:
    """Reject an approval node of a run.

    Parameters
    ----------
    run
        Its id, or the beginning of it.
    node
        The approval node.
    comment
        A comment to record.
    """
    with to.client() as client, _in_words(client, run, "rejected") as run:
        client.reject(run, node, comment=comment)
        return _print_result(client, run, f"{node} rejected", to)


def signal(
    event: str,
    /,
    *,
    payload: str | None = None,
    payload_json: str | None = None,
    key: str = "",
    run: str = "",
    id: str = "",  # noqa: A002 - the name of the flag
    to: ClientOptions = TO,
) -> int:
    """Send an event to the runs that wait for it, and to the schedules that listen to it.

    If no run waits for it and no schedule listens to it, it is lost, unless there is a mailbox of its name (tickwork
    mailboxes). An event for one run (--run) is kept until that run waits for it.

    Parameters
    ----------
    event
        Its name.
    payload
        The payload: JSON, or text if it is not valid JSON.
    payload_json
        The payload as a JSON document; @file reads a file, - standard input. At most 16 MiB.
    key
        Only for runs that wait for this key.
    run
        Only for this run.
    id
        The sender's id of the event: repeated within a day, the event does nothing.
    """
    from tickwork.cli.input_values import read_payload
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        run = whole_id(client, run) if run else ""
        heard = client.send_event(event, read_payload(payload, payload_json), key=key, run=run or None, id=id)
    waiting = heard.waiting
    if to.json:
        print_json(
            {
                "event": event, "waiting": waiting, "kept": heard.kept, "schedules": heard.schedules,
                "duplicate": heard.duplicate,
            }
        )  # fmt: skip
    elif heard.duplicate:
        console().print(f"event {safe(event)} with the id {safe(id)} came before: nothing is done", soft_wrap=True)
    elif run:
        console().print(f"event {safe(event)} sent to {safe(run)}", soft_wrap=True)
    elif waiting or heard.schedules:
        counted = [f"{waiting} waited for it"] if waiting else []
        counted += [f"{heard.schedules} schedule{'s' * (heard.schedules > 1)} heard it"] if heard.schedules else []
        console().print(f"event {safe(event)} sent: {', '.join(counted)}", soft_wrap=True)
    elif heard.kept:
        console().print(f"event {safe(event)} sent: its mailbox keeps it", soft_wrap=True)
    else:
        what = f"{safe(event)} with the key {safe(key)}" if key else safe(event)
        advice = "with --run RUN, the run keeps it until it waits for it"
        console(stderr=True).print(
            f"[yellow]no run waits for {what}[/], so the event is lost; {advice}", soft_wrap=True
        )
    return Exit.OK


@contextmanager
def _in_words(client: "Client", run: str, participle: str) -> "Iterator[str]":
    """Give the whole id. A refusal that has to do with how the run stands says how it stands. "": the refusal is about
    one node."""
    from tickwork.core.base.errors import Conflict, Refused

    run = whole_id(client, run)
    try:
        yield run
    except (Conflict, Refused) as refused:
        if refused.code not in ("illegal_move", "not_waiting") or not participle:
            raise
        detail = client.get(run)
        if refused.code == "illegal_move":
            raise CommandExit(Exit.REFUSED, f"{run} is {detail.state}: it cannot be {participle}") from None
        waiting = [task.node for task in detail.tasks if task.kind == "approval" and task.state == "waiting"]
        names = f"these do: {', '.join(waiting)}" if waiting else "no approval of this run does"
        raise CommandExit(Exit.REFUSED, f"{refused}; {names}") from None


def _print_result(client: "Client", run: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, tinted

    detail = client.get(run)
    if to.json:
        print_json(detail)
    else:
        console().print(f"{safe(run)}: {safe(what)}; it is {tinted(detail.state)}", soft_wrap=True)
    return Exit.OK
