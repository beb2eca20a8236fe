"""A run as a test sees it: read anew whenever something is asked of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.testing.world import World

OVER = ("completed", "failed", "cancelled")


class TaskView:
    """One node of a run, as it was when it was asked for."""

    def __init__(self, view: wire.Task) -> None:
        self.view = view

    @property
    def state(self) -> str:
        return self.view.state

    @property
    def attempts(self) -> int:
        return len(self.view.attempts)

    @property
    def history(self) -> tuple[wire.Attempt, ...]:
        """Each attempt, oldest first: `state`, `error`, `message`, `started_at` …"""
        return self.view.attempts

    @property
    def result(self) -> Any:
        return self.view.result

    @property
    def error(self) -> str:
        """The type of the latest error; empty where there was none."""
        return next((attempt.error for attempt in reversed(self.view.attempts) if attempt.error), "")

    @property
    def children(self) -> dict[str, int]:
        """Of a map: how many are in which state."""
        return self.view.children

    @property
    def due(self) -> datetime | None:
        """When its wait or its next attempt is due."""
        return None if self.view.due_at is None else datetime.fromisoformat(self.view.due_at)

    def __repr__(self) -> str:
        return f"<{self.view.node}: {self.state}, {self.attempts} attempts>"


class Tasks(dict[str, TaskView]):
    """By node; of a name that is none it says which there are."""

    def __missing__(self, node: str) -> TaskView:
        raise KeyError(f"there is no node {node!r}; there are {', '.join(self)}")


class Run:
    def __init__(self, world: "World", run_id: str) -> None:
        self._world = world
        self.id = run_id

    @property
    def view(self) -> wire.RunDetail:
        """Everything that the API shows of it."""
        return self._world._view(self.id)

    @property
    def workflow(self) -> str:
        return self.view.workflow

    @property
    def state(self) -> str:
        """pending, active, waiting, paused, completed, failed or cancelled."""
        return self.view.state

    @property
    def ended(self) -> bool:
        return self.state in OVER

    @property
    def inputs(self) -> Any:
        return self.view.inputs

    @property
    def output(self) -> Any:
        """As plain data; whole, however large it is."""
        return self._world._output(self.id)

    @property
    def error(self) -> str:
        """In one line: which node failed, and why."""
        return self.view.error

    @property
    def tasks(self) -> Mapping[str, TaskView]:
        """By node. A node that was not reached yet is here, too."""
        return Tasks({task.node: TaskView(task) for task in self.view.tasks if task.child is None})

    @property
    def scheduled_at(self) -> datetime | None:
        """When its schedule meant it to begin."""
        text = self.view.scheduled_at
        return None if text is None else datetime.fromisoformat(text)

    def why(self) -> str:
        """What happened to it so far, and what it waits for."""
        return self._world._why(self.id)

    # ---- expectations, whose failures say what happened instead; pytest shows the test's own line

    def assert_completed(self, output: Any = ...) -> Self:
        __tracebackhide__ = True
        self._expect("completed")
        if output is not ... and self.output != output:
            raise AssertionError(f"{self!r} has the output {self.output!r}, not {output!r}\n{self.why()}")
        return self

    def assert_failed(self, *, node: str = "", error: str | type[BaseException] = "") -> Self:
        """`node` failed, with this type of error."""
        __tracebackhide__ = True
        self._expect("failed")
        tasks = self.tasks
        expected = error if isinstance(error, str) else error.__name__
        if node and (node not in tasks or tasks[node].state != "failed"):
            raise AssertionError(f"{self!r}: {node} did not fail\n{self.why()}")
        failed = [TaskView(task) for task in self.view.tasks if task.node in (node or task.node,)]  # children, too
        errors = [task.error for task in failed if task.state == "failed" and task.error]
        if expected and expected not in errors:
            raise AssertionError(
                f"{self!r} failed with {', '.join(errors) or 'no error'}, not {expected}\n{self.why()}"
            )
        return self

    def assert_cancelled(self) -> Self:
        __tracebackhide__ = True
        self._expect("cancelled")
        return self

    def assert_waiting(self, node: str = "") -> Self:
        """It has not ended and does nothing; `node` is what waits."""
        __tracebackhide__ = True
        self._expect("waiting")
        tasks = self.tasks
        if node and (node not in tasks or tasks[node].state != "waiting"):
            waiting = [name for name, task in tasks.items() if task.state == "waiting"]
            raise AssertionError(f"{self!r} waits in {', '.join(waiting) or 'no node'}, not in {node}\n{self.why()}")
        return self

    def _expect(self, state: str) -> None:
        __tracebackhide__ = True
        if self.state != state:
            raise AssertionError(f"{self!r} should be {state}\n{self.why()}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (other.id, other._world) == (self.id, self._world)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        view = self.view
        error = f": {view.error.splitlines()[0]}" if view.error else ""
        return f"<{view.id} of {view.workflow}, {view.state}{error}>"
