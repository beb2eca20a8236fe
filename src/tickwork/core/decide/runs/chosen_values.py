"""Values that stand where a definition may also have a constant: `timeout_from`, `queue_from` and the like.

Each is resolved once, when its node begins. A value that does not fit raises `Refused`, whose path names the node and
the field; the node fails with it. `ExtractMissing` is raised where the value is not inline and not read yet.
"""

from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.definition.model import MapNode, RepeatNode, WorkNode
from tickwork.core.definition.node_validation import QUANTITY_MAX
from tickwork.core.definition.plan import Step
from tickwork.core.state.evaluation_context import resolve_anywhere
from tickwork.core.state.ready_queues import Labels
from tickwork.core.state.state import Run, State


def chosen_duration_ms(run: Run, step: Step, field: str, source: str) -> int | None:
    """A duration as text. A plain number is refused because it has no unit. None: there is no limit."""
    value = resolve_anywhere(run, source)
    path = f"{step.id}.{field}"
    if value is None:
        return None
    if not isinstance(value, str):
        message = f"{source} is {_shown(value)}, which has no unit; give text such as '5m', or a timedelta"
        raise Refused("duration_type", message, path=path)
    return duration_ms(value, path=path, minimum_ms=1)


def chosen_count(run: Run, step: Step, field: str, source: str) -> int:
    """A whole number from 1. None gives 0: there is no limit."""
    value = resolve_anywhere(run, source)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= QUANTITY_MAX:
        message = f"{source} is {_shown(value)}; it must be a whole number from 1 to {QUANTITY_MAX}"
        raise Refused("bad_count", message, path=f"{step.id}.{field}")
    return value


def chosen_queue(state: State, run: Run, step: Step) -> tuple[str, Labels]:
    """The queue and the labels that values give the attempts of a node. None stands for what the definition says."""
    node = step.node.body if isinstance(step.node, MapNode | RepeatNode) else step.node
    assert isinstance(node, WorkNode)
    queue = ""
    if node.queue_from is not None:
        queue = _name(resolve_anywhere(run, node.queue_from), step, "queue", node.queue_from)
        if queue and not is_served(state, queue):
            message = f"no worker serves the queue {queue!r}, and it is not declared; start a worker with it"
            raise Refused("unknown_queue", message, path=f"{step.id}.queue")
    labels = [
        (label, value)
        for label, source in sorted(node.labels_from.items())
        if (value := _name(resolve_anywhere(run, source), step, f"labels.{label}", source))
    ]
    return queue, tuple(labels)


def is_served(state: State, queue: str) -> bool:
    """Only these: a queue lives for ever, and values must not make one for each customer."""
    return state.has_queue(queue) or any(queue in worker.queues for worker in state.workers.values())


def _name(value: Any, step: Step, field: str, source: str) -> str:
    path = f"{step.id}.{field}"
    if value is None:
        return ""
    if isinstance(value, bool | int):
        value = str(value).lower()
    if not isinstance(value, str):
        raise Refused("wrong_type", f"{source} is {_shown(value)}; a name is text", path=path)
    check_name(value, path=path, kind="queue" if field == "queue" else "label value")
    return value


def _shown(value: Any) -> str:
    return shortened(msgspec.json.encode(value).decode(), 60)
