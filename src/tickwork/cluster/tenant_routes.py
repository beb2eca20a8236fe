"""Routes of tenants: which partitions hold a tenant's runs, as the store has them, and where a run of it lives."""

from tickwork.cluster.placement import drawn_ms, home_of, partition_of_run, partitions_of, partitions_of_run
from tickwork.core.base.errors import Conflict, Refused
from tickwork.ports.store import Route, Store
from tickwork.ports.system import Clock

FRESH_MS = 60_000  # an id that was drawn so short ago is new, or was sent a moment ago
SKEW_MS = 2_000


class TenantRoutes:
    def __init__(self, store: Store, clock: Clock, *, partitions: int) -> None:
        self.partitions = partitions  # of the cluster
        self._store = store
        self._clock = clock
        self._routes: dict[str, Route] = {}  # of tenants that have another route than a new one has
        self._changed_ms = 0  # when this node saw a route change

    def of(self, tenant: str) -> Route:
        return self._routes.get(tenant) or Route(tenant, home_of(tenant, self.partitions))

    async def load(self) -> None:
        """Read the routes for the first time. Raises `Unavailable`."""
        self._routes = {route.tenant: route for route in await self._store.read_routes()}

    async def refresh(self) -> None:
        """Read the routes again. Raises `Unavailable`."""
        before = self._routes
        await self.load()
        if self._routes != before:
            self._changed_ms = self._clock.wall_ms()

    def check(self, route: Route) -> None:
        """Runs that live stay where they are: a home never moves, and `spread` only grows."""
        known = self.of(route.tenant)
        if route.home != known.home or not known.spread <= route.spread <= self.partitions:
            message = f"{route.tenant} is spread over {known.spread} of {self.partitions}; it can only grow"
            raise Refused("bad_spread", message, path="spread")

    async def put(self, route: Route) -> None:
        self.check(route)
        before = self._routes.get(route.tenant)
        if not await self._store.put_route(route, over=before):
            await self.refresh()
            raise Conflict("another node changed this tenant's route; read it again")
        self._routes[route.tenant] = route
        self._changed_ms = self._clock.wall_ms()

    def home(self, tenant: str) -> int:
        return self.of(tenant).home

    def partitions_of(self, tenant: str) -> tuple[int, ...]:
        return partitions_of(self.of(tenant), self.partitions)

    def partition_of_run(self, tenant: str, run_id: str) -> int:
        return partition_of_run(self.of(tenant), run_id, self.partitions)

    def earlier_partitions_of_run(self, tenant: str, run_id: str) -> tuple[int, ...]:
        """Return all partitions where a run of this id may be already; none if the id is so new that there is only
        one."""
        route = self.of(tenant)
        if route.spread <= 1:
            return ()
        drawn, now_ms = drawn_ms(run_id), self._clock.wall_ms()
        if abs(now_ms - drawn) < FRESH_MS and drawn > self._changed_ms + SKEW_MS:
            return ()
        return partitions_of_run(route, run_id, self.partitions)
