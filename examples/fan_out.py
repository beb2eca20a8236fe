"""Fan out and in: list files, look at each of them side by side, put the answers together.

    tickwork run examples/fan_out.py:largest --input folder=src

The list is a result, so nobody has to know beforehand how many calls there will be.
"""

from dataclasses import dataclass
from pathlib import Path

import tickwork as tw


@dataclass
class Found:
    path: Path
    lines: int


@tw.task
def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@tw.task
def measure(path: Path) -> Found:
    return Found(path, len(path.read_text().splitlines()))


@tw.task
def longest(found: list[Found]) -> str:
    best = max(found, key=lambda one: one.lines)
    return f"{best.path.name} is the longest of {len(found)} files"


@tw.workflow
def largest(folder: Path = Path(__file__).parent) -> str:
    return longest(measure.map(python_files(folder), max_parallel=4))  # at most four at a time
