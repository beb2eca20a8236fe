"""Requests for processors, memory and graphics cards, compared with all that the connected workers have."""

from collections.abc import Iterable

from tickwork.core.definition.plan import Plan, Step
from tickwork.core.state.ready_queues import WorkerPool, is_broker_worker
from tickwork.core.state.state import State, Worker

Resources = tuple[int, int, int, int]  # slots, thousandths of a processor, MB, graphics cards


def could_meet(worker: Worker, resources: Resources) -> bool:
    """Whether it is large enough at all. Slots that follow its credit are not known while it offers none."""
    capacity = (worker.capacity[0] or resources[0], *worker.capacity[1:])
    return all(have >= needed for have, needed in zip(capacity, resources, strict=True))


def nearest(workers: Iterable[Worker], left: "dict[str, Resources]", resources: Resources) -> Worker:
    """The worker with the fewest kinds missing, the first of them."""
    return min(workers, key=lambda worker: sum(a < b for a, b in zip(left[worker.id], resources, strict=True)))


def amounts(resources: Resources, requested: Resources) -> str:
    """Describe the requested resources: cpu 1.5, memory 2 GB, gpu 1. A single slot is left out: every task has one."""
    slots, cpu_milli, memory_mb, gpu = resources
    memory = f"{memory_mb // 1024} GB" if memory_mb and memory_mb % 1024 == 0 else f"{memory_mb} MB"
    words = (f"slots {slots}", f"cpu {cpu_milli / 1000:g}", f"memory {memory}", f"gpu {gpu}")
    kinds = requested if not any(requested[1:]) else (requested[0] > 1, *requested[1:])
    return ", ".join(word for word, needed in zip(words, kinds, strict=True) if needed)


def unmet_requests(state: State, plan: Plan) -> list[str]:
    """The tasks of a workflow whose requests none of the workers connected now could ever meet, in words."""
    return [words for step in plan.demanding if (words := _unmet(state, step)) is not None]


def _unmet(state: State, step: Step) -> str | None:
    queue, _, labels, resources, _ = (step.body or step).requirement
    pool = WorkerPool(queue=queue, labels=labels)
    anywhere = (step.body or step).chooses
    serving = [
        worker
        for _, worker in sorted(state.workers.items())
        if not is_broker_worker(worker.id) and (anywhere or pool.serves(worker))
    ]
    if not serving or any(could_meet(worker, resources) for worker in serving):
        return None
    return f"{step.id} {unmet_text(serving, resources, f'queue:{queue}')}"


def unmet_text(serving: list[Worker], resources: Resources, where: str) -> str:
    best = nearest(serving, {worker.id: worker.capacity for worker in serving}, resources)
    return (
        f"wants {amounts(resources, resources)}, and no connected worker that serves {where} is large enough: "
        f"{best.id} comes nearest with {amounts(best.capacity, resources)}"
    )
