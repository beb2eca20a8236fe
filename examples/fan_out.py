"""Fan out and fan in: list files, measure them in parallel, combine the results.

    tickwork run examples/fan_out.py:largest --input folder=src

The list is the result of a task, so the number of calls need not be known in advance.
"""

from dataclasses import dataclass
from pathlib import Path

import tickwork as tw


@dataclass
class Measurement:
    path: Path
    lines: int


@tw.task
def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@tw.task
def measure(path: Path) -> Measurement:
    return Measurement(path, len(path.read_text().splitlines()))


@tw.task
def longest(files: list[Measurement]) -> str:
    best = max(files, key=lambda file: file.lines)
    return f"{best.path.name} is the longest of {len(files)} files"


@tw.workflow
def largest(folder: Path = Path(__file__).parent) -> str:
    return longest(measure.map(python_files(folder), max_parallel=4))  # at most four at the same time
