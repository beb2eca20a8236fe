"""What the store on PostgreSQL does when the world goes wrong, and the known pitfalls of PostgreSQL one by one."""

import asyncio
import inspect
import re
import signal
import statistics
import sys
from collections import defaultdict
from contextlib import suppress

import asyncpg
import pytest
import pytest_asyncio

from conformance.store_suite import GENESIS, J, N, P, X, committed, payload, rows_of_journal, run, written
from proxy import Proxy
from servers import crashable_postgres, postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.core.base.errors import Corrupt, TickworkError, Unavailable
from tickwork.journal.record import SealedRow
from tickwork.ports.store import (
    Fenced,
    Head,
    InboxRow,
    LogChunk,
    OutcomeUnknown,
    Payload,
    Route,
    Rows,
    RunFilter,
    Store,
    StoreFull,
    StoreUnusable,
)
from tickwork.ports.store_maintenance import StoreMaintenance
from tickwork.stores.checksums import of_epoch
from tickwork.stores.postgres import errors as troubles
from tickwork.stores.postgres import maintenance as upkeep
from tickwork.stores.postgres.connections import address
from tickwork.stores.postgres.eager_coroutine import begun
from tickwork.stores.postgres.statements import FILES
from tickwork.stores.postgres.store import PostgresStore


@pytest_asyncio.fixture
async def made(postgres, schema):  # noqa: F811
    """Makes stores that are closed afterwards."""
    stores = []

    async def make(dsn=postgres, **options):
        stores.append(PostgresStore(dsn, schema=schema, **options))
        await stores[-1].open()
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest_asyncio.fixture
async def store(made):
    store = await made()
    await store.claim(P, owner="n1", settings=b"s")
    return store


@pytest_asyncio.fixture
async def raw(store, postgres, schema):  # noqa: F811
    """A connection of somebody else."""
    connection = await asyncpg.connect(postgres, server_settings={"search_path": schema})
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def proxy(postgres_server):  # noqa: F811
    async with Proxy("127.0.0.1", postgres_server.port) as proxy:
        yield proxy


