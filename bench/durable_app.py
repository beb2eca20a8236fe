"""Durable functions for `durable.py`: they wait, sleep, and record steps, and do nothing else."""

import time

import tickwork as tw

ITEMS = 3  # of an order


def note(number: int) -> str:
    return f"{number:0100}"  # a result of a hundred bytes


@tw.durable
async def entity(ctx: tw.Durable) -> int:
    """Waits for one event after the other, as an entity with a mailbox does."""
    for turn in range(1_000):
        ping = await ctx.event("ping", key=ctx.run_id)
        if ping is None or ping.get("end"):
            return turn
    return 1_000


@tw.durable
async def sleeper(ctx: tw.Durable) -> str:
    await ctx.sleep("2s")
    await ctx.sleep("2s")
    return "awake"


@tw.durable
async def stepper(ctx: tw.Durable, steps: int = 1_600) -> int:
    for number in range(steps):
        await ctx.step(note, number)
    return steps


@tw.durable
async def waiter(ctx: tw.Durable) -> None:
    await ctx.event("never", key=ctx.run_id)


@tw.durable
async def answers(ctx: tw.Durable, total: int = 0) -> int:
    """Replies to each update; a negative number ends it."""
    while True:
        message = await ctx.receive("add")
        total += message["n"]
        message.reply(total)
        if message["n"] < 0:
            return total


def reserve(number: int) -> str:
    return f"reserved {number}"


@tw.task
def pack(item: int) -> str:
    return f"packed {item}"


def ship() -> int:
    """When it began, in nanoseconds of the machine's clock."""
    return time.time_ns()


@tw.durable
async def order(ctx: tw.Durable, number: int = 0) -> int:
    """The story of the comparison: reserve, wait for the payment, pack on any worker, ship."""
    await ctx.step(reserve, number)
    paid = await ctx.event("paid", timeout="3d")
    assert paid is not None, "nobody paid"
    await ctx.gather(*(ctx.call(pack, item) for item in range(ITEMS)))
    return await ctx.step(ship)
