"""Models of the server itself: problems, health, status, and where its partitions stand."""

from typing import Literal

from tickwork.protocol.http_models.base import Model

STORE_HEADER = "x-tickwork-store"  # of every response: the identity of the store that answers


class Problem(Model, frozen=True, kw_only=True):
    """RFC 9457. `code` is stable; `detail` says what to change."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str = ""
    path: str = ""  # the field at fault, in the words of the request
    problems: tuple[dict[str, str], ...] = ()  # all of them, for a definition
    request_id: str = ""


class Stored(Model, frozen=True, kw_only=True):
    digest: str
    size: int


class Health(Model, frozen=True, kw_only=True):
    status: str
    detail: str = ""
    warnings: tuple[str, ...] = ()  # what a person should know although work is accepted


class PartitionHead(Model, frozen=True, kw_only=True):
    """Where a partition stands, as far as it is durable."""

    partition: int
    epoch: int
    seq: int
    tick: int
    hash: str
    watermark: int
    dispatch_held: str = ""  # why nothing of it is given to workers; "": it is


class ClockStatus(Model, frozen=True, kw_only=True):
    """How wall clock, real time and logical time stand. `steady`: they agree. `held`: the wall clock has stepped, and
    the step is not believed yet. `ahead`: logical time is ahead of real time, and timers are held."""

    state: Literal["steady", "held", "ahead"]
    wall_time: str
    real_time: str  # what is believed
    logical_time: str
    step_ms: int = 0  # wall clock minus real time, while a step is held
    contradicted: bool = False  # by the clock of the database
    adopted_in_ms: int | None = None  # when a held step is believed by itself; null: when a person confirms it
    description: str = ""


class Status(Model, frozen=True, kw_only=True):
    """How the engine is."""

    version: str
    tick: int
    seq: int
    watermark: int
    epoch: int
    live_runs: int
    live_tasks: int
    ready: int
    running: int
    workers: int
    runs: dict[str, int] = {}  # ended ones, by state
    alarms: tuple[str, ...] = ()
    accepting: bool = True
    schedules: int = 0
    schedules_late: int = 0  # those that catch up
    occurrences: dict[str, int] = {}  # of this tenant: expected, then by fate, and those that wait for their turn
    ledger_differences: int = 0  # since the start; anything but 0 is a defect
    dispatch_held: str = ""  # why nothing is given to workers; "": it is
    clock: ClockStatus | None = None
