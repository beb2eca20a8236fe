"""Programs: the node names a list of arguments, and no shell ever reads it.

Each attempt has a folder of its own as working directory, a session of its own, the limits of the worker, and its
arguments as a JSON object on standard input. The program's exit code decides: 0 is success. The result holds
the exit code and the last of what it printed. Everything it started ends with it, daemons too.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable

import msgspec

from tickwork.core.definition.model import ShellNode
from tickwork.executors.concurrency import AttemptFailure, ConcurrentExecutor, wall_ms
from tickwork.executors.limits import Limits, confined, environment, isolation
from tickwork.executors.process_tree import kill_all, new_mark
from tickwork.ports.executor import ReportSink
from tickwork.protocol.log_lines import ByteRateLimit, LineSplitter
from tickwork.protocol.worker_messages import AttemptJob, NodeSpec
from tickwork.system.private_files import ScratchDirectory

TAIL_BYTES = 16 * 1024  # of standard output, in the result
GRACE_S = 2.0
READ_BYTES = 64 * 1024


class ShellAttempts:
    kinds = frozenset({"shell"})

    def __init__(self, *, limits: Limits | None = None, env: dict[str, str] | None = None) -> None:
        self._limits, self._env = limits or Limits(), env or {}
        self._mark = ""  # made for the first program

    @property
    def isolation(self) -> str:
        return isolation("a process of its own for each attempt, in a folder and session of its own: weak")

    async def attempt(self, work: AttemptJob, spec: NodeSpec, sink: ReportSink) -> bytes:
        node = msgspec.json.decode(spec.document, type=ShellNode)
        self._mark = self._mark or new_mark()
        mark = f"{self._mark}-{work.task}-{work.attempt}"
        env = environment(os.environ, given={**self._env, **_facts(work, spec), **node.env}, mark=mark)
        if shutil.which(node.argv[0], path=env.get("PATH")) is None:
            message = f"there is no program {node.argv[0]!r} on this worker; install it, or write its whole path"
            raise AttemptFailure("ProgramMissing", message, permanent=True)
        scratch = ScratchDirectory()
        try:
            return await self._program(work, node, env, scratch.path, mark, sink)
        finally:
            scratch.remove()

    async def close(self) -> None:
        """Each program has ended with its attempt."""

    async def _program(
        self, work: AttemptJob, node: ShellNode, env: dict[str, str], folder: str, mark: str, sink: ReportSink
    ) -> bytes:
        program = Program(confined(self._limits, list(node.argv)), env, folder, mark, given=_given(work))
        flow = ByteRateLimit()
        program.on_line = lambda stream, text: _log(sink, work, stream, text, flow)
        try:
            code = await program.ended()
        except asyncio.CancelledError:
            await program.ask_to_end()
            raise
        finally:
            program.close()
        if flow.dropped:
            sink.log(work.task, work.attempt, "stderr", flow.note(), wall_ms())
        if code:
            raise AttemptFailure("ExitCode", f"{node.argv[0]} ended with {_ended(code)}", exit_code=code)
        return msgspec.msgpack.encode({"exit_code": code, "output": program.tail.decode(errors="replace")})


def _log(sink: ReportSink, work: AttemptJob, stream: str, text: str, flow: ByteRateLimit) -> None:
    if flow.admit(len(text), now_ms=time.monotonic_ns() // 1_000_000):
        if flow.dropped:
            sink.log(work.task, work.attempt, stream, flow.note(), wall_ms())
        sink.log(work.task, work.attempt, stream, text, wall_ms())


def shell_executor(
    *, at_once: int = 8, limits: Limits | None = None, env: dict[str, str] | None = None
) -> ConcurrentExecutor:
    return ConcurrentExecutor(ShellAttempts(limits=limits, env=env), at_once=at_once)


class Program:
    """A process and its output. Its end counts, even if other processes still hold its pipes."""

    def __init__(self, argv: list[str], env: dict[str, str], folder: str, mark: str, *, given: bytes) -> None:
        self._mark = mark
        self.tail = bytearray()
        self.on_line: Callable[[str, str], None] = lambda _stream, _text: None
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - a list, and no shell reads it
                argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._pipes = {
            self._process.stdout.fileno(): LineSplitter("stdout"),
            self._process.stderr.fileno(): LineSplitter("stderr"),
        }
        loop = asyncio.get_running_loop()
        for fd in self._pipes:
            os.set_blocking(fd, False)
            loop.add_reader(fd, self._readable, fd)

    async def ended(self) -> int:
        pause_s = 0.001
        while self._process.poll() is None:
            await asyncio.sleep(pause_s)  # a program takes its time: a look now and then costs less than a watcher
            pause_s = min(2 * pause_s, 0.05)
        return self._process.returncode

    async def ask_to_end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(self.ended(), GRACE_S)

    def close(self) -> None:
        """End what is left of it, and hear the last of what it printed."""
        kill_all(self._process.pid, self._mark)
        self._process.wait()
        loop = asyncio.get_running_loop()
        for fd, cutter in self._pipes.items():
            while self._readable(fd):
                pass
            loop.remove_reader(fd)
            for text in cutter.rest():
                self.on_line(cutter.stream, text)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _readable(self, fd: int) -> bool:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            return False
        cutter = self._pipes[fd]
        if cutter.stream == "stdout":
            self.tail += data
            del self.tail[:-TAIL_BYTES]
        for text in cutter.feed(data):
            self.on_line(cutter.stream, text)
        return True


def _given(work: AttemptJob) -> bytes:
    return msgspec.json.encode(msgspec.msgpack.decode(work.args) if work.args else {})


def _facts(work: AttemptJob, spec: NodeSpec) -> dict[str, str]:
    key = f"{work.tenant}/{work.run_id}/{spec.node}" + (f"/{work.child}" if work.child >= 0 else "")
    return {
        "TICKWORK_RUN_ID": work.run_id,
        "TICKWORK_NODE": spec.node,
        "TICKWORK_ATTEMPT": str(work.attempt),
        "TICKWORK_IDEMPOTENCY_KEY": key,
    }


def _ended(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
