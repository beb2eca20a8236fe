"""The part of `evolve` by which tasks, their attempts, and the children of maps and repeats move."""

from collections.abc import Callable
from typing import Any

from tickwork.core.evolve.tasks.attempts import ATTEMPT_HANDLERS
from tickwork.core.evolve.tasks.children import CHILD_HANDLERS
from tickwork.core.evolve.tasks.nodes import NODE_HANDLERS
from tickwork.core.evolve.tasks.waits import WAIT_HANDLERS
from tickwork.core.state.state import State

TASK_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    **NODE_HANDLERS,
    **ATTEMPT_HANDLERS,
    **WAIT_HANDLERS,
    **CHILD_HANDLERS,
}
