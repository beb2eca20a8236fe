"""What code of users may take and see: limits, environment, and the isolation that results.

The environment of a child is a list of harmless names and what the user has set, never a copy of the agent's:
the agent's token and other keys are in it.
"""

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

PASSED = ("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "PYTHONPATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
          "TMPDIR", "TZ", "USER", "VIRTUAL_ENV")  # fmt: skip
MARK = "TICKWORK_CHILD"  # in the environment of a child and of everything it starts: how leftovers are found
PR_SET_DUMPABLE = 4


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """0: no limit."""

    memory_mb: int = 0  # address space
    files: int = 1_024
    cpu_s: int = 0  # of one process in its whole life
    processes: int = 0  # of the user, as the kernel counts
    file_mb: int = 0  # size of one file


def confined(limits: Limits, argv: list[str]) -> list[str]:
    """The same program, started so that the limits hold from its first instruction."""
    request = json.dumps(msgspec.to_builtins(limits) | {"agent": os.getpid()})
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("rlimit_exec.py")), request, *argv]


def environment(own: Mapping[str, str], *, given: Mapping[str, str], mark: str) -> dict[str, str]:
    """`own` is the agent's environment, `given` what the user has set for tasks."""
    passed = {name: value for name, value in own.items() if name in PASSED or name.startswith("LC_")}
    return passed | dict(given) | {MARK: mark}


def hide_agent() -> bool:
    """No process of the same user may read this one's memory or environment. Root may all the same."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def isolation(what: str) -> str:
    text = (
        f"{what}; a clean environment without the agent's keys, hard limits, no new privileges, no core dumps. "
        "It runs as the same user with the same files as the agent, and does not protect against malicious code"
    )
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return text + "; and the agent runs as root, so that its memory can be read. Run it as another user"
    return text
