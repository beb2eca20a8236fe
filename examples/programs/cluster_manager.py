"""A cluster of machines: jobs ask for some of them and give them back, one request after the other, without a lock.

Whoever asks gets the machines or the reason of a refusal. Anybody can read who has which machine. Every ten minutes
without a request, the machines are checked. After many requests the function continues as new, and requests that have
not been received yet stay in its inbox.

    tickwork ask cluster-1 assign --input job=j-1 --input count=2 --start cluster
    tickwork read cluster-1 nodes
    tickwork ask cluster-1 shutdown
"""

import tickwork as tw

REQUESTS_MAX = 500  # of one history
Nodes = dict[str, str | None]  # machine -> job


def health(nodes: list[str]) -> list[str]:
    """Which of these do not answer. A real program would ask them."""
    return [name for name in nodes if name.endswith("13")]


@tw.durable
async def cluster(ctx: tw.Durable, nodes: Nodes | None = None) -> int:
    """Returns how many machines had a job at the end."""
    nodes = nodes or {f"node-{number:02}": None for number in range(25)}
    requests = 0
    while True:
        ctx.publish("nodes", nodes)
        request = await ctx.receive("assign", "release", "shutdown", timeout="10m")
        if request is None:
            for name in await ctx.step(health, list(nodes), retries=3):
                nodes[name] = "out of order"
        elif request.name == "shutdown":
            request.reply()
            return sum(job is not None for job in nodes.values())
        elif request.name == "release":
            released = [name for name, job in nodes.items() if job == request["job"]]
            nodes.update(dict.fromkeys(released))
            request.reply(released)
        else:
            assign(nodes, request)
        requests += 1
        if requests == REQUESTS_MAX:
            ctx.continue_as_new(nodes=nodes)


def assign(nodes: Nodes, request: tw.Message) -> None:
    job, count = request["job"], request["count"]
    free = [name for name, owner in nodes.items() if owner is None][:count]
    if len(free) < count:
        request.refuse(f"{count} machines are not free, only {len(free)}")
        return
    nodes.update(dict.fromkeys(free, job))
    request.reply(free)
