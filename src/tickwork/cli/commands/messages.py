"""`tickwork ask` and `tickwork read` speak with the durable function of a run; `mailboxes` lists kept events."""

from typing import Annotated

from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions, Count, whole_id


def ask(
    run: str,
    name: str,
    /,
    *,
    input: Annotated[tuple[str, ...], Parameter(negative="")] = (),  # noqa: A002 - the flag's name
    payload_json: str | None = None,
    timeout: str = "10s",
    key: str = "",
    start: str = "",
    to: ClientOptions = TO,
) -> int:
    """Send an update to the durable function of a run, and print its reply as JSON.

    The exit code is 4 if the function refuses, and 75 if it has not replied in time; the update still waits in the run.

    Parameters
    ----------
    run
        Its id.
    name
        The name of the message that the function receives.
    input
        A field of the payload as name=value; repeat for each. The value is JSON, or text if it is not valid JSON.
    payload_json
        The payload as a JSON document; @file reads a file, - standard input. At most 16 MiB.
    timeout
        How long to wait for the reply: 10s, 1m.
    key
        The same key is the same update, and gets the same reply.
    start
        Start this workflow under the run's id if there is no such run.
    """
    from tickwork.cli.input_values import read_inputs, read_payload
    from tickwork.cli.output import print_json
    from tickwork.core.calendar.durations import duration_ms

    if input and payload_json is not None:
        raise CommandExit(Exit.USAGE, "give --input or --payload-json, not both")
    payload = read_payload(None, payload_json) if payload_json is not None else read_inputs(input, None, None) or None
    seconds = duration_ms(timeout, path="timeout") / 1_000
    with to.client() as client:
        run = run if start else whole_id(client, run)  # a run that is started has no other id than this
        print_json(client.ask(run, name, payload, timeout=seconds, key=key, start=start or None))
    return Exit.OK


def read(run: str, name: str = "", /, *, to: ClientOptions = TO) -> int:
    """Print a value that a run has published, as JSON.

    Parameters
    ----------
    run
        Its id; it may have ended.
    name
        The name of the value. Without it, all values that are small enough to show.
    """
    from tickwork.cli.output import print_json

    with to.client() as client:
        run = whole_id(client, run)
        print_json(client.read(run, name) if name else client.get(run).published)
    return Exit.OK


mailboxes = App(name="mailboxes", help_format="plaintext")


@mailboxes.default
def listed(mailbox: str = "", /, *, key: str = "", fate: str = "", limit: int = 100, to: ClientOptions = TO) -> int:
    """List the mailboxes, or the messages of one: kept, taken, expired and refused.

    Messages that are kept come first, in the order in which they are taken, then those that had their fate, newest
    first.

    Parameters
    ----------
    mailbox
        List the messages of this mailbox.
    key
        Only messages of this key.
    fate
        Only messages with this fate: kept, taken, expired or refused.
    limit
        Number of messages.
    """
    from tickwork.cli.output import console, print_json, safe, table, value, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        if not mailbox:
            boxes = tuple(client.mailboxes())
            if to.json:
                print_json(wire.Mailboxes(mailboxes=boxes))
                return Exit.OK
            rows = [
                (safe(box.name), box.keep, *map(str, (box.kept, box.keys, box.taken, box.expired, box.refused)))
                for box in boxes
            ]
            columns = ("mailbox", "keeps for", ">kept", ">keys", ">taken", ">expired", ">refused")
            console().print(table(columns, rows))
            return Exit.OK
        messages = tuple(client.mailbox_messages(mailbox, key=key, fate=fate, limit=limit))
    if to.json:
        print_json(wire.MailboxMessages(messages=messages))
        return Exit.OK
    shown = [
        (
            safe(message.key), message.fate, when(message.came_at), when(message.ended_at or message.expires_at),
            safe(message.run), value(message.payload) if message.payload is not None else "",
        )
        for message in messages
    ]  # fmt: skip
    console().print(table(("key", "fate", "came", "until", "run", "payload"), shown))
    if len(messages) >= limit:
        console(stderr=True).print(f"there may be more than these {limit}: give --limit")
    return Exit.OK


@mailboxes.command
def put(
    name: str,
    /,
    *,
    keep: str = "7d",
    max: Count = 100,  # noqa: A002 - the field's name
    fields: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Declare a mailbox: events of its name are kept for their key until somebody takes them.

    Parameters
    ----------
    name
        Its name, which is that of its events.
    keep
        How long an event is kept: 12h, 7d.
    max
        Maximum number of events that are kept for one key.
    fields
        The fields of a payload as a JSON object, like the inputs of a workflow document.
    """
    from tickwork.cli.input_values import read_value

    declared = read_value(fields) if fields is not None else {}
    if not isinstance(declared, dict):
        raise CommandExit(Exit.USAGE, "--fields must be a JSON object")
    with to.client() as client:
        client.put_mailbox(name, keep=keep, max=max, fields=declared)
    return _print_result(name, "declared", to)


@mailboxes.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Delete a mailbox that keeps no event.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.delete_mailbox(name)
    return _print_result(name, "deleted", to)


def _print_result(name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"mailbox": name})
    else:
        console().print(f"mailbox {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK
