"""The failure detector decides by the given time alone: every case is a row of a table."""

import pytest

from tickwork.runtime.workers.failure_detector import CLOSED_AFTER_MS, LOST_AFTER_MS, FailureDetector

NOW_MS = 1_000_000


class Session:
    def __init__(self, *, heard_ms=NOW_MS, closed_ms=0, peer="", calls=None, process=""):
        self.heard_ms, self.closed_ms, self.peer, self.process = heard_ms, closed_ms, peer, process
        self.calls = calls or {}
        self.woken = False

    def wake(self):
        self.woken = True


class Host:
    def own(self):
        return "host/1"

    def has_ended(self, process):
        return process == "host/ended"


@pytest.mark.parametrize(
    ("silent_ms", "closed_since_ms", "process", "cause"),
    [
        (0, None, "", ""),
        (25_000, None, "", ""),  # the last moment in which two heartbeats may be missing
        (25_001, None, "", "silent"),
        (0, 3_000, "", ""),  # the last moment in which the worker may come back
        (0, 3_001, "", "its connection closed"),
        (25_001, 3_001, "", "silent"),
        (0, None, "host/ended", "its process has ended"),  # proved: not waited for
        (25_001, 3_001, "host/ended", "its process has ended"),
        (0, None, "host/running", ""),
        (25_001, None, "host/running", "silent"),
    ],
)
def test_a_session_is_lost_by_silence_a_closed_connection_or_an_ended_process(
    silent_ms, closed_since_ms, process, cause
):
    closed_ms = 0 if closed_since_ms is None else NOW_MS - closed_since_ms
    session = Session(heard_ms=NOW_MS - silent_ms, closed_ms=closed_ms, process=process)
    detector = FailureDetector(lost_after_ms=LOST_AFTER_MS, closed_after_ms=CLOSED_AFTER_MS, processes=Host())

    assert detector.lost([session], now_ms=NOW_MS) == ([(session, cause)] if cause else [])


@pytest.mark.parametrize("process", ["", "host/ended"])
def test_without_proof_of_this_host_an_ended_process_counts_as_any_other(process):
    session = Session(process=process)
    detector = FailureDetector()

    assert detector.lost([session], now_ms=NOW_MS + LOST_AFTER_MS) == []
    assert detector.lost([session], now_ms=NOW_MS + LOST_AFTER_MS + 1) == [(session, "silent")]


def test_only_those_that_are_lost_are_returned_in_their_order():
    sessions = [Session(heard_ms=NOW_MS - silent_ms) for silent_ms in (600, 0, 501, 500)]

    lost = FailureDetector(lost_after_ms=500).lost(sessions, now_ms=NOW_MS)

    assert lost == [(sessions[0], "silent"), (sessions[2], "silent")]


@pytest.mark.parametrize(
    ("calls", "peer", "closed", "suspected"),
    [
        ({"a": 1}, "a", "a", True),  # the connection of the waiting call
        ({"a": 1}, "b", "b", False),  # an idle connection beside it
        ({"a": 1, "b": 2}, "a", "b", True),
        ({}, "a", "a", True),  # the last connection, and no call waits
        ({}, "a", "b", False),  # one that the worker has replaced
    ],
)
def test_a_closed_connection_concerns_whoever_waited_on_it(calls, peer, closed, suspected):
    session = Session(calls=calls, peer=peer)

    FailureDetector().connection_closed([session], closed, now_ms=NOW_MS)

    assert (session.closed_ms, session.woken) == ((NOW_MS, True) if suspected else (0, False))


def test_a_second_closed_connection_does_not_prolong_the_period():
    session, detector = Session(calls={"a": 1, "b": 1}), FailureDetector()

    detector.connection_closed([session], "a", now_ms=NOW_MS)
    detector.connection_closed([session], "b", now_ms=NOW_MS + CLOSED_AFTER_MS)

    assert session.closed_ms == NOW_MS
    assert detector.lost([session], now_ms=NOW_MS + CLOSED_AFTER_MS + 1) == [(session, "its connection closed")]
