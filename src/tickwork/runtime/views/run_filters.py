"""A search as people write it, as a filter of runs."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.definition.run_labels import FIELD_CHARACTERS_MAX, FIELDS_MAX, check_tags
from tickwork.core.state.lifecycle import RunState
from tickwork.ports.run_filter import ANY_TIME, TimeRange, query_words
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.text import STATE_NUMBERS

FAILED = int(RunState.FAILED)


def filter_of(
    search: wire.RunSearch, *, origin_ms: int, now_ms: int, before: int = 0, limit: int = 50, tenant: str = TENANT
) -> RunFilter:
    """Raises `Refused` with the field of the search."""
    unknown = [state for state in search.state if state not in STATE_NUMBERS]
    if unknown:
        raise Refused("bad_state", f"a state is one of {', '.join(STATE_NUMBERS)}", path="state")
    if search.tag:
        check_tags(search.tag, path="tag")
    if search.error and not query_words(search.error):
        raise Refused("bad_error", "give at least one word of the error", path="error")
    states = tuple(STATE_NUMBERS[state] for state in search.state)
    return RunFilter(
        tenant,
        search.workflow,
        states or ((FAILED,) if search.error else ()),  # nothing else has an error
        search.schedule,
        before,
        limit,
        tags=search.tag,
        fields=_fields(search.where),
        version=search.version,
        error=search.error,
        submitted=_range("submitted", search.submitted_from, search.submitted_to, origin_ms, now_ms),
        started=_range("started", search.started_from, search.started_to, origin_ms, now_ms),
        ended=_range("ended", search.ended_from, search.ended_to, origin_ms, now_ms),
    )


def _fields(where: dict[str, str]) -> tuple[tuple[str, str], ...]:
    if len(where) > FIELDS_MAX:
        raise Refused("too_many_fields", f"at most {FIELDS_MAX} inputs can be searched at once", path="where")
    for name, value in where.items():
        if not value:
            raise Refused("bad_where", f"give a value for {shortened(name, 128)!a}", path="where")
    return tuple((name, value[:FIELD_CHARACTERS_MAX]) for name, value in where.items())


def _range(name: str, from_: str, to: str, origin_ms: int, now_ms: int) -> TimeRange:
    """A range with both ends: nothing is older than the store or younger than now."""
    if not from_ and not to:
        return ANY_TIME
    from_ms = instant_ms(from_, path=f"{name}_from") if from_ else 0
    to_ms = instant_ms(to, path=f"{name}_to") if to else now_ms + 1
    if from_ and to and to_ms <= from_ms:
        raise Refused("bad_range", "the end of a time range must be after its beginning", path=f"{name}_to")
    from_ms = max(from_ms, origin_ms)
    return TimeRange(from_ms, max(to_ms, from_ms + 1))
