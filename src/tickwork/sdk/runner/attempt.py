"""One attempt inside the process that runs it: from its job to a call, from its answer to a report.

Whatever user code does, one report comes out: a value, a large value in a file, or an error with the user's line.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from msgspec.structs import replace

from tickwork.core.base.errors import Refused
from tickwork.protocol.child_messages import LargeAttemptJob, SpilledResult, filled
from tickwork.protocol.log_lines import sendable
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX, AttemptJob, Failed, NodeSpec, Succeeded
from tickwork.sdk.authoring.app_loader import Handler
from tickwork.sdk.authoring.source_location import about_environment
from tickwork.sdk.context import Channel, Context, Skip, StepsChanged, commands_of
from tickwork.sdk.durable.outcomes import CallFailed, StepFailed
from tickwork.sdk.values.encode import NULL, encode

LITTLE_BYTES = VALUE_BYTES_MAX // 4  # of two values that are too large together, what stays in the message
MESSAGE_LENGTH_MAX = 8_000
NAME_LENGTH_MAX = 500
EXIT_CODE_MAX = 2**31 - 1
ORIGINS_MAX = 5
BASES_MAX = 16
FRAMES_MAX = 12  # of a traceback; the innermost are what helps
_OWN = str(Path(__file__).resolve().parents[2]) + os.sep


class Cancelled(BaseException):
    """Raised in an attempt that was called off and has not ended by itself. `except Exception` does not catch it."""


def arguments(work: AttemptJob, job: LargeAttemptJob | None) -> bytes:
    """As MessagePack, with everything in it that came as files."""
    if job is None:
        return work.args
    data = Path(job.args_file).read_bytes() if job.args_file else work.args
    if not work.fetch:
        return data
    files = dict(job.fetched)
    return filled(data, work.fetch, lambda digest: Path(files[digest]).read_bytes())


class HostChannel(Channel, Protocol):
    def folder(self) -> Path: ...


class AttemptContext(Context):
    """A context that is filled in at its first use: most functions never use it."""

    __slots__ = ("_make", "filled")

    def __init__(
        self, make: tuple[AttemptJob, LargeAttemptJob | None, NodeSpec, Callable[[tuple[int, int]], HostChannel]]
    ) -> None:
        self._make = make  # `Context.__init__` follows later
        self.filled = False

    @property
    def workdir(self) -> Path:
        """A folder of this attempt's own, made at its first use and removed when the attempt has ended."""
        work, _, _, channel = self._make
        return channel((work.task, work.attempt)).folder()

    def __getattr__(self, name: str) -> Any:
        """Python asks here for a slot that has no value yet."""
        if name in Context.__slots__ and not self.filled:
            work, job, spec, channel = self._make
            Context.__init__(
                self,
                channel=channel((work.task, work.attempt)),
                tenant=work.tenant,
                run_id=work.run_id,
                workflow=spec.workflow,
                node=spec.node,
                task_id=work.task,
                attempt=work.attempt,
                attempts_max=spec.attempts_max,
                child=work.child,
                scheduled_ms=work.scheduled_ms,
                submitted_ms=work.submitted_ms,
                checkpoint=checkpoint_of(work, job),
            )
            self.filled = True
            return getattr(self, name)
        raise AttributeError(f"a task's context has no {name!r}")


def checkpoint_of(work: AttemptJob, job: LargeAttemptJob | None) -> bytes | None:
    if job is not None and job.checkpoint_file:
        return Path(job.checkpoint_file).read_bytes()
    return work.checkpoint if isinstance(work.checkpoint, bytes) else None


