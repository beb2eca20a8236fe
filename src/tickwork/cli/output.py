"""How things look in a terminal: colours for states, times in words, tables.

Names and messages come from users: they are escaped before they reach the screen, control characters too.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire

COLOURS = {
    "backoff": "yellow",
    "pending": "dim",
    "ready": "cyan",
    "active": "cyan",
    "running": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "completed": "green",
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "timed_out": "red",
    "cancelled": "magenta",
    "skipped": "dim",
    "ran": "green",
    "coalesced": "cyan",
    "missed": "red",
    "done": "green",
    "preview": "cyan",
}
WORDS = {"backoff": "retrying"}  # where people say it otherwise than the API
FOLDED_MIN = 8  # characters of a column that folds
_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def console(*, stderr: bool = False) -> Console:
    """NO_COLOR and pipes are respected: rich looks at both."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160  # lines in a pipe are not wrapped
    return Console(stderr=stderr, highlight=False, width=width, emoji=False)


def safe(text: Any) -> str:
    """Text of users, for a screen."""
    shown = "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in str(text))
    return escape(shown)


def tinted(state: str, *, width: int = 0) -> str:
    colour = COLOURS.get(state)
    padded = f"{WORDS.get(state, state):<{width}}"
    return f"[{colour}]{padded}[/]" if colour else padded


class Sheet(Table):
    """A table that leaves nothing out: where the screen is too narrow for its columns, each row becomes a list."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cells: list[Sequence[str]] = []  # as markup, row by row

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.cells or self._narrowest() <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text.from_markup(str(self.title), overflow="fold")
        for number, row in enumerate(self.cells):
            if number:
                yield Text("")
            for column, cell in zip(self.columns, row, strict=True):
                if cell:
                    name = f"[bold]{column.header}[/]" if column.header else ""
                    line = Text.from_markup(f"{name}  {cell}" if name else cell, overflow="fold")
                    line.no_wrap = False
                    if column.no_wrap and name and line.cell_len > options.max_width:
                        yield Text.from_markup(name)
                        line = Text.from_markup(cell, overflow="fold")  # an id stays in one piece where it can
                        line.no_wrap = False
                    yield line
        if self.caption:
            yield Text.from_markup(str(self.caption), overflow="fold")

    def _narrowest(self) -> int:
        """The width at which columns begin to vanish, or to have words of two letters a line."""
        widths = []
        for index, column in enumerate(self.columns):
            cells = [Text.from_markup(row[index]).cell_len for row in self.cells]
            longest = max([*cells, cell_len(str(column.header))])
            widths.append(longest if column.no_wrap else min(longest, FOLDED_MIN))
        return sum(widths) + 2 * (len(widths) - 1)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Cells are markup already. `>` before a name: to the right. `=`: an id, in one piece however narrow the screen."""
    sheet = Sheet(box=None, pad_edge=False, header_style="bold")
    rows = list(rows)
    for index, name in enumerate(columns):
        right, whole = name.startswith(">"), name.startswith("=")
        sheet.add_column(
            name.lstrip(">="),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or whole,
            min_width=max((cell_len(row[index]) for row in rows), default=None) if whole else None,
        )
    for row in rows:
        sheet.add_row(*row)
        sheet.cells.append(row)
    return sheet


def moment(at: str | None) -> datetime | None:
    return datetime.fromisoformat(at) if at else None


def when(at: str | None) -> str:
    """Local time; the day only where it is not today."""
    instant = moment(at)
    if instant is None:
        return "-"
    local = instant.astimezone()
    today = datetime.now(UTC).astimezone().date() == local.date()
    return local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def day(at: str) -> str:
    """The day here: Mon 2026-03-30."""
    return datetime.fromisoformat(at).astimezone().strftime("%a %Y-%m-%d")


def clock(at: str) -> str:
    return datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")


def until(at: str | None) -> str:
    """Local time, and how long until then."""
    instant = moment(at)
    if instant is None:
        return "-"
    seconds = (instant - datetime.now(UTC)).total_seconds()
    return f"{when(at)} (in {duration(seconds)})" if seconds > 0 else f"{when(at)} (now)"


def ago(at: str | None) -> str:
    """Local time, and how long since."""
    return "-" if at is None else f"{when(at)} ({took(at, None)} ago)"


def in_words(text: str) -> str:
    """A sentence of the server's, with the instants in it as `when` shows them."""
    return _INSTANT.sub(lambda match: when(match[0]), text)


def took(begin: str | None, end: str | None) -> str:
    """From begin to end, or to now."""
    first, last = moment(begin), moment(end)
    if first is None:
        return "-"
    return duration(((last or datetime.now(UTC)) - first).total_seconds())


def duration(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {rest:02} s"


def source_label(source: str, hints: "wire.Hints | None" = None) -> str:
    """Why a time was chosen, for people: a hint is its sender's."""
    from tickwork.core.state import governor

    return governor.source_label(source, hints.by if hints is not None else "")


def value(data: Any, *, characters_max: int = 2_000) -> str:
    """A value as JSON, cut where it is long."""
    import msgspec

    text = msgspec.json.encode(data).decode()
    if len(text) > characters_max:
        text = f"{text[:characters_max]} … ({len(text)} characters; --json has all)"
    return safe(text)


def print_output(data: Any) -> None:
    """What a run gave: whole for programs, cut for people where it is very long."""
    import msgspec

    if sys.stdout.isatty():
        console().print(value(data, characters_max=100_000), soft_wrap=True)
    else:
        sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
        sys.stdout.flush()


def print_json(model: Any) -> None:
    """The wire model itself, on one line: what the API says is what programs get."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(model) + b"\n")
    sys.stdout.flush()
