"""Mistakes that a type checker finds for users. An ignore that is not needed is an error, so each line is one."""

from datetime import UTC, datetime

import tickwork as tw

DAY = datetime(2026, 1, 1, tzinfo=UTC)


@tw.task
def size(path: str, times: int = 1) -> int:
    return len(path) * times


@tw.task
def with_context(ctx: tw.Context, path: str) -> float:
    return float(len(path))


@tw.workflow
def total(paths: list[str]) -> int:
    return size.map(paths)  # type: ignore[return-value]


size(3)  # type: ignore[arg-type]
size()  # type: ignore[call-arg]
size("a", path="a")  # type: ignore[misc]
size("a", tims=2)  # type: ignore[call-arg]
with_context("a", "b")  # type: ignore[call-arg]
text: str = size("a")  # type: ignore[assignment]
total([1])  # type: ignore[list-item]
tw.task(retires=3)  # type: ignore[call-overload]
tw.task(executor="fiber")  # type: ignore[call-overload]
tw.workflow(shedule=tw.every("5m"))  # type: ignore[call-overload]
tw.workflow(schedule="0 9 * * *")  # type: ignore[arg-type]
tw.cron("0 9 * * *", timezone="UTC")  # type: ignore[call-arg]
tw.context().step("length", len, 3)  # type: ignore[call-overload]
print(tw.taks)  # type: ignore[attr-defined]


def client(server: tw.Client, run: tw.Handle[int]) -> None:
    result: str = server.result(run)  # type: ignore[assignment]
    other: tw.Handle[str] = server.submit(total)  # type: ignore[arg-type]
    server.submit(len)  # type: ignore[arg-type]
    server.cancel(3)  # type: ignore[arg-type]
    print(result, other)
