"""A node of a cluster as a process: store, leases, engines, API. And one server of several such processes."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from tickwork.api.app import make_app
from tickwork.api.server import HttpServer, listen
from tickwork.cluster.hosted_engines import EngineCompanion
from tickwork.cluster.node import Node, member_of
from tickwork.cluster.peers import HttpPeers
from tickwork.compose.auditing import ClusterAuditor, Companions, EngineAuditor, holding, keeping
from tickwork.compose.brokers import carrying
from tickwork.compose.settings import KEY_START, PREFIX, BadSettings, Settings, duration_setting, how_long
from tickwork.compose.starting import check_start
from tickwork.compose.webhooks import webhooks_of
from tickwork.compose.worker_process import PARENT
from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.core.state.state import Settings as MachineSettings
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.leases import Leases
from tickwork.ports.store import HasTime, HasWarnings, Store
from tickwork.runtime.alarms import Alarm
from tickwork.runtime.engine import Engine
from tickwork.stores.leases.mirrored import MirroredLeases
from tickwork.system.clock import SystemClock, SystemIds, SystemProcesses
from tickwork.system.time_reference import StoreTime
from tickwork.system.zone_data import load_zones

PARTITIONS_MAX = 512
TTL_MS_MIN = 1_000
AGAIN_S, AGAIN_S_MAX = 0.5, 10.0
SHARED = f"{PREFIX}PROCESS"  # of one of several processes: which one it is
ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - to find it, not to bind to it


@runtime_checkable
class Closable(Protocol):
    async def close(self) -> None: ...


def make_stores(settings: Settings) -> tuple[Store, Leases, Artifacts]:
    scheme = urlsplit(settings.store).scheme
    if scheme not in ("postgres", "postgresql"):
        raise BadSettings(
            "bad_setting", f"{scheme or 'that'} is not a scheme of a store; use postgresql://…", path="store"
        )
    from tickwork.stores.postgres.artifacts import PostgresArtifacts
    from tickwork.stores.postgres.leases import PostgresLeases
    from tickwork.stores.postgres.store import PostgresStore

    store = PostgresStore(settings.store, replica_dsn=settings.replica)
    stored = PostgresLeases(settings.store)
    chosen: Leases
    match urlsplit(settings.leases).scheme:
        case "":
            return store, stored, PostgresArtifacts(settings.store)
        case "redis" | "rediss":
            from tickwork.stores.leases.redis import RedisLeases

            chosen = RedisLeases(settings.leases)
        case "etcd" | "http" | "https":
            from tickwork.stores.leases.etcd import EtcdLeases

            chosen = EtcdLeases(settings.leases.replace("etcd://", "http://"))
        case other:
            raise BadSettings("bad_setting", f"{other} is unknown; use redis:// or etcd://", path="leases")
    return store, MirroredLeases(chosen, stored), PostgresArtifacts(settings.store)


def make_node(settings: Settings, address: str, attend: Callable[[Engine], EngineCompanion] | None = None) -> Node:
    ttl_ms, retry_ms = duration_setting(settings, "lease_ttl"), duration_setting(settings, "lease_retry")
    if ttl_ms < TTL_MS_MIN:
        raise BadSettings(
            "bad_setting", "must be at least 1s, so that a short overload does not lose the lease", path="lease_ttl"
        )
    if not 1 <= settings.partitions <= PARTITIONS_MAX:
        raise BadSettings("bad_setting", f"1 to {PARTITIONS_MAX}", path="partitions")
    if settings.role not in ("all", "api"):
        raise BadSettings("bad_setting", "all or api", path="role")
    clock, ids, zones = SystemClock(), SystemIds(), load_zones()
    check_start(settings, clock)
    store, leases, artifacts = make_stores(settings)
    keep = how_long(settings)
    which = f"-{os.environ[SHARED]}" if SHARED in os.environ else ""
    node = (settings.node_name or f"{socket.gethostname()}-{settings.port or urlsplit(address).port}") + which

    def make_engine(number: int) -> Engine:
        return Engine(
            store=store,
            artifacts=artifacts,
            clock=clock,
            ids=ids,
            processes=SystemProcesses(),
            owner=node,
            settings=MachineSettings(
                clock=LogicalClock(clock.wall_ms(), settings.resolution_ms), **settings.of_machine()
            ),
            configured=settings.of_machine(),
            own_process=True,
            zones=zones,
            catch_up=settings.catch_up,
            keep=keep,
            reference=StoreTime(store) if isinstance(store, HasTime) else None,
            clock_hold_ms=duration_setting(settings, "clock_hold"),
            number=number,
            shared=True,
        )

    made = Node(
        store=store,
        leases=leases,
        peers=HttpPeers(token=settings.token),
        clock=clock,
        ids=ids,
        artifacts=artifacts,
        zones=zones,
        member=member_of(
            session=f"{node}~{secrets.token_hex(6)}",
            node=node,
            address=address,
            started_ms=clock.wall_ms(),
            engine=settings.role == "all",
        ),
        make_engine=make_engine,
        cluster=secrets.token_hex(12),
        partitions=settings.partitions,
        ttl_ms=ttl_ms,
        retry_ms=retry_ms,
        attend=attend,
    )
    if isinstance(leases, MirroredLeases):
        leases.on_alarm = made.alarms.add
    return made


@contextlib.asynccontextmanager
async def serving_node(
    settings: Settings, *, on_alarm: Callable[[Alarm], None] = lambda _: None
) -> AsyncIterator[tuple[Node, HttpServer]]:
    """A node that answers on its port, until the block ends. As one process of several it shares that port, and has
    one of its own for the other nodes."""
    async with carrying(settings) as keeper_of, _serving_node(settings, keeper_of, on_alarm) as serving:
        yield serving


def _attending(
    settings: Settings, keeper_of: Callable[[Engine], EngineCompanion] | None
) -> Callable[[Engine], EngineCompanion] | None:
    if not settings.audit:
        return keeper_of
    keep = keeping(settings.folder)
    return lambda engine: Companions([*([keeper_of(engine)] if keeper_of else []), EngineAuditor(engine, keep)])


@contextlib.asynccontextmanager
async def _serving_node(
    settings: Settings, keeper_of: Callable[[Engine], EngineCompanion] | None, on_alarm: Callable[[Alarm], None]
) -> AsyncIterator[tuple[Node, HttpServer]]:
    webhooks = webhooks_of(settings)
    shared = SHARED in os.environ
    listener = listen(settings.host, settings.port, shared=shared)
    inner = listen(settings.host, 0) if shared else None
    try:
        node = make_node(settings, _address(settings, inner or listener), _attending(settings, keeper_of))
        node.alarms.on_alarm = on_alarm  # from the beginning: a partition that cannot be owned raises one alarm
        app = make_app(node, token=settings.token or None, webhooks=webhooks)
        server = HttpServer(app, node, host=settings.host, port=settings.port, listener=listener, inner=inner)
        await node.start()
        if isinstance(node.store, HasWarnings) and node.store.notes:
            node.alarms.add("store_risk", "; ".join(node.store.notes))
    except BaseException:
        for open_socket in filter(None, (listener, inner)):
            open_socket.close()
        raise
    standby = None
    try:
        await server.start()
        if settings.audit and not node.member.engine:
            hold = holding(app.state.ways.ask)
            standby = ClusterAuditor(
                node, hold=hold, keep=keeping(settings.folder), zones=load_zones(), clock=SystemClock()
            )
            standby.start()
        yield node, server
    finally:
        if standby is not None:
            await standby.close()
        await node.hand_over()  # while it still responds: no call waits longer than a partition takes to move
        await server.stop()
        await node.stop()
        if isinstance(node.artifacts, Closable):
            await node.artifacts.close()


def _address(settings: Settings, sock: socket.socket) -> str:
    port = sock.getsockname()[1]
    if settings.advertise:
        parts = urlsplit(settings.advertise)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSettings("bad_setting", "an address such as http://10.0.0.5:8440", path="advertise")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        own = SHARED in os.environ  # the port of several processes is not that of one of them
        return f"{parts.scheme}://{host}:{port if own else parts.port or port}"
    if settings.host in ANYWHERE:
        message = "set the address at which other nodes reach this one, such as http://10.0.0.5:8440"
        raise BadSettings("bad_setting", message, path="advertise")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"


# ---- one server of several processes


class NodeProcesses:
    """`count` nodes on one port. One that dies is started again; a signal goes to all."""

    def __init__(self, command: list[str], count: int, *, env: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._command, self._env, self._tell = command, dict(env), tell
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        self._again_s = [AGAIN_S] * count
        self._due_s = [0.0] * count
        self._ending = False
        self._code = 0

    def run(self) -> int:
        """Until all have ended: 0, or what a process said that could not start as set."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        while True:
            if not self._ending:
                self._start_due()
            time.sleep(0.05)
            self._look()
            if self._ending and not any(self._children):
                return self._code

    def _start_due(self) -> None:
        for index, child in enumerate(self._children):
            if child is None and time.monotonic() >= self._due_s[index]:
                env = self._env | {SHARED: str(index + 1)}
                self._children[index] = subprocess.Popen(self._command, env=env, start_new_session=True)  # noqa: S603
                self._due_s[index] = time.monotonic() + AGAIN_S_MAX

    def _look(self) -> None:
        for index, child in enumerate(self._children):
            code = child.poll() if child is not None else None
            if code is None:
                continue
            self._children[index] = None
            if self._ending:
                continue
            if code == 78:  # a setting is wrong: trying again cannot help
                self._tell("a process could not start with these settings")
                self._code = code
                self._end()
                continue
            lived = time.monotonic() - (self._due_s[index] - AGAIN_S_MAX) > AGAIN_S_MAX
            self._again_s[index] = AGAIN_S if lived else min(2 * self._again_s[index], AGAIN_S_MAX)
            self._due_s[index] = time.monotonic() + self._again_s[index]
            self._tell(f"process {index + 1} ended with {code}; it is started again")

    def _end(self, *_: object) -> None:
        self._ending = True
        for child in self._children:
            if child is not None:
                child.terminate()


def child_environment(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """Settings go as variables, so that no password is an argument. Those with their default go too: a process may
    find another value in a file here, which this one must not take."""
    variables = {
        f"{PREFIX}{name.upper()}": "" if value is None else str(value)
        for name, value in msgspec.structs.asdict(settings).items()
    }
    kept = (f"{PREFIX}DEBUG", PREFIX + KEY_START.upper())
    left = {name: value for name, value in env.items() if not name.startswith(PREFIX) or name.startswith(kept)}
    return {**left, **variables, f"{PREFIX}SERVER_PROCESSES": "1", PARENT: str(os.getpid())}


def command_of() -> list[str]:
    return [sys.executable, "-m", "tickwork", "server"]
