"""What a run in memory is found by."""

from tickwork.core.definition.run_labels import Fields, fields_of, merged_tags
from tickwork.core.state.state import Run


def tags_of(run: Run) -> tuple[str, ...]:
    """Those of its workflow first, then its own."""
    return merged_tags(run.plan.definition, run.own.tags if run.own is not None else ())


def searchable_of(run: Run) -> Fields:
    """Its searchable inputs as texts. Where the inputs are not inline, as they were when it was submitted."""
    if run.own is not None and run.own.fields:
        return run.own.fields
    return fields_of(run.plan.definition, run.inputs)
