"""Tasks that no workflow uses, for test_single_tasks.py."""

import tickwork as tw

FAILS = {"left": 0}


@tw.task
def double(n: int) -> int:
    return 2 * n


@tw.task(retries=2, retry_delay="10ms")
def moody(n: int) -> int:
    if FAILS["left"] > 0:
        FAILS["left"] -= 1
        raise ValueError("not now")
    return n


@tw.task(queue="nowhere")
def elsewhere(n: int) -> int:
    return n
