"""Durable memory: what every store promises.

A store decides nothing. The journal and its head are the truth and are written with every tick; rows are
written behind, as they stand after the seq `through`, and the watermark moves with them. The promises
are tests: tests/conformance/store_suite.py runs on every adapter.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from tickwork.core.base.errors import Conflict, TickworkError, Unavailable
from tickwork.core.base.errors import OutcomeUnknown as OutcomeUnknown  # of a commit: the head tells
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.run_filter import RunFilter as RunFilter
from tickwork.ports.run_filter import RunPage as RunPage
from tickwork.ports.run_filter import TimeRange as TimeRange
from tickwork.ports.store_maintenance import StoreMaintenance

PORTION = 128  # where rows and commits take turns


class Fenced(Conflict):
    """Another owner has taken the partition. An owner that gets this drops its machine and writes nothing more."""

    code = "fenced"


class StoreFull(Unavailable):
    """No space is left. Nothing was written; try again when there is some."""

    code = "store_full"


class StoreInUse(TickworkError):
    """Another process holds this store."""

    code = "store_in_use"


class StoreUnusable(TickworkError):
    """Damaged, read-only, of a newer schema, or on a file system that cannot hold it: a person must act."""

    code = "store_unusable"


class SyncFailed(StoreUnusable):
    """The disk did not confirm what was written. It says so once: a second try would be believed without reason, so
    nothing more is written, and a start recovers from what is really there."""

    code = "sync_failed"


class Head(msgspec.Struct, frozen=True):
    """Where a partition stands: the last committed row, and how far the rows follow it."""

    epoch: int
    seq: int = 0
    tick: int = 0
    hash: bytes = GENESIS
    watermark: int = 0


class Payload(msgspec.Struct, frozen=True, gc=False):
    """A value too large for the journal; its digest is what the journal holds."""

    digest: str
    data: bytes


class RunRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run that has ended, as people ask for it. No store reads `record`, `output` and `attempts`: MessagePack."""

    number: int
    id: str
    tenant: str
    workflow: str
    definition: str
    state: int
    source: str
    by: str
    submitted_ms: int
    started_ms: int
    ended_ms: int
    key: str
    error: str
    schedule: str
    record: bytes  # what else of it is needed to bring it back
    output: bytes  # core.values.Value
    attempts: bytes  # those that ended since its last row in `attempts`
    tags: tuple[str, ...] = ()  # with those of its workflow
    fields: tuple[tuple[str, str], ...] = ()  # searchable inputs
    version: str = ""  # `application@version` that it is pinned to


def run_row(values: Sequence[Any]) -> RunRow:
    """The row of an export, which may be older than the last fields, and has lists for tuples."""
    return msgspec.convert(list(values), RunRow)


class DefinitionRow(msgspec.Struct, frozen=True, gc=False):
    hash: str
    tenant: str
    name: str
    document: bytes
    put_ms: int


class ChildRow(msgspec.Struct, frozen=True, gc=False):
    """The result of one child of a map."""

    run: int
    step: int
    child: int
    value: bytes  # core.values.Value


class CacheRow(msgspec.Struct, frozen=True, gc=False):
    key: str  # begins with the tenant
    value: bytes  # core.values.Value
    kept_ms: int


class BackfillRow(msgspec.Struct, frozen=True, gc=False):
    """A backfill that has ended."""

    number: int
    tenant: str
    schedule: str
    data: bytes  # core.schedulerows.LiveBackfill


class IndexEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Points from a subject (a run, a queue, a worker) to a journal row that concerns it, with what that row alone
    does not say. `core/explain/history_index` gives the kinds their meaning; no store reads them."""

    kind: int
    subject: int
    seq: int
    data: bytes = b""


class Rows(msgspec.Struct):
    """What changed since the watermark, each thing as it stands now. Written whole or not at all."""

    header: bytes = b""  # everything of the machine that is neither run, task, schedule nor document
    live_runs: list[tuple[int, bytes]] = []
    gone_runs: list[int] = []
    live_tasks: list[tuple[int, bytes]] = []
    gone_tasks: list[int] = []
    schedules: list[tuple[int, bytes]] = []
    gone_schedules: list[int] = []
    fates: list[FateRange] = []  # each in place of one of the same schedule, backfill and beginning
    backfills: list[BackfillRow] = []
    definitions: list[DefinitionRow] = []
    reopened: list[int] = []  # ended runs that are live again; what their rows say of attempts is kept
    runs: list[RunRow] = []
    attempts: list[tuple[int, bytes]] = []  # of runs that go on: attempts that ended since the last time
    children: list[ChildRow] = []
    cache: list[CacheRow] = []
    index: list[IndexEntry] = []  # each in place of one of the same kind, subject and seq


class LoadedPartition(msgspec.Struct):
    """What a machine needs to go on: rows at the watermark, and the journal behind it."""

    head: Head
    settings: bytes
    header: bytes  # empty where no rows were ever written
    watermark_hash: bytes
    documents: list[tuple[str, bytes]]
    live_runs: list[bytes]  # by number
    live_tasks: list[bytes]  # by number
    schedules: list[bytes]  # by number
    tail: list[SealedRow]


class LogChunk(msgspec.Struct, frozen=True, gc=False):
    """Where a piece of an attempt's log lies. `first` is the number of its first line."""

    task: int
    attempt: int
    chunk: int
    first: int
    lines: int
    size: int
    digest: str
    written_ms: int


ALONE = 0  # partitions of a store that no nodes share


