"""`tickwork db`: operations on a whole store: upgrade, check, backup, restore, copy.

A store is a data folder (SQLite) or an address (postgresql://…). A restored or copied store is fenced: it is a new
cluster. Owners of the original can never write into it, and its owners can never write into the original.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import settings as read_settings

if TYPE_CHECKING:
    from tickwork.ports.artifacts import Artifacts
    from tickwork.ports.store import Store
    from tickwork.ports.store_maintenance import TableBatch
    from tickwork.runtime.maintenance.backup import ReportProgress

db = App(name="db", help_format="plaintext")

Json = Annotated[bool, Parameter(negative="")]
At = Annotated[str | None, Parameter(name="--store")]


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a copy, backup or restore."""

    target: str
    rows: dict[str, int]
    partitions: dict[str, str] = {}  # number to the hash that its journal ends with
    cluster: str = ""  # of the copy


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    schema: int


@db.default
def overview() -> int:
    """Manage the store: upgrade, check, backup, restore, copy."""
    raise CommandExit(Exit.USAGE, "say which: tickwork db upgrade|check|backup|restore|copy; see tickwork db --help")


@db.command
def upgrade(*, store: At = None, json: Json = False) -> int:
    """Migrate the schema of a store. A server does this automatically when it starts.

    Parameters
    ----------
    store
        A data folder or postgresql://… (TICKWORK_STORE, TICKWORK_DATA; .tickwork).
    json
        Print the result as JSON.
    """
    return asyncio.run(_upgrade(_store_address(store), json=json))


@db.command
def check(*, store: At = None, json: Json = False) -> int:
    """Verify a store: checksums, the hash chain of the journal, the rows against the journal, artifacts. Exit code 65
    if it is damaged.

    A server must not be using a folder; it may be using a database.

    Parameters
    ----------
    store
        A data folder or postgresql://… (TICKWORK_STORE, TICKWORK_DATA; .tickwork).
    json
        Print the result as JSON.
    """
    return asyncio.run(_check(_store_address(store), json=json))


@db.command
def backup(file: Path, /, *, store: At = None, json: Json = False) -> int:
    """Write everything as of one moment to one file, even while a server is running.

    Parameters
    ----------
    file
        A new file.
    store
        A data folder or postgresql://… (TICKWORK_STORE, TICKWORK_DATA; .tickwork).
    json
        Print the result as JSON.
    """
    return asyncio.run(_backup(_store_address(store), file, json=json))


@db.command
def restore(file: Path, /, *, store: At = None, json: Json = False) -> int:
    """Restore a backup into an empty store. The result is another cluster, fenced from the original.

    Parameters
    ----------
    file
        A file written by `tickwork db backup`.
    store
        An empty folder, or a database without tickwork's tables (TICKWORK_STORE, TICKWORK_DATA; .tickwork).
    json
        Print the result as JSON.
    """
    return asyncio.run(_restore(file, _store_address(store), json=json))


@db.command
def copy(source: str, target: str, /, *, json: Json = False) -> int:
    """Copy a store into an empty one, of the same kind or the other. No server may use either.

    Parameters
    ----------
    source
        A data folder or postgresql://….
    target
        An empty store.
    json
        Print the result as JSON.
    """
    return asyncio.run(_copy(source, target, json=json))


# ---- the commands


async def _upgrade(address: str, *, json: bool) -> int:
    async with _opened(address, exists=True, make=True, upgrade=True):
        known = _migrations(address)
    return _print_result(
        Upgraded(store=shown(address), schema=known), f"{shown(address)} has schema {known}", json=json
    )


