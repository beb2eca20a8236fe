"""The inbox in the store: accepts submissions whose owner cannot be reached; the next owner submits them."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tickwork.cluster.tenant_routes import TenantRoutes
from tickwork.ports.store import InboxRow, Store
from tickwork.protocol import http_models as wire
from tickwork.runtime.alarms import Alarms

if TYPE_CHECKING:
    from tickwork.cluster.home_definitions import HomeDefinitions
    from tickwork.runtime.engine import Engine

ROWS_MAX = 500  # that are read at a time
UNREADABLE = "unreadable"
SEARCHED_MAX = 10_000  # rows that are looked through for one run
RETRY_S, RETRY_S_MAX = 2.0, 600.0  # a refused row is tried again after so long, twice as long each time


class HeldSubmission(msgspec.Struct):
    """A row of the inbox whose submission was refused. It stays until it is accepted, or an operator removes it."""

    row: InboxRow
    workflow: str
    refusal: wire.Rejected
    due_s: float  # when it is tried again
    pause_s: float


class SharedInbox:
    def __init__(
        self,
        *,
        store: Store,
        routes: TenantRoutes,
        definitions: "HomeDefinitions",
        new_id: Callable[[], str],
        alarms: Alarms,
    ) -> None:
        self.held: dict[int, dict[str, HeldSubmission]] = {}  # refused rows, by partition
        self._store = store
        self._routes = routes
        self._definitions = definitions
        self._new_id = new_id
        self._alarms = alarms

    async def add(self, submissions: list[wire.Submission], *, by: str, tenant: str) -> list[wire.Submitted]:
        """Store the submissions durably, which accepts them; the next owner of the partition submits them."""
        rows = []
        for submission in submissions:
            named = submission if submission.id else msgspec.structs.replace(submission, id=self._new_id())
            routes = self._routes
            partition = routes.home(tenant) if named.key else routes.partition_of_run(tenant, named.id)
            rows.append(InboxRow(named.id, partition, tenant, msgspec.json.encode(named), by))
        await self._store.add_inbox(rows)
        return [wire.Submitted(id=row.id) for row in rows]

    async def submit_due(self, partition: int, engine: "Engine") -> None:
        """Submit the rows and delete those that are accepted; a row that is submitted twice has the same id and makes
        one run. A refused row stays, because its sender has been told that it is accepted. An unreadable row stays as
        well, because a node of a later version may have written it and can read it."""
        while True:
            held, now_s = self.held.setdefault(partition, {}), asyncio.get_running_loop().time()
            rows = await self._store.read_inbox(partition, limit=ROWS_MAX + len(held))
            for gone in held.keys() - {row.id for row in rows}:
                del held[gone]
            due = [row for row in rows if row.id not in held or held[row.id].due_s <= now_s]
            if not due:
                return
            submissions: dict[InboxRow, wire.Submission] = {}
            for row in due:
                try:
                    submissions[row] = msgspec.json.decode(row.data, type=wire.Submission)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self._hold(row, "", wire.Rejected(code=UNREADABLE, detail=str(error)), now_s)
            await self._store.drop_inbox(partition, await self._accepted(engine, submissions, now_s))

    async def _accepted(self, engine: "Engine", due: dict[InboxRow, wire.Submission], now_s: float) -> list[str]:
        """Submit these, hold those that are refused, and return the ids of the others."""
        accepted: list[str] = []
        for tenant, by in dict.fromkeys((row.tenant, row.by) for row in due):
            group = {row: submission for row, submission in due.items() if (row.tenant, row.by) == (tenant, by)}
            outcomes = await self._definitions.submit(engine, list(group.values()), by=by or "inbox", tenant=tenant)
            for (row, submission), outcome in zip(group.items(), outcomes, strict=True):
                if isinstance(outcome, wire.Rejected):
                    self._hold(row, submission.workflow, outcome, now_s)
                else:
                    self.held[row.partition].pop(row.id, None)
                    accepted.append(row.id)
        return accepted

    def _hold(self, row: InboxRow, workflow: str, refusal: wire.Rejected, now_s: float) -> None:
        held = self.held[row.partition]
        before = held.get(row.id)
        if before is None:
            kind = f"inbox_{UNREADABLE if refusal.code == UNREADABLE else 'refused'}"
            where = f"{refusal.path}: " if refusal.path else ""
            self._alarms.add(kind, f"{row.tenant}/{row.id} stays in the inbox: {where}{refusal.detail}")
        pause_s = RETRY_S if before is None else min(2 * before.pause_s, RETRY_S_MAX)
        held[row.id] = HeldSubmission(row, workflow, refusal, now_s + pause_s, pause_s)

    async def remove(self, run_id: str) -> bool:
        """An operator gives up on what was accepted and cannot begin. False: it is not there."""
        for partition in range(self._routes.partitions):
            rows = await self._store.read_inbox(partition, limit=SEARCHED_MAX)
            if any(row.id == run_id for row in rows):
                await self._store.drop_inbox(partition, [run_id])
                self.held.get(partition, {}).pop(run_id, None)
                return True
        return False

    def forget(self, partition: int) -> None:
        """Another node owns the partition by now."""
        self.held.pop(partition, None)
