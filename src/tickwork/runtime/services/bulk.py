"""Bulk operations: one action on each run of a frozen selection.

A preview freezes the selection: the runs that fit a search now, as an object in the artifact store, named by its
digest. A job names that digest and the same search, so it acts on what was shown, whatever came later, and a search
that was lost or changed on the way is refused. The machine keeps the job with its report; `BulkRunner` sends its
requests.
"""

from collections.abc import Iterable

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.state import inputs as inp
from tickwork.core.state.bulk import ACTIONS, BulkOperation
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.queries import QueryService
from tickwork.runtime.views.text import STATE_NUMBERS, instant, instant_or_none

SELECTED_MAX = 100_000
SAMPLE = 10
PAGE = 500
PER_SECOND = 50
LIVE = ("pending", "active", "waiting", "paused")
# The states that an action makes sense for; a search without a state has these.
STATES = {
    "cancel": LIVE, "pause": LIVE[:3], "resume": ("paused",), "retry": ("failed",),
    "rerun": ("completed", "failed", "cancelled"),
}  # fmt: skip


class SelectedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str
    state: int


class Selection(msgspec.Struct, frozen=True, array_like=True):
    """A frozen selection, as it is stored. `criteria` is the search as JSON."""

    tenant: str
    partition: int
    action: str
    criteria: bytes
    as_of: int  # seq
    runs: list[SelectedRun]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Selection).decode
_criteria = msgspec.json.Encoder(order="sorted").encode


class BulkService:
    def __init__(self, context: EngineContext, queries: QueryService) -> None:
        self._context, self._queries = context, queries

    async def preview(self, action: str, search: wire.RunSearch, *, tenant: str = TENANT) -> wire.BulkPreview:
        """Freeze the runs that fit now. Raises `Refused` for a search that fits everything."""
        chosen = checked_search(action, search)
        number, as_of = self._context.number, self._context.live.durable_seq
        runs = await self._select(self._queries.filter(search=chosen, limit=PAGE, tenant=tenant))
        frozen = [SelectedRun(run.id, STATE_NUMBERS[run.state]) for run in runs]
        data = _encode(Selection(tenant, number, action, _criteria(search), as_of, frozen))
        digest = await self._context.artifacts.put(data) if runs else ""
        states: dict[str, int] = {}
        for run in runs:
            states[run.state] = states.get(run.state, 0) + 1
        return wire.BulkPreview(
            action=action, search=search, selection=f"{number}.{digest}" if runs else "", count=len(runs),
            states=states, sample=tuple(runs[:SAMPLE]), as_of={str(number): as_of},
        )  # fmt: skip

    async def _select(self, query: RunFilter) -> list[wire.Run]:
        runs: list[wire.Run] = []
        while True:
            page, before = await self._queries.runs(query)
            runs += page
            if len(runs) > SELECTED_MAX:
                message = f"more than {SELECTED_MAX:,} runs fit: narrow the search, by time for example"
                raise Refused("too_many_runs", message, path="search")
            if not before:
                return runs
            query = msgspec.structs.replace(query, before=before)

    async def start(self, request: wire.BulkRequest, *, by: str, job: str, tenant: str = TENANT) -> wire.BulkOperation:
        """Begin the job, if the selection is that of this search and has a run."""
        checked_search(request.action, request.search)
        selection = await self.selection(digest_in(request.selection, self._context.number))
        if selection is None or (selection.tenant, selection.partition) != (tenant, self._context.number):
            message = "this selection is not known: preview it, and name the selection that the preview returns"
            raise Refused("unknown_selection", message, path="selection")
        if (selection.action, selection.criteria) != (request.action, _criteria(request.search)):
            message = "the search or the action is not that of the preview: preview it again"
            raise Refused("selection_changed", message, path="search")
        await self._context.command(
            inp.StartBulk(
                by, tenant, job, request.action, digest_in(request.selection, self._context.number),
                len(selection.runs), selection.criteria.decode(), request.per_second, request.reason,
            )
        )  # fmt: skip
        return await self.job(job, tenant=tenant)

    async def selection(self, digest: str) -> Selection | None:
        data = await self._context.artifacts.get(digest) if digest else None
        if data is None:
            return None
        try:
            return _decode(data)
        except msgspec.DecodeError:
            raise Corrupt(f"the object {digest} is not a selection of runs") from None

    async def job(self, job: str, *, tenant: str = TENANT) -> wire.BulkOperation:
        known = self._context.tenant(tenant).bulks.get(job)
        if known is None:
            raise Refused("unknown_bulk", f"there is no bulk operation {shortened(job, 128)!r}", path="id")
        view = self._view(known)
        await self._context.until_durable()
        return view

    async def jobs(self, *, tenant: str = TENANT) -> wire.BulkOperations:
        """Return all jobs, the latest first."""
        views = [self._view(job) for job in self._context.tenant(tenant).bulks.values()]
        await self._context.until_durable()
        return wire.BulkOperations(operations=tuple(reversed(views)))

    async def cancel(self, job: str, *, by: str, reason: str = "", tenant: str = TENANT) -> None:
        await self._context.command(inp.CancelBulk(by, tenant, job, reason))

    def _view(self, job: BulkOperation) -> wire.BulkOperation:
        clock = self._context.state.settings.clock
        return wire.BulkOperation(
            id=job.id, action=job.action, state=_state_of(job), by=job.by, reason=job.reason,
            search=msgspec.json.decode(job.criteria, type=wire.RunSearch), count=job.count, done=job.done,
            changed=job.changed, refused=dict(job.refused), left=job.count - job.position,
            refused_runs=tuple([wire.BulkRefusal(run=run, code=code) for run, code in job.samples]),
            per_second=job.per_second, cancelled=job.cancelled, started_at=instant(clock.ms_of(job.started)),
            ended_at=instant_or_none(clock.ms_of(job.ended) if job.ended else 0),
        )  # fmt: skip


def _state_of(job: BulkOperation) -> str:
    return "running" if not job.ended else "cancelled" if job.cancelled else "done"


def checked_search(action: str, search: wire.RunSearch) -> wire.RunSearch:
    """The search with the states that the action makes sense for. Raises `Refused`."""
    if action not in ACTIONS:
        raise Refused("bad_action", f"an action is one of {', '.join(ACTIONS)}", path="action")
    if search == wire.RunSearch():
        message = "name at least one filter: a job without any would act on every run"
        raise Refused("no_filter", message, path="search")
    allowed = STATES[action]
    states = tuple(state for state in search.state if state in allowed) if search.state else allowed
    if not states:
        message = f"{action} is for runs that are {', '.join(allowed)}, not {', '.join(search.state)}"
        raise Refused("bad_state", message, path="search.state")
    return msgspec.structs.replace(search, state=states)


def digest_in(selection: str, partition: int) -> str:
    """The digest of a partition's part of a selection; "" where it has none."""
    return parts_of(selection).get(partition, "")


def parts_of(selection: str) -> dict[int, str]:
    parts: dict[int, str] = {}
    for part in selection.split("-") if selection else ():
        number, _, digest = part.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 4 and digest.isalnum() and len(digest) <= 64):
            raise Refused("unknown_selection", "name the selection that the preview returns", path="selection")
        parts[int(number)] = digest
    if not parts:
        raise Refused("empty_selection", "no run is selected: nothing would be done", path="selection")
    return parts


def joined(parts: Iterable[tuple[int, str]]) -> str:
    return "-".join(f"{number}.{digest}" for number, digest in parts)
