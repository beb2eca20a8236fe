"""Commands of operators: limits of queues, pauses, and the clock."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.calendar.durations import duration_ms, instant_ms
from tickwork.core.state import inputs as inp
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext


class AdminService:
    """Queues, pauses of any scope, and the confirmation of the wall clock."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def put_queue(self, name: str, request: wire.QueueRequest, *, by: str) -> None:
        rate_ms = duration_ms(request.per, path="per")
        queue = inp.PutQueue(by, name, request.limit, request.rate, rate_ms, request.burst, request.window)
        await self._context.command(queue)

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
