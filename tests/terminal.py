"""Real `tickwork` processes over loopback: started, waited for, and ended by their own pid."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from commands import commands

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 40.0  # bound of every wait; a machine under load is slow

APP = """
import time
import tickwork as tw

@tw.task
def hello(name: str) -> str:
    print("saying hello to", name)
    return f"hello {name}"

@tw.task
def shout(text: str) -> str:
    return text.upper()

@tw.task
def broken() -> str:
    from pathlib import Path
    if Path(__file__).with_name("mended").exists():
        return "mended"
    raise ValueError("no such thing")

@tw.task
def slow(seconds: float) -> float:
    print("begun", flush=True)
    time.sleep(seconds)
    return seconds

@tw.workflow
def greet(name: str = "you") -> str:
    return shout(hello(name))

@tw.workflow
def fails() -> str:
    return broken()

@tw.workflow
def lasts(seconds: float = 60.0) -> float:
    return slow(seconds)

@tw.workflow
def asks() -> str:
    tw.approval("boss")
    return shout("granted")

@tw.workflow
def chooses() -> str:
    from typing import Literal
    form = tw.form("menu", text="What is for lunch?", fields={"dish": Literal["soup", "rice"], "extra": "5", "n": 1})
    return shout(form.dish)

@tw.task
def read_variable(name: str) -> str:
    import os
    return os.environ[name]

@tw.workflow
def variable(name: str) -> str:
    return read_variable(name)

@tw.workflow
def long() -> str:
    return repeated("x", 200_000)

@tw.task
def repeated(text: str, times: int) -> str:
    return text * times

@tw.workflow
def paid(number: str) -> int:
    return tw.event("paid", key=number)

@tw.workflow
def later() -> str:
    tw.wait("1h")
    return shout("late")

@tw.workflow
def trains(cards: int = 1) -> str:
    return tw.branch(cards == 1, lambda: train("small"), lambda: train.using(id="huge", gpu=3, cpu=0.5)("large"))

@tw.task(memory="16MB", gpu=1)
def train(model: str) -> str:
    return f"trained {model}"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """One that stays. Its output is a file, so that nobody has to read it for it to go on."""

    def __init__(self, args: list[str], *, cwd: Path, env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                args, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, wanted: str, *, count: int = 1, seconds: float = SECONDS) -> str:
        deadline = time.monotonic() + seconds
        while self.text.count(wanted) < count:
            if self.process.poll() is not None and self.text.count(wanted) < count:
                raise AssertionError(f"it ended with {self.process.returncode} before {wanted!r}:\n{self.text}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {wanted!r} within {seconds} s:\n{self.text}")
            time.sleep(0.02)
        return self.text

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, *, seconds: float = SECONDS) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        """At the latest now, whatever state it is in. A worker waits for its tasks; a second signal ends it at once."""
        for seconds in (1, 10):
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


class Terminal:
    """A folder with an application, and a shell that knows nothing of ours but what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.app = folder / "app.py"
        self.app.write_text(APP)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = ("TICKWORK_", "COLUMNS", "LINES")  # those of whoever runs the tests say nothing here
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        self.env.update(PYTHONPATH=str(ROOT / "src"), TICKWORK_PORT=str(self.port), PYTHONUNBUFFERED="1")
        self.programs: list[Program] = []

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "tickwork", *args]

    def run(self, *args: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[str]:
        return commands().run([*args], cwd=self.folder, env=self.env | env, stdin=stdin, seconds=SECONDS)

    def run_anew(self, *args: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[str]:
        """With a start of its own."""
        done = subprocess.run(
            self.command(*args), cwd=self.folder, env=self.env | env, input=stdin, capture_output=True, timeout=SECONDS
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")
        )

    def json(self, *args: str):
        done = self.run(*args, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def start(self, *args: str, **env: str) -> Program:
        return self.start_as(self.command(*args), **env)

    def start_as(self, command: list[str], **env: str) -> Program:
        log = self.folder / f"program-{len(self.programs)}.log"
        program = Program(command, cwd=self.folder, env=self.env | env, log=log)
        self.programs.append(program)
        return program

    def close(self) -> None:
        for program in self.programs:
            program.end()
