"""Alone at once, in a crowd at a distance."""

from tickwork.runtime.partition.pacing import GATHER_S, MANY, REST_S, TickPacer


def heard(pace: TickPacer, *, every_s: float, times: int, since: float = 100.0) -> float:
    for number in range(times):
        pace.heard(since + number * every_s)
    return since + times * every_s


def test_a_call_alone_waits_for_nobody():
    pace = TickPacer()
    now = heard(pace, every_s=0.02, times=50)
    pace.ticked(now)

    assert pace.wait_s(now, waiting=1) <= 0


def test_where_calls_come_often_ticks_keep_a_distance_unless_much_waits():
    pace = TickPacer()
    now = heard(pace, every_s=0.002, times=50)
    pace.ticked(now)

    assert 0 < pace.wait_s(now + GATHER_S / 2, waiting=1) <= GATHER_S / 2
    assert pace.wait_s(now + GATHER_S, waiting=1) <= 0
    assert pace.wait_s(now, waiting=MANY) <= 0


def test_after_a_pause_the_first_call_waits_for_nobody():
    pace = TickPacer()
    now = heard(pace, every_s=0.001, times=50) + REST_S
    pace.heard(now)
    pace.ticked(now)

    assert pace.wait_s(now, waiting=1) <= 0