def through(proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"


async def until(ask, *, seconds: float = 10.0):
    async with asyncio.timeout(seconds):
        while not await ask():
            await asyncio.sleep(0.01)


# ---- pitfalls


@pytest.mark.proves("P1")
async def test_an_inbox_row_that_becomes_visible_late_is_not_skipped(store, raw):
    late = raw.transaction()
    await late.start()
    await raw.execute("insert into inbox values ($1, 'a', 'acme', 'early', '')", P)
    await store.add_inbox([InboxRow("b", P, "acme", b"later")])
    first = await store.read_inbox(P, limit=9)
    await store.drop_inbox(P, [row.id for row in first])
    await late.commit()

    assert [row.id for row in first] == ["b"]
    assert [row.id for row in await store.read_inbox(P, limit=9)] == ["a"]


@pytest.mark.proves("P2", "F9", "I11")
@pytest.mark.parametrize("payloads", [[payload(b"x")], []])  # the second has begun before it is awaited
@pytest.mark.parametrize(("cut", "seq"), [("cut_after", 2), ("cut_before", 1)])
async def test_a_commit_whose_answer_is_lost_is_settled_by_the_head(made, proxy, cut, seq, payloads):
    store = await made(through(proxy))
    await store.claim(P, owner="n1", settings=b"s")
    await committed(store, 1, epoch=1)
    getattr(proxy, cut)(J[1].hash)
    with pytest.raises(OutcomeUnknown):
        await store.commit(P, J[1], payloads, epoch=1)
    head = await store.read_head(P)

    assert (head.seq, proxy.cuts) == (seq, 1)
    assert await store.read_payloads([X]) == ({X: b"x"} if payloads and seq == 2 else {})
    if seq == 2:
        with pytest.raises(Fenced):  # the same bytes again do no harm
            await store.commit(P, J[1], [], epoch=1)
    await committed(store, 2, epoch=1)
    assert await store.journal(P, after=0, limit=9) == J[: seq + 2]


@pytest.mark.proves("P2", "F9")
@pytest.mark.parametrize("runs", [[], [run(N + 1, attempts=b"last")]])
@pytest.mark.parametrize("cut", ["cut_after", "cut_before"])
async def test_rows_whose_answer_is_lost_are_written_once(made, proxy, cut, runs):
    store = await made(through(proxy))
    await store.claim(P, owner="n1", settings=b"s")
    rows = Rows(header=b"header-to-be-cut", attempts=[(N + 1, b"one"), (N + 1, b"two")], runs=runs)
    getattr(proxy, cut)(b"header-to-be-cut")
    with pytest.raises(OutcomeUnknown):
        await written(store, rows)
    await written(store, rows)
    await written(store, Rows(attempts=[(N + 2, b"other")]))

    assert proxy.cuts == 1
    assert await store.read_attempts(N + 1) == [b"one", b"two"] + [row.attempts for row in runs]
    assert (await store.load(P)).header == b"header-to-be-cut"


@pytest.mark.proves("P2")
async def test_other_rows_after_a_lost_answer_are_not_taken_for_the_same(made, proxy):
    store = await made(through(proxy))
    await store.claim(P, owner="n1", settings=b"s")
    proxy.cut_after(b"header-to-be-cut")
    with pytest.raises(OutcomeUnknown):
        await written(store, Rows(header=b"header-to-be-cut"))
    await written(store, Rows(header=b"another"))

    assert (await store.load(P)).header == b"another"


@pytest.mark.proves("P3")
async def test_commits_stay_as_fast_beside_a_session_that_holds_an_old_snapshot(store, raw):
    held = raw.transaction(isolation="repeatable_read")
    await held.start()
    await raw.fetch("select * from partitions")
    loop, took = asyncio.get_running_loop(), []
    for seq in range(1, 1_501):
        began = loop.time()
        await store.commit(P, SealedRow(seq, seq, b"h" * 32, b"data"), [], epoch=1)
        took.append(loop.time() - began)
    began = loop.time()
    await store.claim(P, owner="n2", settings=b"")
    claim_s = loop.time() - began
    pages = await raw.fetchval("select pg_relation_size('partitions') / current_setting('block_size')::int")
    await held.rollback()

    assert pages == 1  # a lock leaves nothing behind; 1,500 dead rows would fill twenty pages
    assert statistics.median(took[-300:]) < 3 * statistics.median(took[:300]) + 0.002
    assert claim_s < 1


@pytest.mark.parametrize("count", [1, 3, 7, 20, 100, 200])
@pytest.mark.parametrize("generic", [False, True])
async def test_whoever_looks_for_a_few_ids_reads_a_few_blocks_however_many_there_are(store, raw, count, generic):
    """The planner cannot know how many blocks are between two numbers that it does not know. Of 840,000 it took them
    for a ninth, and read the whole table for seven ids."""
    await raw.execute("insert into run_blocks select n * 128, '', '', '' from generate_series(1, 60000) n; analyze")
    await raw.execute(f"set plan_cache_mode = force_{'generic' if generic else 'custom'}_plan")
    wanted = [number * 7 for number in range(count)]
    for name, given in (("find_blocks", (wanted, wanted[:1])), ("open_stretches", (wanted,))):
        asked = await raw.prepare(f"explain {FILES.queries[name]}")
        plan = [line for (line,) in await asked.fetch(*given)]

        assert any("Index Scan using run_blocks_pkey" in line for line in plan), plan
        assert int(re.search(r"rows=(\d+)", plan[0])[1]) <= 256 * (count + 1), plan  # what it expects, and plans for


@pytest.mark.proves("P4")
def test_nothing_notifies_from_inside_a_write():
    """Only `enqueue` does, in the transaction of its caller, and there one transaction at a time."""
    texts = [*FILES.queries.values(), FILES.schema, *(one.sql for one in FILES.migrations)]
    enqueue = re.compile(r"create function enqueue\(.*?\$body\$;", re.DOTALL)

    assert [text for text in texts if "notify" in enqueue.sub("", text).lower()] == []


@pytest.mark.proves("P4", "I1")
async def test_thirty_two_writers_do_not_wait_for_each_other(made):
    store = await made()
    partitions = range(100, 132)
    rows = rows_of_journal(10)

    async def write(partition):
        epoch = (await store.claim(partition, owner="n", settings=b"")).epoch
        for row in rows:
            await store.commit(partition, row, [Payload(f"d{row.seq}", b"x")], epoch=epoch)

    async with asyncio.timeout(30):
        await asyncio.gather(*map(write, partitions))

    assert {(await store.read_head(partition)).seq for partition in partitions} == {10}


@pytest.mark.proves("P5")
async def test_no_connection_of_ours_waits_for_ever(store, raw):
    await store.read_head(P)
    await written(store, Rows(header=b"h"))
    lines = [store._at.commits(P), *store._at.rows._all, *store._at.readers._all[-1:]]
    wanted = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    for line in lines:
        connection = await line._connected()
        for name in wanted:
            assert await connection.fetchval("select current_setting($1)", name) not in ("0", ""), name
    assert await (await lines[0]._connected()).fetchval("show synchronous_commit") == "on"


@pytest.mark.proves("P5")
async def test_whoever_holds_back_the_clearing_up_is_seen(store, raw):
    before = await store.horizon_age_ms()
    held = raw.transaction(isolation="repeatable_read")
    await held.start()
    await raw.fetch("select 1 from partitions")

    async def old():
        return await store.horizon_age_ms() >= before + 50

    await until(old)
    await held.rollback()

    async def young():
        return await store.horizon_age_ms() < 50

    await until(young)


class Recorder:
    """In place of the connections: which statements go where. Answers nothing."""

    def __init__(self) -> None:
        self.went = defaultdict(set)
        self.rows, self.writers, self.readers = (self._Place(self, name) for name in ("rows", "writers", "readers"))

    class _Place:
        def __init__(self, recorder, name) -> None:
            self.recorder, self.name = recorder, name

        async def open(self):
            pass

        def is_ready(self, _statement):
            return False

        async def fetch(self, statement, *_):
            self.recorder.went[self.name].add(statement)
            return []

        async def together(self, work, *_, **__):
            return await work(self)

        async def copy(self, table, *_):
            self.recorder.went[self.name].add(f"copy {table}")

    def commits(self, _partition):
        return self._Place(self, "commits")

    async def list(self, statement, *_):
        self.went["lists"].add(statement)
        return []


ASKED = {
    "open": None,
    "close": None,
    "establish_identity": {"cluster": "c", "partitions": 1},
    "read_routes": {},
    "put_route": {"route": Route("t", 1), "over": None},
    "add_inbox": {"rows": [InboxRow("i", 1, "t", b"")]},
    "read_inbox": {"partition": 1, "limit": 1},
    "drop_inbox": {"partition": 1, "ids": ["i"]},
    "claim": {"partition": 1, "owner": "n", "settings": b""},
    "read_head": {"partition": 1},
    "commit": {"partition": 1, "row": J[0], "payloads": [], "epoch": 1},
    "write_rows": {"partition": 1, "rows": Rows(runs=[run(1)]), "epoch": 1, "through": 0, "head": GENESIS},
    "load": {"partition": 1},
    "journal": {"partition": 1, "after": 0, "limit": 1},
    "seqs_at": {"partition": 1, "ticks": [1]},
    "read_index": {"partition": 1, "kind": 0, "subjects": (1, 1), "after": 0, "through": 1},
    "last_index": {"partition": 1, "kind": 0, "subject": 1, "through": 1},
    "read_payloads": {"digests": ["d"]},
    "find_runs": {"tenant": "t", "ids": ["i"], "keys": ["k"]},
    "list_runs": {"query": RunFilter("t")},
    "read_attempts": {"run": 1},
    "read_children": {"run": 1, "step": 1},
    "read_cache": {"keys": ["k"]},
    "read_definition": {"tenant": "t", "digest": "d"},
    "read_fates": {"tenant": "t", "schedule": "s", "from_ms": 0, "to_ms": 1, "limit": 1},
    "list_backfills": {"tenant": "t", "limit": 1},
    "add_log_chunks": {"chunks": [LogChunk(1, 1, 0, 0, 1, 1, "d", 1)]},
    "read_log_chunks": {"task": 1, "attempt": 1},
}
FOR_PEOPLE = {"list_runs", "read_fates", "list_backfills", "read_log_chunks"}


@pytest.mark.proves("P6")
async def test_only_lists_for_people_may_come_from_a_replica():
    """Every method of the port is asked; a new one fails here until somebody says where it reads."""
    own = dict(inspect.getmembers(Store, inspect.isfunction)).keys()
    beside = dict(inspect.getmembers(StoreMaintenance, inspect.isfunction)).keys()
    assert set(ASKED) == {name for name in own - beside if not name.startswith("_")}
    assert ".lists" not in inspect.getsource(upkeep), "upkeep decides what is deleted: it reads from the primary"
    for name, arguments in ASKED.items():
        if arguments is None:
            continue
        store = PostgresStore("postgresql://nowhere/x", replica_dsn="postgresql://elsewhere/x")
        store._opened = recorder = Recorder()
        with suppress(TickworkError, IndexError, ValueError):  # nothing is answered; where it was asked counts
            await getattr(store, name)(**arguments)

        assert recorder.went, name
        assert ("lists" in recorder.went) is (name in FOR_PEOPLE), name
        for statement in recorder.went["lists"]:
            assert not {"insert", "update", "delete", "for no key update"} & set(FILES.queries[statement].split())


@pytest.mark.proves("P6", "S001-167")
async def test_a_replica_is_asked_for_lists_and_may_be_away(made, postgres, schema, postgres_server):  # noqa: F811
    async with Proxy("127.0.0.1", postgres_server.port) as replica:
        store = await made(replica_dsn=through(replica))
        await store.claim(P, owner="n", settings=b"")
        await written(store, Rows(runs=[run(N + 1)]))
        seen = [len((await store.list_runs(RunFilter("acme"))).rows)]
        assert replica.accepted > 0, "it was the replica that answered"
        replica.refuse()
        replica.cut_all()
        seen.append(len((await store.list_runs(RunFilter("acme"))).rows))

        assert seen == [1, 1]


@pytest.mark.proves("P7")
async def test_a_head_that_was_read_before_the_last_commit_is_no_loss(store, monkeypatch):
    await committed(store, 2, epoch=1)
    readers, (third,) = store._at.readers, rows_of_journal(3)[2:]
    fetch = readers.fetch

    async def slow(name, *args):
        found = await fetch(name, *args)
        await store.commit(P, third, (), epoch=1)  # acknowledged while the answer is on its way
        return found

    monkeypatch.setattr(readers, "fetch", slow)
    head = await store.read_head(P)

    assert head.seq == 2


@pytest.mark.proves("P7", "F11")
@pytest.mark.parametrize(
    "loss",
    [
        "delete from journal where seq = 3",
        f"update partitions set epoch = 0, checksum = {of_epoch(P, 0, 'n1')}",
        "delete from journal where seq > 1",
    ],
)
async def test_a_database_that_lost_acknowledged_commits_is_refused(store, raw, loss):
    await committed(store, 3, epoch=1)
    await raw.execute(loss)

    with pytest.raises(StoreUnusable, match="lost commits"):
        await store.read_head(P)
    if "epoch" not in loss:
        with pytest.raises(StoreUnusable, match="lost commits"):
            await store.claim(P, owner="n2", settings=b"")


@pytest.mark.slow
@pytest.mark.proves("P8")
async def test_a_server_that_forgets_errors_of_its_disk_is_refused():
    with crashable_postgres("data_sync_retry=on") as server, pytest.raises(StoreUnusable, match="data_sync_retry"):
        await PostgresStore(server.dsn).open()


class Said(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("what the server said")
        self.sqlstate = sqlstate


@pytest.mark.proves("P2", "P8", "F10", "F12")
@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("08006", OutcomeUnknown), ("08007", OutcomeUnknown), ("40003", OutcomeUnknown), ("57P01", OutcomeUnknown),
        ("57P02", OutcomeUnknown), ("58030", OutcomeUnknown), ("XX000", OutcomeUnknown), ("", OutcomeUnknown),
        ("53100", StoreFull), ("40001", Unavailable), ("40P01", Unavailable), ("57014", Unavailable),
        ("55P03", Unavailable), ("53300", Unavailable), ("57P03", Unavailable), ("25006", Unavailable),
        ("23505", Corrupt), ("XX001", Corrupt), ("42P01", StoreUnusable),
    ],
)  # fmt: skip
def test_what_an_error_means_is_told_by_its_code(sqlstate, kind):
    assert type(troubles.explained(Said(sqlstate), "commit", changes=True)) is kind
    read = troubles.explained(Said(sqlstate), "read", changes=False)
    assert type(read) is (Unavailable if kind is OutcomeUnknown else kind)


