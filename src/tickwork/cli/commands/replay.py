"""`tickwork replay`: the journal, decided again from its first row.

Every row must give the same events and the same hash. The journal comes from a server, from an export, or from a
data folder that no server uses.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.core.state.state import Settings
    from tickwork.journal.record import SealedRow
    from tickwork.sdk.client.client import Client
    from tickwork.sdk.client.connection import Address

ROWS_PER_STEP = 256


class Replayed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replay found."""

    partition: int | None = None  # of a cluster
    rows: int  # that are equal: `decided` and `folded` together
    decided: int  # again, under the rules that decided them
    folded: int  # of other rules: their events were applied, and nothing was decided
    seq: int
    hash: str
    equal: bool
    detail: str = ""  # where it first differs, and how


def replay(
    *,
    from_: Annotated[Path | None, Parameter(name="--from")] = None,
    data: Path | None = None,
    save: Path | None = None,
    partition: int | None = None,
    to: ClientOptions = TO,
) -> int:
    """Decide a journal again and compare each hash; names the first seq that differs.

    In a cluster, the journals of all partitions are replayed one after the other.

    Parameters
    ----------
    from_
        An export (from --save or GET /v1/journal), or a reproduction file from an auditor.
    data
        A data folder that no server uses. If no server answers, .tickwork is read.
    save
        Also save the server's journal to this file.
    partition
        In a cluster, only the journal of this partition.
    """
    if from_ is not None and data is not None:
        raise CommandExit(Exit.USAGE, "give --from or --data, not both")
    if partition is not None and (from_ is not None or data is not None):
        raise CommandExit(Exit.USAGE, "--partition is for the journal of a server")
    if data is None and from_ is None and save is None and partition is None:
        data = to.folder(None)
    if data is not None:
        return _print_result(asyncio.run(_of_folder(data, quiet=to.json)), to)
    if from_ is not None:
        return _print_result(_of_file(from_, quiet=to.json), to)
    with to.client() as client:
        places = partitions(client) if partition is None else [partition]
        if save is not None and len(places) > 1:
            raise CommandExit(Exit.USAGE, "--save writes one journal: choose it with --partition")
        alone = partition is None and len(places) == 1
        return max(_print_result(_of_server(client, save, None if alone else index, to), to) for index in places)


def partitions(client: "Client") -> list[int]:
    """Of a cluster; of a server that is alone, its only one."""
    from tickwork.core.base.errors import Refused
    from tickwork.runtime.context import PARTITION

    try:
        return [partition.partition for partition in client.cluster().partitions]
    except Refused as refused:
        if refused.code != "no_cluster":
            raise
        return [PARTITION]


def _print_result(replayed: Replayed, to: ClientOptions) -> int:
    from tickwork.cli.exit_codes import tell
    from tickwork.cli.output import print_json

    which = f"partition {replayed.partition}: " if replayed.partition is not None else ""
    if to.json:
        print_json(replayed)
    elif replayed.equal:
        print(
            f"{which}equal: {replayed.decided} rows decided again, {replayed.folded} of other rules folded, "
            f"through seq {replayed.seq}, hash {replayed.hash}"
        )
    else:
        tell(f"{which}differs: {replayed.detail} ({replayed.rows} rows before it are equal)")
    return Exit.OK if replayed.equal else Exit.FAILED


