"""An order as a durable function: what was done is undone if a later step fails.

tickwork run examples/order_saga.py:sell --input number=A-7
"""

from dataclasses import dataclass

import tickwork as tw


@dataclass
class Payment:
    id: str
    cents: int


def reserve(number: str) -> str:
    return f"reservation of {number}"


def release(reservation: str) -> None:
    print(f"released: {reservation}")


async def charge(number: str, cents: int) -> Payment:
    return Payment(f"payment for {number}", cents)


def refund(payment: Payment) -> None:
    print(f"refunded: {payment.id}")


@tw.task(retries=2)
def ship(number: str, fail: bool = False) -> str:
    if fail:
        raise tw.Refused("no_carrier", f"nobody takes {number}")
    return f"parcel with {number}"


@tw.durable
async def sell(ctx: tw.Durable, number: str, cents: int = 1_200, pause: float = 0.1, fail: bool = False) -> str:
    async with ctx.undo() as undo:
        reservation = await ctx.step(reserve, number)
        undo(release, reservation)
        payment = await ctx.step(charge, number, cents, retries=3)
        undo(refund, payment)
        await ctx.sleep(pause)  # nothing runs meanwhile, however long it is
        parcel = await ctx.call(ship, number, fail=fail)
    return f"{parcel}, paid with {payment.id}"