# ---- outages


@pytest.mark.proves("F4", "F10")
async def test_an_outage_is_told_as_such_and_over_when_it_is_over(made, proxy):
    store = await made(through(proxy))
    await store.claim(P, owner="n1", settings=b"s")
    proxy.refuse()
    proxy.cut_all()

    for _ in range(2):
        with pytest.raises(Unavailable):
            await store.commit(P, J[0], [], epoch=1)
    with pytest.raises(Unavailable):
        await written(store, Rows(header=b"h"))
    with pytest.raises(Unavailable):
        await store.read_head(P)
    proxy.refuse(False)
    assert await store.read_head(P) == Head(1)
    await committed(store, 2, epoch=1)
    await written(store, Rows(header=b"h"))


@pytest.mark.proves("F8")
async def test_a_server_that_no_longer_answers_leaves_the_outcome_unknown(made, proxy):
    store = await made(through(proxy), commit_s=2.2)
    await store.claim(P, owner="n1", settings=b"s")
    await committed(store, 1, epoch=1)
    proxy.be_silent()
    with pytest.raises(OutcomeUnknown):
        await store.commit(P, J[1], [], epoch=1)
    proxy.be_silent(False)

    assert (await store.read_head(P)).seq == 2


@pytest.mark.proves("F10")
async def test_a_connection_that_an_operator_ends_comes_back(store, raw):
    await committed(store, 1, epoch=1)
    await raw.fetch("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tickwork'")

    async def again():
        try:
            await store.commit(P, J[1], [], epoch=1)
        except Unavailable:
            return False
        return True

    await until(again)
    assert (await store.read_head(P)).seq == 2


