"""Keeping stations in step with workers: who may serve what, who is free, and which functions their code lacks.

Helpers of `evolve`, as `indexes` is. That a function is missing is learned from a worker that was given its task. It is
true of the code, so it holds for every worker of the same code, for as long as one of them is there.
"""

from tickwork.core.definition.model import TaskNode
from tickwork.core.definition.plan import Step
from tickwork.core.state.ready_queues import (
    HANDLER_LABEL,
    PIN_LABEL,
    VERSION_LABEL,
    Blocker,
    Labels,
    ReadyQueue,
    WorkerPool,
    announced,
    is_broker_worker,
    run_version,
)
from tickwork.core.state.state import MissingHandlers, State, Worker


def stir(state: State, blocker: Blocker) -> None:
    """The blocker may have room again: admission looks at it in this tick."""
    if not blocker.stirred:
        blocker.stirred = True
        state.stirred.append(blocker)


def station_of(state: State, queue: str, labels: Labels) -> WorkerPool:
    station = state.stations.get((queue, labels))
    if station is None:
        station = state.stations[queue, labels] = WorkerPool(queue=queue, labels=labels)
        for worker in state.workers.values():
            if station.serves(worker):
                worker.stations = (*worker.stations, station)
                station.workers += 1
                if has_credit(worker):
                    station.free |= 1 << worker.number
    return station


# ---- workers


def has_credit(worker: Worker) -> bool:
    return len(worker.tasks) < worker.credit and worker.slots < worker.capacity[0]


def join_stations(state: State, worker: Worker) -> None:
    worker.stations = tuple(station for station in state.stations.values() if station.serves(worker))
    for station in worker.stations:
        station.workers += 1
    if has_credit(worker):
        free_worker(state, worker)


def leave_stations(worker: Worker) -> None:
    for station in worker.stations:
        station.free &= ~(1 << worker.number)
        station.workers -= 1
    worker.stations = ()


def free_worker(state: State, worker: Worker) -> None:
    number = worker.number
    for station in worker.stations:
        if not station.free >> number & 1:
            station.free |= 1 << number
        if not station.stirred:
            stir(state, station)


# ---- handlers


def handler_of(step: Step) -> str:
    """What a worker must have to run it, or the children that it gives; "" where any worker can."""
    node = step.node if step.body is None else step.body.node
    return node.handler if isinstance(node, TaskNode) else ""


def handler_label(state: State, queue: str, labels: Labels, handler: str) -> Labels:
    """What a lane asks for besides its labels, where some of its workers are known to lack the function and others are
    not. If all lack it, the first one may report so again, until the task has failed because of it."""
    if not state.lacking or not handler:
        return ()
    key = (queue, labels, handler)
    divided = state.divided.get(key)
    if divided is None:
        station = WorkerPool(queue=queue, labels=labels)
        served = [
            worker for worker in state.workers.values() if not is_broker_worker(worker.id) and station.serves(worker)
        ]
        divided = state.divided[key] = len({handler in worker.lacks for worker in served}) == 2
    return ((HANDLER_LABEL, handler),) if divided else ()


def others_may_have(state: State, lane: ReadyQueue, worker: Worker, handler: str) -> bool:
    """Whether some worker of this lane is not known to lack the function, once this one is."""
    queue, labels = lane.station.queue, announced(lane.station.labels)
    if handler in worker.lacks:
        return bool(handler_label(state, queue, labels, handler))
    station, code = WorkerPool(queue=queue, labels=labels), code_of(worker)
    return any(
        handler not in other.lacks
        and code_of(other) != code
        and not is_broker_worker(other.id)
        and station.serves(other)
        for other in state.workers.values()
    )


def learn_lack(state: State, worker: Worker, handler: str) -> None:
    code = code_of(worker)
    known = state.lacking.get(code)
    if not handler or is_broker_worker(worker.id) or (known is not None and handler in known.handlers):
        return
    same = [other for other in state.workers.values() if code_of(other) == code]
    handlers = tuple(sorted((*(known.handlers if known is not None else ()), handler)))
    state.lacking[code] = MissingHandlers(handlers, len(same))
    for other in same:
        leave_stations(other)
        other.lacks = handlers
        join_stations(state, other)
    forget_lanes(state)


def version_label(state: State, pin: str, handler: str) -> Labels:
    """What a lane asks for first, where its runs carry a version: workers of it, unless they lack the function."""
    version = run_version(pin)
    known = state.lacking.get(version)
    return () if version == pin or (known is not None and handler in known.handlers) else ((VERSION_LABEL, version),)


def note_code(state: State, worker: Worker) -> None:
    """It has come, or has changed. Call it before it joins its stations."""
    if state.lacking:
        known = state.lacking.get(code_of(worker))
        if known is not None:
            known.workers += 1
            worker.lacks = known.handlers
        forget_lanes(state)


def forget_code(state: State, worker: Worker) -> None:
    """It goes, or changes."""
    if state.lacking:
        if worker.lacks:
            code = code_of(worker)
            state.lacking[code].workers -= 1
            if not state.lacking[code].workers:
                del state.lacking[code]
            worker.lacks = ()
        forget_lanes(state)


def code_of(worker: Worker) -> str:
    return worker.labels.get(PIN_LABEL) or worker.id


def forget_lanes(state: State) -> None:
    """Choose the ready queue of a node again: it may depend on which workers have its function."""
    state.divided.clear()
    for tenant in state.tenants.values():
        tenant.lanes.clear()
        tenant.pinned_lanes.clear()
