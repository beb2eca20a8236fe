"""A run in a test: every property reads its current state."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.testing.world import World

OVER = ("completed", "failed", "cancelled")


class TaskView:
    """One node of a run, with its state at the time of the request."""

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
        """The type of the latest error; empty if there was none."""
        return next((attempt.error for attempt in reversed(self.view.attempts) if attempt.error), "")

    @property
    def message(self) -> str:
        """What an approval or a form asks, with the values of the run."""
        return self.view.message

    @property
    def fields(self) -> dict[str, Any]:
        """Of a form, as its document declares them."""
        return self.view.fields

    @property
    def children(self) -> dict[str, int]:
        """For a map: the number of items by state."""
        return self.view.children

    @property
    def due(self) -> datetime | None:
        """The time at which its wait or its next attempt is due."""
        return None if self.view.due_at is None else datetime.fromisoformat(self.view.due_at)

    def __repr__(self) -> str:
        return f"<{self.view.node}: {self.state}, {self.attempts} attempts>"


class Tasks(dict[str, TaskView]):
    """Tasks by node. An unknown name raises an error that lists the nodes."""

    def __missing__(self, node: str) -> TaskView:
        raise KeyError(f"there is no node {node!r}; there are {', '.join(self)}")


class Run:
    def __init__(self, world: "World", run_id: str) -> None:
        self._world = world
        self.id = run_id

    @property
    def view(self) -> wire.RunDetail:
        """Everything that the API shows about the run."""
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
        """The output as plain data, complete at any size."""
        return self._world._output(self.id)

    @property
    def error(self) -> str:
        """The failed node and its error, in one line."""
        return self.view.error

    @property
    def tasks(self) -> Mapping[str, TaskView]:
        """Tasks by node, including nodes that were not reached yet."""
        return Tasks({task.node: TaskView(task) for task in self.view.tasks if task.child is None})

    @property
    def scheduled_at(self) -> datetime | None:
        """The time for which its schedule planned it."""
        text = self.view.scheduled_at
        return None if text is None else datetime.fromisoformat(text)

    def why(self) -> str:
        """Its history, and what it waits for."""
        return self._world._why(self.id)

    # ---- expectations, whose failures say what happened instead; pytest shows the test's own line

    def assert_completed(self, output: Any = ...) -> Self:
        __tracebackhide__ = True
        self._expect("completed")
        if output is not ... and self.output != output:
            raise AssertionError(f"{self!r} has the output {self.output!r}, not {output!r}\n{self.why()}")
        return self

    def assert_failed(self, *, node: str = "", error: str | type[BaseException] = "") -> Self:
        """Assert that `node` failed with this type of error."""
        __tracebackhide__ = True
        self._expect("failed")
        tasks = self.tasks
        expected = error if isinstance(error, str) else error.__name__
        if node and tasks[node].state != "failed":
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
        """Assert that the run has not ended and waits in `node`."""
        __tracebackhide__ = True
        self._expect("waiting")
        tasks = self.tasks
        if node and tasks[node].state != "waiting":
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
