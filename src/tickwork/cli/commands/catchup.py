"""`tickwork catchup`: list late occurrences, and what a policy would do with them.

The command queries a running server. Without one, it reads the data folder, or the store that nodes share, without
changing anything. After an outage, look here first, then choose a policy with `tickwork server --catch-up`.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import REACH_S, TO, ClientOptions, settings

if TYPE_CHECKING:
    from tickwork.ports.store import Store
    from tickwork.protocol import http_models as wire


def catchup(
    *,
    preview: Annotated[bool, Parameter(negative="")] = True,  # noqa: ARG001 - there is nothing else to ask for
    policy: str = "",
    data: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Show late occurrences and what would run, before anything runs.

    A running server is queried. If none is running, the data folder or the store of a cluster is read. Choose a policy
    when you start the server: tickwork server --catch-up POLICY.

    Parameters
    ----------
    preview
        The command is always a preview; the flag only makes that explicit.
    policy
        Show the effect of this policy for all schedules: none, last, all, coalesce, window:6h or spread:30m. By
        default, each schedule's own policy.
    data
        Data folder of a server that is not running (TICKWORK_DATA; .tickwork), or the address of the store of a cluster
        (TICKWORK_STORE).
    """
    from tickwork.cli.output import console, print_json
    from tickwork.core.base.errors import Refused
    from tickwork.core.explain.catch_up_preview import read_policy
    from tickwork.protocol import http_models as wire

    if policy:
        try:
            read_policy(policy)
        except Refused as refused:
            raise CommandExit(Exit.USAGE, f"--policy: {refused.message}") from None
    offline = _of_server(to, policy) if data is None else None
    ups = offline if offline is not None else _of_data(to, policy, data)
    if to.json:
        print_json(wire.CatchUps(schedules=tuple(ups)))
        return Exit.OK
    if not ups:
        console(stderr=True).print("nothing is late")
        return Exit.OK
    _show(ups, policy)
    return Exit.OK


def _of_server(to: ClientOptions, policy: str) -> "list[wire.CatchUp] | None":
    from tickwork.core.base.errors import Unavailable

    explicit = bool(to.settings().url)
    try:
        with to.client(deadline_s=3.0 if explicit else REACH_S) as client:
            return list(client.catch_ups(policy=policy))
    except Unavailable as unavailable:
        if explicit:
            hint = "to read the data of a stopped server, name its folder or store with --data"
            raise CommandExit(Exit.UNREACHABLE, f"{unavailable}; {hint}") from None
        return None


def _of_data(to: ClientOptions, policy: str, data: str | None) -> "list[wire.CatchUp]":
    from tickwork.cli.commands.db import is_address, shown
    from tickwork.cli.exit_codes import tell
    from tickwork.compose.server import DATABASE

    known = settings({"data": None if data is None or is_address(data) else data})
    store = data if data is not None and is_address(data) else known.store if data is None else ""
    if not store and not (known.folder / DATABASE).is_file():
        where = f"and {known.folder} has no {DATABASE}" if data is None else f"{known.folder} has no {DATABASE}"
        no_server = f"no server responds at {to.settings().address}, " if data is None else ""
        code = Exit.UNREACHABLE if data is None else Exit.NOT_FOUND
        raise CommandExit(code, f"{no_server}{where}; name a server's data folder with --data")
    if not to.json:
        source = shown(store) if store else known.folder
        tell(f"no server is running; reading from {source}" if data is None else f"this is read from {source}")
    return asyncio.run(_of_store(store, policy) if store else _of_folder(known.folder / DATABASE, policy))


async def _of_folder(database: Path, policy: str) -> "list[wire.CatchUp]":
    from tickwork.runtime.context import PARTITION
    from tickwork.stores.sqlite.store import SqliteStore

    store = SqliteStore(database, upgrade=False)
    await store.open()
    try:
        return await _late(store, PARTITION, policy)
    finally:
        await store.close()


async def _of_store(address: str, policy: str) -> "list[wire.CatchUp]":
    from tickwork.cluster.placement import home_of
    from tickwork.core.base.names import TENANT
    from tickwork.stores.postgres.store import PostgresStore

    store = PostgresStore(address, upgrade=False)
    await store.open()
    try:
        identity = await store.identity()
        if identity is None:
            return []
        homes = {route.tenant: route.home for route in await store.read_routes()}
        return await _late(store, homes.get(TENANT, home_of(TENANT, identity.partitions)), policy)
    finally:
        await store.close()


async def _late(store: "Store", partition: int, policy: str) -> "list[wire.CatchUp]":
    from tickwork.core.base.names import TENANT
    from tickwork.runtime.partition.recovery import recover
    from tickwork.runtime.views.schedules import catch_ups
    from tickwork.system.clock import SystemClock
    from tickwork.system.zone_data import load_zones

    state = (await recover(store, partition, load_zones())).machine.state
    tenant = state.tenants.get(TENANT)
    return [] if tenant is None else catch_ups(tenant, SystemClock().wall_ms(), policy)


def _show(ups: "list[wire.CatchUp]", policy: str) -> None:
    from tickwork.cli.output import ago, console, safe, table

    rows = [
        (safe(up.schedule), safe(up.policy) + (" (paused)" if up.paused else ""), ago(up.late_since), str(up.late),
         str(up.runs), _runs(up), _others(up))
        for up in ups
    ]  # fmt: skip
    columns = ("schedule", "policy", "late since", ">late", ">would run", "from", "others")
    console().print(table(columns, rows))
    now = [up for up in ups if not up.paused]
    runs, late = sum(up.runs for up in now), sum(up.late for up in now)
    screen = console(stderr=True)
    screen.print(f"{runs} of {late} late occurrences of {len(now)} schedules would run")
    if len(now) < len(ups):
        screen.print(f"{len(ups) - len(now)} more: paused, and what they make up for runs when they are resumed")
    if not policy:
        screen.print("another policy: --policy all, last, none, …; to start with it: tickwork server --catch-up POLICY")


def _others(up: "wire.CatchUp") -> str:
    from tickwork.cli.output import safe

    if not up.passed:
        return "-"
    word = "replaced" if up.limit == "overlap replace" else up.fate
    return f"{up.passed} {word}" + (f" ({safe(up.limit)})" if up.limit else "")


def _runs(up: "wire.CatchUp") -> str:
    from tickwork.cli.output import safe, when

    if not up.first_run_at:
        return "-"
    return when(up.first_run_at) + (f", spread over {safe(up.spread)}" if up.spread else "")
