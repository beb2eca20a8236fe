"""A task that streams its answer piece by piece, as a language model would.

    tickwork run examples/streaming.py:answer

While it runs, `tickwork stream RUN` or `client.stream(run)` reads along. The first attempt breaks off: its pieces are
marked as dead, and those of the second attempt begin anew.
"""

import time

import tickwork as tw


@tw.task(retries=1, retry_delay="50ms")
def write(ctx: tw.Context, words: list[str]) -> str:
    for number, word in enumerate(words):
        ctx.stream(f"{word} ")
        time.sleep(0.05)
        if ctx.attempt == 1 and number == 2:
            raise ConnectionError("the model broke off")
    return " ".join(words)


@tw.workflow
def answer(words: list[str] = ["a", "run", "is", "one", "execution", "of", "a", "workflow"]) -> str:
    return write(words)
