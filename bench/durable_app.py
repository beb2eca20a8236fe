"""Durable functions for `durable.py`: they wait, sleep, and record steps, and do nothing else."""

import tickwork as tw


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