def answered(
    task: int, attempt: int, value: Any, handler: Handler, here: Context, *, folder: str, started_ms: int
) -> Succeeded | SpilledResult:
    """Raises `Unsendable` for what cannot travel."""
    commands = commands_of(here)
    ended_ms = time.time_ns() // 1_000_000
    if value is None and commands is None:
        return Succeeded(task, attempt, None, started_ms, ended_ms)
    data = encode(value, what=f"result of {handler.name}")
    if len(data) + len(commands or b"") <= VALUE_BYTES_MAX:
        return Succeeded(task, attempt, None if data == NULL else data, started_ms, ended_ms, commands)
    spilled = SpilledResult(task, attempt, "", len(data), items_in(data), False, started_ms, ended_ms, data, commands)
    if len(data) > LITTLE_BYTES:
        spilled = replace(spilled, path=put_down(data, folder, f"{task}-{attempt}", "result"), value=None)
    if commands is not None and len(commands) > LITTLE_BYTES:
        path = put_down(commands, folder, f"{task}-{attempt}", "commands")
        spilled = replace(spilled, commands=None, commands_path=path)
    return spilled


def put_down(data: bytes, folder: str, attempt: str, name: str) -> str:
    """As a file in the attempt's own folder, whose name the agent chose."""
    path = own_folder(folder, attempt) / f"{name}-{time.monotonic_ns()}"
    path.write_bytes(data)
    return str(path)


def own_folder(folder: str, attempt: str) -> Path:
    path = Path(folder, attempt)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def items_in(data: bytes) -> int | None:
    """The length of a MessagePack array, from its first bytes; None where it is something else."""
    first = data[0]
    if first & 0xF0 == 0x90:
        return first & 0x0F
    if first == 0xDC:
        return int.from_bytes(data[1:3], "big")
    if first == 0xDD:
        return int.from_bytes(data[1:5], "big")
    return None


def failed(task: int, attempt: int, error: BaseException, *, started_ms: int) -> Failed:
    permanent = is_permanent(error)
    position = error.position if isinstance(error, StepFailed | CallFailed) else -1
    code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else None
    if code is not None and not -EXIT_CODE_MAX <= code <= EXIT_CODE_MAX:
        code = None
    name = sendable(type(error).__name__[:NAME_LENGTH_MAX])
    ended_ms = time.time_ns() // 1_000_000
    bases = bases_of(type(error))
    skip = isinstance(error, Skip)
    message = error_text(error)[:MESSAGE_LENGTH_MAX] if skip else explained(error)
    return Failed(task, attempt, name, message, permanent, code, started_ms, ended_ms, position, bases, skip)


def is_permanent(error: BaseException) -> bool:
    """Whether another try would fail in the same way."""
    return isinstance(error, Refused | StepsChanged) or bool(getattr(error, "permanent", False))


def bases_of(kind: type[BaseException]) -> tuple[str, ...]:
    """More general types of an error, the nearest first, without those that every error has."""
    bases = [base.__name__ for base in kind.__mro__[1:] if base not in (object, BaseException, Exception)]
    return tuple(sendable(base[:NAME_LENGTH_MAX]) for base in bases[:BASES_MAX])


def explained(error: BaseException) -> str:
    """The message and the user's lines, none of ours; then the same of what led to it."""
    lines = [error_text(error)[: MESSAGE_LENGTH_MAX // 2], *_where(error)]
    for led, before in () if isinstance(error, Refused) else _origins(error):
        lines += [f"{led} {type(before).__name__}: {error_text(before)}"[: MESSAGE_LENGTH_MAX // 4], *_where(before)]
    return sendable("\n".join(lines)[:MESSAGE_LENGTH_MAX])


def error_text(error: BaseException) -> str:
    try:
        return str(error) + about_environment(error)
    except Exception:
        return "(its message cannot be shown)"


def _where(error: BaseException) -> list[str]:
    frames = [] if isinstance(error, Refused) else user_frames(error.__traceback__)
    return [line.rstrip("\n") for line in traceback.format_list(frames[-FRAMES_MAX:])]


def _origins(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Members of a group, then the errors behind it, the latest first; not without end."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:ORIGINS_MAX]:
            yield "one of them is", member
    for _ in range(ORIGINS_MAX):
        if error.__cause__ is not None:
            led, error = "caused by", error.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            led, error = "while handling", error.__context__
        else:
            return
        yield led, error


def user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(trace)
    return [frame for frame in frames if not os.path.abspath(frame.filename).startswith(_OWN)]
