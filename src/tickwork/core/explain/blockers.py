"""What can stand in the way of work, and what of it holds a task that stands in its lane.

An obstacle says three things: what holds, since and until when, and what would let go; once for
people, once for programs. A ready queue is checked for everything that `admission.what_holds` checks, in the same
order, but not only up to the first answer.
"""

from enum import StrEnum

import msgspec

from tickwork.core.decide.admission import fits
from tickwork.core.evolve.worker_pools import has_credit
from tickwork.core.explain.resource_requests import Resources, amounts, could_meet, nearest, unmet_text
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.ready_queues import Limiter, ReadyQueue
from tickwork.core.state.state import State, Task, Worker

Fact = int | str | list[str]
RESOURCE_NAMES = ("slots", "cpu_milli", "memory_mb", "gpu")


class BlockKind(StrEnum):
    """What can stand in the way."""

    DELAY = "delay"  # its start time has not come
    DEBOUNCE = "debounce"  # nor has the end of the silence it waits for
    KEY = "key"  # other runs have its concurrency key
    VISIT = "visit"  # nothing: it is in line to be looked at
    TURN = "turn"  # nothing: its lane is served in the next tick
    PAUSED = "paused"  # its run, tenant, workflow or queue
    LIMIT = "limit"
    RATE = "rate"
    LOAD = "load"
    CREDIT = "credit"
    RESOURCES = "resources"
    PARENTS = "parents"
    BACKOFF = "backoff"
    LOOKUP = "lookup"
    RUNNING = "running"
    WAIT = "wait"
    EVENT = "event"
    APPROVAL = "approval"
    CHILDREN = "children"


NOTHING_HOLDS = (BlockKind.VISIT, BlockKind.TURN)


class Remedy(msgspec.Struct, frozen=True):
    """What would help, for programs: time, tick, resume, limit, worker, credit, resources, load, runs, nodes,
    result, answer, event, approval or children; of what; and for time the tick."""

    kind: str
    subject: str = ""
    at: int = 0


class BlockReason(msgspec.Struct, frozen=True, kw_only=True):
    held: BlockKind
    by: str  # scope:name
    text: str
    remedy: str
    needs: Remedy
    since: int = 0  # tick; 0: the state does not say
    held_ms: int = 0  # since then
    until: int = 0  # tick at which it ends by itself, or gives up; 0: not by time
    facts: dict[str, Fact] = {}


def obstacle(
    state: State, held: BlockKind, by: str, text: str, remedy: str, needs: Remedy, *, since: int = 0, until: int = 0,
    **facts: Fact,
) -> BlockReason:  # fmt: skip
    clock = state.settings.clock
    held_ms = max(0, clock.ms_of(state.tick) - clock.ms_of(since)) if since else 0
    return BlockReason(
        held=held, by=by, text=text, remedy=remedy, needs=needs, since=since, held_ms=held_ms, until=until, facts=facts
    )


# ---- standing in a lane


def in_line(state: State, task: Task) -> tuple[BlockReason, ...]:
    """Every reason that `admission.what_holds` would name in turn."""
    lane = task.lane
    assert lane is not None
    reasons = [held for gauge in lane.gauges for held in _of_gauge(state, task, lane, gauge)]
    if state.shed.on and not lane.protected:
        reasons.append(_load(state, task, lane))
    reasons += _of_workers(state, task, lane)
    return tuple(reasons) or (_turn(state, task),)


def _of_lane(
    state: State,
    task: Task,
    lane: ReadyQueue,
    held: BlockKind,
    by: str,
    text: str,
    remedy: str,
    needs: Remedy,
    **facts: Fact,
) -> BlockReason:
    known = (lane.held, lane.held_by) == (held, by)
    until = needs.at or (task.due if task.phase == Phase.READY else 0)  # then it gives up
    # A lane records what holds it first; since when anything else does, the state does not say.
    since = max(state.settings.clock.tick_at(task.ready_ms), lane.held_since) if known else 0
    return obstacle(state, held, by, text, remedy, needs, since=since, until=until, **facts)


def _of_gauge(state: State, task: Task, lane: ReadyQueue, gauge: Limiter) -> list[BlockReason]:
    reasons: list[BlockReason] = []
    name, what = gauge.label, f"{gauge.scope} {gauge.name}"
    if gauge.paused:
        why = f" ({gauge.pause_reason})" if gauge.pause_reason else ""
        reasons.append(
            _of_lane(
                state, task, lane, BlockKind.PAUSED, name, f"{what} is paused{why}", f"Resume {what}.",
                Remedy("resume", name), reason=gauge.pause_reason,
            )
        )  # fmt: skip
    if gauge.running >= gauge.limit:
        reasons.append(
            _of_lane(
                state, task, lane, BlockKind.LIMIT, name, f"{what} runs {gauge.running} of {gauge.limit} at once",
                f"Raise the limit of {what}, or wait for work of it to end.", Remedy("limit", name),
                running=gauge.running, limit=gauge.limit,
            )
        )  # fmt: skip
    if gauge.rate_ms and gauge.tokens_at(state.now_ms) < gauge.rate_ms:
        at = max(state.settings.clock.tick_at(gauge.next_token_ms(state.now_ms)), state.tick + 1)
        reasons.append(
            _of_lane(
                state, task, lane, BlockKind.RATE, name,
                f"{what} may start {gauge.rate_starts} per {gauge.rate_ms} ms, the next one at {state.at(at)}",
                f"Wait until {state.at(at)}, or raise the rate of {what}.", Remedy("time", name, at),
                rate_starts=gauge.rate_starts, rate_ms=gauge.rate_ms, burst=gauge.burst,
            )
        )  # fmt: skip
    return reasons


