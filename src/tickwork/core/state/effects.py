"""What the shell is to do next, once the tick that decided it is durable.

After a crash the shell derives dispatches and cancellations again from the state; answers and
alerts of a tick that was never committed were never given.
"""

import msgspec

from tickwork.core.state.state import QueuedCommand


class _Effect(msgspec.Struct, frozen=True, gc=False):
    pass


class Dispatch(_Effect, frozen=True):
    worker: int
    task: int
    attempt: int


class CancelAttempt(_Effect, frozen=True):
    """Tell the worker to stop an attempt whose result no longer counts."""

    worker: int
    task: int
    attempt: int


class ReleaseAttempt(_Effect, frozen=True):
    """Tell a lane that a worker has taken an attempt which it carried."""

    worker: int
    task: int
    attempt: int


class LookUpCache(_Effect, frozen=True):
    """Look up a cached result and answer with a `CacheAnswered` input."""

    task: int
    key: str
    ttl_ms: int | None


class ReadExtract(_Effect, frozen=True):
    """Load a value, take out of it what rules read, and answer with an `Extracted` input."""

    run: int
    source: int
    key: str


class FindRuns(_Effect, frozen=True):
    """Find out which of these occurrences have run before, and answer with a `RunsKnown` input."""

    backfill: int
    tenant: str
    schedule: str
    dues_ms: tuple[int, ...]


class StoreCached(_Effect, frozen=True):
    """Store a result under its cache key."""

    task: int
    key: str
    input: int


class SendCommand(_Effect, frozen=True):
    """Send a command to another partition until that has decided, and answer with an `Acknowledged` input."""

    partition: int
    command: QueuedCommand


class CommandResult(_Effect, frozen=True):
    """The outcome of one command, for its caller."""

    input: int
    run_id: str = ""
    code: str = ""  # empty: accepted
    message: str = ""


class Alert(_Effect, frozen=True):
    kind: str  # sla_warning, sla_breach, dead_letter, run_failed, load_shed, clock_gap …
    tenant: str
    subject: str
    detail: str = ""


Effect = (
    Dispatch
    | CancelAttempt
    | ReleaseAttempt
    | LookUpCache
    | ReadExtract
    | FindRuns
    | StoreCached
    | SendCommand
    | CommandResult
    | Alert
)
