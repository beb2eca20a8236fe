"""Submissions: a run is accepted and created, or refused; a repeated one is answered with the run that exists."""

import re

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.runs.chosen_values import is_served
from tickwork.core.decide.tick_context import (
    TickContext,
    answer,
    check_key,
    check_room,
    check_same,
    earlier_run,
    tenant_of,
)
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN
from tickwork.core.definition.node_validation import NodeValidator, check_retry
from tickwork.core.definition.plan import Plan
from tickwork.core.definition.problems import Problems
from tickwork.core.definition.run_labels import check_tags
from tickwork.core.definition.validation import plain_condition
from tickwork.core.evolve.run_creation import submitted
from tickwork.core.evolve.versions import pinned
from tickwork.core.state import inputs
from tickwork.core.state.events import (
    Duplicate,
    RunDebounced,
    RunSubmitted,
)
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.state import State, Tenant

DELAY_MS_MAX = 100 * 366 * 86_400_000
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+~@=-]{0,254}")
_is_plain_id = re.compile(r"[A-Fa-f0-9][A-Fa-f0-9-]{0,63}").fullmatch  # as most ids are: they need no other check


def submit(turn: TickContext, position: int, submit: inputs.Submit) -> None:
    state = turn.state
    tenant = state.tenants.get(submit.tenant) or tenant_of(state, submit.tenant)
    if submit.terms is not None:
        _submit_on_terms(turn, position, submit, tenant, submit.terms)
        return
    plan = tenant.plans.get(submit.workflow) or _plan(tenant, submit)
    run_id = submit.run_id
    if run_id in tenant.runs.of(run_id):
        _answer_duplicate(turn, position, run_id)
        return
    if (
        submit.inputs is not None
        or plan.definition.inputs
        or tenant.active >= tenant.max_live_runs
        or state.live_runs >= state.settings.max_live_runs
        or not _is_plain_id(run_id)
    ):
        check_submission(state, tenant, plan, submit)
    number = state.next_number
    turn.events.append(RunSubmitted(number, position))
    submitted(state, number, submit, tenant, plan)


def _submit_on_terms(
    turn: TickContext, position: int, submit: inputs.Submit, tenant: Tenant, terms: inputs.SubmitOptions
) -> None:
    state = turn.state
    same, start_at = check_start(state, submit, terms)
    if same is not None:
        _answer_duplicate(turn, position, same)
        return
    pending = tenant.debounced.get((submit.workflow, terms.debounce)) if terms.debounce else None
    if pending is not None and pending.state == RunState.PENDING and pending.start_at:
        require_inputs(pending.plan.definition, submit.inputs)  # the run keeps the version that accepted it
        if terms.at_most_ms is not None:
            latest = pending.submitted + state.settings.clock.ticks(terms.at_most_ms)
            start_at = max(state.tick + 1, min(start_at, latest))
        turn.emit(RunDebounced(pending.number, position, start_at))
        answer(turn, position, pending.id)
        return
    turn.emit(RunSubmitted(state.next_number, position, start_at))


def check_start(state: State, submit: inputs.Submit, terms: inputs.SubmitOptions) -> tuple[str | None, int]:
    """The run that this submission has begun already, if any, and the tick at which a new one starts (0: now). Raises
    `Refused` where it can begin none."""
    tenant = tenant_of(state, submit.tenant)
    plan = _plan(tenant, submit)
    if terms.version and pinned(tenant, submit.workflow, terms.version) != (terms.version, terms.definition):
        raise Refused("version_changed", "this version was registered anew meanwhile; try again", path="version")
    for field in ("key", "body", "debounce"):
        check_key(getattr(terms, field), field)
    same = _earlier(state, tenant, submit, terms)
    if same is not None:
        return same, 0
    check_submission(state, tenant, plan, submit)
    if terms.priority is not None and not PRIORITY_MIN <= terms.priority <= PRIORITY_MAX:
        raise Refused("bad_priority", f"priority is {PRIORITY_MIN} to {PRIORITY_MAX}", path="priority")
    _check_own(state, terms)
    return None, _start_tick(state, terms)


