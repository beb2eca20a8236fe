"""Puts limits on itself, then becomes the program in its arguments.

Runs as a plain file with the standard library only (`python -I -S launch.py LIMITS PROGRAM …`), so that the limits
hold before any code of the user is read. They are hard limits: only a privileged program can raise them.
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
NOT_RUN = 127


def confine(limits: dict[str, int]) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # without its agent the work is done again elsewhere
        if os.getppid() != limits["agent"]:  # it died before the line above
            os._exit(NOT_RUN)
    _limit(resource.RLIMIT_CORE, 0)
    if limits["memory_mb"]:
        _limit(resource.RLIMIT_AS, limits["memory_mb"] * 1024 * 1024)
    if limits["files"]:
        _limit(resource.RLIMIT_NOFILE, limits["files"])
    if limits["cpu_s"]:
        _limit(resource.RLIMIT_CPU, limits["cpu_s"])
    if limits["processes"]:
        _limit(resource.RLIMIT_NPROC, limits["processes"])
    if limits["file_mb"]:
        _limit(resource.RLIMIT_FSIZE, limits["file_mb"] * 1024 * 1024)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def main(limits: str, *argv: str) -> None:
    confine(json.loads(limits))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - a list, and no shell reads it
    except OSError as error:
        os.write(2, f"cannot run {argv[0]}: {error.strerror}\n".encode())
        os._exit(NOT_RUN)


if __name__ == "__main__":
    main(*sys.argv[1:])
