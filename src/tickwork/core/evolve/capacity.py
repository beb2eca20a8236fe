"""The part of `evolve` that changes limits, workers and lanes."""

from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.definition.plan import plan_of
from tickwork.core.evolve.indexes import (
    await_token,
    choose_pools,
    forget_token,
    held_at,
    label_gauge,
    new_rated_gauge,
    release_lane,
)
from tickwork.core.evolve.schedules import pause_group, resume_group
from tickwork.core.evolve.worker_pools import forget_code, join_stations, leave_stations, note_code, stir
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import (
    Offer,
    Pause,
    PutLabelLimit,
    PutPolicy,
    PutQueue,
    PutSettings,
    PutTenant,
    RemovePolicy,
    RemoveQueue,
    RemoveWorkflow,
    Resume,
)
from tickwork.core.state.ready_queues import OWED_MS_MAX, SHARE_SCALE, UNLIMITED, Limiter, ReadyQueue, WorkerPool
from tickwork.core.state.state import Policy, Queue, State, Tenant, Worker


def _on_definition(state: State, event: ev.DefinitionPut) -> None:
    request: Any = state.inputs[event.input]
    plan = plan_of(request.document)
    state.plans[event.hash] = plan
    state.documents[event.hash] = request.document
    tenant = state.tenants[request.tenant]
    tenant.versions[event.hash] = plan
    if request.latest or plan.name not in tenant.plans:
        tenant.plans[plan.name] = plan


def _on_tenant(state: State, event: ev.TenantPut) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, PutTenant)
    tenant = state.tenants.get(request.tenant)
    if tenant is None:
        tenant = state.tenants[request.tenant] = Tenant(
            request.tenant, new_rated_gauge(state, "tenant", request.tenant)
        )
        tenant.charged_ms = state.now_ms
    tenant.settle(state.now_ms)
    tenant.weight = request.weight
    tenant.share_unit = SHARE_SCALE // request.weight
    tenant.max_live_runs = UNLIMITED if request.max_live_runs is None else request.max_live_runs
    _set_limits(state, tenant.gauge, request)


def _on_queue(state: State, event: ev.QueuePut) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, PutQueue)
    queue = state.queues.get(request.queue)
    if queue is None:
        queue = state.queues[request.queue] = Queue(request.queue, new_rated_gauge(state, "queue", request.queue))
    queue.removed = False
    _set_limits(state, queue.gauge, request)


def _on_queue_removed(state: State, event: ev.QueueRemoved) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, RemoveQueue)
    queue = state.queues[request.queue]
    queue.removed = True
    queue.gauge.paused, queue.gauge.pause_reason = False, ""
    _set_limits(state, queue.gauge, PutQueue(request.by, request.queue))


def _on_label_limit(state: State, event: ev.LabelLimitPut) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, PutLabelLimit)
    gauge = label_gauge(state, request.label, request.value)
    gauge.limit = UNLIMITED if request.limit is None else request.limit
    stir(state, gauge)


def _set_limits(state: State, gauge: Limiter, request: PutTenant | PutQueue) -> None:
    gauge.limit = UNLIMITED if request.limit is None else request.limit
    if request.rate_starts is None:
        gauge.clear_rate()
    elif request.window == "sliding":
        gauge.set_window(request.rate_starts, request.rate_ms, now_ms=state.now_ms)
    else:
        burst = request.rate_starts if request.burst is None else request.burst
        gauge.set_rate(request.rate_starts, request.rate_ms, burst, now_ms=state.now_ms)
    forget_token(state, gauge)
    await_token(state, gauge)
    stir(state, gauge)


def _on_policy(state: State, event: ev.PolicyPut) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, PutPolicy)
    state.policies[request.policy] = Policy(
        request.policy, request.allow, request.reason, request.action, request.pause_ms
    )


def _on_policy_removed(state: State, event: ev.PolicyRemoved) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, RemovePolicy)
    del state.policies[request.policy]


def _on_workflow_removed(state: State, event: ev.WorkflowRemoved) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, RemoveWorkflow)
    del state.tenants[request.tenant].plans[request.workflow]


def _on_settings(state: State, event: ev.SettingsPut) -> None:
    """Ready queues have their lead and their protection as fields, and what is parked is ordered by the lead."""
    request = state.inputs[event.input]
    assert isinstance(request, PutSettings)
    before = state.settings
    settings = state.settings = msgspec.structs.replace(before, **request.values)
    if state.created_with is None:
        state.created_with = before
    if (settings.ageing_ms, settings.shed_below) == (before.ageing_ms, before.shed_below):
        return
    state.protected = 0
    for _, lane in sorted(state.lane_numbers.items(), key=_number):
        lane.lead_ms = lane.priority * settings.ageing_ms
        lane.protected = lane.priority >= settings.shed_below
        state.protected += lane.live if lane.protected else 0
        if lane.held and lane.live:
            held_at(state, lane).park(lane, state.now_ms)
    stir(state, state.shed)


def _number(pair: tuple[int, ReadyQueue]) -> int:
    return pair[0]