def _check_own(state: State, terms: inputs.SubmitOptions) -> None:
    """What the submission says instead of its workflow is checked like that."""
    if terms.queue and not is_served(state, terms.queue):
        message = f"no worker serves the queue {shortened(terms.queue, 128)!r}, and it is not declared"
        raise Refused("unknown_queue", f"{message}; start a worker with it", path="queue")
    if terms.own is None:
        return
    rules = NodeValidator(Problems(), plain_condition)
    rules.problems.duration("timeout_ms", terms.own.timeout_ms)
    check_retry(terms.own.retry, "retry", rules)
    check_tags(terms.own.tags, path="tags")
    for problem in rules.problems.listed()[:1]:
        raise Refused(problem.code, problem.message, path=problem.path)


def _plan(tenant: Tenant, submit: inputs.Submit) -> Plan:
    definition = submit.terms.definition if submit.terms is not None else ""
    plan = tenant.versions.get(definition) if definition else tenant.plans.get(submit.workflow)
    if plan is None or plan.name != submit.workflow:
        raise Refused(
            "unknown_workflow",
            f"there is no workflow {shortened(submit.workflow, 128)!r} {definition}",
            path="workflow",
        )
    return plan


def _earlier(state: State, tenant: Tenant, submit: inputs.Submit, terms: inputs.SubmitOptions) -> str | None:
    """The run that this submission already made: by id for ever, by key within the window."""
    run = tenant.runs.get(submit.run_id)
    if run is not None:
        check_same(run.body, terms.body, f"run {submit.run_id}")
        return run.id
    return earlier_run(state, tenant, terms.key, terms.body, terms.known, run_id=submit.run_id)


def check_submission(state: State, tenant: Tenant, plan: Plan, submit: inputs.Submit) -> None:
    _check_run_id(submit.run_id)
    check_room(state, tenant, 1)
    if submit.inputs is not None or plan.definition.inputs:
        require_inputs(plan.definition, submit.inputs)


def _check_run_id(run_id: str) -> None:
    if _RUN_ID.fullmatch(run_id) is None:
        raise Refused("bad_run_id", "letters, digits and _.:+~@=- only, at most 255", path="run_id")
    if run_id.startswith("sched-"):
        raise Refused("reserved_id", "ids that begin with sched- are those of scheduled runs", path="run_id")


def _start_tick(state: State, terms: inputs.SubmitOptions) -> int:
    clock = state.settings.clock
    if terms.start_at_ms is not None and terms.delay_ms is not None:
        raise Refused("two_start_times", "give a start time or a delay, not both", path="delay_ms")
    if terms.debounce and not terms.delay_ms:
        raise Refused("debounce_without_delay", "a debounce key needs the delay to wait for", path="debounce")
    if terms.at_most_ms is not None:
        _check_at_most(terms, terms.at_most_ms)
    wait_ms = terms.delay_ms
    if terms.start_at_ms is not None:
        wait_ms = max(0, terms.start_at_ms - state.now_ms)
    if wait_ms is None:
        return 0
    if not 0 <= wait_ms <= DELAY_MS_MAX:
        raise Refused("bad_delay", f"a delay is 0 to {DELAY_MS_MAX} ms", path="delay_ms")
    return state.tick + clock.ticks(wait_ms) if wait_ms else 0


def _check_at_most(terms: inputs.SubmitOptions, at_most_ms: int) -> None:
    if not terms.debounce:
        message = "only a debounced run has a latest start: give a debounce key"
        raise Refused("at_most_without_debounce", message, path="at_most_ms")
    if not (terms.delay_ms or 0) <= at_most_ms <= DELAY_MS_MAX:
        raise Refused("bad_at_most", f"the latest start is the delay to {DELAY_MS_MAX} ms", path="at_most_ms")


def _answer_duplicate(turn: TickContext, position: int, run_id: str) -> None:
    turn.emit(Duplicate(position, run_id))
    answer(turn, position, run_id)
