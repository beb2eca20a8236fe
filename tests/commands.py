"""Commands of `tickwork` as forks of one process that has loaded them all, for tests of what a command does.

Loading takes most of a command's time. A fork has arguments, a folder, an environment and streams of its own, and ends
as a program does. What the start itself is about is tested with processes of their own: `Terminal.start`, `run_anew`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Lock

MESSAGE_BYTES_MAX = 128 * 1024


class Commands:
    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        self._using = Lock()
        theirs.close()

    def run(self, args: list[str], *, cwd: Path, env: dict[str, str], stdin: bytes, seconds: float):
        with self._using, contextlib.ExitStack() as stack:
            streams = [stack.enter_context(os.fdopen(os.memfd_create(name), "w+b", 0)) for name in ("in", "out", "err")]
            streams[0].write(stdin)
            streams[0].seek(0)
            asked = json.dumps({"args": args, "cwd": str(cwd), "env": env}).encode()
            socket.send_fds(self._socket, [asked], [stream.fileno() for stream in streams])
            code = self._ended(args, seconds)
            texts = [Path(f"/proc/self/fd/{stream.fileno()}").read_bytes() for stream in streams[1:]]
        return subprocess.CompletedProcess(args, code, texts[0].decode(), texts[1].decode(errors="replace"))

    def _ended(self, args: list[str], seconds: float) -> int:
        pid = int(self._socket.recv(100))
        self._socket.settimeout(seconds)
        try:
            return int(self._socket.recv(100))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(100)
            raise subprocess.TimeoutExpired(args, seconds) from None
        finally:
            self._socket.settimeout(None)

    def end(self) -> None:
        self._socket.close()
        self._process.wait(20)


@functools.cache
def commands() -> Commands:
    """One for each process of pytest; it ends with it, however that ends."""
    root = Path(__file__).resolve().parents[1]
    started = Commands(os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONUNBUFFERED": "1"})
    atexit.register(started.end)
    return started


# ---- in the process that forks


def serve(ours: socket.socket) -> None:
    load()
    while True:
        message, fds, *_ = socket.recv_fds(ours, MESSAGE_BYTES_MAX, 3)
        if not message:
            return
        pid = os.fork()
        if not pid:
            ours.close()
            become(fds, **json.loads(message))
        for fd in fds:
            os.close(fd)
        ours.send(b"%d" % pid)
        ours.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def load() -> None:
    import tickwork.cli

    for found in pkgutil.walk_packages(tickwork.cli.__path__, "tickwork.cli."):
        if not found.name.endswith(".starter.app"):
            importlib.import_module(found.name)
    for name in ("compose.server", "compose.settings", "sdk.client.client", "sdk.authoring.app_loader"):
        importlib.import_module(f"tickwork.{name}")
    gc.freeze()


def become(fds: list[int], *, args: list[str], cwd: str, env: dict[str, str]) -> None:
    """As if by `python -m tickwork`; `sys.exit` ends this process."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    # They live as long as the process.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0] = cwd
    sys.argv = ["tickwork", *args]
    runpy.run_module("tickwork", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