async def _check(address: str, *, json: bool) -> int:
    from tickwork.cli.output import print_json
    from tickwork.runtime.maintenance.integrity_check import check as verify
    from tickwork.system.zone_data import load_zones

    async with _opened(address, exists=True) as (store, artifacts):
        with _progress("check", quiet=json) as say:
            report = await verify(store, artifacts, load_zones(), say, _beside(address))
    if json:
        print_json(report)
    else:
        for partition in report.partitions:
            how = (
                "rows match the journal"
                if partition.folded
                else "rows could not be compared: the beginning of the journal was removed"
            )
            print(
                f"partition {partition.partition}: {partition.verified} rows of the journal verified, through "
                f"seq {partition.seq}; {how}"
            )
    damage = [text for text in (report.damage, *(partition.damage for partition in report.partitions)) if text]
    if damage:
        raise CommandExit(Exit.DAMAGED, "" if json else "; ".join(damage))
    return Exit.OK


async def _backup(address: str, file: Path, *, json: bool) -> int:
    from tickwork.runtime.maintenance.backup import write
    from tickwork.system.private_files import private_file

    draft = file.with_name(f".{file.name}.part")
    if file.exists():
        raise CommandExit(Exit.REFUSED, f"{file} already exists: name a new file")
    try:
        draft.unlink(missing_ok=True)
        with _progress("backup", quiet=json) as say:
            async with _source(address, draft.with_suffix(".db"), say) as (store, beside):
                with os.fdopen(private_file(draft), "wb") as out:
                    rows = await write(store, beside, out, say)
                    out.flush()
                    os.fsync(out.fileno())
                heads = await _heads(store)
        draft.replace(file)
    except OSError as error:
        raise CommandExit(Exit.REFUSED, f"{file} cannot be written: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
    return _print_result(
        CopyResult(target=str(file), rows=rows, partitions=heads), f"{file}: {sum(rows.values())} rows", json=json
    )


async def _restore(file: Path, address: str, *, json: bool) -> int:
    from tickwork.runtime.maintenance.backup import bring_in, read

    try:
        with file.open("rb") as source:
            async with _arriving(address) as (store, artifacts):
                with _progress("restore", quiet=json) as say:
                    cluster = secrets.token_hex(12)
                    arrived = await bring_in(
                        store, artifacts, _given(read(source)), cluster=cluster, inside=is_address(address), say=say
                    )
    except OSError as error:
        raise CommandExit(Exit.NOT_FOUND, f"{file} cannot be read: {error.strerror}") from None
    heads = {str(number): hash_.hex() for number, (_, hash_) in sorted(arrived.heads.items())}
    text = f"{shown(address)}: {sum(arrived.rows.values())} rows, another cluster than the one that was backed up"
    return _print_result(
        CopyResult(target=shown(address), rows=arrived.rows, partitions=heads, cluster=cluster), text, json=json
    )


async def _copy(source: str, target: str, *, json: bool) -> int:
    from tickwork.ports.store_maintenance import TableBatch
    from tickwork.runtime.maintenance.backup import ARTIFACTS, bring_in

    async with (
        _opened(source, exists=True) as (store, _),
        _arriving(target) as (other, artifacts),
    ):
        await _must_be_unused(source)
        queue: asyncio.Queue[TableBatch | None] = asyncio.Queue(maxsize=4)

        async def send() -> None:
            try:
                await store.export(queue.put)
                for digest, data in _beside(source):
                    await queue.put(TableBatch(ARTIFACTS, [(digest, data)]))
            except Exception:
                await queue.put(None)  # the receiver reports the result
                raise
            await queue.put(None)

        sending = asyncio.create_task(send())

        async def received() -> "AsyncIterator[TableBatch]":
            while (batch := await queue.get()) is not None:
                yield batch
            await sending  # where it broke off, nothing counts

        cluster = secrets.token_hex(12)
        try:
            with _progress("copy", quiet=json) as say:
                arrived = await bring_in(
                    other, artifacts, received(), cluster=cluster, inside=is_address(target), say=say
                )
        finally:
            sending.cancel()
            await asyncio.wait([sending])
    heads = {str(number): hash_.hex() for number, (_, hash_) in sorted(arrived.heads.items())}
    text = f"{shown(target)}: {sum(arrived.rows.values())} rows, journals end with the same hashes"
    return _print_result(
        CopyResult(target=shown(target), rows=arrived.rows, partitions=heads, cluster=cluster), text, json=json
    )


# ---- places


def _store_address(given: str | None) -> str:
    if given is not None:
        return given
    chosen = read_settings({})
    return chosen.store or chosen.data


def is_address(address: str) -> bool:
    return "://" in address


def shown(address: str) -> str:
    """For people: no user, no password."""
    from urllib.parse import urlsplit

    if not is_address(address):
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


@contextlib.asynccontextmanager
async def _opened(
    address: str, *, exists: bool, make: bool = False, upgrade: bool = False
) -> "AsyncIterator[tuple[Store, Artifacts]]":
    """`make`: a database that has no tables of ours yet gets them. `upgrade`: an older one is brought up to date; else
    it is refused."""
    from tickwork.ports.store import StoreInUse

    store, artifacts = _made(address, exists=exists, make=make, upgrade=upgrade)
    try:
        await store.open()
    except StoreInUse as used:
        who = str(used).partition(": stop")[0]
        message = f"{who}: stop it first; only `tickwork db backup FILE` may run while a server is running"
        raise CommandExit(Exit.REFUSED, f"{message}, and its file can be restored elsewhere and inspected") from None
    try:
        yield store, artifacts
    finally:
        await store.close()
        if hasattr(artifacts, "close"):
            await artifacts.close()


@contextlib.asynccontextmanager
async def _arriving(address: str) -> "AsyncIterator[tuple[Store, Artifacts]]":
    """Open an empty target store. A folder is filled under a temporary name and renamed at the end, so that a refusal
    or an interruption leaves nothing behind. A database achieves the same with a transaction."""
    if is_address(address):
        async with _opened(address, exists=False) as opened:
            yield opened
        return
    folder = Path(address).absolute()
    await _must_be_empty(folder)
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
    try:
        async with _opened(str(draft), exists=False) as opened:
            yield opened
        _move(draft, folder)
    except OSError as error:
        raise CommandExit(Exit.REFUSED, f"{address} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


async def _must_be_empty(folder: Path) -> None:
    from tickwork.compose.server import DATABASE
    from tickwork.ports.store_maintenance import StoreNotEmpty

    if not (folder / DATABASE).is_file():
        return
    async with _opened(str(folder), exists=True) as (store, _):  # it must not be in use

        async def take(_: "TableBatch") -> None:
            raise StoreNotEmpty(str(folder))

        await store.export(take)


def _move(draft: Path, folder: Path) -> None:
    """Copy artifacts first, so that everything that the database refers to exists."""
    from tickwork.compose.server import ARTIFACTS, DATABASE
    from tickwork.system.private_files import private_folder

    private_folder(folder)
    for source in sorted((draft / ARTIFACTS).glob("??/*")):
        target = folder / ARTIFACTS / source.parent.name / source.name
        private_folder(target.parent)
        source.replace(target)
    for end in ("-wal", "-shm"):  # of an empty database that was there
        (folder / f"{DATABASE}{end}").unlink(missing_ok=True)
    (draft / DATABASE).replace(folder / DATABASE)


async def _must_be_unused(address: str) -> None:
    """What nodes decide after the copy would be in one of the two only. A folder in use cannot even be opened."""
    if not is_address(address):
        return
    from tickwork.stores.postgres.leases import PostgresLeases

    leases = PostgresLeases(address, upgrade=False)
    await leases.open()
    try:
        names = sorted({member.node for member in await leases.members()})
    finally:
        await leases.close()
    if names:
        raise CommandExit(
            Exit.REFUSED,
            f"{shown(address)} is in use by {', '.join(names)}: stop them first, or use `tickwork db backup`, which "
            "may run while they are running",
        )


def _made(address: str, *, exists: bool, make: bool, upgrade: bool) -> "tuple[Store, Artifacts]":
    from tickwork.compose.server import ARTIFACTS, DATABASE
    from tickwork.stores.sqlite.store import SqliteStore
    from tickwork.system.clock import FolderArtifacts

    if not is_address(address):
        if exists and not (Path(address) / DATABASE).is_file():
            raise CommandExit(Exit.NOT_FOUND, f"{address} has no {DATABASE}; name a server's data folder")
        return SqliteStore(Path(address) / DATABASE, upgrade=upgrade), FolderArtifacts(Path(address) / ARTIFACTS)
    from tickwork.stores.postgres.artifacts import PostgresArtifacts
    from tickwork.stores.postgres.store import PostgresStore

    return PostgresStore(address, make=make or not exists, upgrade=upgrade), PostgresArtifacts(address)


@contextlib.asynccontextmanager
async def _source(
    address: str, scratch: Path, say: "ReportProgress"
) -> "AsyncIterator[tuple[Store, Iterable[tuple[str, bytes]]]]":
    """A store to read from, which a server may be using: of a SQLite file, a copy that SQLite made."""
    from tickwork.compose.server import DATABASE
    from tickwork.stores.sqlite.dump import copy_live
    from tickwork.stores.sqlite.store import SqliteStore

    if is_address(address):
        async with _opened(address, exists=True) as (store, _):
            yield store, ()
        return
    if not (Path(address) / DATABASE).is_file():
        raise CommandExit(Exit.NOT_FOUND, f"{address} has no {DATABASE}; name a server's data folder")
    for left in _traces(scratch):
        left.unlink(missing_ok=True)
    await asyncio.to_thread(copy_live, Path(address) / DATABASE, scratch, lambda done, _: say("pages", done))
    copied = SqliteStore(scratch, network_allowed=True)
    await copied.open()
    try:
        yield copied, _beside(address)  # artifacts after the database: everything that it refers to exists
    finally:
        await copied.close()
        for left in _traces(scratch):
            left.unlink(missing_ok=True)


def _traces(scratch: Path) -> list[Path]:
    return [scratch.with_name(f"{scratch.name}{end}") for end in ("", "-wal", "-shm", ".lock")]


def _beside(address: str) -> Iterator[tuple[str, bytes]]:
    """Artifacts in a data folder; those of a database are in it."""
    from tickwork.compose.server import ARTIFACTS

    if is_address(address):
        return
    for folder in sorted((Path(address) / ARTIFACTS).glob("??")):
        for file in sorted(folder.iterdir()):
            if not file.name.startswith("."):
                yield folder.name + file.name, file.read_bytes()


async def _heads(store: "Store") -> dict[str, str]:
    heads: dict[str, str] = {}

    async def take(batch: "TableBatch") -> None:
        if batch.table == "partitions":
            heads.update((str(row[0]), row[5].hex()) for row in batch.rows)

    await store.export(take)
    return heads


def _migrations(address: str) -> int:
    if is_address(address):
        from tickwork.stores.postgres.statements import FILES

        return len(FILES.migrations)
    from tickwork.stores.sqlite.statements import migrations

    return len(migrations())


async def _given(batches: "Iterator[TableBatch]") -> "AsyncIterator[TableBatch]":
    for batch in batches:
        yield batch
        await asyncio.sleep(0)


# ---- words


@contextlib.contextmanager
def _progress(title: str, *, quiet: bool) -> "Iterator[ReportProgress]":
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    from tickwork.cli.output import console

    screen = console(stderr=True)
    progress = Progress(
        SpinnerColumn(), title, "{task.description}", TimeElapsedColumn(), console=screen,
        disable=quiet or not screen.is_terminal, transient=True,
    )  # fmt: skip
    with progress:
        bar = progress.add_task("")
        yield lambda table, count: progress.update(bar, description=f"{table} {count}")


def _print_result(answer: Any, text: str, *, json: bool) -> int:
    from tickwork.cli.output import print_json

    if json:
        print_json(answer)
    else:
        print(text)
    return Exit.OK
