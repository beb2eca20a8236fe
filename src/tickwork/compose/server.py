"""The server process: store, engine, API."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable

from tickwork.api.app import make_app
from tickwork.api.server import HttpServer
from tickwork.cluster.node import Node
from tickwork.compose.alarms import AlarmLog
from tickwork.compose.auditing import keeping
from tickwork.compose.brokers import carrying
from tickwork.compose.cluster import serving_node
from tickwork.compose.local_protection import announced, protected
from tickwork.compose.settings import Settings, duration_setting, how_long
from tickwork.compose.starting import check_start
from tickwork.compose.webhooks import webhooks_of
from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.core.state.state import Settings as MachineSettings
from tickwork.runtime.engine import Engine
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.stores.sqlite.writer.transactions import Failpoints
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds, SystemProcesses
from tickwork.system.time_reference import BootTime
from tickwork.system.zone_data import load_zones

DATABASE = "tickwork.db"
ARTIFACTS = "artifacts"
CLOCK = "clock"  # when this machine's boot clock was last compared with real time


def make_engine(
    settings: Settings, *, own_process: bool, failpoints: Failpoints | None = None, upgrade: bool = True
) -> Engine:
    """`failpoints` are for crash tests: what they name is called at each durable step. Without `upgrade` an older store
    is refused: for who only reads."""
    clock = SystemClock()
    check_start(settings, clock)
    folder = settings.folder
    return Engine(
        store=SqliteStore(
            folder / DATABASE, failpoints=failpoints, apart=own_process and not failpoints, upgrade=upgrade
        ),
        artifacts=FolderArtifacts(folder / ARTIFACTS),
        clock=clock,
        ids=SystemIds(),
        processes=SystemProcesses(),
        owner=f"{socket.gethostname()}-{os.getpid()}",
        settings=MachineSettings(clock=LogicalClock(clock.wall_ms(), settings.resolution_ms), **settings.of_machine()),
        configured=settings.of_machine(),
        own_process=own_process,
        zones=load_zones(),
        catch_up=settings.catch_up,
        keep=how_long(settings),
        reference=BootTime(folder / CLOCK),
        clock_hold_ms=duration_setting(settings, "clock_hold"),
    )


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, *, own_process: bool = True, failpoints: Failpoints | None = None
) -> AsyncIterator[tuple[Engine, HttpServer]]:
    """An engine that answers on its port, until the block ends."""
    webhooks = webhooks_of(settings)
    engine = make_engine(settings, own_process=own_process, failpoints=failpoints)
    app = make_app(engine, token=settings.token or None, webhooks=webhooks)
    server = HttpServer(app, engine, host=settings.host, port=settings.port)
    async with carrying(settings) as keeper_of:
        await engine.start()
        keeper = keeper_of(engine) if keeper_of is not None else None
        try:
            if settings.audit:
                await engine.maintenance.audit(keeping(settings.folder))
            await server.start()
            if keeper is not None:
                keeper.start()
            yield engine, server
        finally:
            if keeper is not None:
                await keeper.close()
            await server.stop()
            await engine.stop()


@contextlib.asynccontextmanager
async def looking(settings: Settings) -> AsyncIterator[HttpServer]:
    """What a data folder holds, answered for until the block ends; nothing in it goes on meanwhile."""
    engine = make_engine(settings, own_process=False, upgrade=False)
    server = HttpServer(make_app(engine, token=settings.token or None), engine, host=settings.host, port=settings.port)
    await engine.open_read_only()
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        await engine.stop()


async def serve(settings: Settings, *, ready: Callable[[Engine, str], None]) -> None:
    """Until SIGTERM or SIGINT, or until the engine cannot go on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    own_settings = protected(settings)
    async with serving(own_settings) as (engine, server):
        with announced(settings, own_settings, server.bound, tell=_tell):
            engine.context.alarms.on_alarm = AlarmLog(_tell)
            ready(engine, server.address)
            _tell_link(server)
            await until(stop, engine)


async def serve_node(settings: Settings, *, ready: Callable[[Node, str], None]) -> None:
    """One node of a cluster, until SIGTERM or SIGINT. What fails in one partition ends nothing else."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    own_settings = protected(settings)
    async with serving_node(own_settings, on_alarm=AlarmLog(_tell)) as (node, server):
        with announced(settings, own_settings, server.bound, tell=_tell):
            ready(node, server.address)
            _tell_link(server)
            await stop.wait()


def _tell_link(server: HttpServer) -> None:
    """To a person who looks, and into no log."""
    if sys.stderr.isatty() and (link := server.link()) != server.address:
        _tell(f"single-use link for a browser (tickwork page prints another): {link}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def until(stop: asyncio.Event, engine: Engine) -> None:
    """End the process, because a failed partition serves no requests; its supervisor starts it again."""
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await stop.wait()
        failed = engine.context.partition.failed if engine.context.partition is not None else None
        if failed is not None:
            raise failed
