"""Flags that several commands share, and what they create: settings, clients, private servers."""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tickwork.compose.ephemeral_server import EphemeralServer
    from tickwork.compose.settings import Settings
    from tickwork.sdk.client.client import Client

File = str | Path  # always text; the second type makes shells complete file names
DEADLINE_S = 3.0
REACH_S = 0.2  # to find out whether a server is running
Count = Annotated[int, Parameter(validator=Number(gte=1))]


@Parameter(name="*")
@dataclass(frozen=True)
class ServerOptions:
    """Data folder and address of a server."""

    data: str | None = None
    "Folder for the database and artifacts (TICKWORK_DATA; .tickwork)."
    host: str | None = None
    "Address to listen on (TICKWORK_HOST; 127.0.0.1). Any address beyond loopback needs TICKWORK_TOKEN."
    port: int | None = None
    "Port to listen on (TICKWORK_PORT; 8440); 0 picks a free one."
    catch_up: str | None = None
    """What happens to occurrences that are late at this start, instead of the policies of their schedules: none, last,
    all, coalesce, window:6h or spread:30m (TICKWORK_CATCH_UP). tickwork catchup --preview shows the effect."""

    def flags(self) -> dict[str, object]:
        return {"data": self.data, "host": self.host, "port": self.port, "catch_up": self.catch_up}


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterOptions:
    """A server as one of several."""

    store: str | None = None
    "Database shared by all nodes: postgresql://… (TICKWORK_STORE; SQLite in the data folder)."
    node: str | None = None
    "Permanent name of the node (TICKWORK_NODE_NAME; made from host and port)."
    advertise: str | None = None
    "Address at which other nodes reach this node (TICKWORK_ADVERTISE; host and port)."
    role: str | None = None
    "all, or api: answers and forwards, but owns no partition (TICKWORK_ROLE; all)."
    processes: int | None = None
    "Processes on this port, each a node (TICKWORK_SERVER_PROCESSES; 1)."
    partitions: int | None = None
    "Partitions of a new cluster (TICKWORK_PARTITIONS; 8)."
    leases: str | None = None
    "Where leases are stored: redis://… or etcd://… (TICKWORK_LEASES; in the store)."
    lease_ttl: str | None = None
    "How long a silent node keeps its partitions (TICKWORK_LEASE_TTL; 10s)."

    def flags(self) -> dict[str, object]:
        return {
            "store": self.store,
            "node_name": self.node,
            "advertise": self.advertise,
            "role": self.role,
            "server_processes": self.processes,
            "partitions": self.partitions,
            "leases": self.leases,
            "lease_ttl": self.lease_ttl,
        }


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """Queues, labels and resources of a worker."""

    queues: str | None = None
    "Queues to serve, comma-separated (TICKWORK_QUEUES; default)."
    labels: str | None = None
    "Labels of the worker, as a=b,c=d (TICKWORK_LABELS)."
    resources: str | None = None
    "Resources for tasks, as cpu=4,memory=16GB,gpu=1 (TICKWORK_RESOURCES; cpu and memory are detected, gpu is 0)."
    processes: int | None = None
    "Processes that run tasks (TICKWORK_PROCESSES; one per core, at least two)."
    threads: int | None = None
    "Concurrent tasks in threads (TICKWORK_THREADS; 16)."
    coroutines: int | None = None
    "Concurrent asynchronous tasks (TICKWORK_COROUTINES; 64)."
    parked: int | None = None
    "Suspended durable functions to keep in memory (TICKWORK_PARKED; 1000)."
    memory_mb: int | None = None
    "Memory limit of each process that runs tasks (TICKWORK_MEMORY_MB; none)."
    pass_env: str | None = None
    "Environment variables to pass to tasks, comma-separated: DATABASE_URL,AWS_* (TICKWORK_PASS_ENV; none)."
    allow_networks: str | None = None
    "Networks that requests may reach besides public addresses, comma-separated (TICKWORK_ALLOW_NETWORKS; none)."
    allow_ports: str | None = None
    "Ports that requests may reach besides 80 and 443, comma-separated (TICKWORK_ALLOW_PORTS; none)."
    grace: Annotated[float | None, Parameter(name="--grace")] = None
    "Seconds for running tasks to finish when the worker stops (TICKWORK_GRACE_S; 30)."

    def flags(self) -> dict[str, object]:
        return {
            "queues": self.queues,
            "labels": self.labels,
            "resources": self.resources,
            "processes": self.processes,
            "threads": self.threads,
            "coroutines": self.coroutines,
            "parked": self.parked,
            "memory_mb": self.memory_mb,
            "pass_env": self.pass_env,
            "allow_networks": self.allow_networks,
            "allow_ports": self.allow_ports,
            "grace_s": self.grace,
        }


