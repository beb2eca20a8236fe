"""The cluster: nodes, partitions, owners, and how widely runs are spread."""

from typing import TYPE_CHECKING, Literal

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.sdk.client.client import Client


def cluster(
    deed: Literal["show", "spread", "inbox", "remove"] = "show", argument: str = "", /, *, to: ClientOptions = TO
) -> int:
    """Show nodes, partitions and their owners.

    `tickwork cluster spread 4` places new runs in four partitions, so that several nodes share the work. Schedules and
    keys stay in the home partition, and the limits of queues are divided. The spread can only grow.

    `tickwork cluster inbox` lists runs that were accepted while their partition had no owner, and that the new owner
    refuses. They are kept and retried. `tickwork cluster remove ID` removes a run from this list.

    Parameters
    ----------
    deed
        show, spread, inbox or remove.
    argument
        For spread: the number of partitions for new runs. For remove: the id of the run.
    """
    from tickwork.cli.output import console, print_json, safe, table, when
    from tickwork.core.base.errors import Refused

    if (deed == "spread") != (argument.isascii() and argument.isdigit()) and deed != "remove":
        raise CommandExit(Exit.USAGE, "write `tickwork cluster`, or `tickwork cluster spread NUMBER`")
    if bool(argument) != (deed in ("spread", "remove")):
        raise CommandExit(Exit.USAGE, "write `tickwork cluster inbox`, or `tickwork cluster remove ID`")
    if deed in ("inbox", "remove"):
        return _inbox(argument, to)
    with to.client() as client:
        try:
            if argument:
                client.spread(int(argument))
            state = client.cluster()
        except Refused as refused:
            if refused.code != "no_cluster" or argument not in ("", "1"):
                raise
            return _alone(client, to)
    if to.json:
        print_json(state)
        return Exit.OK
    nodes = [
        (safe(node.node) + (" [dim](answered)[/]" if node.here else ""), safe(node.address),
         "draining" if node.draining else "owns" if node.engine else "answers only",
         safe(", ".join(map(str, node.partitions))) or "-", safe(node.version), when(node.started_at))
        for node in state.nodes
    ]  # fmt: skip
    places = [
        (
            str(partition.partition),
            safe(partition.node) or "[red]none[/]",
            str(partition.epoch),
            str(partition.seq),
            str(partition.rows_behind),
        )
        for partition in state.partitions
    ]
    screen = console()
    screen.print(table(("node", "address", "", "partitions", "version", "started"), nodes))
    screen.print(table((">partition", "owner", ">epoch", ">seq", ">rows behind"), places))
    for route in state.routes:
        screen.print(f"{safe(route.tenant)}: home {route.home}, runs in {route.spread} of {len(places)} partitions")
    return Exit.OK


def _alone(client: "Client", to: ClientOptions) -> int:
    """A server with a store of its own is a cluster of one, and says so."""
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    head = client.partition(0)
    only = wire.ClusterPartition(
        partition=0,
        node="",
        address=client.address.url,
        epoch=head.epoch,
        seq=head.seq,
        rows_behind=head.seq - head.watermark,
        here=True,
    )
    if to.json:
        print_json(wire.Cluster(cluster="", partitions=(only,)))
        return Exit.OK
    print(
        f"{only.address} is not part of a cluster: it has its own store and owns everything (partition 0, "
        f"epoch {only.epoch}, seq {only.seq}, {only.rows_behind} rows behind)\n"
        "nodes of a cluster share a store: tickwork server --store postgresql://…"
    )
    return Exit.OK


def _inbox(remove: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe, table

    with to.client() as client:
        if remove:
            client.remove_from_inbox(remove)
        held = client.held_runs()
    if to.json:
        print_json(held)
        return Exit.OK
    rows = [
        (safe(run.id), str(run.partition), safe(run.workflow), safe(run.by) or "-", safe(f"{run.code}: {run.detail}"))
        for run in held.runs
    ]
    if not rows:
        print("the inbox is empty")
        return Exit.OK
    console().print(table(("run", ">partition", "workflow", "by", "refused because"), rows))
    return Exit.OK