def _load(state: State, task: Task, lane: ReadyQueue) -> BlockReason:
    lag_ms, below = state.shed.lag_ms, state.settings.shed_below
    return _of_lane(
        state, task, lane, BlockKind.LOAD, "load",
        f"important work lagged by {lag_ms} ms, so priorities below {below} are held, and this has {lane.priority}",
        f"Add workers, or wait until the lag is under {state.settings.shed_lag_ms // 2} ms.", Remedy("load",
        "partition"),
        lag_ms=lag_ms, shed_below=below, priority=lane.priority,
    )  # fmt: skip


def _of_workers(state: State, task: Task, lane: ReadyQueue) -> list[BlockReason]:
    station = lane.station
    where, serving = _where(lane), _serving(state, lane)
    by = f"queue:{station.queue}"
    if not serving:
        return [
            _of_lane(
                state, task, lane, BlockKind.CREDIT, by, f"no worker serves {where}", f"Start a worker for {where}.",
                Remedy("worker", where), workers=0, busy=0,
            )
        ]  # fmt: skip
    reasons: list[BlockReason] = []
    free = [worker for worker in serving if has_credit(worker)]
    if not free:
        idle = sum(not worker.credit for worker in serving)
        reasons.append(
            _of_lane(
                state, task, lane, BlockKind.CREDIT, by,
                f"none of the {len(serving)} workers that serve {where} has credit left, {idle} of them offer none",
                "Wait for one of their attempts to end, or add workers.", Remedy("credit", where),
                workers=len(serving), busy=len(serving) - idle, offering_nothing=idle,
            )
        )  # fmt: skip
    if not any(could_meet(worker, lane.resources) for worker in serving):
        reasons.append(_too_large(state, task, lane, where, serving))
    elif free and not any(fits(worker, lane.resources) for worker in free):
        reasons.append(_resources(state, task, lane, where, free))
    return reasons


def too_large_request(state: State, task: Task) -> str:
    """Why a task that stands in its lane waits for ever with the workers that are connected; "" where it does not."""
    lane = task.lane
    if not task.queued or lane is None or lane.plain:
        return ""
    serving = _serving(state, lane)
    if not serving or any(could_meet(worker, lane.resources) for worker in serving):
        return ""
    return f"it {unmet_text(serving, lane.resources, _where(lane))}"


def _serving(state: State, lane: ReadyQueue) -> list[Worker]:
    return [worker for _, worker in sorted(state.workers.items()) if lane.station.serves(worker)]


def _where(lane: ReadyQueue) -> str:
    labels = [f"{name.lstrip(':')}={value}" for name, value in lane.station.labels]
    return " ".join([f"queue:{lane.station.queue}", *labels])


def _too_large(state: State, task: Task, lane: ReadyQueue, where: str, serving: list[Worker]) -> BlockReason:
    """No worker that is connected could ever start it."""
    best = nearest(serving, {worker.id: worker.capacity for worker in serving}, lane.resources)
    return _of_lane(
        state, task, lane, BlockKind.RESOURCES, f"queue:{lane.station.queue}",
        f"it {unmet_text(serving, lane.resources, where)}",
        f"Start a worker for {where} that has {amounts(lane.resources, lane.resources)}.", Remedy("resources", where),
        wants=_named(lane.resources, lane.resources), best=best.id, best_has=_named(best.capacity, lane.resources),
        possible=0,
    )  # fmt: skip


def _resources(state: State, task: Task, lane: ReadyQueue, where: str, workers: list[Worker]) -> BlockReason:
    left: dict[str, Resources] = {}
    for worker in workers:
        (slots, cpu, memory, gpu), more = worker.capacity, worker.more
        left[worker.id] = (slots - worker.slots, cpu - more[0], memory - more[1], gpu - more[2])
    best = nearest(workers, left, lane.resources)
    has = amounts(left[best.id], lane.resources)
    return _of_lane(
        state, task, lane, BlockKind.RESOURCES, f"queue:{lane.station.queue}",
        f"it wants {amounts(lane.resources, lane.resources)}; of the workers that serve {where}, {best.id} comes "
        f"nearest with {has} left",
        "Wait for one of their attempts to end, or add a worker that is large enough.", Remedy("resources", where),
        wants=_named(lane.resources, lane.resources), best=best.id,
        best_has=_named(left[best.id], lane.resources), possible=1,
    )  # fmt: skip


def _named(resources: Resources, requested: Resources) -> str:
    """For programs, by the names that documents have for them."""
    pairs = zip(RESOURCE_NAMES, resources, requested, strict=True)
    return ", ".join(f"{name} {amount}" for name, amount, needed in pairs if needed)


def _turn(state: State, task: Task) -> BlockReason:
    return obstacle(
        state, BlockKind.TURN, "tick", "nothing holds it: the last tick was full, its lane is served in the next",
        "Wait for a tick.", Remedy("tick", f"task:{task.number}", state.tick + 1),
        since=state.settings.clock.tick_at(task.ready_ms),
    )  # fmt: skip