@Parameter(name="*")
@dataclass(frozen=True)
class ClientOptions:
    """The server to use, and the output format."""

    url: str | None = None
    "The server (TICKWORK_URL; http://127.0.0.1:8440). A token comes from TICKWORK_TOKEN or TICKWORK_TOKEN_FILE."
    json: Annotated[bool, Parameter(negative="")] = False
    "Print the result as JSON."

    def settings(self) -> "Settings":
        return settings({"url": self.url})

    def client(self, *, deadline_s: float = DEADLINE_S) -> "Client":
        """Return a client with a short deadline, for servers that are not running."""
        from tickwork.sdk.client.client import Client

        chosen = self.settings()
        return Client(chosen.address, token=chosen.token or None, deadline=deadline_s)

    def folder(self, data: str | None) -> Path | None:
        """Return the folder to read instead of a server: the given one, or the configured one if no server responds.
        None: use the server."""
        from tickwork.cli.exit_codes import CommandExit, Exit, tell
        from tickwork.compose.server import DATABASE

        chosen = settings({"url": self.url, "data": data})
        there = (chosen.folder / DATABASE).is_file()
        if data is not None:
            if not there:
                raise CommandExit(Exit.NOT_FOUND, f"{chosen.folder} has no {DATABASE}; name a server's data folder")
            return chosen.folder
        if chosen.url or chosen.store or not there:
            return None
        with self.client(deadline_s=REACH_S) as client:
            if client.alive():
                return None
        tell(f"no server is running; reading from {chosen.folder}")
        return chosen.folder

    @contextmanager
    def reader(self, folder: Path | None) -> "Iterator[Client]":
        """Connect to the server, or to a private server on the folder."""
        if folder is None:
            with self.client() as client:
                yield client
            return
        from tickwork.sdk.client.client import Client

        with private(settings({"data": str(folder)})) as server, Client(server.address, token=server.token) as client:
            yield client


TO = ClientOptions()
UUID_CHARACTERS = 36


def whole_id(client: "Client", run: str) -> str:
    """The id of the run that a person means by it or by its beginning. Raises `Refused` where several begin so."""
    return run if len(run) >= UUID_CHARACTERS else client.find_run(run)


def settings(*flags: dict[str, object]) -> "Settings":
    from tickwork.compose.settings import load

    return load({name: value for group in flags for name, value in group.items()})


@contextmanager
def private(chosen: "Settings", app: str = "") -> "Iterator[EphemeralServer]":
    """A server for this command alone, where none answers."""
    from tickwork.cli.exit_codes import CommandExit, Exit
    from tickwork.compose.ephemeral_server import EphemeralServer
    from tickwork.ports.store import StoreInUse

    server = EphemeralServer(chosen, app)
    try:
        server.__enter__()
    except StoreInUse as used:
        who = str(used).partition(": stop")[0]
        raise CommandExit(
            Exit.REFUSED, f"no server responds at {chosen.address}, but {who}; if that is one, name it with --url"
        ) from None
    try:
        yield server
    finally:
        try:
            server.close()
        except KeyboardInterrupt:
            server.kill()
            raise
