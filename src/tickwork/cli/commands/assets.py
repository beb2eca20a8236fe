"""`tickwork assets`: list data by its name, show its lineage, and say that it is new."""

from typing import TYPE_CHECKING

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire

assets = App(name="assets", help_format="plaintext")


@assets.default
def listed(*, to: ClientOptions = TO) -> int:
    """List assets: what tasks make and schedules listen to, with the last update of each."""
    from tickwork.cli.output import ago, console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        found = tuple(client.assets())
    if to.json:
        print_json(wire.Assets(assets=found))
        return Exit.OK
    rows = [
        (safe(asset.name), ago(asset.updated_at), str(asset.count), safe(_makers(asset)), safe(_listeners(asset)))
        for asset in found
    ]
    console().print(table(("asset", "last update", ">updates", "produced by", "consumed by"), rows))
    return Exit.OK


@assets.command
def show(name: str, /, *, to: ClientOptions = TO) -> int:
    """Show an asset: what makes it, what listens to it, and its latest updates.

    Parameters
    ----------
    name
        Its name.
    """
    from tickwork.cli.output import ago, console, print_json, safe, table, value, when

    with to.client() as client:
        asset = client.asset(name)
    if to.json:
        print_json(asset)
        return Exit.OK
    screen = console()
    screen.print(f"{safe(asset.name)}: {asset.count} updates, the last one {ago(asset.updated_at)}", soft_wrap=True)
    screen.print(f"produced by {safe(_makers(asset)) or 'nothing'}", soft_wrap=True)
    screen.print(f"consumed by {safe(_listeners(asset)) or 'nothing'}", soft_wrap=True)
    rows = [
        (when(update.at), safe(update.partition), safe(update.source or update.by),
         value(update.details) if update.details is not None else "")
        for update in asset.updates
    ]  # fmt: skip
    if rows:
        screen.print(table(("at", "partition", "by", "details"), rows))
    return Exit.OK


@assets.command
def update(
    name: str,
    /,
    *,
    partition: str = "",
    details_json: str | None = None,
    id: str = "",  # noqa: A002 - the name of the flag
    to: ClientOptions = TO,
) -> int:
    """Say that an asset has new data. Schedules that listen to it count the update.

    Parameters
    ----------
    name
        Its name.
    partition
        Which part of it is new.
    details_json
        What is worth knowing, as a JSON object; @file reads a file, - standard input. At most 1 KiB.
    id
        The id of the update: repeated within a day, it does nothing.
    """
    from tickwork.cli.input_values import read_inputs
    from tickwork.cli.output import console, print_json, safe

    details = read_inputs((), details_json, None) if details_json is not None else {}
    with to.client() as client:
        heard = client.update_asset(name, partition=partition or None, details=details, id=id)
    if to.json:
        print_json(heard)
    elif heard.duplicate:
        console().print(f"{safe(name)}: the update with the id {safe(id)} came before, nothing is done", soft_wrap=True)
    else:
        console().print(f"{safe(name)}: updated, {heard.schedules} schedules heard it", soft_wrap=True)
    return Exit.OK


def _makers(asset: "wire.Asset") -> str:
    return ", ".join(f"{producer.workflow}/{producer.node}" for producer in asset.produced_by)


def _listeners(asset: "wire.Asset") -> str:
    return ", ".join(consumer.schedule for consumer in asset.consumed_by)
