"""What a server has: workers, alarms, ticks, and how it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from rich.table import Table

    from tickwork.protocol import http_models as wire

ALARMS_SHOWN = 10


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


def workers(*, to: ClientOptions = TO) -> int:
    """List the connected workers, with what each has and how much of it is in use."""
    from tickwork.cli.output import console, print_json
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.workers())
    if to.json:
        print_json(wire.Workers(workers=listing))
    else:
        console().print(worker_table(listing))
    return Exit.OK


def worker_table(listing: "Sequence[wire.Worker]") -> "Table":
    from tickwork.cli.output import ago, safe, table
    from tickwork.core.state.ready_queues import PIN_LABEL

    rows = [
        (safe(worker.id), safe(", ".join(worker.queues)),
         safe(", ".join(f"{k}={v}" for k, v in sorted(worker.labels.items()) if k != PIN_LABEL)),
         safe(worker.version) + (" [yellow]not the latest[/]" if worker.latest is False else ""),
         f"{worker.in_use.slots}/{worker.resources.slots}", _resources(worker), ago(worker.last_heard_at),
         safe(worker.host), str(worker.pid or "-"))
        for worker in listing
    ]  # fmt: skip
    return table(
        ("=worker", "queues", "labels", "version", ">slots", "resources in use", "last heartbeat", "host", ">pid"), rows
    )


def _resources(worker: "wire.Worker") -> str:
    """What is in use of all that it has: cpu 1.5/8 memory 2/32 GB gpu 1/2."""
    used, has = worker.in_use, worker.resources
    words = [f"cpu {used.cpu_milli / 1000:g}/{has.cpu_milli / 1000:g}"] if has.cpu_milli else []
    words += [f"memory {used.memory_mb / 1024:.3g}/{has.memory_mb / 1024:.3g} GB"] if has.memory_mb else []
    words += [f"gpu {used.gpu}/{has.gpu}"] if has.gpu else []
    return " ".join(words)


def status(*, to: ClientOptions = TO) -> int:
    """Show the state of the engine."""
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        report = client.status()
    if to.json:
        print_json(report)
        return Exit.OK
    screen = console()
    state = "[green]accepting[/]" if report.accepting else "[red]not accepting[/]"
    ended = ", ".join(f"{count} {state}" for state, count in sorted(report.runs.items())) or "none ended"
    screen.print(f"tickwork {safe(report.version)} at {safe(client.address.url)}: {state}", soft_wrap=True)
    screen.print(f"runs     {report.live_runs} live; {safe(ended)}")
    screen.print(f"tasks    {report.live_tasks} live, {report.ready} ready, {report.running} running")
    screen.print(f"workers  {report.workers}")
    if report.schedules:
        fates = ", ".join(f"{count} {name}" for name, count in report.occurrences.items()) or "nothing expected yet"
        wrong = f"; [red]{report.ledger_differences} differences[/]" if report.ledger_differences else ""
        screen.print(f"ledger   {report.schedules} schedules: {safe(fates)}{wrong}", soft_wrap=True)
    screen.print(
        f"journal  seq {report.seq}, rows through {report.watermark}, tick {report.tick}, epoch {report.epoch}"
    )
    if report.clock is not None and report.clock.description:
        screen.print(f"[yellow]clock[/]    {safe(report.clock.description)}", soft_wrap=True)
    if report.dispatch_held:
        screen.print(f"[red]held[/]     nothing is given to workers: {safe(report.dispatch_held)}")
    if len(report.alarms) > ALARMS_SHOWN:
        screen.print(f"alarms   {len(report.alarms)}, the last {ALARMS_SHOWN} of them (--json has all)")
    for alarm in report.alarms[-ALARMS_SHOWN:]:
        screen.print(f"[yellow]alarm[/]    {safe(alarm)}", soft_wrap=True)
    return Exit.OK


def alarms(*, limit: Count = 20, to: ClientOptions = TO) -> int:
    """List the latest alarms, newest first. They are kept while their server runs.

    Parameters
    ----------
    limit
        Maximum number.
    """
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.alarms())
    if to.json:
        print_json(wire.Alarms(alarms=listing[:limit]))
        return Exit.OK
    if not listing:
        console(stderr=True).print("no alarms")
        return Exit.OK
    rows = [
        (when(alarm.at), safe(alarm.kind), f"{alarm.count:,}" if alarm.count > 1 else "", safe(alarm.text))
        for alarm in listing[:limit]
    ]
    console().print(table(("at", "alarm", ">times", ""), rows), soft_wrap=True)
    if len(listing) > limit:
        console(stderr=True).print(f"… {len(listing) - limit} more (--limit)")
    return Exit.OK


def tick(number: int, /, *, partition: int = 0, to: ClientOptions = TO) -> int:
    """Show what one tick did: its inputs, its events, and the runs that it processed, in order.

    Parameters
    ----------
    number
        The tick; status, why and the journal name ticks.
    partition
        The partition, in a cluster.
    """
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        trace = client.tick(number, partition=partition)
    if to.json:
        print_json(trace)
        return Exit.OK
    screen = console()
    screen.print(f"tick {trace.tick} of partition {trace.partition}, {trace.at}, seq {trace.seq}", soft_wrap=True)
    for name, kinds in (("inputs", trace.inputs), ("events", trace.events)):
        words = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
        screen.print(f"{name}  {safe(words)}", soft_wrap=True)
    screen.print(f"processed {len(trace.visited)} runs")
    for run in trace.visited:
        screen.print(f"  {safe(run.id or f'number {run.number}, no longer known')}", soft_wrap=True)
    return Exit.OK
