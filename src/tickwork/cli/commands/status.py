"""What a server has: workflows, workers, and how it is."""

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

ALERTS_SHOWN = 10


def page(*, to: ClientOptions = TO) -> int:
    """Print a link to the server's page for one browser; it works once, within ten minutes.

    The browser gets a cookie for a week and needs no token.
    """
    from tickwork.api.http.browser_sessions import BrowserSessions
    from tickwork.cli.output import print_json
    from tickwork.system import local_token as localtoken

    with to.client() as client:
        client.status()  # it answers, and lets us in
        url, token = client.address.urls[0], client.address.token
    own = None if token else localtoken.find(url)
    if own is not None:
        url, token = own.url, own.token
    link = BrowserSessions(token).link(url) if token else f"{url}/"
    if to.json:
        print_json({"url": link})
    else:
        print(link)
    return Exit.OK


def workflows(*, to: ClientOptions = TO) -> int:
    """List the workflows that the server knows."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.workflows())
    if to.json:
        print_json(wire.Workflows(workflows=found))
        return Exit.OK
    rows = [
        (safe(one.name), str(one.versions), f"{safe(one.definition[:19])}…", safe(", ".join(one.schedules)),
         "[yellow]paused[/]" if one.paused else "", safe(one.description))
        for one in found
    ]  # fmt: skip
    console().print(table(("workflow", ">versions", "definition", "schedules", "", ""), rows))
    return Exit.OK


def workers(*, to: ClientOptions = TO) -> int:
    """List the connected workers."""
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.core.state.ready_queues import PIN_LABEL
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.workers())
    if to.json:
        print_json(wire.Workers(workers=found))
        return Exit.OK
    rows = [
        (safe(one.id), safe(", ".join(one.queues)),
         safe(", ".join(f"{k}={v}" for k, v in sorted(one.labels.items()) if k != PIN_LABEL)),
         safe(one.version) + (" [yellow]not the latest[/]" if one.latest is False else ""),
         f"{one.running}/{one.credit}", when(one.last_heard_at), safe(one.host), str(one.pid or "-"))
        for one in found
    ]  # fmt: skip
    console().print(table(("worker", "queues", "labels", "version", ">running", "heard", "host", ">pid"), rows))
    return Exit.OK


def status(*, to: ClientOptions = TO) -> int:
    """Show the state of the engine."""
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        found = client.status()
    if to.json:
        print_json(found)
        return Exit.OK
    screen = console()
    state = "[green]accepting[/]" if found.accepting else "[red]not accepting[/]"
    ended = ", ".join(f"{count} {state}" for state, count in sorted(found.runs.items())) or "none ended"
    screen.print(f"tickwork {safe(found.version)} at {safe(client.address.url)}: {state}", soft_wrap=True)
    screen.print(f"runs     {found.live_runs} live; {safe(ended)}")
    screen.print(f"tasks    {found.live_tasks} live, {found.ready} ready, {found.running} running")
    screen.print(f"workers  {found.workers}")
    if found.schedules:
        fates = ", ".join(f"{count} {name}" for name, count in found.occurrences.items()) or "nothing expected yet"
        wrong = f"; [red]{found.ledger_differences} differences[/]" if found.ledger_differences else ""
        screen.print(f"ledger   {found.schedules} schedules: {safe(fates)}{wrong}", soft_wrap=True)
    screen.print(f"journal  seq {found.seq}, rows through {found.watermark}, tick {found.tick}, epoch {found.epoch}")
    if found.clock is not None and found.clock.description:
        screen.print(f"[yellow]clock[/]    {safe(found.clock.description)}", soft_wrap=True)
    if found.dispatch_held:
        screen.print(f"[red]held[/]     nothing is given to workers: {safe(found.dispatch_held)}")
    if len(found.alerts) > ALERTS_SHOWN:
        screen.print(f"alerts   {len(found.alerts)}, the last {ALERTS_SHOWN} of them (--json has all)")
    for alert in found.alerts[-ALERTS_SHOWN:]:
        screen.print(f"[yellow]alert[/]    {safe(alert)}", soft_wrap=True)
    return Exit.OK