async def test_a_cancelled_commit_does_not_spoil_the_next(store, raw):
    lock = raw.transaction()
    await lock.start()
    await raw.execute("select 1 from partitions for update")
    task = asyncio.ensure_future(store.commit(P, J[0], [], epoch=1))
    await until(lambda: raw.fetchval("select count(*) from pg_locks where not granted"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await lock.rollback()
    head = await store.read_head(P)
    await committed(store, 2, epoch=1)

    assert head.seq in (0, 1)  # the server may have gone on with it


async def test_a_commit_that_is_cancelled_as_soon_as_it_has_begun_does_not_spoil_the_next(store):
    await committed(store, 1, epoch=1)
    committing = store.commit(P, J[1], [], epoch=1)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    head = await store.read_head(P)
    await committed(store, 3, epoch=1)

    assert head.seq in (1, 2)


# ---- a coroutine that has begun


async def test_the_first_step_is_taken_at_once_and_the_others_in_their_time():
    steps, go_on = [], asyncio.Event()

    async def deed():
        steps.append("sent")
        await go_on.wait()
        steps.append("answered")
        return 7

    doing = begun(deed())

    assert steps == ["sent"]
    go_on.set()
    assert (await doing, steps) == (7, ["sent", "answered"])


async def test_what_ends_in_its_first_step_has_ended():
    async def well():
        return 7

    async def badly():
        raise Unavailable("no", retry_after_ms=0)

    assert begun(well()).result() == 7
    with pytest.raises(Unavailable):
        await begun(badly())


@pytest.mark.parametrize("turns", [0, 1])  # of the loop, before it is cancelled
async def test_what_has_begun_hears_that_it_is_cancelled(turns):
    ends = []

    async def deed():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append(1)

    doing = begun(deed())
    for _ in range(turns):
        await asyncio.sleep(0)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing
    await asyncio.sleep(0)

    assert ends == [1]


# ---- a server that is killed


@pytest.mark.slow
@pytest.mark.proves("F1", "P2", "I12")
async def test_what_was_acknowledged_survives_a_killed_server():
    with crashable_postgres() as server:
        store = PostgresStore(server.dsn)
        await store.open()
        await store.claim(P, owner="n1", settings=b"s")
        rows, acknowledged = rows_of_journal(2_000), 0

        async def write():
            nonlocal acknowledged
            for row in rows:
                await store.commit(P, row, [], epoch=1)
                acknowledged = row.seq

        writing = asyncio.create_task(write())

        async def some():
            return acknowledged > 50

        await until(some)
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        with pytest.raises(Unavailable):
            await writing
        await asyncio.to_thread(server.start)
        head = await store.read_head(P)

        assert acknowledged <= head.seq <= acknowledged + 1
        assert await store.journal(P, after=0, limit=3_000) == rows[: head.seq]
        await store.commit(P, rows[head.seq], [], epoch=1)
        await store.close()


# ---- taking turns


@pytest.mark.proves("I1", "I3")
async def test_a_claim_waits_for_a_commit_that_is_under_way_and_knows_of_it(store, made, raw):
    other = await made()
    commit = raw.transaction()
    await commit.start()
    row = J[0]
    assert await raw.fetch(FILES.queries["commit"], P, 1, row.seq, row.tick, row.hash, row.data)
    claiming = asyncio.create_task(other.claim(P, owner="n2", settings=b""))
    await until(lambda: raw.fetchval("select count(*) from pg_locks where not granted"))
    await commit.commit()

    assert await claiming == Head(2, 1, row.tick, row.hash)
    with pytest.raises(Fenced):
        await store.commit(P, J[1], [], epoch=1)


@pytest.mark.proves("I1")
async def test_a_commit_that_waited_for_a_claim_is_fenced(store, raw):
    claim = raw.transaction()
    await claim.start()
    await raw.execute("update partitions set epoch = epoch + 1")
    committing = asyncio.ensure_future(store.commit(P, J[0], [payload(b"x")], epoch=1))
    await until(lambda: raw.fetchval("select count(*) from pg_locks where not granted"))
    await claim.commit()

    with pytest.raises(Fenced):
        await committing
    assert await store.read_payloads([X]) == {}


async def test_commits_do_not_wait_for_rows_that_are_being_written(store, raw):
    rows = raw.transaction()
    await rows.start()
    await raw.execute("update watermarks set watermark = 0")
    async with asyncio.timeout(2):
        await committed(store, 3, epoch=1)
    await rows.rollback()

    assert (await store.read_head(P)).seq == 3


async def test_a_journal_that_was_cut_off_goes_on_from_there(store, raw):
    await committed(store, 4, epoch=1)
    await written(store, Rows(header=b"h"), through=4)
    row = J[3]
    await raw.execute("update partitions set seq = $1, tick = $2, hash = $3", row.seq, row.tick, row.hash)
    await raw.execute("delete from journal")

    assert await store.read_head(P) == Head(1, 4, row.tick, row.hash, 4)
    with pytest.raises(Fenced):
        await store.commit(P, J[0], [], epoch=1)
    await written(store, Rows(header=b"h2"), through=4)
    await committed(store, 2, epoch=1)
    assert (await store.load(P)).tail == J[4:6]


# ---- opening


async def test_schema_and_migrations_make_the_same_database(raw, schema):  # noqa: F811
    shapes = []
    for name, texts in (("a", [FILES.schema]), ("b", [one.sql for one in FILES.migrations])):
        await raw.execute(f"create schema {schema}_{name}; set search_path = {schema}_{name}")
        for text in texts:
            await raw.execute(text)
        shapes.append(await shape(raw, f"{schema}_{name}"))

    assert shapes[0] == shapes[1]
    assert len(shapes[0]["columns"]) > 50 and len(shapes[0]["indexes"]) > 15


async def shape(raw, name):
    """What a schema holds, without its name and without the order of columns."""
    asked = {
        "columns": """select table_name, column_name, data_type, collation_name, is_nullable, is_identity
                        from information_schema.columns where table_schema = $1""",
        "indexes": "select indexdef from pg_indexes where schemaname = $1",
        "functions": "select pg_get_functiondef(oid) from pg_proc where pronamespace = $1::regnamespace",
        "options": "select relname, reloptions from pg_class where relnamespace = $1::regnamespace and relkind = 'r'",
        "storage": """select relname, attname, attstorage from pg_attribute join pg_class c on c.oid = attrelid
                       where relnamespace = $1::regnamespace and attnum > 0""",
    }
    return {
        kind: sorted(str(tuple(row)).replace(name, "") for row in await raw.fetch(text, name))
        for kind, text in asked.items()
    }


async def test_nodes_that_start_at_once_make_the_schema_once(postgres, schema):  # noqa: F811
    stores = [PostgresStore(postgres, schema=schema) for _ in range(12)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))
    connection = await asyncpg.connect(postgres)
    numbers = await connection.fetch(f"select number from {schema}.migrations order by number")
    await connection.close()

    assert [number for (number,) in numbers] == [one.number for one in FILES.migrations]


async def test_an_older_schema_is_brought_up_to_date(postgres, schema):  # noqa: F811
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"create schema {schema}; set search_path = {schema}")
    await connection.execute(FILES.migrations[0].sql)
    await connection.execute("insert into migrations (number, name) values (1, 'first')")
    await connection.close()
    store = PostgresStore(postgres, schema=schema)
    await store.open()
    await store.claim(P, owner="n", settings=b"")
    await written(store, Rows(header=b"h", schedules=[(N + 1, b"s")]))

    assert (await store.load(P)).schedules == [b"s"]
    await store.close()


