"""Alarms that are kept: the latest, equal ones once with a count."""

from tickwork.runtime.alarms import KEPT, Alarms


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def wall_ms(self) -> int:
        self.now += 1
        return self.now


def test_equal_alarms_are_kept_once_with_their_latest_time_and_a_count():
    alarms, heard = Alarms(Clock()), []  # type: ignore[arg-type]
    alarms.on_alarm = heard.append
    alarms.add("dead_letter", "default/r: m: ValueError")
    alarms.add("fenced", "another came")
    for _ in range(1_233):
        alarms.add("dead_letter", "default/r: m: ValueError")

    assert [alarm.line() for alarm in alarms.recent] == [
        "fenced: another came",
        "dead_letter: default/r: m: ValueError (1,234 times)",
    ]
    assert alarms.recent[-1].at_ms == 1_235
    assert alarms.counts == {"dead_letter": 1_234, "fenced": 1}
    assert len(heard) == 1_235


def test_the_latest_alarms_are_kept():
    alarms = Alarms(Clock())  # type: ignore[arg-type]
    for number in range(KEPT + 5):
        alarms.add("late", f"s{number}")

    assert [alarm.text for alarm in alarms.recent] == [f"s{number}" for number in range(5, KEPT + 5)]
