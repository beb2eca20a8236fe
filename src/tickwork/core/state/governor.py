"""The Governor: when an endpoint runs next, and why.

A function of the time, the endpoint's state and its cron, so that a repeated call has the same result. It is called at
the end of each run (`after_run`), and again at once when a hint, a pause or an edit arrives (`arrives`). Intervals and
clamps count from the start of the run that has ended, and between two runs from the time of the call.

    candidates   the baseline (cron, or interval with backoff), the interval hint, the one-shot hint
    choice       an interval hint replaces the baseline; a one-shot competes with whichever of the two counts
    clamps       not sooner than `min_ms` from there, then not later than `max_ms` from there
    pause        over all of it

Nothing it answers lies in the past: where a run took so long that the answer does, all of it counts from now instead.
"""

from enum import StrEnum

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.recurrence import EVERY_MS_MAX, EVERY_MS_MIN, Recurrence

BACKOFF_FAILURES_MAX = 5  # 32 times the interval, however long the failures go on


class SignalSource(StrEnum):
    """Why a time was chosen."""

    BASELINE_CRON = "baseline-cron"
    BASELINE_INTERVAL = "baseline-interval"
    AI_INTERVAL = "ai-interval"
    AI_ONESHOT = "ai-oneshot"
    CLAMPED_MIN = "clamped-min"
    CLAMPED_MAX = "clamped-max"
    PAUSED = "paused"


HINTED = frozenset((SignalSource.AI_INTERVAL, SignalSource.AI_ONESHOT))
HINTS_IN_WORDS = {SignalSource.AI_INTERVAL: "interval hint", SignalSource.AI_ONESHOT: "one-shot hint"}


def source_label(source: str, by: str = "") -> str:
    """A source for people. A hint is its sender's, who may be a person or a planner: "interval hint by ann"."""
    hint = HINTS_IN_WORDS.get(source)  # type: ignore[call-overload]
    if hint is None:
        return source
    return f"{hint} by {by}" if by else hint


