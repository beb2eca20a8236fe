"""`tickwork auditor`: decide a partition's journal again, independently of the server.

It follows the journal of a server, or reads that of a data folder that no server uses. At the first difference, the
server stops dispatching for that partition, and a reproduction file is written here.
"""

import asyncio
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.core.state.state import Settings
    from tickwork.journal.record import SealedRow
    from tickwork.ports.store import Head
    from tickwork.runtime.maintenance.auditor import Auditor, AuditStart, Hold, JournalSource
    from tickwork.sdk.client.client import Client

SHOWN_S = 5.0


def auditor(
    *,
    data: Path | None = None,
    partition: int | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
    into: Path = Path(),
    to: ClientOptions = TO,
) -> int:
    """Decide a journal again as it grows, and compare the hash of each tick. In a cluster, all journals are audited.

    The first difference raises an alarm: the partition dispatches nothing until it is resumed with `tickwork
    release`. A file is written, from which `tickwork replay --from` decides that row again. Exit code 1.

    Parameters
    ----------
    data
        A data folder that no server uses, instead of a server.
    partition
        In a cluster, only this partition.
    once
        Stop when the whole journal has been compared.
    into
        Folder for the files about differences (the current folder).
    """
    return asyncio.run(_of_folder(data, into, to) if data is not None else _of_server(to, partition, into, once=once))


def release(partition: int = 0, /, *, to: ClientOptions = TO) -> int:
    """Resume the dispatches of a partition that an auditor or a person stopped.

    Parameters
    ----------
    partition
        Its number (0).
    """
    from tickwork.cli.output import print_json

    with to.client() as client:
        client.resume_partition(partition)
    if to.json:
        print_json({"partition": partition, "held": False})
    else:
        print(f"partition {partition} continues")
    return Exit.OK


class _Served:
    """A server's journal and head, as an auditor asks for them."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def read_head(self, partition: int) -> "Head":
        from tickwork.ports.store import Head

        head = await asyncio.to_thread(self._client.partition, partition)
        return Head(head.epoch, head.seq, head.tick, bytes.fromhex(head.hash), head.watermark)

    async def journal(self, partition: int, *, after: int, limit: int) -> "list[SealedRow]":
        return (await asyncio.to_thread(self._fetch, partition, after, limit))[1]

    async def settings(self, partition: int) -> "Settings":
        return (await asyncio.to_thread(self._fetch, partition, 0, 0))[0]

    def _fetch(self, partition: int, after: int, limit: int) -> "tuple[Settings, list[SealedRow]]":
        from contextlib import closing

        from tickwork.cli.commands.replay import streamed
        from tickwork.journal.export import read

        with closing(streamed(self._client.address, f"/v1/partitions/{partition}/journal", after=after)) as pieces:
            head, rows = read(pieces)
            return head.settings, list(islice(rows, limit))


async def _of_server(to: ClientOptions, partition: int | None, into: Path, *, once: bool) -> int:
    from tickwork.cli.commands.replay import partitions
    from tickwork.runtime.maintenance.auditor import at_the_beginning
    from tickwork.runtime.storage.store_retry import retry_until_available
    from tickwork.system.zone_data import load_zones

    with to.client() as client:
        source, zones = _Served(client), load_zones()

        async def hold(partition: int, reason: str) -> None:
            await asyncio.to_thread(client.pause_partition, partition, reason=reason)

        places = [partition] if partition is not None else await asyncio.to_thread(partitions, client)
        judges = [
            _made(source, index, at_the_beginning(await source.settings(index), zones), into, hold) for index in places
        ]
        shown_at = 0.0
        while all(judge.difference is None for judge in judges):
            steps = [await (judge.step() if once else retry_until_available(judge.step)) for judge in judges]
            if not any(steps) and once:
                break
            if time.monotonic() - shown_at >= SHOWN_S:
                shown_at = time.monotonic()
                for judge in judges:
                    _show(judge, to)
            if not any(steps):
                await asyncio.sleep(0.25)
        return max(_verdict(judge, to, several=len(judges) > 1) for judge in _worst_last(judges))


def _worst_last(judges: "list[Auditor]") -> "list[Auditor]":
    return sorted(judges, key=lambda judge: judge.difference is not None)


async def _of_folder(folder: Path, into: Path, to: ClientOptions) -> int:
    from tickwork.compose.server import ARTIFACTS, DATABASE
    from tickwork.runtime.context import PARTITION
    from tickwork.runtime.maintenance.auditor import at_the_beginning
    from tickwork.runtime.partition.recovery import settings_of
    from tickwork.runtime.storage.archive import ArchiveReader
    from tickwork.stores.sqlite.store import SqliteStore
    from tickwork.system.clock import FolderArtifacts
    from tickwork.system.zone_data import load_zones

    if not (folder / DATABASE).is_file():
        raise CommandExit(Exit.NOT_FOUND, f"{folder} has no {DATABASE}; name a server's data folder")

    async def hold(partition: int, reason: str) -> None:
        """Do nothing: no server dispatches from this folder."""

    store = SqliteStore(folder / DATABASE, upgrade=False)
    await store.open()
    try:
        loaded = await store.load(PARTITION)
        source = ArchiveReader(store, FolderArtifacts(folder / ARTIFACTS))
        judge = _made(source, PARTITION, at_the_beginning(settings_of(loaded.settings), load_zones()), into, hold)
        while await judge.step():
            _show(judge, to)
        return _verdict(judge, to)
    finally:
        await store.close()


def _made(source: "JournalSource", partition: int, start: "AuditStart", into: Path, hold: "Hold") -> "Auditor":
    from tickwork.compose.auditing import keeping
    from tickwork.runtime.maintenance.auditor import Auditor
    from tickwork.system.clock import SystemClock
    from tickwork.system.zone_data import load_zones

    return Auditor(
        source, partition, start, zones=load_zones(), clock=SystemClock(), hold=hold, keep=keeping(into)
    )  # fmt: skip


def _show(judge: "Auditor", to: ClientOptions) -> None:
    from tickwork.cli.output import console, print_json

    view = judge.view()
    if to.json:
        print_json(view)
    else:
        console(stderr=True).print(
            f"partition {view.partition}: equal through seq {view.seq}, {view.lag_rows} rows behind", highlight=False
        )


def _verdict(judge: "Auditor", to: ClientOptions, *, several: bool = False) -> int:
    from tickwork.cli.output import print_json

    view = judge.view()
    if to.json:
        print_json(view)
    elif view.difference is None:
        which = f"partition {view.partition}: " if several else ""
        print(
            f"{which}equal: {view.rows} rows decided again, {view.folded} folded, through seq {view.seq}, "
            f"hash {view.hash}"
        )
    else:
        difference = view.difference
        release = f"tickwork release {view.partition}" if several else "tickwork release"
        held = (
            f"dispatching is stopped; {release} resumes it" if difference.held else "dispatching could not be stopped"
        )
        left = (
            f"; to decide it again: tickwork replay --from {difference.reproduction}" if difference.reproduction else ""
        )
        which = f"partition {view.partition} " if several else ""
        raise CommandExit(Exit.FAILED, f"{which}differs at {difference.text} ({held}{left})")
    return Exit.OK if view.difference is None else Exit.FAILED
