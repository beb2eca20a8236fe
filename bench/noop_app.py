"""The work of the benchmarks: functions that do nothing, alone, in a chain, and in graphs of 12 and 10."""

import time

import tickwork as tw


@tw.task
def noop() -> None:
    return None


@tw.task
def stamp(x: object = None) -> int:
    """When it started, in nanoseconds of the machine's clock."""
    return time.time_ns()


@tw.task
def link(before: object) -> int:
    return time.time_ns()


@tw.task
def join(
    a: object, b: object, c: object, d: object, e: object, f: object, g: object, h: object, i: object, j: object
) -> None:
    return None


@tw.task
def join_eight(a: object, b: object, c: object, d: object, e: object, f: object, g: object, h: object) -> None:
    return None


@tw.task
def leaf(x: object) -> None:
    return None


@tw.task
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return time.time_ns()


@tw.workflow
def one() -> None:
    return noop()


@tw.workflow
def started() -> int:
    return stamp()


@tw.workflow
def chain() -> int:
    first = stamp()
    for _ in range(9):
        first = link(first)
    return first


@tw.workflow
def graph() -> None:
    root = noop()
    return join(*(leaf(root) for _ in range(10)))


@tw.workflow
def ten() -> None:
    root = noop()
    return join_eight(*(leaf(root) for _ in range(8)))


@tw.workflow
def sleepy(seconds: float) -> int:
    return nap(seconds)
