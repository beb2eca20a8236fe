"""`tickwork endpoints`: list URLs that are called when they are due, with their next times and their responses.

The command by itself lists them; each action is a command under it, from `endpoints_put` and `named_actions`.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from tickwork.cli.commands import endpoints_put as puts
from tickwork.cli.commands.named_actions import ResourceKind, add_actions
from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from rich.tree import Tree

    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client

State = Literal["pending", "active", "waiting", "paused", "completed", "failed", "cancelled"]

endpoints = App(name="endpoints", help_format="plaintext")
endpoints.command(puts.put)
endpoints.command(puts.apply)


def _print_state(client: "Client", name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    endpoint = client.endpoint(name)
    if to.json:
        print_json(endpoint)
        return Exit.OK
    console().print(f"{safe(name)}: {safe(what)}; {puts.next_time(endpoint)}", soft_wrap=True)
    return Exit.OK


add_actions(
    endpoints,
    ResourceKind(
        noun="endpoint",
        summaries={
            "trigger": "Call an endpoint now, in addition to its times, and print the run's id.",
            "test": "Call an endpoint now as a test, without effect on its times and failures, and print the run's id.",
            "pause": "Pause an endpoint, or a group of endpoints, until it is resumed.",
            "resume": "Resume a paused endpoint or group, from now on.",
            "reset-failures": "Reset the failure count of an endpoint, and so its backoff.",
            "hint": "Give the Governor of an endpoint a hint: call it at this interval, or once at this time.",
            "clear-hints": "Withdraw all hints for an endpoint; its own times apply again.",
            "archive": "Archive an endpoint with its history; it is no longer called.",
            "restore": "Restore an endpoint from the archive; `endpoints put` restores it, too.",
        },
        check=lambda client, name: client.endpoint(name),
        archive=lambda client, name: client.archive_endpoint(name),
        restore=lambda client, name: client.restore_endpoint(name),
        trigger=lambda client, name, test: client.test_endpoint(name) if test else client.trigger_endpoint(name),
        print_state=_print_state,
    ),
)


@endpoints.default
def listed(
    *,
    group: str = "",
    archived: Annotated[bool, Parameter(negative="")] = False,
    to: ClientOptions = TO,
) -> int:
    """List endpoints: URLs that are called automatically, with the reason for the next time.

    Parameters
    ----------
    group
        Only those of this group.
    archived
        List archived ones instead.
    """
    from tickwork.cli.output import console, print_json, safe, source_label, table, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        page = tuple(client.endpoints(group=group, archived=archived))
    if to.json:
        print_json(wire.EndpointPage(endpoints=page))
        return Exit.OK
    if not page:
        console(stderr=True).print("no endpoints here; tickwork endpoints put creates one")
        return Exit.OK
    rows = [
        (safe(item.name), safe(f"{item.method} {item.url}"), safe(_times(item)), when(item.next_at),
         safe(source_label(item.source, item.hints)),
         when(item.last_fired_at), when(item.last_success_at), _state(item))
        for item in page
    ]  # fmt: skip
    console().print(table(("endpoint", "calls", "times", "next", "why then", "last", "last success", "state"), rows))
    return Exit.OK


endpoints.command(listed, name="list")


@endpoints.command
def show(name: str, /, *, to: ClientOptions = TO) -> int:
    """Show an endpoint: its URL, its next time with all candidates, its hints, and its last run.

    Parameters
    ----------
    name
        Its name.
    """
    from tickwork.cli.output import console, print_json

    with to.client() as client:
        endpoint = client.endpoint(name)
    if to.json:
        print_json(endpoint)
    else:
        console().print(_tree(endpoint), soft_wrap=True)
    return Exit.OK


@endpoints.command
def history(
    name: str,
    /,
    *,
    state: Annotated[tuple[State, ...], Parameter(negative="")] = (),
    bodies: Annotated[bool, Parameter(negative="")] = False,
    limit: Count = 20,
    to: ClientOptions = TO,
) -> int:
    """List the calls of an endpoint, newest first, with reason and result.

    Parameters
    ----------
    name
        Its name.
    state
        Only runs in this state; repeat for several states.
    bodies
        Show the response bodies; --json always has them.
    limit
        Maximum number.
    """
    from itertools import islice

    from tickwork.cli.output import console, duration, print_json, safe, source_label, table, tinted, value, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        known = tuple(islice(client.endpoint_runs(name, state=state, page_size=min(limit + 1, 100)), limit + 1))
    runs = known[:limit]
    if to.json:
        print_json(wire.EndpointRuns(runs=runs))
        return Exit.OK
    rows = [
        (safe(run.id), when(run.scheduled_at), safe(source_label(run.source)), tinted(run.state), str(run.attempt),
         "-" if run.status is None else str(run.status),
         "-" if run.duration_ms is None else duration(run.duration_ms / 1000),
         value(run.body, characters_max=300) if bodies else safe(_message_line(run)))
        for run in runs
    ]  # fmt: skip
    columns = ("run", "due", "why then", "state", ">attempt", ">status", ">time", "body" if bodies else "")
    console().print(table(columns, rows))
    if len(known) > limit:
        console(stderr=True).print(f"… there are more than {limit} (--limit)")
    return Exit.OK


MESSAGE_MAX = 120  # characters of it in a table; the run has the whole


def _message_line(run: "wire.EndpointRun") -> str:
    text = f"{run.error}: {run.message}" if run.error else run.message
    line, more, _ = text.partition("\n")
    return f"{line[:MESSAGE_MAX]} …" if more or len(line) > MESSAGE_MAX else line


def _times(endpoint: "wire.Endpoint") -> str:
    text = endpoint.cron or f"every {endpoint.every}"
    return text if endpoint.timezone == "UTC" else f"{text} {endpoint.timezone}"


def _state(endpoint: "wire.Endpoint") -> str:
    from tickwork.cli.output import safe, when

    words = []
    if endpoint.archived:
        words.append("[dim]archived[/]")
    if endpoint.paused:
        until = f" until {when(endpoint.paused_until)}" if endpoint.paused_until else ""
        reason = f": {safe(endpoint.pause_reason)}" if endpoint.pause_reason not in ("", "paused") else ""
        words.append(f"[yellow]paused[/]{until}{reason}")
    if endpoint.failures:
        words.append(f"[red]{endpoint.failures} failed in a row[/]")
    if endpoint.running:
        words.append("[cyan]running[/]")
    if endpoint.hints is not None:
        words.append("[cyan]hinted[/]")
    return ", ".join(words) or "[green]active[/]"


def _tree(endpoint: "wire.Endpoint") -> "Tree":
    from rich.tree import Tree

    from tickwork.cli.output import safe, source_label, tinted, value, when

    tree = Tree(f"[bold]{safe(endpoint.name)}[/]  {_state(endpoint)}")
    if endpoint.description:
        tree.add(safe(endpoint.description))
    calls = tree.add(f"calls {safe(endpoint.method)} {safe(endpoint.url)}")
    for name, text in sorted(endpoint.headers.items()):
        calls.add(f"{safe(name)}: {safe(text)}")
    if endpoint.body is not None:
        calls.add(f"body {value(endpoint.body, characters_max=500)}")
    tree.add(
        f"timeout {endpoint.timeout}, {endpoint.retries} retries, a run takes at most {endpoint.max_duration}"
        + (f", success if {safe(endpoint.success)}" if endpoint.success else "")
        + (f", signed with {safe(endpoint.sign)}" if endpoint.sign else "")
    )
    if endpoint.etag:
        tree.add(f"ETag {safe(endpoint.etag)}  [dim](endpoints put --if-match)[/]")
    tree.add(f"times {safe(_times(endpoint))}  [dim]{safe(endpoint.says)}[/]")
    limits = [f"at least {endpoint.min_interval} apart" if endpoint.min_interval else "",
              f"at most {endpoint.max_interval} apart" if endpoint.max_interval else ""]  # fmt: skip
    bounds = ", ".join(filter(None, limits))
    governor = tree.add(
        f"next {when(endpoint.next_at)} by {safe(source_label(endpoint.source, endpoint.hints)) or '-'}"
        + (f" ({bounds})" if bounds else "")
    )
    for source, at in endpoint.candidates:
        governor.add(f"candidate {safe(source_label(source, endpoint.hints))} {when(at)}")
    hints = endpoint.hints
    if hints is not None:
        rhythm = " and ".join(filter(None, (f"every {hints.interval}" if hints.interval else "",
                                          f"at {when(hints.at)}" if hints.at else "")))  # fmt: skip
        why = f": {safe(hints.reason)}" if hints.reason else ""
        cost = f", at a cost of {hints.cost}" if hints.cost else ""
        governor.add(f"hint {rhythm} by {safe(hints.by)}{why}, until {when(hints.expires_at)}{cost}")
    last = endpoint.last
    if last is not None:
        status = f" {last.status}" if last.status is not None else ""
        tree.add(f"last run {safe(last.id)} {tinted(last.state)}{status} {safe(_message_line(last))}".rstrip())
    return tree
