"""The cluster: its nodes, and who owns which partition. Any node answers, also where nobody owns anything."""

import msgspec

from tickwork.api.asked import Asked, decoded
from tickwork.api.messages import MSGPACK, Answer, as_json, nothing
from tickwork.api.routes.runs import DONE
from tickwork.api.table import Body, Gives, Param, Route
from tickwork.cluster.placement import partitions_of
from tickwork.core.errors import Refused
from tickwork.core.timetext import instant_text
from tickwork.ports import store as ports
from tickwork.ports import wire
from tickwork.ports.exchange import Beats, beats_decoder
from tickwork.runtime.ground import TENANT

BEATS_BYTES_MAX = 32 * 1024 * 1024


async def show(asked: Asked) -> Answer:
    node = asked.node
    if node is None:
        raise Refused("no_cluster", "this server is alone: it has a store of its own", path="")
    await node.look_again()
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
            node=one.node,
            session=one.session,
            address=one.address,
            version=one.version,
            started_at=instant_text(one.started_ms),
            draining=one.draining,
            engine=one.engine,
            partitions=tuple(place for place, held in sorted(holdings.items()) if held.session == one.session),
            here=one.session == node.member.session,
        )
        for one in sorted(members, key=lambda one: (one.node, one.session))
    ]
    route = node.route(TENANT)
    routes = (wire.ClusterRoute(tenant=TENANT, home=route.home, spread=route.spread),)
    return as_json(wire.Cluster(cluster=node.cluster, nodes=tuple(nodes), partitions=tuple(partitions), routes=routes))


async def owners(asked: Asked) -> Answer:
    node = asked.node
    if node is None:
        raise Refused("no_cluster", "this server is alone: it has a store of its own", path="")
    await node.look_again()
    holdings = node.ownership.holdings
    found = tuple(holdings[number].address if number in holdings else "" for number in range(node.partitions))
    return as_json(wire.Owners(partitions=found, nodes=len(node.ownership.members)))


async def announce(asked: Asked) -> Answer:
    """A node is about to hand this partition over to this one."""
    assert asked.by, "whoever calls itself by no name is refused"
    if asked.node is not None:
        await asked.node.read_ahead(asked.query["partition"])
    return nothing()


async def give(asked: Asked) -> Answer:
    """It has: answered when the partition ticks here."""
    assert asked.by, "whoever calls itself by no name is refused"
    if asked.node is not None:
        await asked.node.ownership.take_up(asked.query["partition"])
    return nothing()


async def spread(asked: Asked) -> Answer:
    """What runs need is brought to the new partitions first; from then on they get their share."""
    ways = asked.ways
    if ways is None:
        raise Refused("no_cluster", "this server is alone: there is nothing to spread over", path="")
    node, wanted = ways.node, await asked.body(wire.SpreadRequest)
    route = ports.Route(TENANT, node.home(TENANT), wanted.spread)
    node.check_route(route)
    for partition in partitions_of(route, node.partitions)[node.route(TENANT).spread :]:
        engine = node.engines.get(partition)
        if engine is not None:
            await engine.publish(asked.engine.published(), by=asked.by)
        else:
            await ways.ask(partition, "PUT", "/v1/workflows", msgspec.to_builtins(asked.engine.published()))
    for queue in asked.engine.queues():
        if queue.limit is not None:
            message = f"queue {queue.name} has limits; put them again after spreading, to be dealt out"
            asked.engine.alarm("limits_at_home", message)
    await node.put_route(route)
    return nothing()


async def beats(asked: Asked) -> Answer:
    """Another node says which of its workers live."""
    asked.kind()
    heard: Beats = decoded(await asked.data(), MSGPACK, beats_decoder)
    if asked.node is not None:
        asked.node.hear(heard)
    return nothing()


_PARTITION = Param("partition", "Which one.", int, 0, 0, 511, required=True)

ROUTES = (
    Route(
        method="GET",
        path="/v1/cluster",
        lives="here",
        does=show,
        says="Nodes, partitions, owners, and how far rows are behind.",
        tag="cluster",
        gives={200: Gives(wire.Cluster)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/cluster/owners",
        lives="here",
        does=owners,
        says="The address of the owner of each partition, for workers that speak to every owner by themselves.",
        tag="cluster",
        gives={200: Gives(wire.Owners)},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/cluster/announce",
        lives="here",
        does=announce,
        says="Read ahead: this partition is about to be handed over to you. Nodes say this to each other.",
        tag="cluster",
        query=(_PARTITION,),
        gives=DONE,
    ),
    Route(
        method="POST",
        path="/v1/cluster/give",
        lives="here",
        does=give,
        says="Take this partition now: its owner let it go. Nodes say this to each other.",
        tag="cluster",
        query=(_PARTITION,),
        gives=DONE,
    ),
    Route(
        method="POST",
        path="/v1/cluster/beats",
        lives="here",
        does=beats,
        says="Workers that live, as the node says that stands for them. MessagePack, as ports/exchange.py has it.",
        tag="cluster",
        body=Body(None, (MSGPACK,), BEATS_BYTES_MAX, says="`Beats`."),
        gives=DONE,
    ),
    Route(
        method="PUT",
        path="/v1/cluster/spread",
        does=spread,
        says="Spread new runs over so many partitions. It can only grow.",
        tag="cluster",
        body=Body(wire.SpreadRequest),
        gives=DONE,
        refusals=(404, 409),
    ),
)
