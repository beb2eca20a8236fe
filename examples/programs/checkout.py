"""A shop's checkout: reserve the goods, await the payment, dispatch, or give the goods back.

The browser reads the link to pay as soon as it is there, and follows the progress of the order after that. The payment
service signals the order's run; a payment that comes before the function waits for it is kept.

    tickwork run examples/programs/checkout.py:checkout --input product=widget --input count=2 --detach
    tickwork read RUN payment_link
    tickwork signal paid --run RUN --payload '{"status": "paid"}'
    tickwork read RUN progress
"""

import tickwork as tw

STOCK = {"widget": 12}


def reserve(product: str, count: int) -> None:
    if STOCK.get(product, 0) < count:
        raise tw.Permanent(f"there are not {count} of {product}")
    STOCK[product] -= count


def give_back(product: str, count: int) -> None:
    STOCK[product] += count


def payment_link(order: str) -> str:
    return f"https://pay.example.org/{order}"


def dispatch(order: str, part: int) -> None:
    print(f"part {part} of {order} is on its way")


@tw.durable
async def checkout(ctx: tw.Durable, product: str, count: int = 1) -> str:
    ctx.publish("progress", "reserving")
    try:
        await ctx.step(reserve, product, count)
    except tw.StepFailed as failed:
        ctx.publish("progress", failed.message)
        return "sold out"
    ctx.publish("payment_link", await ctx.step(payment_link, ctx.run_id))
    ctx.publish("progress", "waiting for the payment")
    payment = await ctx.event("paid", timeout="1h")
    if payment is None or payment["status"] != "paid":
        await ctx.step(give_back, product, count, retries=10)
        ctx.publish("progress", "given back")
        return "not paid"
    for part in range(count):
        ctx.publish("progress", f"{part} of {count} dispatched")
        await ctx.step(dispatch, ctx.run_id, part + 1, retries=10)
    ctx.publish("progress", "dispatched")
    return "dispatched"
