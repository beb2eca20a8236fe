"""Book a flight, a car and a hotel. If one of them cannot be booked, those before it are cancelled, the last one first.

A failed booking is recorded like a successful one: after a crash no replay books what was refused before.

    tickwork run examples/programs/trip_saga.py:book_trip -i who=ada -i city=Oslo
"""

import tickwork as tw


def book_flight(who: str, city: str) -> str:
    return f"flight to {city} for {who}"


def book_car(who: str, city: str) -> str:
    return f"car in {city} for {who}"


def book_hotel(who: str, city: str) -> str:
    return f"hotel in {city} for {who}"


def cancel(booking: str) -> None:
    print(f"cancelled: {booking}")


@tw.durable
async def book_trip(ctx: tw.Durable, who: str, city: str) -> list[str]:
    booked: list[str] = []
    async with ctx.undo() as undo:
        for book in (book_flight, book_car, book_hotel):
            booking = await ctx.step(book, who, city, retries=2)
            undo(cancel, booking)
            booked.append(booking)
    return booked