@pytest.mark.parametrize(
    ("version", "old"),
    [(4, "insert into runs (number) values (1)"), (5, "insert into run_clues values (-7, 0)")],
)
async def test_ended_runs_of_an_older_program_are_left_to_it(postgres, schema, version, old):  # noqa: F811
    connection = await asyncpg.connect(postgres)
    await connection.execute(f"create schema {schema}; set search_path = {schema}")
    for migration in FILES.migrations[:version]:
        await connection.execute(migration.sql)
        await connection.execute(f"insert into migrations (number, name) values ({migration.number}, 'x')")
    required = "select attname from pg_attribute where attrelid = 'runs'::regclass and attnotnull and attnum > 0"
    for (column,) in await connection.fetch(required) if version == 4 else []:
        if column != "number":
            await connection.execute(f"alter table runs alter column {column} drop not null")
    await connection.execute(old)
    store = PostgresStore(postgres, schema=schema)

    with pytest.raises(StoreUnusable, match="make a backup with that"):
        await store.open()
    assert await connection.fetchval("select max(number) from migrations") == version
    await connection.execute("delete from runs" if version == 4 else "delete from run_clues")
    await connection.close()
    await store.open()
    await store.close()


async def test_a_newer_schema_is_left_alone(store, raw, made):
    await raw.execute("insert into migrations (number, name) values (99, 'later')")

    with pytest.raises(StoreUnusable, match=r"version 99.*newer program"):
        await made()


