"""Events whose payload is not inline: what the machine cannot see of them.

The machine decides by the filters of schedules, and makes the inputs of the runs that an event starts. For a payload
that it does not hold, both are done here, by the same rules, and come with the event as a fact.
"""

from collections.abc import Iterator
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import decode
from tickwork.core.decide.schedules.updates import source_of_event
from tickwork.core.definition.model import Definition
from tickwork.core.evolve.run_creation import scheduled_inputs
from tickwork.core.state.inputs import Ingest
from tickwork.core.state.state import Schedule, State
from tickwork.core.state.updates import EVENT_INPUT, Update, caused_inputs
from tickwork.runtime.context import EngineContext


def starts_of(context: EngineContext, ingest: Ingest, payload: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The schedules that count the event, each with the source that it is an update of, and the inputs of its run."""
    state, tenant = context.state, context.tenant(ingest.tenant)
    for number, sources in sorted(tenant.listeners.get(("event", ingest.event), {}).items()):
        schedule = state.schedules[number]
        try:
            source = source_of_event(schedule.when, sources, ingest.key, payload)
        except Refused as refused:
            words = f"{schedule.name}: its filter for the event {ingest.event} cannot be decided: {refused}"
            context.alarms.add("filter_failed", words)
            continue
        plan = tenant.plans.get(schedule.workflow)
        if source >= 0 and plan is not None:
            yield schedule.name, source, _inputs(state, schedule, plan.definition, ingest, payload)


def _inputs(state: State, schedule: Schedule, definition: Definition, ingest: Ingest, payload: Any) -> dict[str, Any]:
    now_ms = state.now_ms
    value = scheduled_inputs(state, schedule, definition, now_ms)
    own = decode(value, what="inputs") if isinstance(value, bytes) else {}
    update = Update(0, now_ms, "event", ingest.event, ingest.key, ingest.id, ingest.by)
    caused = caused_inputs(definition, [update])
    if EVENT_INPUT in definition.inputs:
        caused[EVENT_INPUT] = payload
    return caused | own
