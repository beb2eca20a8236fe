"""What SQLite stores do when the world goes wrong: killed processes, full disks, damaged files, wrong places."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from conformance.store_suite import GENESIS, J, committed, run
from integration.sqlite_writer import payload
from tickwork.core.base.errors import Corrupt, TickworkError, Unavailable
from tickwork.journal.record import Row, SealedRow, seal, unseal
from tickwork.ports.store import (
    DefinitionRow,
    Fenced,
    Head,
    OutcomeUnknown,
    Payload,
    Rows,
    RunFilter,
    StoreFull,
    StoreInUse,
    StoreUnusable,
    SyncFailed,
)
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.statements import migrations, schema
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.stores.sqlite.writer import inline as pen
from tickwork.stores.sqlite.writer.inline import SMALL_BYTES

WRITER = Path(__file__).with_name("sqlite_writer.py")
SOURCE = Path(__file__).resolve().parents[2] / "src"


@contextlib.asynccontextmanager
async def opened(path, **options):
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def process(*arguments):
    started = subprocess.Popen(
        [sys.executable, str(WRITER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait(timeout=20)
        started.stdout.close()


# ---- one process per file


@pytest.mark.proves("P11", "P12")
async def test_a_second_process_is_refused_at_once_and_told_who_holds_the_file(tmp_path):
    with process("hold", tmp_path / "s.db") as holder:
        assert holder.stdout.readline() == f"holding {holder.pid}\n"
        with process("open", tmp_path / "s.db") as second:
            told = second.stdout.readline()

    assert told.startswith("store_in_use") and f"process {holder.pid}" in told


async def test_the_lock_is_free_after_a_kill(tmp_path):
    with process("hold", tmp_path / "s.db") as holder:
        holder.stdout.readline()
        with pytest.raises(StoreInUse):
            await SqliteStore(tmp_path / "s.db").open()
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=20)

    async with opened(tmp_path / "s.db") as store:
        assert await store.read_head(0) == Head(0)


async def test_one_process_does_not_open_a_file_twice(tmp_path):
    async with opened(tmp_path / "s.db"):
        with pytest.raises(StoreInUse, match=str(os.getpid())):
            await SqliteStore(tmp_path / "s.db").open()
    async with opened(tmp_path / "s.db"):
        pass


async def test_a_forked_child_that_lives_on_does_not_keep_the_lock(tmp_path):
    reader, writer = os.pipe()
    store = SqliteStore(tmp_path / "s.db")
    await store.open()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        os._exit(0)
    try:
        await store.close()
        async with opened(tmp_path / "s.db"):
            pass
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


# ---- killed writers


@pytest.mark.proves("I1", "I3", "I12", "P10")
@pytest.mark.parametrize("place", ["thread", "apart"])
async def test_every_acknowledged_commit_survives_kills_of_its_writer(tmp_path, place):
    acknowledged = epoch = 0
    for time in range(6):
        with process("write", tmp_path / "s.db", place, "", 0) as writer:
            said = [writer.stdout.readline() for _ in range(20 + 30 * time)]
            writer.kill()
            said += writer.stdout.readlines()
        acknowledged = await verified(tmp_path / "s.db", said, acknowledged=acknowledged, epoch=epoch)
        epoch = int(said[0].split()[1])

    assert acknowledged > 200


@pytest.mark.proves("I1", "I12")
@pytest.mark.parametrize(
    "failpoint",
    ["before_commit", "after_head", "after_journal", "before_commit_statement", "after_commit", "before_rows",
     "mid_rows", "after_rows", "claim", "before_checkpoint", "after_checkpoint"],
)  # fmt: skip
async def test_a_process_that_ends_at_any_step_loses_nothing_that_it_acknowledged(tmp_path, failpoint):
    rare = failpoint in ("claim", "before_checkpoint", "after_checkpoint")
    with process("write", tmp_path / "s.db", "thread", failpoint, 1 if rare else 7) as writer:
        said = writer.stdout.readlines()
        assert writer.wait(timeout=60) == 137

    await verified(tmp_path / "s.db", said)


@pytest.mark.proves("I1", "I12")
@pytest.mark.parametrize("failpoint", ["before_commit", "after_head", "after_journal", "before_commit_statement"])
async def test_a_process_that_ends_while_it_commits_a_small_tick_itself_loses_nothing(tmp_path, failpoint):
    with process("write", tmp_path / "s.db", "apart", failpoint, 7) as writer:
        said = writer.stdout.readlines()
        assert writer.wait(timeout=60) == 137

    assert await verified(tmp_path / "s.db", said) == 12, "seven small ones, the last not committed"


async def verified(path, said: list[str], *, acknowledged: int = 0, epoch: int = 0) -> int:
    """The chain verifies and holds all that was acknowledged, at most one row more; rows are never ahead of it."""
    words = [line.split() for line in said]
    commits = [int(number) for what, number in words if what == "committed"]
    rows = [int(number) for what, number in words if what == "rows"]
    async with opened(path) as store:
        head = await store.read_head(0)
        journal = await store.journal(0, after=0, limit=1_000_000)
        loaded = await store.load(0)
        payloads = await store.read_payloads([f"d{seq}" for seq in range(1, head.seq + 1)])
    last = commits[-1] if commits else acknowledged

    assert all(int(number) == epoch + 1 for what, number in words if what == "claimed")
    assert last <= head.seq <= last + 1
    before = GENESIS
    for seq, row in enumerate(journal, start=1):
        assert unseal(row, before).seq == seq
        before = row.hash
    assert (len(journal), before) == (head.seq, head.hash)
    assert payloads == {f"d{seq}": payload(seq) for seq in range(1, head.seq + 1)}
    assert max(rows, default=0) <= head.watermark <= head.seq
    assert loaded.header == (b"header at %d" % head.watermark if head.watermark else b"")
    return head.seq


# ---- full disks


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs more rights than this user has")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def fill(store, head: Head) -> Head:
    """Commits until there is no space; the head as it was acknowledged."""
    try:
        while True:
            seq = head.seq + 1
            sealed = seal(Row(seq, seq, "", [], []), head.hash)
            row = SealedRow(seq, seq, sealed.hash, random.Random(seq).randbytes(30_000))
            await store.commit(0, row, [], epoch=1)
            head = Head(1, row.seq, row.tick, row.hash)
    except StoreFull:
        return head


@pytest.mark.proves("F12")
async def test_a_full_disk_is_told_and_commits_go_on_when_space_returns(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    async with opened(small_disk / "s.db") as store:
        head = await fill(store, await store.claim(0, owner="n", settings=b""))
        with pytest.raises(StoreFull):
            await store.write_rows(0, Rows(header=bytes(200_000)), epoch=1, through=0, head=GENESIS)
        full = await store.read_head(0), len(await store.journal(0, after=0, limit=999))
        ballast.unlink()
        row = SealedRow(head.seq + 1, head.seq + 1, b"h" * 32, bytes(30_000))
        await store.commit(0, row, [Payload("d", b"x")], epoch=1)

        assert full == (head, head.seq) and head.seq > 3
        assert (await store.read_head(0)).seq == head.seq + 1
        assert (await store.load(0)).header == b""
    async with opened(small_disk / "s.db") as store:
        assert len(await store.journal(0, after=0, limit=999)) == head.seq + 1


@pytest.mark.proves("F12")
async def test_a_disk_too_full_to_open_is_told_and_opens_when_space_returns(small_disk):
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError):
        ballast.write_bytes(bytes(3_000_000))
    with pytest.raises(StoreUnusable, match="space"):
        await SqliteStore(small_disk / "s.db").open()
    ballast.unlink()

    async with opened(small_disk / "s.db") as store:
        assert await store.read_head(0) == Head(0)


# ---- commits that nobody can tell


def once(error: Exception):
    errors = [error]

    def deed():
        if errors:
            raise errors.pop()

    return deed


@pytest.mark.proves("I1", "I12")
async def test_after_an_unknown_outcome_the_head_tells(tmp_path):
    """The commit statement went through, its answer was an error."""
    failing = {}
    async with opened(tmp_path / "s.db", failpoints=failing) as store:
        await store.claim(0, owner="n", settings=b"")
        failing["after_commit"] = once(apsw.IOError("IOError: disk I/O error"))
        with pytest.raises(OutcomeUnknown):
            await store.commit(0, J[0], [], epoch=1)

        assert await store.read_head(0) == Head(1, 1, J[0].tick, J[0].hash)
        await store.commit(0, J[1], [], epoch=1)
        assert await store.journal(0, after=0, limit=9) == J[:2]


def fsync_error():
    error = apsw.IOError("IOError: disk I/O error")
    error.result, error.extendedresult = apsw.SQLITE_IOERR, apsw.SQLITE_IOERR_FSYNC
    return error


@pytest.mark.proves("P8")
@pytest.mark.parametrize("where", ["after_commit", "after_checkpoint"])
async def test_a_failed_sync_stops_the_store_and_is_not_tried_again(tmp_path, where):
    """The system reports it once; a second sync would succeed and prove nothing."""
    failing = {}
    async with opened(tmp_path / "s.db", failpoints=failing) as store:
        await store.claim(0, owner="n", settings=b"")
        failing[where] = once(fsync_error())
        with pytest.raises(SyncFailed, match="fsync failed"):
            await many_commits(store)


async def many_commits(store):
    """Until the log is copied."""
    for seq in range(1, 400):
        await store.commit(0, SealedRow(seq, seq, b"h" * 32, bytes(100_000)), [], epoch=1)
        await asyncio.sleep(0.001)


async def test_a_disk_that_keeps_failing_is_tried_again_until_it_answers(tmp_path, monkeypatch):
    failing, connect = {}, opening.connect
    async with opened(tmp_path / "s.db", failpoints=failing) as store:
        await store.claim(0, owner="n", settings=b"")
        failing["after_commit"] = once(apsw.IOError("IOError: disk I/O error"))
        with pytest.raises(OutcomeUnknown):
            await store.commit(0, J[0], [], epoch=1)
        refuse_once = once(apsw.CantOpenError("CantOpenError: unable to open database file"))
        monkeypatch.setattr(opening, "connect", lambda *a, **k: refuse_once() or connect(*a, **k))
        with pytest.raises(Unavailable):
            await store.read_head(0)

        assert (await store.read_head(0)).seq == 1
        await store.commit(0, J[1], [], epoch=1)


async def test_an_error_before_the_commit_statement_changes_nothing(tmp_path):
    failing = {}
    async with opened(tmp_path / "s.db", failpoints=failing) as store:
        await store.claim(0, owner="n", settings=b"")
        for error, expected in ((apsw.IOError("x"), Unavailable), (apsw.BusyError("x"), Unavailable),
                                (apsw.FullError("x"), StoreFull), (ValueError("x"), ValueError)):  # fmt: skip
            failing["before_commit_statement"] = once(error)
            with pytest.raises(expected):
                await store.commit(0, J[0], [Payload("d", b"x")], epoch=1)

        assert await store.read_head(0) == Head(1)
        await committed(store, 1, epoch=1, partition=0)
        assert await store.read_payloads(["d"]) == {}


# ---- damaged files


async def filled(path: Path) -> list:
    """A database with something in every table, closed. What it says is returned."""
    async with opened(path) as store:
        await store.claim(0, owner="n", settings=b"settings")
        for row in J[:5]:
            await store.commit(0, row, [Payload(f"d{row.seq}", b"payload" * 300)], epoch=1)
        rows = Rows(
            header=b"header" * 500,
            live_runs=[(n, b"live %d " % n * 20) for n in range(200)],
            live_tasks=[(n, b"task %d " % n * 20) for n in range(200)],
            runs=[run(n, record=b"record %d" % n * 9, attempts=b"att" * 20) for n in range(300)],
            definitions=[DefinitionRow("h", "acme", "flow", b"document" * 100, 5)],
            attempts=[(n, b"attempt" * 9) for n in range(50)],
        )
        await store.write_rows(0, rows, epoch=1, through=3, head=J[2].hash)
        return await said(store)


async def said(store) -> list:
    found = [await store.load(0), await store.journal(0, after=0, limit=99)]
    before = GENESIS
    for row in found[1]:
        unseal(row, before)
        before = row.hash
    found.append(await store.read_payloads([f"d{n}" for n in range(1, 6)]))
    found.append((await store.list_runs(RunFilter("acme", limit=1_000))).rows)
    found.append([await store.read_attempts(n) for n in range(50)])
    found.append(await store.read_definition("acme", "h"))
    found.append(await store.find_runs("acme", ids=[f"run-{n}" for n in range(300)]))
    return found


@pytest.mark.proves("F14", "I13", "P12")
async def test_a_flipped_byte_is_never_used(tmp_path):
    """Wherever it is: refused at the start, or when it is read, or in a place that holds nothing."""
    healthy, damaged = tmp_path / "healthy.db", tmp_path / "damaged.db"
    truth = await filled(healthy)
    original, chance, caught = healthy.read_bytes(), random.Random(7), 0
    for _ in range(150):
        at = chance.randrange(100, len(original))  # the first 100 bytes are the next test's
        damaged.write_bytes(original[:at] + bytes([original[at] ^ (1 << chance.randrange(8))]) + original[at + 1 :])
        try:
            async with opened(damaged) as store:
                assert await said(store) == truth, f"byte {at}"
        except (StoreUnusable, Corrupt):
            caught += 1

    assert caught > 50


@pytest.mark.proves("F14", "I13")
@pytest.mark.parametrize("part", [0.02, 0.5, 0.9, 0.999])
async def test_a_file_that_is_cut_off_is_refused(tmp_path, part):
    await filled(tmp_path / "s.db")
    size = (tmp_path / "s.db").stat().st_size
    os.truncate(tmp_path / "s.db", int(size * part))

    with pytest.raises((StoreUnusable, Corrupt)):
        async with opened(tmp_path / "s.db") as store:
            await said(store)


@pytest.mark.proves("P12")
async def test_a_file_that_is_cut_off_is_refused_when_it_is_too_large_for_a_full_check(tmp_path, monkeypatch):
    await filled(tmp_path / "s.db")
    monkeypatch.setattr(opening, "FULL_CHECK_BYTES_MAX", 1_000)
    async with opened(tmp_path / "s.db") as store:
        assert (await store.read_head(0)).seq == 5
    os.truncate(tmp_path / "s.db", (tmp_path / "s.db").stat().st_size - 4096)

    with pytest.raises(StoreUnusable, match="damaged"):
        await SqliteStore(tmp_path / "s.db").open()


async def test_the_log_of_a_crash_is_read(tmp_path):
    async with opened(tmp_path / "s.db") as store:
        await store.claim(0, owner="n", settings=b"")
        await committed(store, 3, epoch=1, partition=0)
        for name in ("s.db", "s.db-wal"):  # as they lie there when the process dies now
            shutil.copy(tmp_path / name, tmp_path / f"crashed-{name}")
    for name in ("s.db", "s.db-wal"):
        (tmp_path / f"crashed-{name}").rename(tmp_path / name)

    async with opened(tmp_path / "s.db") as store:
        assert await store.journal(0, after=0, limit=9) == J[:3]


# ---- wrong places


async def test_a_missing_folder_is_made(tmp_path):
    async with opened(tmp_path / "a" / "b" / "s.db"):
        assert (tmp_path / "a" / "b" / "s.db").is_file()


async def refused(path, **options) -> str:
    with pytest.raises(StoreUnusable) as refusal:
        await SqliteStore(path, **options).open()
    return str(refusal.value)


async def test_a_folder_is_not_a_database(tmp_path):
    assert "name a file" in await refused(tmp_path)


async def test_a_file_in_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("x")

    assert "cannot hold" in await refused(tmp_path / "file" / "s.db")


async def test_a_folder_that_takes_no_files_is_told():
    assert "may write" in await refused(Path("/proc/self/s.db"))


async def test_a_read_only_disk_is_told(small_disk):
    async with opened(small_disk / "s.db"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    assert "write" in await refused(small_disk / "s.db")


async def test_another_programs_file_is_left_alone(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 1_000)
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("create table notes (text)")
    foreign.close()
    before = (tmp_path / "foreign.db").read_bytes()

    assert "not a SQLite database" in await refused(tmp_path / "text.db")
    assert "another program" in await refused(tmp_path / "foreign.db")
    assert (tmp_path / "foreign.db").read_bytes() == before


async def test_a_newer_schema_is_refused(tmp_path):
    async with opened(tmp_path / "s.db"):
        pass
    newer = apsw.Connection(str(tmp_path / "s.db"))
    newer.pragma("user_version", len(migrations()) + 1)
    newer.close()

    assert "newer program" in await refused(tmp_path / "s.db")


@pytest.mark.proves("P12")
@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/data/x", "ext4"), ("/data/net/deep", "nfs4"), ("/data/network", "ext4"), ("/my disk/x", "fuse.sshfs"),
     ("/", "overlay")],
)  # fmt: skip
def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(tmp_path, folder, kind):
    mounts = ["1 0 0:1 / / rw - overlay overlay rw", "2 1 0:2 / /data rw,relatime shared:1 - ext4 /dev/x rw",
              "3 2 0:3 / /data/net rw - nfs4 host:/x rw", r"4 1 0:4 / /my\040disk rw - fuse.sshfs h: rw"]  # fmt: skip
    (tmp_path / "mountinfo").write_text("\n".join(mounts) + "\n")

    assert opening.file_system(Path(folder), tmp_path / "mountinfo") == kind


@pytest.mark.proves("P12")
async def test_a_network_file_system_is_refused_unless_allowed(tmp_path, monkeypatch):
    kind = opening.file_system(tmp_path, Path("/proc/self/mountinfo"))
    monkeypatch.setattr(opening, "NETWORK", frozenset([kind]))

    assert kind in await refused(tmp_path / "s.db")
    async with opened(tmp_path / "s.db", network_allowed=True):
        pass


def test_an_old_sqlite_is_refused():
    opening.require_version()
    with pytest.raises(StoreUnusable, match=r"3\.51\.2"):
        opening.require_version(3_051_002)


# ---- settings and schema


@pytest.mark.proves("P10")
async def test_every_commit_is_synced_unless_somebody_chose_otherwise(tmp_path):
    async with opened(tmp_path / "s.db") as store:
        writer = store._connections.writing.runtime.writer.connection
        assert (writer.pragma("synchronous"), writer.pragma("journal_mode")) == (2, "wal")


OLD_RUN = (1, "run-1", "acme", "flow", "d", 4, "api", "ann", 1, 2, 3, "", "", "", b"record", b"output", b"attempts", 7)


def test_schema_and_migrations_make_the_same_database():
    fresh, moved = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    fresh.execute(schema())
    for migration in migrations():
        moved.execute(migration.sql)

    assert opening.shape(fresh) == opening.shape(moved)
    moved.execute(
        "drop index run_groups_by_schedule;"
        "create index run_groups_by_schedule on run_groups (tenant, schedule, stretch) where schedule > ''"
    )
    assert opening.shape(fresh) != opening.shape(moved)


def made_by_an_older_program(path: Path, version: int) -> apsw.Connection:
    old = apsw.Connection(str(path))
    for migration in migrations()[:version]:
        old.execute(migration.sql)
    old.pragma("application_id", opening.APPLICATION_ID)
    old.pragma("user_version", version)
    return old


async def test_ended_runs_of_an_older_program_are_left_to_it(tmp_path):
    old = made_by_an_older_program(tmp_path / "s.db", 4)
    columns = [name for _, name, *_ in old.execute("pragma table_info(runs)")]
    old.execute(f"insert into runs ({', '.join(columns)}) values ({', '.join(['?'] * len(columns))})", OLD_RUN)
    old.close()

    assert "make a backup with that" in await refused(tmp_path / "s.db")
    old = apsw.Connection(str(tmp_path / "s.db"))
    old.execute("delete from runs")
    old.close()
    async with opened(tmp_path / "s.db") as store:
        assert (await store.list_runs(RunFilter("acme"))).rows == []


async def test_runs_that_an_older_program_found_otherwise_are_left_to_it(tmp_path):
    old = made_by_an_older_program(tmp_path / "s.db", 5)
    old.execute("insert into run_clues values (-7, 0)")
    old.close()

    assert "make a backup with that" in await refused(tmp_path / "s.db")
    old = apsw.Connection(str(tmp_path / "s.db"))
    assert old.pragma("user_version") == 5
    old.execute("update run_clues set clue = 7")  # of an id of version 7
    old.close()
    async with opened(tmp_path / "s.db"):
        pass


# ---- the log


async def test_the_log_stays_short_under_steady_load_and_is_gone_after_closing(tmp_path):
    async with opened(tmp_path / "s.db", synchronous="OFF") as store:
        await store.claim(0, owner="n", settings=b"")
        longest = 0
        for seq in range(1, 1_001):
            await store.commit(0, SealedRow(seq, seq, b"h" * 32, bytes(100_000)), [], epoch=1)
            longest = max(longest, (tmp_path / "s.db-wal").stat().st_size)
            if not seq % 20:  # on a busy machine the thread that copies may wait long for its turn
                await asyncio.sleep(0.005)
        total = (tmp_path / "s.db").stat().st_size

    assert total > 80_000_000 and longest < 60_000_000
    assert not (tmp_path / "s.db-wal").exists()


async def test_the_log_begins_anew_where_its_space_ends_though_the_pen_never_pauses(tmp_path):
    async with opened(tmp_path / "s.db", apart=True) as store:
        head = await store.claim(0, owner="n", settings=b"")
        log = tmp_path / "s.db-wal"
        reserved, longest = log.stat().st_size, 0
        for seq in range(1, 2_001):  # two pages or more each
            await store.commit(0, SealedRow(seq, seq, b"h" * 32, bytes(1_000)), [], epoch=head.epoch)
            if not seq % 10:
                await store.write_rows(0, Rows(header=b"h"), epoch=head.epoch, through=seq, head=b"h" * 32)
            longest = max(longest, log.stat().st_size)

    assert reserved == opening.LOG_BYTES
    assert longest < 1.5 * reserved  # a busy machine may copy late; without a beginning anew it would be 2.6


async def test_no_error_of_sqlite_itself_reaches_the_caller(tmp_path):
    """An id twice in one write breaks an index: told as ours, and the store goes on."""
    async with opened(tmp_path / "s.db") as store:
        await store.claim(0, owner="n", settings=b"")
        with pytest.raises(TickworkError):
            await store.write_rows(0, Rows(runs=[run(1), run(2, id="run-1")]), epoch=1, through=0, head=GENESIS)
        await store.write_rows(0, Rows(runs=[run(1)]), epoch=1, through=0, head=GENESIS)

        assert [row.number for row in await store.find_runs("acme", ids=["run-1"])] == [1]


# ---- writing in a process of its own


def scribe_of(store):
    return store._connections.writing._process


async def test_a_killed_scribe_leaves_the_outcome_unknown_and_another_goes_on(tmp_path):
    async with opened(tmp_path / "s.db", apart=True) as store:
        head = await store.claim(0, owner="n", settings=b"")
        await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=head.epoch)
        first = scribe_of(store)
        first.send_signal(signal.SIGSTOP)
        large = SealedRow(2, 2, b"i" * 32, bytes(SMALL_BYTES + 1))
        commit = asyncio.ensure_future(store.commit(0, large, [], epoch=head.epoch))
        await asyncio.sleep(0)
        first.kill()
        with pytest.raises(OutcomeUnknown):
            await commit

        assert (await store.read_head(0)).seq == 1
        await store.commit(0, SealedRow(2, 2, b"i" * 32, b"2"), [], epoch=head.epoch)
        assert (await store.read_head(0)).seq == 2 and scribe_of(store).pid != first.pid


async def test_a_small_commit_needs_no_scribe_that_rests_but_waits_behind_what_it_was_asked(tmp_path):
    async with opened(tmp_path / "s.db", apart=True) as store:
        head = await store.claim(0, owner="n", settings=b"")
        scribe = scribe_of(store)
        scribe.send_signal(signal.SIGSTOP)
        await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=head.epoch)
        assert (await store.read_head(0)).seq == 1

        large = store.commit(0, SealedRow(2, 2, b"i" * 32, bytes(SMALL_BYTES + 1)), [], epoch=head.epoch)
        small = asyncio.ensure_future(store.commit(0, SealedRow(3, 3, b"j" * 32, b"3"), [], epoch=head.epoch))
        await asyncio.sleep(0.01)
        assert not small.done() and (await store.read_head(0)).seq == 1
        scribe.send_signal(signal.SIGCONT)
        await large
        await small

        assert [row.seq for row in await store.journal(0, after=0, limit=9)] == [1, 2, 3]


async def test_a_small_commit_is_fenced_like_any_other(tmp_path):
    async with opened(tmp_path / "s.db", apart=True) as store:
        former = await store.claim(0, owner="n", settings=b"")
        await store.claim(0, owner="m", settings=b"")
        with pytest.raises(Fenced):
            await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=former.epoch)

        assert (await store.read_head(0)).seq == 0


async def test_after_a_slow_commit_the_event_loop_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    async with opened(tmp_path / "s.db", apart=True) as store:
        head = await store.claim(0, owner="n", settings=b"")
        monkeypatch.setattr(pen, "SLOW_S", -1.0)  # none is fast enough
        await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=head.epoch)
        monkeypatch.setattr(pen, "SLOW_S", 60.0)
        at_once = []
        for seq in range(2, 3 + pen.REST_COMMITS):
            commit = store.commit(0, SealedRow(seq, seq, b"h" * 32, b"1"), [], epoch=head.epoch)
            at_once.append(commit.done())
            await commit

        assert at_once == [False] * pen.REST_COMMITS + [True]


async def test_the_slower_the_disk_the_seldomer_the_event_loop_waits_for_it(tmp_path, monkeypatch):
    async def commits(count: int) -> str:
        nonlocal seq
        at_once = ""
        for _ in range(count):
            seq += 1
            commit = store.commit(0, SealedRow(seq, seq, b"h" * 32, b"1"), [], epoch=head.epoch)
            at_once += "#" if commit.done() else "."
            await commit
        return at_once

    async with opened(tmp_path / "s.db", apart=True) as store:
        head, seq = await store.claim(0, owner="n", settings=b""), 0
        monkeypatch.setattr(pen, "FULL_PAGES", 1 << 30)  # else it rests for the log as well
        monkeypatch.setattr(pen, "SLOW_S", -1.0)  # none is fast enough
        slow = await commits(600)
        monkeypatch.setattr(pen, "SLOW_S", 60.0)
        await commits(slow.rindex("#") + 1 + pen.REST_COMMITS_MAX - len(slow) + 1)  # until one was fast
        monkeypatch.setattr(pen, "SLOW_S", -1.0)
        again = await commits(6)

    assert [len(rest) for rest in slow.split("#")[1:]][:7] == [4, 8, 16, 32, 64, 128, 256]
    assert again == "#....#"


async def test_a_small_commit_of_unknown_outcome_has_everything_opened_anew(tmp_path, monkeypatch):
    async with opened(tmp_path / "s.db", apart=True) as store:
        head = await store.claim(0, owner="n", settings=b"")
        writer = store._connections.writing._inline._writer
        connection = writer.connection
        monkeypatch.setattr(writer, "connection", Breaking(connection))
        with pytest.raises(OutcomeUnknown):
            await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=head.epoch)
        connection.close()

        assert (await store.read_head(0)).seq == 0
        await store.commit(0, SealedRow(1, 1, b"h" * 32, b"1"), [], epoch=head.epoch)
        assert (await store.read_head(0)).seq == 1 and store._connections.writing._inline._writer is not writer


class Breaking:
    """A connection whose commit fails."""

    def __init__(self, connection):
        self._connection = connection

    def execute(self, sql, *args, **kinds):
        if sql == "commit":
            raise apsw.IOError("the disk is gone")
        return self._connection.execute(sql, *args, **kinds)

    def __getattr__(self, name):
        return getattr(self._connection, name)


async def test_a_scribe_ends_with_its_store_and_leaves_one_file(tmp_path):
    async with opened(tmp_path / "s.db", apart=True) as store:
        await store.claim(0, owner="n", settings=b"")
        scribe = scribe_of(store)

    assert scribe.returncode == 0
    assert not (tmp_path / "s.db-wal").exists()


async def test_a_scribe_passes_on_why_a_file_cannot_be_used(tmp_path):
    (tmp_path / "s.db").write_bytes(b"not a database, whatever its name says" * 100)

    assert "not a SQLite database" in await refused(tmp_path / "s.db", apart=True)
