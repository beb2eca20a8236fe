"""Values that a run has published: those of a durable function, as it published them last, and those of a graph, which
are parts of inputs and results. Readers ask often, so nothing else of the run is looked at."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tickwork.core.base.values import Value
from tickwork.core.definition import references
from tickwork.core.definition.plan import Plan
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.messages import RunMessages
from tickwork.core.state.state import Run
from tickwork.ports.store import RunRow
from tickwork.runtime.storage.run_records import record_of


class PublishedPart(NamedTuple):
    """A stored value, and the way to the published part of it."""

    value: Value
    walk: tuple[str, ...] = ()


class Published(NamedTuple):
    """What is known of a run here. Without a plan, its version of the workflow is not kept any more."""

    plan: Plan | None
    inputs: Value
    phases: Sequence[int]
    results: Mapping[int, Value]
    messages: RunMessages | None

    def names(self) -> list[str]:
        return sorted({*(self.plan.definition.publish if self.plan is not None else ()), *self._said()})

    def part(self, name: str) -> PublishedPart | None:
        """None: it is not there, or not yet."""
        if name in self._said():
            return PublishedPart(self._said()[name])
        sources = self.plan.definition.publish.get(name, ()) if self.plan is not None else ()
        parts = (self._of_source(source) for source in reversed(sources))
        return next((part for part in parts if part is not None), None)

    def _said(self) -> dict[str, Value]:
        published = self.messages.published if self.messages is not None else {}
        return {name: value.value for name, value in published.items()}

    def _of_source(self, source: str) -> PublishedPart | None:
        assert self.plan is not None, "it has the source"
        inputs, index = self.plan.definition.inputs, self.plan.index
        ref = references.resolve(source, path="publish", inputs=inputs, nodes=index)
        if ref.root == "inputs":
            return PublishedPart(self.inputs, (ref.name, *ref.walk) if ref.name else ref.walk)
        step = index[ref.name]
        return PublishedPart(self.results.get(step), ref.walk) if self.phases[step] == Phase.SUCCEEDED else None


def published_by(run: Run) -> Published:
    return Published(run.plan, run.inputs, run.phases, run.results or {}, run.messages)


def published_before_end(row: RunRow, plan: Plan | None) -> Published:
    record = record_of(row)
    return Published(plan, record.inputs, record.phases, dict(record.results), record.messages)
