"""What was found, as a table: each line is a promise, whether it was kept, and the figures."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    name: str
    kept: bool
    text: str
    proves: str = ""


def table(verdicts: Iterable[Verdict]) -> str:
    rows = [("kept" if one.kept else "BROKEN", one.name, one.proves, one.text) for one in verdicts]
    widths = [max(len(row[place]) for row in rows) for place in range(3)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}".rstrip() for row in rows
    )


def some(found: list[str], most: int = 3) -> str:
    return "; ".join(found[:most]) + (f"; and {len(found) - most} more" if len(found) > most else "")
