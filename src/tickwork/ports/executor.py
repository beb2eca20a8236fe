"""How a worker runs attempts: the calls of the agent to an executor, and the reports of the executor to the agent.

An executor runs what it is given until it ends, and says so through `ReportSink`. It never retries and never
decides. Whatever happens to the code it runs, the agent that calls it goes on beating.
"""

from collections.abc import Sequence
from typing import Protocol

from tickwork.core.state.retry import HANDLER_MISSING
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Catalog,
    Failed,
    NodeSpec,
    Reading,
    ReadRequest,
    Report,
    Succeeded,
)


def lacking(work: AttemptJob, message: str) -> Report:
    """A task that this worker cannot run, whatever it does. Another may: the server tries some, then gives up."""
    return Failed(work.task, work.attempt, HANDLER_MISSING, f"{message}; start a worker that has it", permanent=True)


class ReportSink(Protocol):
    """Where an executor reports. Called on the agent's loop."""

    def report(self, report: Report) -> None: ...

    def done(self, reports: Sequence[Succeeded]) -> None:
        """Several that ended well, at once."""

    def log(self, task: int, attempt: int, stream: str, text: str, at_ms: int) -> None:
        """A whole line, or a piece of one that is too long."""

    def piece(self, task: int, attempt: int, number: int, text: str, at_ms: int) -> None:
        """What the code streams. It is on its way within 50 ms."""

    async def fetch(self, digest: str) -> bytes:
        """An artifact, verified. Waits while the server is away; raises `Corrupt`, or `Refused` where there is none."""

    async def store(self, data: bytes) -> str:
        """Put a large value into the artifact store and get its digest. Waits while the server is away."""

    async def read(self, request: ReadRequest) -> Reading:
        """Read of the API, for the code of a task. Raises `Unavailable` while the server is away."""


class Executor(Protocol):
    @property
    def kinds(self) -> frozenset[str]:
        """Node kinds it runs: task, http, shell, send."""

    @property
    def slots(self) -> int:
        """How many attempts it runs at once."""

    @property
    def isolation(self) -> str:
        """In words: what separates the code it runs from the agent and from other attempts."""

    async def start(self, sink: ReportSink) -> Catalog:
        """Ready to run. Answers with what the application it serves declares; empty where it has none."""

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        """Take it. The end is reported exactly once, except after `stop` or `recall`."""

    def saved(self, task: int, attempt: int) -> None:
        """A checkpoint that was reported is durable."""

    def stop(self, task: int, attempt: int) -> None:
        """End it now, with everything it started; nothing more is reported of it."""

    def recall(self) -> tuple[tuple[int, int], ...]:
        """Take back what has not begun; the agent hands it back."""

    async def close(self, *, grace_s: float) -> None:
        """Let what runs end within the time given, then end it."""
