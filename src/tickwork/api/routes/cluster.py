"""The cluster: its nodes, and the owner of each partition. Every node responds, even if no partition has an owner."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from tickwork.api.http.request import Request, decoded
from tickwork.api.http.response import MSGPACK, Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE
from tickwork.api.routes.limits import part_of_limit, part_of_tenant, tenant_request, whole_limits, whole_tenants
from tickwork.api.routes.queues import part_of, whole
from tickwork.cluster.placement import partitions_of
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.core.base.names import TENANT
from tickwork.core.calendar.durations import instant_text
from tickwork.core.explain.update_text import listening_to_ends
from tickwork.ports import store as ports
from tickwork.protocol import http_models as wire
from tickwork.protocol.partition_messages import CommandBatch, batch_decoder, encode
from tickwork.protocol.worker_messages import Heartbeats, beats_decoder

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.cluster.node import Node

BEATS_BYTES_MAX = COMMANDS_BYTES_MAX = 32 * 1024 * 1024


async def show(request: Request) -> Response:
    node = request.node
    if node is None:
        raise Refused("no_cluster", "this server is alone: it has a store of its own", path="")
    await node.owners.refresh()
    members, holdings = node.ownership.members, node.ownership.holdings
    partitions = []
    for number in range(node.partitions):
        head, holding = await node.store.read_head(number), holdings.get(number)
        partitions.append(
            wire.ClusterPartition(
                partition=number,
                node=holding.node if holding is not None else "",
                address=holding.address if holding is not None else "",
                epoch=head.epoch,
                seq=head.seq,
                rows_behind=head.seq - head.watermark,
                here=number in node.engines,
            )
        )
    nodes = [
        wire.ClusterNode(
            node=member.node,
            session=member.session,
            address=member.address,
            version=member.version,
            started_at=instant_text(member.started_ms),
            draining=member.draining,
            engine=member.engine,
            partitions=tuple(
                partition for partition, held in sorted(holdings.items()) if held.session == member.session
            ),
            here=member.session == node.member.session,
        )
        for member in sorted(members, key=lambda entry: (entry.node, entry.session))
    ]
    route = node.routes.of(TENANT)
    routes = (wire.ClusterRoute(tenant=TENANT, home=route.home, spread=route.spread),)
    return as_json(wire.Cluster(cluster=node.cluster, nodes=tuple(nodes), partitions=tuple(partitions), routes=routes))


async def owners(request: Request) -> Response:
    node = request.node
    if node is None:
        raise Refused("no_cluster", "this server is alone: it has a store of its own", path="")
    await node.owners.refresh()
    holdings = node.ownership.holdings
    addresses = tuple(holdings[number].address if number in holdings else "" for number in range(node.partitions))
    return as_json(wire.Owners(partitions=addresses, nodes=len(node.ownership.members), store=node.cluster))


async def announce(request: Request) -> Response:
    """Another node is about to hand this partition over to this node."""
    assert request.by, "a caller without a name is refused"
    if request.node is not None:
        await request.node.read_ahead(request.query["partition"])
    return nothing()


async def give(request: Request) -> Response:
    """The other node has let the partition go. Respond when it ticks here."""
    assert request.by, "a caller without a name is refused"
    if request.node is not None:
        await request.node.ownership.take_up(request.query["partition"])
    return nothing()


async def spread(request: Request) -> Response:
    """The new partitions first get what runs need, with their parts of the limits. Then the old partitions reduce their
    limits to their own parts, and from then on runs are spread. A repeated request repairs what is missing."""
    router = request.ways
    if router is None:
        raise Refused(
            "no_cluster",
            "this server is not part of a cluster, so runs cannot be spread; nodes of a cluster share a store: "
            "tickwork server --store postgresql://…",
            path="",
        )
    body = await request.body(wire.SpreadRequest)
    async with router.node.order:
        await router.node.routes.refresh()
        await _spread(request, router, body)
    return nothing()


async def _spread(request: Request, router: "ClusterRouter", body: wire.SpreadRequest) -> None:
    node = router.node
    if body.spread > 1 and (mailboxes := request.engine.context.tenant(TENANT).mailboxes):
        message = f"a mailbox ({', '.join(sorted(mailboxes)[:3])}) is in one partition, so runs cannot be spread"
        raise Refused("mailbox_spread", message, path="spread")
    if body.spread > 1 and (listening := listening_to_ends(request.engine.context.tenant(TENANT))):
        message = f"a schedule ({', '.join(listening[:3])}) listens to the ends of runs and is in one partition"
        raise Refused("trigger_spread", f"{message}, so runs cannot be spread", path="spread")
    route = ports.Route(TENANT, node.routes.home(TENANT), body.spread)
    node.routes.check(route)
    places, old = partitions_of(route, node.partitions), node.routes.partitions_of(TENANT)
    crew = _PartitionActions(request, router)
    queues = whole([await crew.queues(partition) for partition in old])
    limits = [queue for queue in queues if queue.limit is not None or queue.rate is not None or queue.paused]
    parts = {limit.name: [_part(limit, number, len(places)) for number in range(len(places))] for limit in limits}
    tenant, labels = await crew.limits(old)
    for number in range(len(places)):  # refused before anything is changed
        part_of_tenant(tenant_request(tenant), number, len(places))
        for limit in labels:
            part_of_limit(wire.LabelLimitRequest(limit=limit.limit), number, len(places))
    published = request.engine.workflows.published()
    for partition in places[1:]:
        await crew.put_policies(partition)
    await crew.publish_all(places[1:], published)
    for number, partition in enumerate(places[len(old) :], len(old)):
        await crew.hold(partition, limits, parts, number)
        await crew.put_limits(partition, tenant, labels, number, len(places))
        await crew.put_settings(partition)
        for workflow in request.engine.queries.workflows():
            if workflow.paused:
                await crew.pause(partition, "workflow", workflow.name)
    try:
        for number, partition in enumerate(old):
            await crew.hold(partition, limits, parts, number)
            await crew.put_limits(partition, tenant, labels, number, len(places))
        await node.routes.put(route)
    except TickworkError as error:
        names = ", ".join(limit.name for limit in limits)
        if not names:
            raise
        message = f"it broke off ({error}); spread again, then put the limits of these queues again: {names}"
        raise Unavailable(message, retry_after_ms=1_000) from error
    # Meanwhile the home partition may have had another owner that accepted a publication. The publishing client reads
    # the route afterwards. Either it finds the old route, or this function finds what was published.
    if node.owned(route.home) is not request.engine:
        raise Unavailable("the home partition moved; spread again", retry_after_ms=1_000)
    if (later := request.engine.workflows.published()) != published:
        await crew.publish_all(places[1:], later)


def _part(queue: wire.Queue, number: int, count: int) -> wire.QueueRequest:
    whole_queue = wire.QueueRequest(
        limit=queue.limit, rate=queue.rate, per=queue.per or "1s", burst=queue.burst, window=queue.window or "bucket"
    )
    try:
        return part_of(whole_queue, number, count)
    except Refused as refused:
        message = f"queue {queue.name}: {refused.message}; raise that, or take it away, then spread"
        raise Refused(refused.code, message, path="spread") from None


class _PartitionActions:
    """Actions on one partition, local or at a remote owner."""

    def __init__(self, request: Request, router: "ClusterRouter") -> None:
        self._by, self._ways, self._home = request.by, router, request.engine

    async def queues(self, partition: int) -> bytes:
        engine = self._ways.node.owned(partition)
        if engine is not None:
            return msgspec.json.encode(wire.Queues(queues=tuple(engine.overview.queues())))
        return await self._ways.ask(partition, "GET", "/v1/queues")

    async def publish_all(self, places: Sequence[int], publications: Sequence[wire.Publication]) -> None:
        for index in places:
            for publication in publications:
                await self.publish(index, publication)

    async def publish(self, partition: int, publication: wire.Publication) -> None:
        engine = self._ways.node.owned(partition)
        if engine is not None:
            await engine.workflows.publish(publication, by=self._by)
        else:
            await self._ways.ask(partition, "PUT", "/v1/workflows", msgspec.to_builtins(publication))

    async def hold(
        self,
        partition: int,
        queues: Sequence[wire.Queue],
        parts: Mapping[str, Sequence[wire.QueueRequest]],
        number: int,
    ) -> None:
        """Set the partition's parts of the limits, and pause what is paused."""
        for queue in queues:
            await self._put_queue(partition, queue.name, parts[queue.name][number])
            if queue.paused:
                await self.pause(partition, "queue", queue.name)

    async def _put_queue(self, partition: int, name: str, part: wire.QueueRequest) -> None:
        engine = self._ways.node.owned(partition)
        if engine is not None:
            await engine.admin.put_queue(name, part, by=self._by)
        else:
            await self._ways.ask(partition, "PUT", f"/v1/queues/{quote(name, safe='')}", msgspec.to_builtins(part))

    async def limits(self, partitions: Sequence[int]) -> tuple[wire.Tenant, list[wire.LabelLimit]]:
        """The whole limits of the tenant and of labels, from the parts of these partitions."""
        tenants = whole_tenants([await self._read(partition, "/v1/tenants") for partition in partitions])
        labels = whole_limits([await self._read(partition, "/v1/label-limits") for partition in partitions])
        return next(tenant for tenant in tenants if tenant.name == TENANT), labels

    async def put_limits(
        self, partition: int, tenant: wire.Tenant, labels: Sequence[wire.LabelLimit], number: int, count: int
    ) -> None:
        """Set the partition's parts of these limits."""
        engine = self._ways.node.owned(partition)
        part = part_of_tenant(tenant_request(tenant), number, count)
        if engine is not None:
            await engine.admin.put_tenant(TENANT, part, by=self._by)
        else:
            await self._ways.ask(partition, "PUT", f"/v1/tenants/{TENANT}", msgspec.to_builtins(part))
        if tenant.paused:
            await self.pause(partition, "tenant", TENANT)
        for limit in labels:
            own = part_of_limit(wire.LabelLimitRequest(limit=limit.limit), number, count)
            if engine is not None:
                await engine.admin.put_label_limit(limit.label, limit.value, own.limit, by=self._by)
            else:
                path = f"/v1/label-limits/{quote(limit.label, safe='')}/{quote(limit.value, safe='')}"
                await self._ways.ask(partition, "PUT", path, msgspec.to_builtins(own))

    async def put_policies(self, partition: int) -> None:
        """Give the partition the policies of the home: a workflow that names an unknown one is refused."""
        engine = self._ways.node.owned(partition)
        for policy in (await self._home.policies.policies()).policies:
            request = wire.PolicyRequest(
                allow=policy.allow, reason=policy.reason, action=policy.action, pause=policy.pause
            )
            if engine is not None:
                await engine.policies.put(policy.name, request, by=self._by)
            else:
                path = f"/v1/policies/{quote(policy.name, safe='')}"
                await self._ways.ask(partition, "PUT", path, msgspec.to_builtins(request))

    async def put_settings(self, partition: int) -> None:
        """Give the partition the settings of the home that may change."""
        engine = self._ways.node.owned(partition)
        listing = (await self._home.settings.settings()).settings
        values = {setting.name: setting.value for setting in listing if setting.changeable}
        if engine is not None:
            await engine.settings.put(values, by=self._by)
        else:
            await self._ways.ask(partition, "PUT", "/v1/settings", {"settings": values})

    async def _read(self, partition: int, path: str) -> bytes:
        engine = self._ways.node.owned(partition)
        if engine is None:
            return await self._ways.ask(partition, "GET", path)
        listing = await (engine.admin.tenants() if path == "/v1/tenants" else engine.admin.label_limits())
        return msgspec.json.encode(listing)

    async def pause(self, partition: int, scope: str, name: str) -> None:
        engine = self._ways.node.owned(partition)
        with _already():  # it is paused there
            if engine is not None:
                await engine.admin.pause(scope, name, by=self._by)
            else:
                await self._ways.ask(partition, "POST", f"/v1/{scope}s/{quote(name, safe='')}/pause", {})


