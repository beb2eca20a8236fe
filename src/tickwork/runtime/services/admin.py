"""Commands of operators: limits of queues, tenants and labels, pauses, and the clock."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.core.calendar.durations import duration_ms, instant_ms
from tickwork.core.state import inputs as inp
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.views.limits import label_limit_views, tenant_views


class AdminService:
    """Limits, pauses of any scope, and the confirmation of the wall clock."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def put_queue(self, name: str, request: wire.QueueRequest, *, by: str) -> None:
        rate_ms = duration_ms(request.per, path="per")
        queue = inp.PutQueue(by, name, request.limit, request.rate, rate_ms, request.burst, request.window)
        await self._context.command(queue)

    async def remove_queue(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        """Refused while a schedule names it; the machine looks at workflows and tasks."""
        if not self._context.state.has_queue(name) and not self._context.is_home(tenant):
            return  # deleted before
        for shard in self._context.tenant(tenant).schedules.shards:
            users = sorted(schedule.name for schedule in shard.values() if schedule.terms.queue == name)
            if users:
                raise Refused("in_use", f"the schedule {users[0]} names it: give it another queue first", path="queue")
        await self._context.command(inp.RemoveQueue(by, name))

    async def put_tenant(self, name: str, request: wire.TenantRequest, *, by: str) -> None:
        self._context.tenant(name)
        rate_ms = duration_ms(request.per, path="per")
        put = inp.PutTenant(
            by, name, request.weight, request.limit, request.rate, rate_ms, request.burst, request.max_live_runs,
            request.window,
        )  # fmt: skip
        await self._context.command(put)

    async def tenants(self) -> wire.Tenants:
        listing = wire.Tenants(tenants=tuple(tenant_views(self._context.state)))
        await self._context.until_durable()
        return listing

    async def put_label_limit(self, label: str, value: str, limit: int | None, *, by: str) -> None:
        """None: no limit."""
        check_name(value, path="value", kind="label value")
        if limit is None and (label, value) not in {(view.label, view.value) for view in self._label_views()}:
            if not self._context.is_home(TENANT):
                return  # deleted before
            raise Refused("unknown_label_limit", f"there is no limit of {label}={value}", path="label")
        await self._context.command(inp.PutLabelLimit(by, label, value, limit))

    async def label_limits(self) -> wire.LabelLimits:
        listing = wire.LabelLimits(limits=tuple(self._label_views()))
        await self._context.until_durable()
        return listing

    def _label_views(self) -> list[wire.LabelLimit]:
        return label_limit_views(self._context.state)

    async def confirm_clock(self, *, by: str) -> bool:
        """A person says that the wall clock is right. Return whether a step of it was held here."""
        monitor = self._context.clock_monitor
        if monitor is None or not monitor.confirm(by):
            return False
        ahead = self._context.live.keeper.is_ahead()
        await self._context.command(inp.HoldTimers(ahead))  # durable, with the gap before it
        return True

    async def pause(
        self, scope: str, name: str, *, by: str, reason: str = "", until: str = "", tenant: str = TENANT
    ) -> None:
        until_ms = instant_ms(until, path="until") if until else None
        if until_ms is not None and until_ms <= max(self._context.now_ms(), self._context.state.now_ms):
            raise Refused("bad_time", "a pause must end in the future", path="until")
        await self._context.command(inp.Pause(by, scope, tenant, name, reason, until_ms), facts=scope == "run")

    async def resume(self, scope: str, name: str, *, by: str, tenant: str = TENANT) -> None:
        await self._context.command(inp.Resume(by, scope, tenant, name), facts=scope == "run")
