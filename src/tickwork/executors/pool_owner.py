"""What a process pool reports to the executor behind it."""

from typing import Protocol

from tickwork.executors.child_process import Key
from tickwork.protocol.child_messages import AppLoaded, SpilledResult
from tickwork.protocol.worker_messages import (
    Checkpointed,
    Continued,
    Failed,
    HandedBack,
    Report,
    StepsRecorded,
    Succeeded,
    Suspended,
)


class PoolOwner(Protocol):
    """The executor behind a pool."""

    def ended(self, report: Succeeded | Failed | HandedBack | Suspended | Continued) -> None: ...

    def done(self, reports: list[Succeeded]) -> None:
        """As `ended`, for several successful attempts."""

    def in_progress(self, report: Report) -> None:
        """The attempt has started or made progress, and goes on."""

    def saving(self, saved: Checkpointed | StepsRecorded) -> None: ...

    def spilled(self, spilled: SpilledResult) -> None: ...

    def printed(self, key: Key, stream: str, text: str, at_ms: int, number: int = -1) -> None: ...

    def folder(self, key: Key) -> None: ...

    def loaded(self, mode: str, ready: AppLoaded) -> None: ...

    def unfit(self, mode: str, error: str, message: str) -> None: ...
