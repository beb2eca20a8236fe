"""The Governor, sentence by sentence, and the bugs that such schedulers are known for."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.cron import Cron
from tickwork.core.calendar.recurrence import Interval, Recurrence
from tickwork.core.state.governor import (
    Candidate,
    GovernorState,
    SignalSource,
    after_run,
    arrives,
    backoff_interval_ms,
    check_course,
    cleared,
    consumed,
    decide,
)

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NOW = 1_767_261_600_000  # 2026-01-01T10:00:00Z
FOREVER = NOW + 1_000 * HOUR
FIVE = Cron.parse("*/5 * * * *", path="cron")
HOURLY = Cron.parse("0 * * * *", path="cron")


class Over(Recurrence):
    """A cron without a further occurrence."""

    def next_ms(self, after_ms: int) -> int | None:
        return None

    def prev_ms(self, before_ms: int) -> int | None:
        return None


def every(interval_ms: int = 5 * MINUTE, **more) -> GovernorState:
    return GovernorState(interval_ms=interval_ms, **more)


def hinted(
    course: GovernorState, *, interval: int | None = None, at: int | None = None, expires: int = FOREVER
) -> GovernorState:
    return msgspec.structs.replace(course, hint_interval_ms=interval, hint_at_ms=at, hint_expires_ms=expires)


mark = pytest.mark


def case(words: str, proves: pytest.MarkDecorator, *values):
    return pytest.param(*values, id=words, marks=proves)


# fmt: off
CASES = [
    # ---- candidates
    case("cron: the next after now", mark.proves("S003-26", "S003-27", "S003-29", "S003-69"),
         GovernorState(), FIVE, 5 * MINUTE, "baseline-cron"),
    case("interval: now plus interval", mark.proves("S003-30", "S003-70"),
         every(), None, 5 * MINUTE, "baseline-interval"),
    case("no failure: once", mark.proves("S003-66"),
         every(failures=0), None, 5 * MINUTE, "baseline-interval"),
    case("1 failure: twice", mark.proves("S003-32", "S003-66"),
         every(failures=1), None, 10 * MINUTE, "baseline-interval"),
    case("2 failures: 4 times", mark.proves("S003-66"),
         every(failures=2), None, 20 * MINUTE, "baseline-interval"),
    case("3 failures: 8 times", mark.proves("S003-66"),
         every(failures=3), None, 40 * MINUTE, "baseline-interval"),
    case("4 failures: 16 times", mark.proves("S003-66"),
         every(failures=4), None, 80 * MINUTE, "baseline-interval"),
    case("5 failures: 32 times", mark.proves("S003-32", "S003-66"),
         every(failures=5), None, 160 * MINUTE, "baseline-interval"),
    case("6 failures: 32 times", mark.proves("S003-32", "S003-66"),
         every(failures=6), None, 160 * MINUTE, "baseline-interval"),
    case("a million failures: 32 times", mark.proves("S003-66"),
         every(failures=10 ** 6), None, 160 * MINUTE, "baseline-interval"),
    case("a cron has no backoff", mark.proves("S003-32"),
         GovernorState(failures=5), FIVE, 5 * MINUTE, "baseline-cron"),
    case("nor has a hint", mark.proves("S003-32", "S003-33"),
         hinted(every(failures=5), interval=MINUTE), None, MINUTE, "ai-interval"),
    case("interval hint", mark.proves("S003-33", "S003-71"),
         hinted(every(), interval=MINUTE), None, MINUTE, "ai-interval"),
    case("expires after now", mark.proves("S003-34"),
         hinted(every(), interval=MINUTE, expires=NOW + 1), None, MINUTE, "ai-interval"),
    case("expires now: over", mark.proves("S003-34", "S003-42"),
         hinted(every(), interval=MINUTE, expires=NOW), None, 5 * MINUTE, "baseline-interval"),
    case("expired", mark.proves("S003-34", "S003-31"),
         hinted(every(), interval=MINUTE, expires=NOW - 1), None, 5 * MINUTE, "baseline-interval"),
    case("one-shot hint", mark.proves("S003-35", "S003-72"),
         hinted(every(), at=NOW + MINUTE), None, MINUTE, "ai-oneshot"),
    case("expired one-shot", mark.proves("S003-34", "S003-35"),
         hinted(every(), at=NOW + MINUTE, expires=NOW), None, 5 * MINUTE, "baseline-interval"),
    # ---- the four choosing rules
    case("both: interval first, baseline ignored", mark.proves("S003-36"),
         hinted(every(SECOND), interval=2 * MINUTE, at=NOW + 3 * MINUTE), None, 2 * MINUTE, "ai-interval"),
    case("both: one-shot first, baseline ignored", mark.proves("S003-36"),
         hinted(every(SECOND), interval=3 * MINUTE, at=NOW + 2 * MINUTE), None, 2 * MINUTE, "ai-oneshot"),
    case("an interval hint tightens", mark.proves("S003-37", "S003-40"),
         hinted(every(), interval=MINUTE), None, MINUTE, "ai-interval"),
    case("an interval hint relaxes", mark.proves("S003-37", "S003-40"),
         hinted(every(), interval=HOUR), None, HOUR, "ai-interval"),
    case("an interval hint relaxes a cron", mark.proves("S003-37", "S003-40"),
         hinted(GovernorState(), interval=HOUR), FIVE, HOUR, "ai-interval"),
    case("one-shot before the baseline", mark.proves("S003-38", "S003-41"),
         hinted(every(), at=NOW + 4 * MINUTE), None, 4 * MINUTE, "ai-oneshot"),
    case("baseline before the one-shot", mark.proves("S003-38"),
         hinted(every(), at=NOW + 6 * MINUTE), None, 5 * MINUTE, "baseline-interval"),
    case("cron before the one-shot", mark.proves("S003-38"),
         hinted(GovernorState(), at=NOW + 6 * MINUTE), FIVE, 5 * MINUTE, "baseline-cron"),
    case("at one instant the one-shot is named", mark.proves("S003-38"),
         hinted(every(), at=NOW + 5 * MINUTE), None, 5 * MINUTE, "ai-oneshot"),
    case("no hints: the baseline", mark.proves("S003-39", "S003-42"),
         every(), None, 5 * MINUTE, "baseline-interval"),
    # ---- past candidates
    case("a past one-shot runs now", mark.proves("S003-41", "S003-43", "S003-46"),
         hinted(every(), at=NOW - HOUR), None, 0, "ai-oneshot"),
    case("a one-shot for now runs now", mark.proves("S003-46"),
         hinted(every(), at=NOW), None, 0, "ai-oneshot"),
    case("also beside an interval hint", mark.proves("S003-36", "S003-46"),
         hinted(every(), interval=MINUTE, at=NOW - 1), None, 0, "ai-oneshot"),
    # ---- clamps
    case("too soon", mark.proves("S003-48", "S003-73"),
         every(min_ms=6 * MINUTE), None, 6 * MINUTE, "clamped-min"),
    case("exactly at the minimum", mark.proves("S003-48"),
         every(min_ms=5 * MINUTE), None, 5 * MINUTE, "baseline-interval"),
    case("a millisecond too soon", mark.proves("S003-48"),
         every(min_ms=5 * MINUTE + 1), None, 5 * MINUTE + 1, "clamped-min"),
    case("a millisecond too late", mark.proves("S003-49"),
         every(max_ms=5 * MINUTE - 1), None, 5 * MINUTE - 1, "clamped-max"),
    case("too late", mark.proves("S003-49", "S003-74"),
         every(max_ms=4 * MINUTE), None, 4 * MINUTE, "clamped-max"),
    case("exactly at the maximum", mark.proves("S003-49"),
         every(max_ms=5 * MINUTE), None, 5 * MINUTE, "baseline-interval"),
    case("minimum and maximum are one", mark.proves("S003-48", "S003-49"),
         every(min_ms=6 * MINUTE, max_ms=6 * MINUTE), None, 6 * MINUTE, "clamped-min"),
    case("the minimum is above an interval hint", mark.proves("S003-50"),
         hinted(every(min_ms=2 * MINUTE), interval=MINUTE), None, 2 * MINUTE, "clamped-min"),
    case("the minimum is above a one-shot", mark.proves("S003-50"),
         hinted(every(min_ms=2 * MINUTE), at=NOW - 1), None, 2 * MINUTE, "clamped-min"),
    case("the maximum is above a relaxing hint", mark.proves("S003-50"),
         hinted(every(max_ms=10 * MINUTE), interval=HOUR), None, 10 * MINUTE, "clamped-max"),
    case("the maximum is above the backoff", mark.proves("S003-49"),
         every(failures=5, max_ms=HOUR), None, HOUR, "clamped-max"),
    case("the maximum is above a cron", mark.proves("S003-49"),
         GovernorState(max_ms=MINUTE), HOURLY, MINUTE, "clamped-max"),
    # ---- pause
    case("paused", mark.proves("S003-51", "S003-75"),
         every(paused_until_ms=NOW + HOUR), None, HOUR, "paused"),
    case("a pause until now is over", mark.proves("S003-51"),
         every(paused_until_ms=NOW), None, 5 * MINUTE, "baseline-interval"),
    case("a pause in the past is over", mark.proves("S003-51"),
         every(paused_until_ms=NOW - 1), None, 5 * MINUTE, "baseline-interval"),
    case("a pause is the next time even where it ends before the baseline", mark.proves("S003-51"),
         every(paused_until_ms=NOW + 1), None, 1, "paused"),
    case("pause over hints", mark.proves("S003-52"),
         hinted(every(paused_until_ms=NOW + HOUR), interval=MINUTE, at=NOW), None, HOUR, "paused"),
    case("pause over the maximum", mark.proves("S003-52"),
         every(max_ms=MINUTE, paused_until_ms=NOW + HOUR), None, HOUR, "paused"),
    case("pause over the minimum", mark.proves("S003-52"),
         every(min_ms=2 * HOUR, paused_until_ms=NOW + HOUR), None, HOUR, "paused"),
    # ---- a cron that is over
    case("no further occurrence", mark.proves("S003-29"),
         GovernorState(), Over(), None, "baseline-cron"),
    case("the maximum does not revive it", mark.proves("S003-29"),
         GovernorState(max_ms=MINUTE), Over(), None, "baseline-cron"),
    case("nor does a pause", mark.proves("S003-29"),
         GovernorState(paused_until_ms=NOW + HOUR), Over(), None, "paused"),
    case("a one-shot does", mark.proves("S003-38"),
         hinted(GovernorState(), at=NOW + HOUR), Over(), HOUR, "ai-oneshot"),
    case("an interval hint does", mark.proves("S003-37"),
         hinted(GovernorState(), interval=HOUR), Over(), HOUR, "ai-interval"),
]
# fmt: on


@pytest.mark.parametrize(("course", "rhythm", "after_ms", "source"), CASES)
def test_the_next_time_and_its_source(course, rhythm, after_ms, source):
    check_course(course)
    decision = decide(NOW, course, rhythm)

    assert decision.next_ms == (None if after_ms is None else NOW + after_ms)
    assert decision.source == source


@pytest.mark.proves("S003-68", "S003-69", "S003-70", "S003-71", "S003-72", "S003-73", "S003-74", "S003-75")
def test_there_are_seven_sources_and_no_other():
    assert [str(one) for one in SignalSource] == [
        "baseline-cron", "baseline-interval", "ai-interval", "ai-oneshot", "clamped-min", "clamped-max", "paused",
    ]  # fmt: skip


# ---- what may be asked


courses = st.builds(
    GovernorState,
    interval_ms=st.one_of(st.none(), st.integers(1_000, 100 * HOUR)),
    failures=st.integers(0, 100),
    hint_interval_ms=st.one_of(st.none(), st.integers(1_000, 100 * HOUR)),
    hint_at_ms=st.one_of(st.none(), st.integers(NOW - HOUR, NOW + HOUR)),
    hint_expires_ms=st.integers(1, 2 * NOW),
    min_ms=st.one_of(st.none(), st.integers(0, HOUR)),
    max_ms=st.one_of(st.none(), st.integers(HOUR, 10 * HOUR)),
    paused_until_ms=st.one_of(st.none(), st.integers(NOW - HOUR, NOW + HOUR)),
)
rhythms = st.sampled_from([FIVE, HOURLY, Over(), Interval(every_ms=7 * SECOND)])
times = st.integers(NOW - 2 * HOUR, NOW + 2 * HOUR)


@pytest.mark.proves("S003-26", "S003-28", "S003-43", "S003-47", "S003-50", "S003-52")
@given(times, courses, rhythms)
def test_it_is_a_pure_function_and_every_answer_keeps_the_limits(now_ms, course, rhythm):
    check_course(course)
    written = msgspec.json.encode(course)
    decision = decide(now_ms, course, rhythm)

    assert decision == decide(now_ms, msgspec.json.decode(written, type=GovernorState), rhythm)
    assert msgspec.json.encode(course) == written
    paused = course.paused_until_ms is not None and course.paused_until_ms > now_ms
    assert (decision.source is SignalSource.PAUSED) == paused
    if decision.next_ms is None:
        assert decision.candidates == ()
    elif paused:
        assert decision.next_ms == course.paused_until_ms
    else:
        assert decision.next_ms > now_ms or (decision.chosen is SignalSource.AI_ONESHOT and decision.next_ms == now_ms)
        assert now_ms + (course.min_ms or 0) <= decision.next_ms <= now_ms + (course.max_ms or 10**15)
    assert decision.next_ms is None or decision.chosen in [one.source for one in decision.candidates]


@given(times, courses, courses, rhythms)
def test_a_change_of_hints_alone_never_moves_the_next_time_back(now_ms, course, other, rhythm):
    before = decide(now_ms, course, rhythm)
    after = hinted(course, interval=other.hint_interval_ms, at=other.hint_at_ms, expires=other.hint_expires_ms)
    decision = arrives(now_ms + 1, course, before, after, rhythm)

    assert before.next_ms is None or (decision.next_ms is not None and decision.next_ms <= before.next_ms)


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"min_ms": 2_000, "max_ms": 1_999}, "min_above_max", "endpoint.min_ms"),
        ({"min_ms": -1}, "invalid_interval", "endpoint.min_ms"),
        ({"max_ms": 0}, "invalid_interval", "endpoint.max_ms"),
        ({"interval_ms": 999}, "invalid_interval", "endpoint.interval_ms"),
        ({"interval_ms": 10**15}, "invalid_interval", "endpoint.interval_ms"),
        ({"hint_interval_ms": 0, "hint_expires_ms": 1}, "invalid_interval", "endpoint.hint_interval_ms"),
        ({"hint_at_ms": NOW}, "hint_without_end", "endpoint.hint_expires_ms"),
        ({"failures": -1}, "invalid_failures", "endpoint.failures"),
    ],
)
def test_what_could_never_be_kept_is_refused(fields, code, path):
    with pytest.raises(Refused) as refused:
        check_course(GovernorState(**fields), path="endpoint")

    assert (refused.value.code, refused.value.path) == (code, path)


def test_a_decision_keeps_its_candidates():
    course = hinted(every(min_ms=2 * MINUTE), interval=MINUTE)
    decision = decide(NOW, course, None)

    assert decision.candidates == (
        Candidate(SignalSource.BASELINE_INTERVAL, NOW + 5 * MINUTE, 5 * MINUTE),
        Candidate(SignalSource.AI_INTERVAL, NOW + MINUTE, MINUTE),
    )


# ---- after a run


@pytest.mark.proves("S003-54", "S003-55", "S003-67")
def test_failures_count_up_and_the_first_success_ends_the_backoff():
    course, seen = every(), []
    for succeeded in (False, False, True):
        course, decision = after_run(course, None, started_ms=NOW, now_ms=NOW, succeeded=succeeded)
        seen.append((course.failures, decision.next_ms - NOW))

    assert seen == [(1, 10 * MINUTE), (2, 20 * MINUTE), (0, 5 * MINUTE)]


@pytest.mark.parametrize(
    ("course", "left"),
    [
        pytest.param(
            hinted(every(), at=NOW), every(), id="a one-shot whose time has come", marks=mark.proves("S003-56")
        ),
        pytest.param(
            hinted(every(), at=NOW + 1),
            hinted(every(), at=NOW + 1),
            id="one that is to come",
            marks=mark.proves("S003-56"),
        ),
        pytest.param(
            hinted(every(), interval=MINUTE, at=NOW),
            hinted(every(), interval=MINUTE),
            id="the interval hint stays",
            marks=mark.proves("S003-56"),
        ),
        pytest.param(
            hinted(every(), interval=MINUTE, at=NOW + HOUR, expires=NOW),
            every(),
            id="all expired",
            marks=mark.proves("S003-57"),
        ),
        pytest.param(
            hinted(every(), interval=MINUTE, expires=NOW + 1),
            hinted(every(), interval=MINUTE, expires=NOW + 1),
            id="not expired",
            marks=mark.proves("S003-57"),
        ),
        pytest.param(every(), every(), id="nothing to clear", marks=mark.proves("S003-31")),
    ],
)
def test_consumed_and_expired_hints_are_cleared(course, left):
    assert consumed(course, NOW) == left


@pytest.mark.proves("S003-57")
def test_a_hint_that_expires_while_the_endpoint_runs_is_cleared_and_does_not_count():
    course = hinted(every(), interval=MINUTE, expires=NOW + 10)
    course, decision = after_run(course, None, started_ms=NOW, now_ms=NOW + 10, succeeded=True)

    assert course == every() and decision.source == "baseline-interval"


# ---- what arrives between two runs


@pytest.mark.proves("S003-40", "S003-41", "S003-77", "S003-78")
@pytest.mark.parametrize(
    ("after", "next_ms", "source"),
    [
        (hinted(every(), interval=MINUTE), 2 * MINUTE, "ai-interval"),  # tightens at once
        (hinted(every(), at=NOW), MINUTE, "ai-oneshot"),
        (hinted(every(), interval=HOUR), 5 * MINUTE, "baseline-interval"),  # relaxes after the next run
        (hinted(every(), interval=4 * MINUTE), 5 * MINUTE, "baseline-interval"),  # no earlier, so nothing changes
        (every(paused_until_ms=NOW + HOUR), HOUR, "paused"),
        (every(10 * MINUTE), 11 * MINUTE, "baseline-interval"),  # an edit
        (every(min_ms=HOUR), HOUR + MINUTE, "clamped-min"),
    ],
)
def test_a_hint_only_brings_the_next_time_forward_while_pause_and_edit_ask_anew(after, next_ms, source):
    before = decide(NOW, every(), None)
    decision = arrives(NOW + MINUTE, every(), before, after, None)

    assert (decision.next_ms, decision.source) == (NOW + next_ms, source)


def test_the_end_of_a_pause_asks_anew():
    paused = every(paused_until_ms=NOW + HOUR)
    decision = arrives(NOW + MINUTE, paused, decide(NOW, paused, None), every(), None)

    assert (decision.next_ms, decision.source) == (NOW + 6 * MINUTE, "baseline-interval")


def test_clearing_a_relaxing_hint_brings_the_baseline_back_at_once():
    relaxed = hinted(every(), interval=HOUR)
    decision = arrives(NOW + MINUTE, relaxed, decide(NOW, relaxed, None), cleared(relaxed), None)

    assert (decision.next_ms, decision.source) == (NOW + 6 * MINUTE, "baseline-interval")


def test_a_hint_revives_an_endpoint_whose_cron_is_over():
    decision = arrives(
        NOW, GovernorState(), decide(NOW, GovernorState(), Over()), hinted(GovernorState(), at=NOW + 9), Over()
    )

    assert decision.next_ms == NOW + 9


# ---- bugs known from such systems


def test_a_claim_horizon_does_not_run_short_intervals_too_often():
    """A scheduler that takes what is due within the next 10 s ran a 5 s interval at every look."""
    course, starts = every(5 * SECOND), [NOW]
    while len(starts) < 5:
        early_ms = starts[-1] + 1  # taken long before its time, the endpoint asks when to run next
        course, decision = after_run(course, None, started_ms=starts[-1], now_ms=early_ms, succeeded=True)
        starts.append(decision.next_ms)

    assert all(later - earlier >= 5 * SECOND for earlier, later in pairwise(starts))


def test_a_stale_last_run_time_does_not_shorten_an_interval():
    """Counted from a start long ago, the next time came too soon. What would lie in the past counts from now."""
    _, decision = after_run(every(), None, started_ms=NOW - 24 * HOUR, now_ms=NOW, succeeded=True)
    _, prompt = after_run(every(), None, started_ms=NOW, now_ms=NOW, succeeded=True)

    assert decision.next_ms == prompt.next_ms == NOW + 5 * MINUTE


@pytest.mark.proves("S003-43", "S003-44", "S003-45", "S003-47", "S003-65")
@pytest.mark.parametrize("duration_ms", [0, 1, MINUTE, 5 * MINUTE, 7 * MINUTE, 100 * HOUR])
@pytest.mark.parametrize("rhythm", [None, FIVE])
def test_a_slow_run_does_not_leave_the_next_time_in_the_past(duration_ms, rhythm):
    course, now_ms = every() if rhythm is None else GovernorState(), NOW + duration_ms
    _, decision = after_run(course, rhythm, started_ms=NOW, now_ms=now_ms, succeeded=True)

    assert now_ms <= decision.next_ms <= now_ms + 5 * MINUTE


@pytest.mark.proves("S003-43", "S003-44", "S003-45", "S003-46", "S003-48", "S003-49", "S003-64", "S003-85")
@pytest.mark.parametrize(
    ("course", "rhythm", "took_ms", "after_start_ms", "source"),
    [
        (every(), None, MINUTE, 5 * MINUTE, "baseline-interval"),
        (every(), None, 5 * MINUTE, 5 * MINUTE, "baseline-interval"),
        (every(), None, 7 * MINUTE, 12 * MINUTE, "baseline-interval"),
        (hinted(every(), interval=2 * MINUTE), None, MINUTE, 2 * MINUTE, "ai-interval"),
        (hinted(every(), interval=2 * MINUTE), None, 3 * MINUTE, 5 * MINUTE, "ai-interval"),
        (GovernorState(), FIVE, MINUTE, 5 * MINUTE, "baseline-cron"),
        (GovernorState(), FIVE, 7 * MINUTE, 10 * MINUTE, "baseline-cron"),
        (hinted(every(), at=NOW + 2 * MINUTE), None, 3 * MINUTE, 3 * MINUTE, "ai-oneshot"),
        (hinted(every(), at=NOW + 10 * MINUTE), None, 7 * MINUTE, 10 * MINUTE, "ai-oneshot"),  # before 12 minutes
        (every(MINUTE, min_ms=3 * MINUTE), None, 2 * MINUTE, 3 * MINUTE, "clamped-min"),
        (every(MINUTE, min_ms=3 * MINUTE), None, 4 * MINUTE, 7 * MINUTE, "clamped-min"),
        (every(HOUR, max_ms=3 * MINUTE), None, 2 * MINUTE, 3 * MINUTE, "clamped-max"),
        (every(HOUR, max_ms=3 * MINUTE), None, 4 * MINUTE, 7 * MINUTE, "clamped-max"),
    ],
)
def test_intervals_and_limits_count_from_the_start_of_a_run_and_from_now_where_that_is_past(
    course, rhythm, took_ms, after_start_ms, source
):
    _, decision = after_run(course, rhythm, started_ms=NOW, now_ms=NOW + took_ms, succeeded=True)

    assert (decision.next_ms - NOW, decision.source) == (after_start_ms, source)


@pytest.mark.proves("S003-47", "S003-56")
@pytest.mark.parametrize(("duration_ms", "next_ms"), [(0, 5 * MINUTE), (1, 5 * MINUTE), (HOUR, HOUR + 5 * MINUTE)])
def test_a_consumed_one_shot_does_not_loop(duration_ms, next_ms):
    course = hinted(every(), at=NOW)
    course, decision = after_run(course, None, started_ms=NOW, now_ms=NOW + duration_ms, succeeded=True)

    assert course.hint_at_ms is None
    assert (decision.source, decision.next_ms) == ("baseline-interval", NOW + next_ms)


def test_a_one_shot_that_falls_due_during_a_run_gets_its_own_run_and_only_one():
    course = hinted(every(), at=NOW + SECOND)
    course, second = after_run(course, None, started_ms=NOW, now_ms=NOW + MINUTE, succeeded=True)
    course, third = after_run(course, None, started_ms=second.next_ms, now_ms=second.next_ms, succeeded=True)

    assert (second.source, second.next_ms) == ("ai-oneshot", NOW + MINUTE)
    assert (third.source, third.next_ms) == ("baseline-interval", NOW + 6 * MINUTE)


@pytest.mark.proves("S003-40")
def test_a_relaxing_hint_is_not_ignored():
    relaxed = hinted(every(), interval=HOUR)
    promised = arrives(NOW + MINUTE, every(), decide(NOW, every(), None), relaxed, None)
    _, later = after_run(relaxed, None, started_ms=promised.next_ms, now_ms=promised.next_ms, succeeded=True)

    assert (promised.next_ms, promised.source) == (NOW + 5 * MINUTE, "baseline-interval")
    assert (later.next_ms, later.source) == (NOW + 5 * MINUTE + HOUR, "ai-interval")


def test_a_minimum_above_the_maximum_is_refused_when_it_is_set():
    with pytest.raises(Refused, match="2000 ms is above the maximum of 1000 ms"):
        check_course(every(min_ms=2 * SECOND, max_ms=SECOND))


@pytest.mark.proves("S003-32", "S003-66")
@given(st.integers(1, 10**12), st.integers(0, 10**9))
def test_backoff_doubles_five_times_at_most(interval_ms, failures):
    assert backoff_interval_ms(interval_ms, failures) == interval_ms * 2 ** min(failures, 5)