@contextmanager
def _already() -> Iterator[None]:
    try:
        yield
    except Refused as refused:
        if refused.code != "illegal_move":
            raise


async def published(request: Request) -> Response:
    """Return what the tenant has published at home, for a partition that lacks some of it."""
    if request.node is None:
        raise Refused("no_cluster", "this server is alone: it has a store of its own", path="")
    engine = request.node.owned(request.query["partition"])
    if engine is None:
        raise Unavailable("this node does not own that partition", retry_after_ms=200)
    return as_json(
        wire.Publications(publications=tuple(engine.workflows.published(tenant=request.query["tenant"] or TENANT)))
    )


async def commands(request: Request) -> Response:
    """Commands of tasks in a partition of another node, for a partition of this one."""
    request.kind()
    batch: CommandBatch = decoded(await request.data(), MSGPACK, batch_decoder)
    engine = request.node.owned(request.query["partition"]) if request.node is not None else None
    if engine is None:
        raise Unavailable("this node does not own that partition", retry_after_ms=200)
    return Response(200, encode(await engine.runs.take_commands(batch)), MSGPACK)


async def inbox(request: Request) -> Response:
    """With `partition`, return what this node knows of it; otherwise ask the owner of each partition."""
    router = request.ways
    if router is None:
        return as_json(wire.HeldRuns(runs=()))  # a single server starts accepted runs at once
    requested: int = request.query["partition"]
    if requested >= 0:
        return as_json(wire.HeldRuns(runs=_held(router.node, requested)))
    runs: list[wire.HeldRun] = []
    for partition in range(router.node.partitions):
        if router.node.owned(partition) is not None:
            runs += _held(router.node, partition)
        else:
            body = await router.ask(partition, "GET", f"/v1/cluster/inbox?partition={partition}")
            runs += msgspec.json.decode(body, type=wire.HeldRuns).runs
    return as_json(wire.HeldRuns(runs=tuple(runs)))


