import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.definition.model import Retry, RetryRule
from tickwork.core.state.retry import backoff_bounds_ms, backoff_ms, jitter_ms

PLAIN = Retry(attempts=6, delay_ms=1_000, factor=2, delay_ms_max=5_000, jitter_percent=0)

retries = st.builds(
    Retry,
    attempts=st.integers(1, 10**9),
    delay_ms=st.integers(0, 10**7),
    factor=st.integers(1, 10),
    delay_ms_max=st.integers(0, 10**9),
    jitter_percent=st.integers(0, 100),
)


@pytest.mark.proves("S001-12", "S001-13")
@pytest.mark.parametrize(
    ("attempt", "delay_ms"),
    [(1, 1_000), (2, 2_000), (3, 4_000), (4, 5_000), (5, 5_000), (6, None), (7, None)],
)
def test_delays_double_up_to_the_cap_and_end_with_the_attempts(attempt, delay_ms):
    assert backoff_ms(PLAIN, attempt, seed=("run", "task"), error="ValueError") == delay_ms


@pytest.mark.proves("S001-13")
@pytest.mark.parametrize(
    ("error", "attempt", "delay_ms"),
    [
        ("TimeoutError", 1, 50),  # its rule
        ("TimeoutError", 2, None),
        ("ValueError", 1, None),  # one attempt in all: never again
        ("OSError", 1, 1_000),  # the first rule that fits counts: "*" says nothing about the delay
        ("OSError", 2, 2_000),
        ("OSError", 3, None),
    ],
)
def test_the_first_rule_that_names_the_error_counts(error, attempt, delay_ms):
    rules = (
        RetryRule(error="TimeoutError", attempts=2, delay_ms=50),
        RetryRule(error="ValueError", attempts=1),
        RetryRule(error="*", attempts=3),
        RetryRule(error="OSError", attempts=99),
    )
    retry = Retry(attempts=6, delay_ms=1_000, delay_ms_max=5_000, jitter_percent=0, rules=rules)

    assert backoff_ms(retry, attempt, seed=(), error=error) == delay_ms


@pytest.mark.proves("I32", "S001-15", "S001-95")
@given(retries, st.integers(1, 10**9), st.text(), st.integers())
def test_a_delay_lies_within_its_bounds_and_is_the_same_again(retry, attempt, run_id, task):
    delay_ms = backoff_ms(retry, attempt, seed=(run_id, task), error="E")
    bounds = backoff_bounds_ms(retry, attempt, error="E")

    assert delay_ms == backoff_ms(retry, attempt, seed=(run_id, task), error="E")
    assert (delay_ms is None) == (bounds is None) == (attempt >= retry.attempts)
    if delay_ms is not None and bounds is not None:
        low, high = bounds
        assert low <= delay_ms <= high <= retry.delay_ms_max * (100 + retry.jitter_percent) // 100


@pytest.mark.proves("I32")
@given(retries, st.integers(1, 40))
def test_the_lower_bound_is_the_formula(retry, attempt):
    bounds = backoff_bounds_ms(retry, attempt, error="E")

    if bounds is not None:
        assert bounds[0] == min(retry.delay_ms * retry.factor ** (attempt - 1), retry.delay_ms_max)


@pytest.mark.proves("S001-15", "S001-95")
def test_tasks_that_failed_together_come_back_apart():
    retry = Retry(attempts=3, delay_ms=100_000, jitter_percent=10)
    given = [backoff_ms(retry, 1, seed=("run", number), error="E") for number in range(100)]
    delays = [delay for delay in given if delay is not None]

    assert len(set(delays)) > 90
    assert max(delays) - min(delays) > 8_000


@pytest.mark.proves("I58", "S004-17", "S004-18")
@pytest.mark.parametrize(
    ("sleep_ms", "limit_ms"),
    [(-5, 0), (0, 0), (9, 0), (1_000, 100), (60_000, 6_000), (100_000, 10_000), (3_600_000, 10_000)],
)
def test_schedule_jitter_is_a_tenth_of_the_sleep_and_at_most_ten_seconds(sleep_ms, limit_ms):
    jitters = [jitter_ms("nightly", due_ms, sleep_ms) for due_ms in range(0, 60_000_000, 60_000)]

    assert min(jitters) >= 0
    assert limit_ms * 95 // 100 <= max(jitters) <= limit_ms


@pytest.mark.proves("I58")
@given(st.text(), st.integers(0, 10**14), st.integers(0, 10**9), st.integers(1, 10**9))
def test_schedule_jitter_depends_on_nothing_else_and_stays_before_the_next_due_time(name, due_ms, sleep_ms, gap_ms):
    jitter = jitter_ms(name, due_ms, sleep_ms, next_due_ms=due_ms + gap_ms)

    assert jitter == jitter_ms(name, due_ms, sleep_ms, next_due_ms=due_ms + gap_ms)
    assert due_ms <= due_ms + jitter < due_ms + gap_ms
    assert due_ms + jitter_ms(name, due_ms, gap_ms) < due_ms + gap_ms  # an even rhythm needs no such help


@pytest.mark.parametrize(
    ("error", "bases", "delay_ms"),
    [
        ("ConnectionResetError", ("ConnectionError", "OSError"), 50),  # by a base, and the first rule counts
        ("PermissionError", ("OSError",), None),
        ("OSError", (), None),
        ("ValueError", (), 1_000),
    ],
)
def test_a_rule_counts_for_the_errors_derived_from_what_it_names(error, bases, delay_ms):
    rules = (RetryRule(error="ConnectionError", delay_ms=50), RetryRule(error="OSError", attempts=1))
    retry = Retry(attempts=6, delay_ms=1_000, jitter_percent=0, rules=rules)

    assert backoff_ms(retry, 1, seed=(), error=error, bases=bases) == delay_ms
