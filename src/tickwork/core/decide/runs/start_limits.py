"""Whether a run may start: the rate of its workflow first, then its concurrency key."""

from tickwork.core.base.errors import Refused
from tickwork.core.decide.runs.run_end import end_run, replace_run
from tickwork.core.decide.tick_context import TickContext, request_extracts
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.model import Concurrency, Over, RunRate, Second
from tickwork.core.state.evaluation_context import ExtractMissing, snapshot
from tickwork.core.state.events import GateTaken, RunGated, RunRated
from tickwork.core.state.lifecycle import RunTrigger
from tickwork.core.state.run_rates import RateKey, earliest_us, rate_words
from tickwork.core.state.state import ConcurrencyGate, Run, State


def may_start(turn: TickContext, run: Run) -> bool:
    """False: it has to wait, it has ended, or its key is not known yet."""
    definition = run.plan.definition
    if definition.rate is not None and run.rate_key is None and not _take_turn(turn, run, definition.rate):
        return False
    return definition.concurrency is None or _enter_gate(turn, run, definition.concurrency)


def _key_of(turn: TickContext, run: Run, condition: Condition | None, what: str) -> str | None:
    """None: it is not known yet, or cannot be computed, and the run has ended."""
    try:
        return _value(turn.state, run, condition)
    except ExtractMissing as missing:
        request_extracts(turn, run, missing)
    except Refused as refused:
        end_run(turn, run, RunTrigger.CANCEL, f"{what}: {refused}")
    return None


def _value(state: State, run: Run, condition: Condition | None) -> str:
    return "" if condition is None else str(condition.value(snapshot(state, run, condition)))


# ---- rates


def _take_turn(turn: TickContext, run: Run, rate: RunRate) -> bool:
    state = turn.state
    key = _key_of(turn, run, run.plan.rate_key, "key of its rate")
    if key is None:
        return False
    bucket = run.tenant.rates.get(run.plan.name, {}).get(key)
    try:
        at_us = earliest_us(bucket, rate, state.now_ms * 1_000)
    except Refused as refused:
        end_run(turn, run, RunTrigger.CANCEL, str(refused))
        return False
    if at_us <= state.now_ms * 1_000:
        turn.emit(RunRated(run.number, key))
        return True
    start_at = max(state.tick + 1, state.settings.clock.tick_at(-(-at_us // 1_000)))
    full = f"{rate_words(rate, key)}, and these have begun"
    if rate.over is Over.DROP:
        end_run(turn, run, RunTrigger.CANCEL, f"{full}: the next may begin at {state.at(start_at)}")
    elif rate.over is Over.LAST and bucket is not None and bucket.waiting:
        _take_place(turn, run, bucket, key, full)
    else:
        turn.emit(RunRated(run.number, key, start_at))
    return False


def _take_place(turn: TickContext, run: Run, bucket: RateKey, key: str, full: str) -> None:
    """Of the run that waits for the same moment."""
    before = turn.state.runs[bucket.waiting]
    turn.emit(RunRated(run.number, key, before.start_at, before.number))
    end_run(turn, before, RunTrigger.CANCEL, f"{full}: the later run {run.id} takes its place")


# ---- concurrency keys


def _enter_gate(turn: TickContext, run: Run, concurrency: Concurrency) -> bool:
    if run.gate is None:
        key = _key_of(turn, run, run.plan.gate_key, "concurrency key")
        if key is None:
            return False
        gate = run.tenant.gates.get((run.plan.name, key))
        if gate is not None and (gate.holding >= concurrency.limit or any(waiter.gated for waiter in gate.line)):
            _find_taken(turn, run, gate, concurrency.second)
            return False
        turn.emit(GateTaken(run.number, key))
    return not run.gated


def _find_taken(turn: TickContext, run: Run, gate: ConcurrencyGate, second: Second) -> None:
    waiting = [waiter for waiter in gate.line if waiter.gated]
    taken = f"the concurrency key {gate.key!r} is taken"
    if second is Second.SKIP:
        end_run(turn, run, RunTrigger.CANCEL, taken)
    elif second is Second.BUFFER_ONE and waiting:
        end_run(turn, run, RunTrigger.CANCEL, f"{taken}, and run {waiting[0].id} waits for it")
    else:
        turn.emit(RunGated(run.number, gate.key))
    if second is Second.REPLACE:
        reason = f"the later run {run.id} takes its concurrency key {gate.key!r}"
        for waiter in waiting:
            end_run(turn, waiter, RunTrigger.CANCEL, reason)
        holder = turn.state.runs.get(gate.holder)
        if holder is not None and holder.gate is gate:
            replace_run(turn, holder, reason)


def take_gate_again(turn: TickContext, run: Run) -> None:
    """A resolved run continues without waiting for the gate, but counts for the runs that come after it."""
    try:
        key = _value(turn.state, run, run.plan.gate_key)
    except (Refused, ExtractMissing):
        return  # its key cannot be computed, so it never started; or it would have to wait until it can
    turn.emit(GateTaken(run.number, key))
