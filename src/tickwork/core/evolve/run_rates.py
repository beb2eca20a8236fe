"""The part of `evolve` by which runs take their turns in the rates of their workflows."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from tickwork.core.definition.model import Over
from tickwork.core.evolve.indexes import clear_timer, set_timer, start_later
from tickwork.core.state import events as ev
from tickwork.core.state.run_rates import SWEEP_AGAIN_MS, SWEEP_MS, SWEPT_MAX, RateKey, booked
from tickwork.core.state.state import Run, State, Timer


def _on_rated(state: State, event: ev.RunRated) -> None:
    run = state.runs[event.run]
    rate = run.plan.definition.rate
    assert rate is not None
    run.rate_key, run.debounce = event.key, ""  # it is over with its debounce key
    keys = run.tenant.rates.setdefault(run.plan.name, {})
    now_us = state.now_ms * 1_000
    bucket = keys.get(event.key)
    if bucket is None:
        bucket = keys[event.key] = RateKey(now_us)
    if not event.replaces:
        bucket.full_us = booked(bucket, rate, now_us)
    if event.start_at:
        start_later(state, run, event.start_at)
        if rate.over is Over.LAST:
            bucket.waiting = run.number
    if not state.rate_keys_due:
        _sweep_in(state, SWEEP_MS)


def no_longer_waits(run: Run) -> None:
    """The run has begun, or has ended before."""
    bucket = run.tenant.rates.get(run.plan.name, {}).get(run.rate_key or "")
    if bucket is not None and bucket.waiting == run.number:
        bucket.waiting = 0


def _on_swept(state: State, _event: ev.RateKeysSwept) -> None:
    """Those that are not full go behind the others, so that each is looked at in its turn."""
    if state.rate_keys_due:
        clear_timer(state, Timer.RATE_KEYS, 0, state.rate_keys_due)
        state.rate_keys_due = 0
    now_us, left, more = state.now_ms * 1_000, SWEPT_MAX, False
    for tenant in state.tenants.values():
        for workflow in list(tenant.rates):
            keys = tenant.rates[workflow]
            more = more or len(keys) > left
            for key in list(islice(keys, left)):
                bucket = keys.pop(key)
                left -= 1
                if bucket.full_us > now_us or bucket.waiting:
                    keys[key] = bucket
            if not keys:
                del tenant.rates[workflow]
    if any(tenant.rates for tenant in state.tenants.values()):
        _sweep_in(state, SWEEP_AGAIN_MS if more else SWEEP_MS)


def _sweep_in(state: State, after_ms: int) -> None:
    tick = state.tick + state.settings.clock.ticks(after_ms)
    state.rate_keys_due = set_timer(state, Timer.RATE_KEYS, 0, tick)


RATE_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.RunRated: _on_rated,
    ev.RateKeysSwept: _on_swept,
}
