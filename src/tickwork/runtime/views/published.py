"""Values that a run has published: those of a durable function, as it published them last, and those of a graph, which
are parts of inputs and results."""

from typing import NamedTuple

from tickwork.core.base.values import Value
from tickwork.core.definition import references
from tickwork.core.definition.plan import Plan
from tickwork.runtime.views.runs import RunDraft


class PublishedPart(NamedTuple):
    """A stored value, and the way to the published part of it."""

    value: Value
    walk: tuple[str, ...] = ()


def published_by(draft: RunDraft) -> dict[str, PublishedPart | None]:
    """By name. None: it will be published, and is not there yet."""
    newest: dict[str, PublishedPart | None] = {}
    if draft.plan is not None:
        results = {view["node"]: value for view, value in draft.tasks if _has_result(view)}
        for name, sources in draft.plan.definition.publish.items():
            parts = (_part(draft, draft.plan, source, results) for source in reversed(sources))
            newest[name] = next((part for part in parts if part is not None), None)
    published = draft.messages.published if draft.messages is not None else {}
    return newest | {name: PublishedPart(published[name].value) for name in sorted(published)}


def _has_result(view: dict[str, object]) -> bool:
    return view["state"] == "succeeded" and "child" not in view


def _part(draft: RunDraft, plan: Plan, source: str, results: dict[str, Value]) -> PublishedPart | None:
    ref = references.resolve(source, path="publish", inputs=plan.definition.inputs, nodes=plan.index)
    if ref.root == "inputs":
        return PublishedPart(draft.inputs, (ref.name, *ref.walk) if ref.name else ref.walk)
    return PublishedPart(results[ref.name], ref.walk) if ref.name in results else None