async def test_a_schema_of_another_program_is_left_alone(raw, schema):  # noqa: F811
    await raw.execute(f"create schema {schema}_other; create table {schema}_other.theirs (x int)")

    with pytest.raises(StoreUnusable, match="another program"):
        await PostgresStore("postgresql://" + raw_address(raw), schema=f"{schema}_other").open()


def raw_address(raw) -> str:
    host, port = raw._addr
    return f"postgres@{host}:{port}/postgres"


@pytest.mark.parametrize(
    ("dsn", "kind", "words"),
    [
        ("postgresql://127.0.0.1:1/none", Unavailable, "cannot be reached"),
        ("postgresql://postgres@HERE/nodatabase", StoreUnusable, "nodatabase"),
        ("mysql://x/y", StoreUnusable, "postgresql://"),
    ],
)
async def test_a_wrong_address_is_told(postgres_server, dsn, kind, words):  # noqa: F811
    with pytest.raises(kind, match=words):
        await PostgresStore(dsn.replace("HERE", f"127.0.0.1:{postgres_server.port}")).open()


async def test_a_missing_library_is_told_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(StoreUnusable, match=r"tickwork\[postgres\]"):
        await PostgresStore("postgresql://127.0.0.1:1/none").open()


def test_messages_never_hold_a_password():
    told = address("postgresql://ann:secret@db:5433/x?pgbouncer=1&sslmode=require", schema="tickwork")

    assert (told.where, told.pgbouncer) == ("db:5433/x", True)
    assert "pgbouncer" not in told.dsn and "sslmode=require" in told.dsn


async def test_errors_of_users_may_hold_any_character(store):
    row = run(N + 1, error="zero \0 and ümlaut")
    await written(store, Rows(runs=[row]))

    assert await store.find_runs("acme", ids=["run-1"]) == [row]


async def test_a_payload_with_one_flipped_bit_is_not_handed_out(store, raw):
    await store.commit(P, J[0], [payload(b"x")], epoch=1)
    await raw.execute("update payloads set data = 'y'")

    with pytest.raises(Corrupt, match=f"the payload {X} was damaged"):
        await store.read_payloads([X])
