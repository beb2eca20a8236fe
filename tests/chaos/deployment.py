"""The cluster that is disturbed: a private PostgreSQL that syncs, nodes and workers, and a wire on every way between.

Each node reaches the database over a wire of its own, and the other nodes reach it over another, so that either can be
cut for one node alone. Workers and clients reach nodes directly.
"""

import asyncio
import contextlib
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import nats

from chaos.load import Load
from chaos.programs import Program
from chaos.wire import Wire
from servers import PostgresServer, free_port
from servers_brokers import Nats
from tickwork.ports.store import RunRow
from tickwork.stores.run_blocks import rows_of

LEASE_TTL_S = 3.0
PARTITIONS = 6
DATABASE_S = 60.0
LANE = "chaos"
UNTAKEN_S = 5  # then a dispatch that the broker lost is sent again


class Node:
    def __init__(self, program: Program, port: int, database: Wire, peers: Wire) -> None:
        self.program, self.port, self.database, self.peers = program, port, database, peers
        self.name = program.name
        self.url = f"http://127.0.0.1:{port}"


class Stage:
    def __init__(self, folder: Path, database_at: Path | None, *, wires: bool) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.postgres = PostgresServer(fsync=True, place=database_at)
        self.broker: Nats | None = None
        self.load: Load | None = None  # of whoever disturbs it, for faults that are made of work
        self.bank_down = folder / "bank-down"
        self.partitions = 0
        self.nodes: list[Node] = []
        self.workers: list[Program] = []
        self._wired = wires
        self._wires = contextlib.AsyncExitStack()

    async def build(self, *, nodes: int, workers: int, partitions: int, broker: bool) -> None:
        self.partitions = partitions
        shutil.copy(Path(__file__).with_name("app.py"), self.folder / "chaos_app.py")
        self.ledger.touch()
        await asyncio.to_thread(self.postgres.start)
        if broker:
            (self.folder / "nats").mkdir()
            self.broker = Nats(self.folder / "nats")
            await asyncio.to_thread(self.broker.start)
        for number in range(1, nodes + 1):
            await self._add_node(f"n{number}", partitions)
        for node in self.nodes:
            node.program.start()
        await asyncio.gather(*(node.program.until_ready() for node in self.nodes))
        for number in range(workers):
            urls = [node.url for node in self.nodes]
            turn = number % len(urls)
            self.workers.append(self._worker(f"w{number + 1}", [*urls[turn:], *urls[:turn]]))
        for worker in self.workers:
            worker.start()
        await asyncio.gather(*(worker.until_ready() for worker in self.workers))

    async def _add_node(self, name: str, partitions: int) -> None:
        port = free_port()
        database = await self._wires.enter_async_context(Wire(self.postgres.port))
        peers = await self._wires.enter_async_context(Wire(port))
        store = f"postgresql://postgres@127.0.0.1:{database.port if self._wired else self.postgres.port}/postgres"
        reached = peers.port if self._wired else port
        words = ["server", "--store", store, "--node", name, "--port", str(port), "--data", str(self.folder / name)]
        words += ["--advertise", f"http://127.0.0.1:{reached}", "--partitions", str(partitions)]
        words += ["--lease-ttl", f"{LEASE_TTL_S:g}s"]
        self.nodes.append(Node(Program(name, words, self.folder, self._lane()), port, database, peers))

    def _lane(self) -> dict[str, str]:
        """What comes from the queue `carried` goes by the broker, everything else by the exchange."""
        if self.broker is None:
            return {}
        told = {"LANE": self.broker.url(LANE), "LANE_QUEUES": "carried", "LANE_UNTAKEN_S": str(UNTAKEN_S)}
        return {f"TICKWORK_{name}": value for name, value in told.items()}

    def _worker(self, name: str, urls: list[str]) -> Program:
        words = ["worker", "chaos_app.py", "--name", name, "--url", ",".join(urls), "--processes", "1"]
        return Program(name, [*words, "--queues", "default,carried"], self.folder, self._lane())

    # ---- the database

    async def stop_database(self, number: int = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: at once, as in a crash."""
        process = self.postgres.process
        assert process is not None
        process.send_signal(number)
        await asyncio.to_thread(process.wait, DATABASE_S)
        self.postgres.process = None

    async def start_database(self) -> None:
        await asyncio.to_thread(self.postgres.start)

    @property
    def database_alive(self) -> bool:
        if self.postgres.process is not None and self.postgres.process.poll() is not None:
            self.postgres.process = None
        return self.postgres.process is not None

    async def ask_database(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """Past all wires, without a line of the product."""
        connection = await asyncpg.connect(self.postgres.dsn, timeout=10)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    # ---- the broker

    async def lose_stream(self) -> None:
        """With everything that is on it."""
        assert self.broker is not None
        client = await nats.connect(f"nats://127.0.0.1:{self.broker.port}")
        try:
            await client.jetstream().delete_stream(f"{LANE}-work")
        finally:
            await client.close()

    # ---- what the cluster says

    async def owners(self) -> dict[int, str]:
        """By the rows of leases; a partition that nobody holds is left out."""
        rows = await self.ask_database("select partition_id, node from tickwork.leases where until > clock_timestamp()")
        return {row["partition_id"]: row["node"] for row in rows}

    async def until_settled(self, *, seconds: float = 30.0) -> None:
        """Every partition has an owner, every node has some, and so it stays for a moment."""
        before: dict[int, str] = {}
        async with asyncio.timeout(seconds):
            while True:
                owners = await self.owners()
                all_owned = len(owners) == self.partitions and len(set(owners.values())) == len(self.nodes)
                if all_owned and owners == before:
                    return
                before = owners if all_owned else {}
                await asyncio.sleep(0.5)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def words(self) -> dict[str, str]:
        """What each program said last, for whoever asks why."""
        return {one.name: one.said[-1500:] for one in [*(node.program for node in self.nodes), *self.workers]}

    async def close(self) -> None:
        for program in [*self.workers, *(node.program for node in self.nodes)]:
            program.end()
        await self._wires.aclose()
        if self.broker is not None:
            self.broker.kill()
        if self.postgres.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await self.stop_database(signal.SIGQUIT)
        self.postgres.remove()


async def ended_runs(stage: Stage) -> list[RunRow]:
    blocks = await stage.ask_database("select data from tickwork.run_blocks")
    return [row for (data,) in blocks for row in rows_of(data)]


@contextlib.asynccontextmanager
async def staged(
    folder: Path,
    *,
    nodes: int = 3,
    workers: int = 4,
    partitions: int = PARTITIONS,
    database_at: Path | None = None,
    broker: bool = False,
    wires: bool = True,
) -> AsyncIterator[Stage]:
    """`database_at`: where the database keeps its files, if not with the others of its kind. Without `wires` nodes
    reach each other and the database directly, for measuring: a wire takes its time."""
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(folder, database_at, wires=wires)
    try:
        await stage.build(nodes=nodes, workers=workers, partitions=partitions, broker=broker)
        yield stage
    finally:
        await stage.close()