class ClusterIdentity(msgspec.Struct, frozen=True):
    """What all nodes on one store agree on. It never changes."""

    cluster: str  # the identity of the store, a random name: a restored copy has another one
    partitions: int  # `ALONE`: of one server


class Route(msgspec.Struct, frozen=True):
    """Where a tenant lives. Its runs may be spread over the `spread` partitions that follow its home, in a ring."""

    tenant: str
    home: int
    spread: int = 1


class InboxRow(msgspec.Struct, frozen=True, gc=False):
    """A submission that could not be brought to its owner, or that came by SQL. Durable, and so accepted."""

    id: str  # chosen by who wrote it; the run's id
    partition: int
    tenant: str
    data: bytes  # ports.wire.Submission as JSON
    by: str = ""


class Store(StoreMaintenance, Protocol):
    """Each method is one transaction. Numbers of runs, tasks and schedules are unique over all partitions: those of
    partition p are above `p << 44` and below the next. A run's number has one tenant and id for good."""

    portion: int  # ended runs that a call of `write_rows` should have at most, so that no commit waits long for it

    async def open(self) -> None:
        """Ready for use, its schema up to date. Raises `StoreInUse` or `StoreUnusable`, which say what to do."""

    async def close(self) -> None: ...

    async def establish_identity(self, *, cluster: str, partitions: int) -> ClusterIdentity:
        """What was founded first stays; later words are ignored."""

    async def read_routes(self) -> list[Route]:
        """By tenant."""

    async def put_route(self, route: Route, *, over: Route | None) -> bool:
        """Whether it is written: only in place of `over` (None: of nothing)."""

    async def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        """Repeating one changes nothing."""

    async def read_inbox(self, partition: int, *, limit: int) -> list[InboxRow]:
        """Whatever is there, in any order. Rows are taken away when they are decided, and never skipped by a sequence
        number: such numbers become visible out of order."""

    async def drop_inbox(self, partition: int, ids: Sequence[str]) -> None: ...

    async def claim(self, partition: int, *, owner: str, settings: bytes) -> Head:
        """Become the writer; every earlier epoch is fenced from here on. `settings` count for a new partition only."""

    async def read_head(self, partition: int) -> Head: ...

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], *, epoch: int) -> Awaitable[None]:
        """Head, journal row and payloads: all or none. It may begin before it is awaited. Raises `Fenced` where epoch
        or previous seq do not match, `StoreFull`, or `OutcomeUnknown` if the response was lost: the caller reads the
        head and settles it."""

    async def write_rows(self, partition: int, rows: Rows, *, epoch: int, through: int, head: bytes) -> None:
        """Rows as they stand after `through` (whose row has the hash `head`), and the watermark with them."""

    async def load(self, partition: int) -> LoadedPartition: ...

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        """Committed rows with seq above `after`, in order, without a gap."""

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        """The seq of the row of each of these ticks, for those ticks that have a row here. The cost grows with the
        logarithm of the journal's length."""

    async def read_index(
        self, partition: int, *, kind: int, subjects: tuple[int, int], after: int, through: int
    ) -> list[IndexEntry]:
        """Index entries of the subjects in this closed range, with a seq above `after` and up to `through`, by seq."""

    async def last_index(self, partition: int, *, kind: int, subject: int, through: int) -> IndexEntry | None:
        """The latest index entry of a subject with a seq up to `through`."""

    async def read_payloads(self, digests: Sequence[str]) -> dict[str, bytes]: ...

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        """Ended runs by id or by submit key, in any order; of several with one key, the latest."""

    async def list_runs(self, query: RunFilter) -> RunPage:
        """Ended runs, newest (highest number) first. Where many candidates do not fit, a page may have fewer than
        `limit` runs and still be followed by another."""

    async def read_attempts(self, run: int) -> list[bytes]:
        """What `Rows.attempts` and `RunRow.attempts` held of this run, oldest first."""

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        """Results of a map's children, by child."""

    async def read_cache(self, keys: Sequence[str]) -> dict[str, CacheRow]: ...

    async def read_definition(self, tenant: str, digest: str) -> DefinitionRow | None: ...

    async def read_fates(self, tenant: str, schedule: str, *, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        """Ranges of fates that have a time in the window `from_ms` to before `to_ms`, by their beginning. All schedules
        that ever had this name count."""

    async def list_backfills(self, tenant: str, *, limit: int) -> list[BackfillRow]:
        """Those that ended, newest (highest number) first."""

    async def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        """Repeating a chunk changes nothing."""

    async def read_log_chunks(self, task: int, attempt: int, *, after: int = -1) -> list[LogChunk]: ...


@runtime_checkable
class HasHorizon(Protocol):
    """A store in which an old snapshot keeps dead rows from being cleared away."""

    async def horizon_age_ms(self) -> int:
        """Return how long the oldest snapshot has been held."""


@runtime_checkable
class HasInboxNotices(Protocol):
    """A store into whose inbox applications write, and that can tell when they do."""

    async def await_notices(self, wake: Callable[[], None]) -> None:
        """Call `wake` after rows were added, until cancelled. Notices may be lost: they only make reading sooner."""


@runtime_checkable
class HasTime(Protocol):
    """A store on a server with a clock of its own."""

    async def time_ms(self) -> int:
        """UTC since 1970, by that clock."""


@runtime_checkable
class HasWarnings(Protocol):
    """A store that has looked at its server when it was opened."""

    notes: list[str]
    """What a person should know of it: what is a risk there."""
