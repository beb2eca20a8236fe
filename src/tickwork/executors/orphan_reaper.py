"""Ends what an agent leaves behind that was killed itself.

An agent ends everything that its children start, as long as it lives. Its children die with it, what they have
started does not: a program would go on while its task is tried again elsewhere. So this process waits for the end of a
pipe that only the agent holds, and then kills what carries the agent's mark in its environment.

Runs as a plain file with the standard library only (`python -I -S watchman.py NAME=MARK`), so that it costs little.
"""

import os
import signal
import sys
import time

ROUNDS_MAX = 20  # something may fork while we look
PAUSE_S = 0.05


def main(prefix: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # its time is when the agent is gone, not before
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    for _ in range(ROUNDS_MAX):
        pids = _marked(prefix.encode() + b"-")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not pids:
            return
        time.sleep(PAUSE_S)


def _marked(prefix: bytes) -> list[int]:
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    names = file.read().split(b"\0")
            except OSError:
                continue
            if any(name.startswith(prefix) for name in names):
                pids.append(int(name))
    return pids


if __name__ == "__main__":
    main(*sys.argv[1:])
