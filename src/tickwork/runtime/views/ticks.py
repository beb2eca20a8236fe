"""What one tick of a partition did, from its journal row."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.state.events import Visited
from tickwork.journal.record import GENESIS, Row, unseal
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.views.text import instant

PAGE = 500
PAGES_MAX = 20  # of ended runs in which ids are looked for


async def tick_trace(context: EngineContext, tick: int) -> wire.TickTrace:
    """Raises `Refused` for a tick without a row: nothing happened in it."""
    await context.until_durable()
    seq = (await context.archives.seqs_at(context.number, [tick])).get(tick)
    if seq is None:
        message = f"there is no row of tick {tick}: nothing happened in it, or it is no longer kept"
        raise Refused("unknown_tick", message, path="tick")
    row = await _row(context, seq)
    numbers = [number for event in row.events if isinstance(event, Visited) for number in event.runs]
    ids = await _ids(context, numbers)
    return wire.TickTrace(
        partition=context.number,
        tick=tick,
        seq=seq,
        at=instant(context.state.settings.clock.ms_of(tick)),
        rules=row.rules,
        inputs=_kinds(row.inputs),
        events=_kinds(row.events),
        visited=tuple(wire.TickRun(number=str(number), id=ids.get(number, "")) for number in numbers),
    )


async def _row(context: EngineContext, seq: int) -> Row:
    rows = await context.archives.journal(context.number, after=max(seq - 2, 0), limit=1 if seq == 1 else 2)
    return unseal(rows[-1], GENESIS if seq == 1 else rows[0].hash)


async def _ids(context: EngineContext, numbers: Iterable[int]) -> dict[int, str]:
    """The ids of runs, from memory and from rows of ended runs."""
    runs, left = context.state.runs, context.live.write_behind.recently_left()
    ids = {row.number: row.id for row in left}
    ids |= {number: run.id for number in numbers if (run := runs.get(number)) is not None}
    missing = sorted((number for number in numbers if number not in ids), reverse=True)
    for _ in range(PAGES_MAX):
        if not missing:
            break
        query = RunFilter(TENANT, "", (), "", missing[0] + 1, PAGE)
        page = await context.store.list_runs(query)
        ids |= {row.number: row.id for row in page.rows}
        if not page.before:
            break
        missing = [number for number in missing if number < page.before]
    return ids


def _kinds(things: Iterable[msgspec.Struct]) -> dict[str, int]:
    return dict(sorted(Counter(type(thing).__name__ for thing in things).items()))