def scope_gauge(state: State, scope: str, tenant: str, name: str) -> Limiter | None:
    """What a pause of a partition, queue, workflow or tenant acts on; None where there is no such thing."""
    if scope == "partition":
        return state.gauge
    if scope == "queue":
        queue = state.queues.get(name)
        return queue.gauge if queue and not queue.removed else None
    owner = state.tenants.get(tenant)
    if owner is None:
        return None
    return owner.gauge if scope == "tenant" else owner.workflow_gauges.get(name)


def _on_paused(state: State, event: ev.ScopePaused) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, Pause)
    if request.scope == "group":
        pause_group(state, state.tenants[request.tenant], request.name, request.reason)
        return
    gauge = _scope_gauge_made(state, request)
    gauge.paused, gauge.pause_reason = True, request.reason


def _on_resumed(state: State, event: ev.ScopeResumed) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, Resume)
    if request.scope == "group":
        resume_group(state, state.tenants[request.tenant], request.name)
        return
    gauge = _scope_gauge_made(state, request)
    gauge.paused, gauge.pause_reason = False, ""
    stir(state, gauge)


def _scope_gauge_made(state: State, request: Pause | Resume) -> Limiter:
    gauge = scope_gauge(state, request.scope, request.tenant, request.name)
    if gauge is None:
        gauges = state.tenants[request.tenant].workflow_gauges
        gauge = gauges[request.name] = Limiter(scope="workflow", name=request.name)
    return gauge


# ---- workers and lanes


def _on_offered(state: State, event: ev.WorkerOffered) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, Offer)
    slots = request.slots or request.credit
    capacity = (slots, request.cpu_milli, request.memory_mb, request.gpu)
    worker = state.workers.get(event.worker)
    before: tuple[WorkerPool, ...] = ()
    if worker is None:
        worker = Worker(event.worker, request.worker, request.queues, dict(request.labels), capacity)
        state.workers[event.worker] = worker
        state.worker_numbers[request.worker] = event.worker
        state.worker_bits |= 1 << event.worker
        note_code(state, worker)
    else:
        _add_capacity(state, worker.capacity, -1)
        before = worker.stations
        leave_stations(worker)
        if (worker.queues, worker.labels) != (request.queues, request.labels):
            forget_code(state, worker)
            worker.queues, worker.labels = request.queues, dict(request.labels)
            note_code(state, worker)
    worker.capacity, worker.credit = capacity, request.credit
    worker.start, worker.process = request.start, request.process
    _add_capacity(state, capacity, 1)
    join_stations(state, worker)
    choose_pools(state, (*before, *worker.stations))


def _add_capacity(state: State, capacity: tuple[int, int, int, int], sign: int) -> None:
    total = state.capacity
    state.capacity = (
        total[0] + sign * capacity[0],
        total[1] + sign * capacity[1],
        total[2] + sign * capacity[2],
        total[3] + sign * capacity[3],
    )
    state.owed_max = OWED_MS_MAX * SHARE_SCALE * max(state.capacity[0], 1)


def _on_worker_gone(state: State, event: ev.WorkerGone) -> None:
    worker = state.workers.pop(event.worker)
    assert not worker.tasks, "its attempts were taken from it before"
    before = worker.stations
    leave_stations(worker)
    choose_pools(state, before)
    forget_code(state, worker)
    _add_capacity(state, worker.capacity, -1)
    del state.worker_numbers[worker.id]
    state.worker_bits &= ~(1 << event.worker)


def _on_lane_held(state: State, event: ev.QueueHeld) -> None:
    lane = state.lane_numbers[event.lane]
    if lane.held:
        release_lane(state, lane)
    lane.held, lane.held_by, lane.held_since = event.reason, event.by, state.tick
    blocker = held_at(state, lane)
    blocker.park(lane, state.now_ms)
    if isinstance(blocker, Limiter):
        blocker.waiting += 1
        await_token(state, blocker)


def _on_rate_due(state: State, event: ev.RateDue) -> None:
    gauge = state.rated[event.gauge]
    forget_token(state, gauge)
    stir(state, gauge)


def _on_load_shed(state: State, event: ev.LoadShed) -> None:
    state.shed.on, state.shed.lag_ms = event.on, event.lag_ms
    stir(state, state.shed)


def _on_version_absent(_state: State, _event: ev.VersionAbsent) -> None:
    """It says why; the dispatch before it has changed the state."""


SETUP_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.DefinitionPut: _on_definition,
    ev.TenantPut: _on_tenant,
    ev.QueuePut: _on_queue,
    ev.LabelLimitPut: _on_label_limit,
    ev.PolicyPut: _on_policy,
    ev.PolicyRemoved: _on_policy_removed,
    ev.QueueRemoved: _on_queue_removed,
    ev.WorkflowRemoved: _on_workflow_removed,
    ev.SettingsPut: _on_settings,
    ev.ScopePaused: _on_paused,
    ev.ScopeResumed: _on_resumed,
    ev.WorkerOffered: _on_offered,
    ev.WorkerGone: _on_worker_gone,
    ev.QueueHeld: _on_lane_held,
    ev.VersionAbsent: _on_version_absent,
    ev.RateDue: _on_rate_due,
    ev.LoadShed: _on_load_shed,
}
