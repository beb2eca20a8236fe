"""`tickwork endpoints`: URLs that are called when they are due, when next and why, and what they answered.

The command by itself lists them; every deed is a command under it (`endpoints_actions`).
"""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from tickwork.cli.commands import endpoints_actions as deeds
from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from rich.tree import Tree

    from tickwork.protocol import http_models as wire

State = Literal["pending", "active", "waiting", "paused", "completed", "failed", "cancelled"]

endpoints = App(name="endpoints", help_format="plaintext")
for _deed in (
    deeds.put, deeds.apply, deeds.run, deeds.pause, deeds.resume, deeds.reset_failures, deeds.hint,
    deeds.clear_hints, deeds.archive,
):  # fmt: skip
    endpoints.command(_deed)
endpoints.command(deeds.try_out, name="test")


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
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.endpoints(group=group, archived=archived))
    if to.json:
        print_json(wire.EndpointPage(endpoints=found))
        return Exit.OK
    if not found:
        console(stderr=True).print("no endpoints here; tickwork endpoints put makes one")
        return Exit.OK
    rows = [
        (safe(one.name), safe(f"{one.method} {one.url}"), safe(_times(one)), when(one.next_at), safe(one.source),
         when(one.last_fired_at), when(one.last_success_at), _state(one))
        for one in found
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
        one = client.endpoint(name)
    if to.json:
        print_json(one)
    else:
        console().print(_tree(one), soft_wrap=True)
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

    from tickwork.cli.output import console, duration, print_json, safe, table, tinted, value, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(islice(client.endpoint_runs(name, state=state, page_size=min(limit, 100)), limit))
    if to.json:
        print_json(wire.EndpointRuns(runs=found))
        return Exit.OK
    rows = [
        (safe(one.id), when(one.scheduled_at), safe(one.source), tinted(one.state), str(one.attempt),
         "-" if one.status is None else str(one.status),
         "-" if one.duration_ms is None else duration(one.duration_ms / 1000),
         value(one.body, characters_max=300) if bodies else safe(_said(one)))
        for one in found
    ]  # fmt: skip
    columns = ("run", "due", "why then", "state", ">attempt", ">status", ">time", "body" if bodies else "")
    console().print(table(columns, rows))
    return Exit.OK


MESSAGE_MAX = 120  # characters of it in a table; the run has the whole


def _said(one: "wire.EndpointRun") -> str:
    text = f"{one.error}: {one.message}" if one.error else one.message
    line, more, _ = text.partition("\n")
    return f"{line[:MESSAGE_MAX]} …" if more or len(line) > MESSAGE_MAX else line


def _times(one: "wire.Endpoint") -> str:
    text = one.cron or f"every {one.every}"
    return text if one.timezone == "UTC" else f"{text} {one.timezone}"


def _state(one: "wire.Endpoint") -> str:
    from tickwork.cli.output import safe, when

    words = []
    if one.archived:
        words.append("[dim]archived[/]")
    if one.paused:
        until = f" until {when(one.paused_until)}" if one.paused_until else ""
        reason = f": {safe(one.pause_reason)}" if one.pause_reason not in ("", "paused") else ""
        words.append(f"[yellow]paused[/]{until}{reason}")
    if one.failures:
        words.append(f"[red]{one.failures} failed in a row[/]")
    if one.running:
        words.append("[cyan]running[/]")
    if one.hints is not None:
        words.append("[cyan]hinted[/]")
    return ", ".join(words) or "[green]active[/]"


def _tree(one: "wire.Endpoint") -> "Tree":
    from rich.tree import Tree

    from tickwork.cli.output import safe, tinted, value, when

    tree = Tree(f"[bold]{safe(one.name)}[/]  {_state(one)}")
    if one.description:
        tree.add(safe(one.description))
    calls = tree.add(f"calls {safe(one.method)} {safe(one.url)}")
    for name, text in sorted(one.headers.items()):
        calls.add(f"{safe(name)}: {safe(text)}")
    if one.body is not None:
        calls.add(f"body {value(one.body, characters_max=500)}")
    tree.add(
        f"timeout {one.timeout}, {one.retries} retries, a run takes at most {one.max_duration}"
        + (f", success if {safe(one.success)}" if one.success else "")
        + (f", signed with {safe(one.sign)}" if one.sign else "")
    )
    tree.add(f"times {safe(_times(one))}  [dim]{safe(one.says)}[/]")
    limits = [f"at least {one.min_interval} apart" if one.min_interval else "",
              f"at most {one.max_interval} apart" if one.max_interval else ""]  # fmt: skip
    bounds = ", ".join(filter(None, limits))
    governor = tree.add(f"next {when(one.next_at)} by {safe(one.source) or '-'}" + (f" ({bounds})" if bounds else ""))
    for source, at in one.candidates:
        governor.add(f"candidate {safe(source)} {when(at)}")
    hints = one.hints
    if hints is not None:
        said = " and ".join(filter(None, (f"every {hints.interval}" if hints.interval else "",
                                          f"at {when(hints.at)}" if hints.at else "")))  # fmt: skip
        why = f": {safe(hints.reason)}" if hints.reason else ""
        cost = f", at a cost of {hints.cost}" if hints.cost else ""
        governor.add(f"hint {said} by {safe(hints.by)}{why}, until {when(hints.expires_at)}{cost}")
    last = one.last
    if last is not None:
        status = f" {last.status}" if last.status is not None else ""
        tree.add(f"last run {safe(last.id)} {tinted(last.state)}{status} {safe(_said(last))}".rstrip())
    return tree
