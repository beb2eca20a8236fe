"""The cluster: nodes, partitions, owners, and how widely runs are spread."""

from typing import Literal

from tickwork.cli.exits import Ended, Exit
from tickwork.cli.shared import TO, To


def cluster(deed: Literal["show", "spread"] = "show", partitions: int = 0, /, *, to: To = TO) -> int:
    """Nodes, partitions and who owns them.

    `tickwork cluster spread 4` places new runs in four partitions, so that several nodes share the work. Schedules
    and keys stay at home, limits of queues are dealt out. It can only grow.

    Parameters
    ----------
    deed
        show, or spread.
    partitions
        How many partitions new runs are spread over.
    """
    from tickwork.cli.screen import console, print_json, safe, table, when

    if bool(partitions) != (deed == "spread"):
        raise Ended(Exit.USAGE, "write `tickwork cluster`, or `tickwork cluster spread NUMBER`")
    with to.client() as client:
        if partitions:
            client.spread(partitions)
        found = client.cluster()
    if to.json:
        print_json(found)
        return Exit.OK
    nodes = [
        (safe(one.node) + (" [dim](answered)[/]" if one.here else ""), safe(one.address),
         "draining" if one.draining else "owns" if one.engine else "answers only",
         safe(", ".join(map(str, one.partitions))) or "-", safe(one.version), when(one.started_at))
        for one in found.nodes
    ]  # fmt: skip
    places = [
        (str(one.partition), safe(one.node) or "[red]nobody[/]", str(one.epoch), str(one.seq), str(one.rows_behind))
        for one in found.partitions
    ]
    screen = console()
    screen.print(table(("node", "address", "", "partitions", "version", "started"), nodes))
    screen.print(table((">partition", "owner", ">epoch", ">seq", ">rows behind"), places))
    for route in found.routes:
        screen.print(f"{safe(route.tenant)}: home {route.home}, runs in {route.spread} of {len(places)} partitions")
    return Exit.OK
