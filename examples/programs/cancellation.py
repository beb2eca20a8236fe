"""Cancel a long job; its clean-up still runs.

tickwork run examples/programs/cancellation.py:convert --detach
tickwork cancel RUN
"""

import tickwork as tw


def reserve(disk: str) -> str:
    return f"space on {disk}"


def give_back(space: str) -> None:
    print(f"gave back {space}")


@tw.task(timeout="1h")
async def encode(space: str) -> str:
    import asyncio

    await asyncio.sleep(1_800)  # stands for the long work; it gets asyncio.CancelledError
    return f"encoded in {space}"


@tw.durable
async def convert(ctx: tw.Durable, disk: str = "a") -> str:
    space = await ctx.step(reserve, disk)
    try:
        return await ctx.call(encode, space)
    finally:
        await ctx.step(give_back, space)
