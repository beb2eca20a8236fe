"""Alarms on standard error: one line each, and not the same kind all the time."""

import time
from collections.abc import Callable

from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import instant_text
from tickwork.runtime.alarms import Alarm

QUIET_S = 10.0
CHARACTERS_MAX = 500


class AlarmLog:
    """`tell` gets a line. Alarms of the same kind within `QUIET_S` are counted, and the next line has their number."""

    def __init__(self, tell: Callable[[str], None], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._now_s = now_s
        self._printed: dict[str, tuple[float, int]] = {}  # when, and how many since

    def __call__(self, alarm: Alarm) -> None:
        now_s = self._now_s()
        printed_s, since = self._printed.get(alarm.kind, (float("-inf"), 0))
        if now_s - printed_s < QUIET_S:
            self._printed[alarm.kind] = (printed_s, since + 1)
            return
        self._printed[alarm.kind] = (now_s, 0)
        more = f" ({since} more since the last)" if since else ""
        line = " ".join("".join(c if c.isprintable() else " " for c in alarm.text).split())
        text = shortened(line, CHARACTERS_MAX)
        self._tell(f"{instant_text(alarm.at_ms)} {alarm.kind}: {text}{more}")
