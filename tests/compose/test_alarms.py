"""Alarms become lines: one each, harmless to a terminal, and not too many."""

from tickwork.compose.alarms import AlarmLog
from tickwork.runtime.alarms import Alarm


def test_a_kind_is_told_once_in_a_while_and_the_rest_is_counted():
    lines, now = [], [0.0]
    log = AlarmLog(lines.append, now_s=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        log(Alarm(second * 1000, "store_unavailable", "it is away"))
    log(Alarm(0, "fenced", "another came"))

    assert len(lines) == 4
    assert lines[0] == "1970-01-01T00:00:00Z store_unavailable: it is away"
    assert lines[1].endswith("(9 more since the last)")
    assert lines[3].endswith("fenced: another came")


def test_what_users_wrote_cannot_forge_lines_or_move_the_cursor():
    lines = []
    AlarmLog(lines.append)(Alarm(0, "run_failed", "a\nb\x1b[2J\r" + "x" * 2_000))

    assert "\n" not in lines[0] and "\x1b" not in lines[0] and len(lines[0]) < 600
