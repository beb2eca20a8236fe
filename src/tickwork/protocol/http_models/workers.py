"""Models of workers and queues."""

from tickwork.protocol.http_models.base import Model, RequestModel


class WorkerResources(Model, frozen=True, kw_only=True):
    """In the words of a document."""

    slots: int = 0
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0


class Worker(Model, frozen=True, kw_only=True):
    id: str
    queues: tuple[str, ...]
    labels: dict[str, str] = {}
    credit: int
    running: int
    last_heard_at: str | None = None
    host: str = ""
    pid: int = 0
    application: str = ""
    version: str = ""  # of its application
    latest: bool | None = None  # None: its application has no versions
    resources: WorkerResources = WorkerResources()  # what it has; slots follow its credit
    in_use: WorkerResources = WorkerResources()  # by its running tasks


class Workers(Model, frozen=True, kw_only=True):
    workers: tuple[Worker, ...]


class Queue(Model, frozen=True, kw_only=True):
    name: str
    ready: int = 0
    running: int = 0
    limit: int | None = None
    rate: int | None = None  # starts
    per: str = ""  # in this time
    burst: int | None = None
    paused: bool = False
    window: str = ""  # how a rate is counted: bucket or sliding


class Queues(Model, frozen=True, kw_only=True):
    queues: tuple[Queue, ...]


class QueueRequest(RequestModel, frozen=True, kw_only=True):
    limit: int | None = None
    rate: int | None = None  # starts
    per: str = "1s"
    burst: int | None = None
    window: str = "bucket"  # or sliding