class GovernorState(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Everything about an endpoint that its next time depends on, except its cron."""

    interval_ms: int | None = None  # None: the baseline is the cron
    failures: int = 0  # in a row
    hint_interval_ms: int | None = None
    hint_at_ms: int | None = None
    hint_expires_ms: int = 0  # of both hints; 0: there are none
    min_ms: int | None = None
    max_ms: int | None = None
    paused_until_ms: int | None = None


class Candidate(msgspec.Struct, frozen=True, gc=False):
    source: SignalSource
    at_ms: int
    every_ms: int | None = None  # the interval that led there, with its backoff


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    next_ms: int | None  # None: the cron has no further occurrence and there is no hint
    source: SignalSource
    chosen: SignalSource  # before clamps and pause
    candidates: tuple[Candidate, ...]  # the baseline first, also where it does not count
    decided_ms: int


def decide(now_ms: int, course: GovernorState, rhythm: Recurrence | None, *, started_ms: int | None = None) -> Decision:
    """`rhythm` is the cron of a course without an interval, and is not looked at otherwise. `started_ms` is the start
    of the run that has just ended: intervals and clamps count from it, unless the answer would lie in the past."""
    if started_ms is not None and started_ms < now_ms:
        decision = _decide(now_ms, course, rhythm, started_ms)
        if decision.next_ms is None or decision.next_ms >= now_ms:
            return decision
    return _decide(now_ms, course, rhythm, now_ms)


def _decide(now_ms: int, course: GovernorState, rhythm: Recurrence | None, from_ms: int) -> Decision:
    candidates = _candidates(now_ms, course, rhythm, from_ms)
    winner = _winner(candidates)
    if winner is None:
        return _ended(now_ms, course)
    return _bounded(now_ms, course, winner, candidates, from_ms)


def after_run(
    course: GovernorState, rhythm: Recurrence | None, *, started_ms: int, now_ms: int, succeeded: bool
) -> tuple[GovernorState, Decision]:
    """The course as a run leaves it, and when the next one begins.

    The run consumes a one-shot that was due when it started, before the Governor decides: otherwise the Governor
    would floor it to now and the endpoint would run at once, again and again. One that fell due meanwhile
    has not had its run, and gets it.
    """
    assert started_ms <= now_ms, "a run does not end before it starts"
    left = consumed(course, started_ms)
    if left.hint_expires_ms <= now_ms:
        left = cleared(left)
    left = msgspec.structs.replace(left, failures=0 if succeeded else course.failures + 1)
    return left, decide(now_ms, left, rhythm, started_ms=started_ms)


def arrives(
    now_ms: int, before: GovernorState, decision: Decision, after: GovernorState, rhythm: Recurrence | None
) -> Decision:
    """What a change of the course does to the decision that stands.

    A hint may only bring the next time forward: a relaxing one would otherwise put off a run that is already
    promised, and a planner that hints often enough would put it off for ever. It stays in the course and counts from
    the decision after that run. A pause, its end, or an edit decides again, in both directions. An edit of the cron
    itself does not show in the course: ask `decide`.
    """
    advised = decide(now_ms, after, rhythm)
    return advised if cleared(before) != cleared(after) else sooner(decision, advised)


def sooner(standing: Decision, decision: Decision) -> Decision:
    """The one that stands, unless the other brings the next time forward."""
    brings = decision.next_ms is not None and (standing.next_ms is None or decision.next_ms < standing.next_ms)
    return decision if brings else standing


def consumed(course: GovernorState, now_ms: int) -> GovernorState:
    """Without a one-shot whose time has come, and without any hint once they have expired."""
    if course.hint_expires_ms <= now_ms:
        return cleared(course)
    if course.hint_at_ms is None or course.hint_at_ms > now_ms:
        return course
    if course.hint_interval_ms is None:
        return cleared(course)
    return msgspec.structs.replace(course, hint_at_ms=None)


def cleared(course: GovernorState) -> GovernorState:
    """Without hints."""
    return msgspec.structs.replace(course, hint_interval_ms=None, hint_at_ms=None, hint_expires_ms=0)


def backoff_interval_ms(interval_ms: int, failures: int) -> int:
    return interval_ms << min(failures, BACKOFF_FAILURES_MAX)


def check_course(course: GovernorState, *, path: str = "") -> None:
    """Raises `Refused` for what could never be kept. Called where a course is set, so that `decide` never fails."""
    for name in ("interval_ms", "hint_interval_ms", "max_ms"):
        length_ms = getattr(course, name)
        if length_ms is not None and not EVERY_MS_MIN <= length_ms <= EVERY_MS_MAX:
            message = f"it must be at least {EVERY_MS_MIN} ms and at most {EVERY_MS_MAX} ms; it is {length_ms}"
            raise Refused("invalid_interval", message, path=_at(path, name))
    if course.min_ms is not None and not 0 <= course.min_ms <= EVERY_MS_MAX:
        message = f"it must be at least 0 and at most {EVERY_MS_MAX} ms; it is {course.min_ms}"
        raise Refused("invalid_interval", message, path=_at(path, "min_ms"))
    if course.min_ms is not None and course.max_ms is not None and course.min_ms > course.max_ms:
        message = (
            f"the minimum of {course.min_ms} ms is above the maximum of {course.max_ms} ms, so no time "
            "could satisfy both; lower the one or raise the other"
        )
        raise Refused("min_above_max", message, path=_at(path, "min_ms"))
    if course.failures < 0:
        raise Refused("invalid_failures", "a number of failures is not negative", path=_at(path, "failures"))
    hinted = course.hint_interval_ms is not None or course.hint_at_ms is not None
    if hinted and course.hint_expires_ms <= 0:
        raise Refused("hint_without_end", "a hint says when it expires", path=_at(path, "hint_expires_ms"))


def _candidates(now_ms: int, course: GovernorState, rhythm: Recurrence | None, from_ms: int) -> tuple[Candidate, ...]:
    candidates: list[Candidate] = []
    if course.interval_ms is not None:
        every_ms = backoff_interval_ms(course.interval_ms, course.failures)
        candidates.append(Candidate(SignalSource.BASELINE_INTERVAL, from_ms + every_ms, every_ms))
    else:
        assert rhythm is not None, "an endpoint has an interval or a cron"
        at_ms = rhythm.next_ms(from_ms)
        if at_ms is not None:
            candidates.append(Candidate(SignalSource.BASELINE_CRON, at_ms))
    if course.hint_expires_ms > now_ms:
        if course.hint_interval_ms is not None:
            hinted_ms = course.hint_interval_ms
            candidates.append(Candidate(SignalSource.AI_INTERVAL, from_ms + hinted_ms, hinted_ms))
        if course.hint_at_ms is not None:
            candidates.append(Candidate(SignalSource.AI_ONESHOT, max(course.hint_at_ms, now_ms)))
    return tuple(candidates)


def _winner(candidates: tuple[Candidate, ...]) -> Candidate | None:
    by_source = {candidate.source: candidate for candidate in candidates}
    interval, oneshot = by_source.get(SignalSource.AI_INTERVAL), by_source.get(SignalSource.AI_ONESHOT)
    baseline = by_source.get(SignalSource.BASELINE_INTERVAL) or by_source.get(SignalSource.BASELINE_CRON)
    steady = interval or baseline
    if oneshot is None or steady is None:
        return oneshot or steady
    return oneshot if oneshot.at_ms <= steady.at_ms else steady  # of two at one instant, the one that was requested


def _bounded(
    now_ms: int, course: GovernorState, winner: Candidate, candidates: tuple[Candidate, ...], from_ms: int
) -> Decision:
    next_ms, source = winner.at_ms, winner.source
    if course.min_ms is not None and next_ms < from_ms + course.min_ms:
        next_ms, source = from_ms + course.min_ms, SignalSource.CLAMPED_MIN
    if course.max_ms is not None and next_ms > from_ms + course.max_ms:
        next_ms, source = from_ms + course.max_ms, SignalSource.CLAMPED_MAX
    if course.paused_until_ms is not None and course.paused_until_ms > now_ms:
        next_ms, source = course.paused_until_ms, SignalSource.PAUSED
    return Decision(next_ms=next_ms, source=source, chosen=winner.source, candidates=candidates, decided_ms=now_ms)


def _ended(now_ms: int, course: GovernorState) -> Decision:
    """A cron that is over stays over: neither `max_ms` nor the end of a pause makes it run once more."""
    paused = course.paused_until_ms is not None and course.paused_until_ms > now_ms
    source = SignalSource.PAUSED if paused else SignalSource.BASELINE_CRON
    return Decision(next_ms=None, source=source, chosen=SignalSource.BASELINE_CRON, candidates=(), decided_ms=now_ms)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