class Replayer:
    """Decides journal rows again, in batches."""

    def __init__(self, settings: "Settings", *, total: int | None, quiet: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        from tickwork.cli.output import console
        from tickwork.core.machine import Machine
        from tickwork.journal.record import GENESIS
        from tickwork.journal.replay import Tally
        from tickwork.system.zone_data import load_zones

        self._machine = Machine(settings=settings, zones=load_zones())
        self._head, self._seq, self._rows = GENESIS, 0, 0
        self._tally = Tally()
        self._difference = ""
        screen = console(stderr=True)
        self.progress = Progress(
            "replay", BarColumn(), MofNCompleteColumn(), "rows", TimeElapsedColumn(),
            console=screen, disable=quiet or not screen.is_terminal, transient=True,
        )  # fmt: skip
        self._task = self.progress.add_task("replay", total=total)

    def check(self, rows: "list[SealedRow]") -> bool:
        """False where they differ."""
        from tickwork.core.base.errors import ReplayDiffers
        from tickwork.journal.replay import replay as decide

        try:
            self._head = decide(rows, self._machine, head=self._head, seq=self._seq, tally=self._tally)
        except ReplayDiffers as differs:
            self._rows, self._seq, self._difference = differs.seq - 1, differs.seq, str(differs)
            return False
        if rows:
            self._seq, self._rows = rows[-1].seq, self._rows + len(rows)
        self.progress.update(self._task, completed=self._rows)
        return True

    def verdict(self) -> Replayed:
        equal = not self._difference
        decided, folded = self._tally.decided, self._tally.folded
        return Replayed(
            rows=self._rows, decided=decided, folded=folded, seq=self._seq, hash=self._head.hex(), equal=equal,
            detail=self._difference,
        )  # fmt: skip

    @property
    def head(self) -> tuple[int, bytes]:
        return self._seq, self._head


def _judged(source: Iterable[bytes], *, total: int | None, quiet: bool) -> Replayed:
    from tickwork.core.base.errors import Refused
    from tickwork.journal.export import read

    head, rows = read(source)
    if head.after:
        raise Refused("partial_journal", f"this export begins after seq {head.after}; a replay needs the whole journal")
    if not head.last_hash:
        raise Refused(
            "endless_journal",
            "this export does not name its last seq, so it may be incomplete: export it again",
        )
    replayer = Replayer(head.settings, total=total, quiet=quiet)
    with replayer.progress:
        for portion in _portions(rows):
            if not replayer.check(portion):
                break
    return replayer.verdict()


def _portions(rows: "Iterator[SealedRow]") -> "Iterator[list[SealedRow]]":
    while portion := list(islice(rows, ROWS_PER_STEP)):
        yield portion


def _of_file(path: Path, *, quiet: bool) -> Replayed:
    from tickwork.journal.reproduction import MAGIC

    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return _reproduced(MAGIC + file.read())
            file.seek(0)
            return _judged(iter(lambda: file.read(1 << 20), b""), total=None, quiet=quiet)
    except OSError as error:
        raise CommandExit(Exit.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from None


def _reproduced(data: bytes) -> Replayed:
    from tickwork.journal import reproduction
    from tickwork.system.zone_data import load_zones

    made = reproduction.read(data)
    outcome = reproduction.run(made, load_zones())
    enough = ", ".join(
        f"{position} {type(entry).__name__}"
        for position, entry in zip(outcome.inputs, reproduction.inputs_of(made), strict=False)
    )
    detail = f"seq {outcome.seq}: {outcome.text}; inputs that are enough: {enough or 'none'}" if outcome.differs else ""
    if outcome.differs and not outcome.still:
        detail += " (with those alone it is equal)"
    return Replayed(
        rows=0, decided=0, folded=0, seq=outcome.seq, hash=made.row.hash.hex(), equal=not outcome.differs, detail=detail
    )


def _of_server(client: "Client", save: Path | None, partition: int | None, to: ClientOptions) -> Replayed:
    path = "/v1/journal" if partition is None else f"/v1/partitions/{partition}/journal"
    total = client.status().seq if partition is None else client.partition(partition).seq
    with closing(streamed(client.address, path)) as pieces:
        if save is None:
            replayed = _judged(pieces, total=total, quiet=to.json)
        else:
            try:
                with save.open("xb") as file:
                    replayed = _judged(_kept(pieces, file), total=total, quiet=to.json)
            except OSError as error:
                raise CommandExit(Exit.REFUSED, f"{save} cannot be written: {error.strerror}") from None
    return msgspec.structs.replace(replayed, partition=partition)


def streamed(address: "Address", path: str = "/v1/journal", *, after: int = 0) -> Generator[bytes, None, None]:
    """A journal behind a seq, as it comes."""
    import httpx2

    from tickwork.core.base.errors import Unavailable
    from tickwork.sdk.client.connection import error_of

    for number, url in enumerate(address.urls, 1):
        begun = False
        try:
            with httpx2.stream(
                "GET",
                f"{url}{path}?after={after}",
                headers=address.headers(),
                auth=address.auth(),
                trust_env=not address.local,
                timeout=30.0,
            ) as answer:
                begun = True
                if answer.status_code >= 300:
                    raise error_of(answer.status_code, answer.headers, answer.read())
                yield from answer.iter_bytes()
                return
        except httpx2.TransportError as error:
            if begun or number == len(address.urls):
                raise Unavailable(
                    f"the connection to the server at {url} broke: {error}", retry_after_ms=1_000
                ) from None


def _kept(pieces: Iterator[bytes], file: IO[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        file.write(piece)
        yield piece


async def _of_folder(folder: Path, *, quiet: bool) -> Replayed:
    from tickwork.compose.server import ARTIFACTS, DATABASE
    from tickwork.core.base.errors import Corrupt
    from tickwork.runtime.context import PARTITION
    from tickwork.runtime.partition.recovery import settings_of
    from tickwork.runtime.storage.archive import ArchiveReader
    from tickwork.stores.sqlite.store import SqliteStore
    from tickwork.system.clock import FolderArtifacts

    if not (folder / DATABASE).is_file():
        raise CommandExit(Exit.NOT_FOUND, f"{folder} has no {DATABASE}; name a server's data folder")
    store = SqliteStore(folder / DATABASE, upgrade=False)
    await store.open()
    try:
        loaded = await store.load(PARTITION)
        archives = ArchiveReader(store, FolderArtifacts(folder / ARTIFACTS))
        replayer = Replayer(settings_of(loaded.settings), total=loaded.head.seq, quiet=quiet)
        with replayer.progress:
            while replayer.head[0] < loaded.head.seq:
                rows = await archives.journal(PARTITION, after=replayer.head[0], limit=ROWS_PER_STEP)
                if not rows:
                    raise Corrupt(f"the journal ends at seq {replayer.head[0]}, its head says {loaded.head.seq}")
                if not replayer.check(rows):
                    return replayer.verdict()
        if replayer.head != (loaded.head.seq, loaded.head.hash):
            raise Corrupt(f"the last row of the journal is not the one that its head names (seq {loaded.head.seq})")
        return replayer.verdict()
    finally:
        await store.close()
