"""Send a mail, sleep for a month, and again, until somebody says that it is enough.

The sleep holds no process, thread or connection. After 100 mails the function continues as new under the same run
id, so it can go on for ever.

    tickwork run examples/programs/sleep_for_days.py:remind -i address=ada@example.org --detach
    tickwork signal enough --run RUN
"""

import tickwork as tw


def send_mail(address: str, number: int) -> None:
    print(f"mail {number} to {address}")


@tw.durable
async def remind(ctx: tw.Durable, address: str, sent: int = 0) -> int:
    while True:
        await ctx.step(send_mail, address, sent + 1, retries=5)
        sent += 1
        woken = await ctx.first(enough=ctx.event("enough"), month=ctx.sleep("30d"))
        if woken.name == "enough":
            return sent
        if sent % 100 == 0:
            ctx.continue_as_new(address=address, sent=sent)