def _held(node: "Node", partition: int) -> tuple[wire.HeldRun, ...]:
    return tuple(
        wire.HeldRun(
            id=run.row.id,
            partition=partition,
            workflow=run.workflow,
            by=run.row.by,
            code=run.refusal.code,
            detail=run.refusal.detail,
        )
        for run in node.inbox.held.get(partition, {}).values()
    )


async def remove_from_inbox(request: Request) -> Response:
    if request.node is None or not await request.node.inbox.remove(request.run_id):
        raise Refused("unknown_run", "nothing of this id waits in an inbox", path="run")
    return nothing()


async def beats(request: Request) -> Response:
    """Another node reports which of its workers are alive."""
    request.kind()
    heard: Heartbeats = decoded(await request.data(), MSGPACK, beats_decoder)
    if request.node is not None:
        request.node.workers.heartbeats(heard)
    return nothing()


_PARTITION = QueryParam("partition", "Number of the partition.", int, 0, 0, 511, required=True)

ROUTES = (
    Route(
        method="GET",
        path="/v1/cluster",
        routed_to="here",
        handler=show,
        summary="Show nodes, partitions, owners, and how far stored rows lag behind the journal.",
        tag="cluster",
        responses={200: ResponseSpec(wire.Cluster)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/cluster/owners",
        routed_to="here",
        handler=owners,
        summary="List the address of each partition's owner, for workers that connect to every owner directly.",
        tag="cluster",
        responses={200: ResponseSpec(wire.Owners)},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/cluster/announce",
        routed_to="here",
        internal=True,
        handler=announce,
        summary="Internal, between nodes: load this partition in advance, because it is about to be handed over.",
        tag="cluster",
        query=(_PARTITION,),
        responses=DONE,
    ),
    Route(
        method="POST",
        path="/v1/cluster/give",
        routed_to="here",
        internal=True,
        handler=give,
        summary="Internal, between nodes: take over this partition now, because its owner released it.",
        tag="cluster",
        query=(_PARTITION,),
        responses=DONE,
    ),
    Route(
        method="POST",
        path="/v1/cluster/published",
        routed_to="here",
        internal=True,
        handler=published,
        summary="Internal, between nodes: return what a tenant has published at its home partition.",
        tag="cluster",
        query=(_PARTITION, QueryParam("tenant", "The id of the tenant.")),
        responses={200: ResponseSpec(wire.Publications)},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/cluster/commands",
        routed_to="here",
        internal=True,
        handler=commands,
        summary="Internal, between nodes: start runs and deliver events for tasks of another partition.",
        tag="cluster",
        query=(_PARTITION,),
        body=BodySpec(None, (MSGPACK,), COMMANDS_BYTES_MAX, summary="`CommandBatch`."),
        responses={200: ResponseSpec(None, (MSGPACK,), summary="A `CommandOutcome` for each command.")},
    ),
    Route(
        method="GET",
        path="/v1/cluster/inbox",
        routed_to="here",
        handler=inbox,
        summary="List runs that were accepted while their partition had no owner, and that the partition refuses. They "
        "are kept and tried again.",
        tag="cluster",
        query=(QueryParam("partition", "Only this partition, as the responding node knows it.", int, -1, -1, 511),),
        responses={200: ResponseSpec(wire.HeldRuns)},
        refusals=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/cluster/inbox/{run}",
        routed_to="here",
        handler=remove_from_inbox,
        summary="Remove a refused run from the inbox for good.",
        tag="cluster",
        responses=DONE,
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/cluster/beats",
        routed_to="here",
        internal=True,
        handler=beats,
        summary="Internal, between nodes: report live workers of a gateway. MessagePack: protocol/worker_messages.py.",
        tag="cluster",
        body=BodySpec(None, (MSGPACK,), BEATS_BYTES_MAX, summary="`Beats`."),
        responses=DONE,
    ),
    Route(
        method="PUT",
        path="/v1/cluster/spread",
        handler=spread,
        summary="Spread new runs over this number of partitions. The number can only grow.",
        tag="cluster",
        body=BodySpec(wire.SpreadRequest),
        responses=DONE,
        refusals=(404, 409),
    ),
)
