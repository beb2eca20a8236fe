"""Processors and memory that this process may use: those of the machine, or what its container or affinity leaves."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MB = 1024 * 1024


def own_cpu_milli(cgroup: Path = CGROUP) -> int:
    """In thousandths of a processor."""
    return min([len(os.sched_getaffinity(0)) * 1000, *_quota_milli(cgroup)])


def own_memory_mb(cgroup: Path = CGROUP) -> int:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB
    limits = (_number(cgroup / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([machine, *(limit // MB for limit in limits if limit)])


def _quota_milli(cgroup: Path) -> Iterator[int]:
    words = _text(cgroup / "cpu.max").split()  # "150000 100000", or "max 100000"
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        yield int(words[0]) * 1000 // int(words[1])
    quota, period = (_number(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period:
        yield quota * 1000 // period


def _number(path: Path) -> int:
    """0 where there is none: no such file, or no limit."""
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
