"""Whether to try again, and when.

A delay is a pure function of the policy, the attempt that failed and the seed its owner gives
(tenant, run, task); so a replay waits as long as the first time did, and equal tasks that fail together
come back apart. Jitter is only ever added: no retry comes sooner than the policy says.
"""

from typing import TYPE_CHECKING

import msgspec

from tickwork.core.base.stable_hash import spread
from tickwork.core.definition.model import Retry, RetryRule

if TYPE_CHECKING:
    from tickwork.core.state.state import Settings

SCHEDULE_JITTER_MS_MAX = 10_000
SCHEDULE_JITTER_DIVISOR = 10  # a tenth of the sleep
HANDLER_MISSING = "HandlerMissing"  # what a worker says of a task whose function its application does not have
# Another worker of the queue may have it, or come with the next deployment: about two minutes are given for that.
ELSEWHERE = Retry(attempts=12, delay_ms=100, factor=2, delay_ms_max=30_000)


def backoff_ms(
    retry: Retry, attempt: int, *, seed: tuple[str | int, ...], error: str, bases: tuple[str, ...] = ()
) -> int | None:
    """How long after the failure of this attempt, counted from 1, the next one starts. None: there is no next one."""
    bounds = backoff_bounds_ms(retry, attempt, error=error, bases=bases)
    if bounds is None:
        return None
    low, high = bounds
    return low + spread(high - low, "backoff", attempt, *seed)


def backoff_bounds_ms(retry: Retry, attempt: int, *, error: str, bases: tuple[str, ...] = ()) -> tuple[int, int] | None:
    """The shortest and the longest delay that `backoff_ms` may answer."""
    assert attempt >= 1, "attempts are counted from 1"
    rule = rule_for(retry, error, bases)
    attempts = retry.attempts if rule is None or rule.attempts is None else rule.attempts
    if attempt >= attempts:
        return None
    first_ms = retry.delay_ms if rule is None or rule.delay_ms is None else rule.delay_ms
    low = grown_ms(first_ms, retry.factor, attempt - 1, delay_ms_max=retry.delay_ms_max)
    return low, low + low * retry.jitter_percent // 100


def rule_for(retry: Retry, error: str, bases: tuple[str, ...]) -> RetryRule | None:
    """The first that names the error, a more general type of it, or any."""
    names = (error, *bases, "*")
    return next((rule for rule in retry.rules if rule.error in names), None)


def grown_ms(delay_ms: int, factor: int, times: int, *, delay_ms_max: int) -> int:
    """`delay_ms * factor**times`, capped. Stops at the cap: attempt 1,000,000 costs no more than attempt 40."""
    if factor <= 1 or delay_ms <= 0:
        times = 0
    while times > 0 and delay_ms < delay_ms_max:
        delay_ms *= factor
        times -= 1
    return min(delay_ms, delay_ms_max)


def jitter_ms(schedule_id: str, due_ms: int, sleep_ms: int, *, next_due_ms: int | None = None) -> int:
    """What is added to a schedule's due time. `sleep_ms` is the nominal distance from the due time before it.

    A rhythm may be uneven, as in "at second 0 and 1 of each minute": with `next_due_ms` the answer stays before it.
    """
    limit_ms = jitter_ms_max(sleep_ms)
    if next_due_ms is not None:
        assert next_due_ms > due_ms, "the next due time comes after this one"
        limit_ms = min(limit_ms, next_due_ms - due_ms - 1)
    return spread(limit_ms, "jitter", schedule_id, due_ms)


def jitter_ms_max(sleep_ms: int) -> int:
    return min(max(sleep_ms, 0) // SCHEDULE_JITTER_DIVISOR, SCHEDULE_JITTER_MS_MAX)


class RetryBudget(msgspec.Struct, eq=False):
    """Retries of one dependency, spaced: each books the next free moment, each success frees part of one."""

    booked_ms: int = 0

    def next_ms(self, settings: "Settings", now_ms: int) -> int:
        """The earliest moment that the next retry may have; a whole burst may have it now."""
        gap_ms = settings.retry_gap_ms
        return max(now_ms, self.booked_ms - (settings.retry_burst - 1) * gap_ms)

    def book(self, settings: "Settings", now_ms: int) -> None:
        self.booked_ms = max(self.booked_ms, now_ms) + settings.retry_gap_ms

    def earn(self, settings: "Settings") -> None:
        self.booked_ms -= settings.retry_gap_ms * settings.retry_earned_percent // 100
