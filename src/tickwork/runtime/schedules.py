"""Schedules: what is asked about them, and what a request for one means to the machine.

A published application brings its schedules along. They are checked before anything is posted, so that an
application is accepted whole or not at all, and one that did not change is not posted, so that it does not move.
"""

from collections.abc import Mapping

from tickwork.core import inputs as ask
from tickwork.core.errors import Refused
from tickwork.core.evolve.setup import time_of
from tickwork.core.inputfields import require_inputs
from tickwork.core.model import Tenant
from tickwork.core.names import check_name
from tickwork.core.plan import Plan
from tickwork.core.timetext import duration_ms
from tickwork.ports import wire
from tickwork.runtime import reads
from tickwork.runtime.checks import packed
from tickwork.runtime.ground import TENANT, Ground


class Schedules(Ground):
    async def put_schedule(self, name: str, wanted: wire.ScheduleRequest, *, by: str, tenant: str = TENANT) -> None:
        await self._command(_put_of(name, wanted, by=by, tenant=tenant))

    async def remove_schedule(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.RemoveSchedule(by, tenant, name))

    def schedules(self, *, tenant: str = TENANT) -> list[wire.Schedule]:
        return reads.schedules(self.state, tenant)


def puts_of(
    wanted: Mapping[str, wire.ScheduleRequest], owner: Tenant, plans: Mapping[str, Plan],
    *, by: str, now_ms: int, decided_ms: int,
) -> list[ask.PutSchedule]:  # fmt: skip
    """What an application's schedules ask for, all checked. Publishing it unchanged again must not move them."""
    puts: list[ask.PutSchedule] = []
    for name, one in sorted(wanted.items()):
        put = _put_of(name, one, by=by, tenant=owner.id)
        _check(put, plans, now_ms=now_ms, decided_ms=decided_ms)
        if not _is_there(owner, put):
            puts.append(put)
    return puts


def _put_of(name: str, wanted: wire.ScheduleRequest, *, by: str, tenant: str) -> ask.PutSchedule:
    if wanted.timezone not in ("UTC", "Etc/UTC"):
        raise Refused(
            "timezone", "schedules run in UTC so far; write the time in UTC, or leave the zone out", path="timezone"
        )
    if wanted.cron and wanted.every:
        raise Refused("bad_schedule", "give a cron expression or an interval, one of them", path="cron")
    return ask.PutSchedule(
        by,
        tenant,
        name,
        wanted.workflow,
        wanted.cron or None,
        duration_ms(wanted.every, path="every") if wanted.every else None,
        None,
        packed(wanted.inputs, "inputs") if wanted.inputs else None,
    )


def _check(put: ask.PutSchedule, plans: Mapping[str, Plan], *, now_ms: int, decided_ms: int) -> None:
    """What the machine will ask, asked before anything is posted: all or none."""
    path = f"schedules.{check_name(put.schedule, path='schedules', kind='schedule')}"
    plan = plans.get(put.workflow)
    if plan is None:
        raise Refused("unknown_workflow", f"there is no workflow {put.workflow[:128]!a}", path=f"{path}.workflow")
    if (put.cron is None) == (put.every_ms is None):
        raise Refused("bad_schedule", "give a cron expression or an interval, one of them", path=f"{path}.cron")
    require_inputs(plan.definition, put.inputs, at_ms=now_ms)
    time_of(put, decided_ms)


def _is_there(owner: Tenant, put: ask.PutSchedule) -> bool:
    now = owner.schedules.get(put.schedule)
    if now is None or (now.workflow, now.inputs) != (put.workflow, put.inputs):
        return False
    return now.expression == (put.cron if put.cron is not None else now.expression) and (
        put.every_ms is None or getattr(now.every, "every_ms", None) == put.every_ms
    )
