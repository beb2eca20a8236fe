"""Poll a flaky service until it answers, with a history that stays short: after each sequence of tries the function
continues as new.

    tickwork run examples/programs/polling.py:wait_for_answer -i job=j-1
"""

import tickwork as tw

TRIES_PER_SEQUENCE = 10


def ask(job: str) -> str:
    raise ConnectionError(f"no answer about {job} yet")


@tw.durable
async def wait_for_answer(ctx: tw.Durable, job: str, tries: int = 0) -> str:
    while True:
        try:
            return await ctx.step(ask, job, timeout="5s")
        except tw.StepFailed:
            await ctx.sleep("1m")
        tries += 1
        if tries % TRIES_PER_SEQUENCE == 0:
            ctx.continue_as_new(job=job, tries=tries)
