"""Real processes, each known by its pid, and what can be done to them."""

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import tickwork

LAUNCH = Path(__file__).with_name("launch.py")
SOURCES = Path(tickwork.__file__).parent.parent  # the same that the test itself uses
READY_S = 60.0
END_S = 40.0


class Program:
    """One `tickwork …` at a time under one name; each start of it is another process. `pids` has all of them."""

    def __init__(self, name: str, arguments: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.pids: list[int] = []
        self.paused: list[int] = []
        self._arguments = arguments
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / f"{name}.log"
        self._clock = folder / f"{name}.clock"
        self.set_clock(0)

    # ---- life

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        self._heard = self._log.stat().st_size if self._log.exists() else 0
        env = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}
        env["TICKWORK_UNPROTECTED"] = "true"  # its clients are not ours, and go through proxies
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles everything anew
        env |= {"CHAOS_CLOCK": str(self._clock), "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
        env |= self._env
        env["TICKWORK_PARENT"] = str(os.getpid())  # it ends when we do
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, LAUNCH, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=self._log.parent,
                process_group=0,
            )
        self.pids.append(self._process.pid)

    async def until_ready(self) -> None:
        """Its first line says that it is."""
        async with asyncio.timeout(READY_S):
            while f"tickwork {self._arguments[0]}" not in self.said:
                assert self.alive, f"{self.name} ended: {self.said[-2000:]}"
                await asyncio.sleep(0.02)

    @property
    def said(self) -> str:
        """Since its last start."""
        with self._log.open("rb") as log:
            log.seek(self._heard)
            return log.read().decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """-9, and only itself: what it started must end by itself."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.paused = []

    def pause(self) -> None:
        """It and everything it started."""
        self.paused = _family(self.pid)
        for pid in self.paused:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in reversed(self.paused):
            _signal(pid, signal.SIGCONT)
        self.paused = []

    async def stop(self) -> None:
        """As an operator would."""
        self.resume()
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.name} did not end within {END_S} s of SIGTERM") from None

    def end(self) -> None:
        """However it stands."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait()

    # ---- its clock

    def set_clock(self, offset_ms: int) -> None:
        self.clock_ms = offset_ms
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("<q", offset_ms))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # a child that ended meanwhile
        os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """A process and its descendants, itself first."""
    found = [pid]
    for one in found:
        try:
            threads = list(Path(f"/proc/{one}/task").iterdir())
            found += [int(word) for task in threads for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found
