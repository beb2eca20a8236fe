"""One long function in durable steps. After a failure it continues after the last step that finished.

    tickwork run examples/durable_steps.py:move

The output lists the calls that were made: `book_hotel` fails once, and `book_flight` is not called again.
"""

import tickwork as tw


def book_flight(city: str, attempt: int) -> str:
    return f"flight to {city} booked in attempt {attempt}"


def book_hotel(city: str, attempt: int) -> str:
    if attempt == 1:
        raise TimeoutError("the hotel does not answer")
    return f"hotel in {city} booked in attempt {attempt}"


@tw.task(retries=2, retry_delay="100ms")
def trip(ctx: tw.Context, city: str) -> list[str]:
    done = []
    for number, (name, book) in enumerate([("flight", book_flight), ("hotel", book_hotel)], start=1):
        done.append(ctx.step(name, book, city, ctx.attempt))  # recorded before the next step starts
        ctx.progress(number, 2, name)
    return done


@tw.workflow
def move(city: str = "Oslo") -> list[str]:
    return trip(city)
