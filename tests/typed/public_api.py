"""The types that users' editors show for the public names. mypy and pyright read this file; it is never run."""

from collections.abc import Awaitable, Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import tickwork as tw
from tickwork.protocol import http_models
from tickwork.testing import World

DAY = datetime(2026, 1, 1, tzinfo=UTC)


# Tasks


@tw.task
def size(path: str, times: int = 1) -> int:
    return len(path) * times


@tw.task(retries=3, retry_delay="1s", timeout=timedelta(minutes=5), cache=True, memory="1GB", on_worker_loss="fail")
def names(day: datetime) -> list[str]:
    return [str(day)]


@tw.task
def with_context(ctx: tw.Context, path: str) -> float:
    assert_type(ctx.attempt, int)
    return float(len(path))


@tw.task
async def fetched(url: str) -> bytes:
    return url.encode()


@tw.task
async def fetched_with_context(ctx: tw.Context, url: str) -> bytes:
    return f"{ctx.node}{url}".encode()


@tw.task
def shown(value: object, width: int = 80) -> str:
    return f"{value}"[:width]


@tw.task(retries=1)
async def sent(value: object) -> bool:
    return bool(value)


def tasks() -> None:
    assert_type(size("a", times=2), int)
    assert_type(size.map(["a", "b"], times=2), list[int])
    assert_type(size.using(id="other", retries=9)("a"), int)
    assert_type(names(DAY), list[str])
    assert_type(with_context("a"), float)
    assert_type(with_context.map(["a"]), list[float])
    assert_type(fetched.map(["a"]), list[bytes])
    assert_type(fetched_with_context.map(["a"]), list[bytes])
    assert_type(shown("a", width=3), str)
    assert_type(shown(value=3), str)
    assert_type(sent.map([1]), list[bool])
    assert_type(size.map(tw.zip(["a"], [2])), list[int])
    assert_type(size.map(tw.product(path=["a"], times=[2])), list[int])
    assert_type(size.map(tw.entries({"a": 2})), dict[str, int])


# Workflows


@tw.workflow
def total(paths: list[str]) -> int:
    sizes = size.map(paths)
    assert_type(sizes, list[int])
    return sizes[0]


@tw.workflow(
    schedule=[tw.cron("0 9 * * 1-5", tz="Europe/Berlin"), tw.every("5m")], timeout="1h", concurrency=(5, "day")
)
def daily(day: datetime) -> float:
    first = with_context("a")
    chosen = tw.branch(first > 3.0, lambda: size("a"), lambda: shown(first))
    assert_type(chosen, int | str)
    maybe = tw.branch(first > 3.0, lambda: size("a"))
    assert_type(maybe, int | None)
    last = tw.repeat(lambda: size("a"), until=tw.previous > 3, max_iterations=9)
    assert_type(last, int)
    assert_type(tw.wait("3d"), tw.Node)
    assert_type(tw.node(names(day)).after(last), tw.Node)
    return first


def workflows() -> None:
    assert_type(total(["a"]), int)
    assert_type(daily.map([DAY]), list[float])
    assert_type(total.map(tw.entries({"a": 2})), dict[str, int])
    assert_type(total.using(id="x").map(tw.entries({"a": 2})), dict[str, int])


# Schedules


def schedules() -> None:
    assert_type(tw.cron("0 9 * * *"), tw.Schedule)
    assert_type(tw.every(timedelta(hours=1)), tw.Schedule)
    assert_type(tw.at(DAY), tw.Schedule)
    assert_type(tw.rrule("FREQ=DAILY"), tw.Schedule)


# Objects that workers know by name


class Prices:
    vat_percent = 19


def instances() -> None:
    assert_type(tw.instance("prices", Prices()), Prices)


# Inside a task


async def doubled(number: int) -> int:
    return 2 * number


async def inside() -> None:
    ctx = tw.context()
    assert_type(ctx, tw.Context)
    assert_type(ctx.step("length", len, "abc"), int)
    assert_type(ctx.step("doubled", doubled, 3), Awaitable[int])
    assert_type(await ctx.step("doubled", doubled, 3), int)


# Clients


def client() -> None:
    with tw.Client("http://127.0.0.1:8440", token="a token of 16 letters") as server:
        assert_type(server, tw.Client)
        run = server.submit(total, paths=["a"], key="once")
        assert_type(run, tw.Handle[int])
        assert_type(run.id, str)
        assert_type(run.duplicate, bool)
        assert_type(server.result(run, timeout=3.0), int)
        assert_type(server.result(run.id), Any)
        assert_type(server.submit_many(daily, [{"day": DAY}]), list[tw.Handle[float]])
        assert_type(server.get(run), http_models.RunDetail)
        assert_type(server.wait(run), http_models.RunDetail)
        assert_type(server.watch(run), Generator[http_models.Run, None, None])
        assert_type(server.signal("paid", {"sum": 3}), int)
        assert_type(server.why(run), http_models.Why)
        assert_type(server.schedules(), Sequence[http_models.Schedule])
        assert_type(server.trigger_schedule("nightly"), str)
        assert_type(server.cancel(run, reason="no longer needed"), None)


async def async_client() -> None:
    async with tw.AsyncClient("http://127.0.0.1:8440") as server:
        assert_type(server, tw.AsyncClient)
        run = await server.submit(total, {"paths": ["a"]})
        assert_type(run, tw.Handle[int])
        assert_type(await server.result(run), int)
        assert_type(await server.submit_many(daily, [{"day": DAY}]), list[tw.Handle[float]])
        assert_type(await server.get(run), http_models.RunDetail)
        assert_type(await server.schedules(), Sequence[http_models.Schedule])


async def embedded() -> None:
    async with tw.embedded(workflows=[total, daily]) as server:
        assert_type(server, tw.AsyncClient)
        assert_type(await server.result(await server.submit(total, paths=[])), int)


# Tests of applications


def testing(world: World) -> None:
    run = world.run(total, paths=["a"])
    run.assert_completed(output=1)
    assert_type(world.advance(days=14), None)


async def charge(card: str) -> int:
    return len(card)


@tw.durable
async def order(ctx: tw.Durable, number: str) -> int:
    paid: int = await ctx.step(charge, number, retries=2, timeout="5s")
    size: int = await ctx.step("size", len, number)
    await ctx.sleep("3d")
    both: tuple[int, str] = await ctx.gather(ctx.step(charge, "1"), ctx.step(str, 3))
    winner: tw.First[Any] = await ctx.first(paid=ctx.event("paid"), late=ctx.sleep(5))
    decision: tw.Decision = await ctx.approval("release", timeout="1d")
    called: int = await ctx.call(order, number)
    async with ctx.undo() as undo:
        undo(charge, number)
    return paid + size + both[0] + winner.index + called if decision else 0


@tw.task
def told_of(failure: tw.Failure) -> None:
    print(failure.reason)


@tw.durable(on_failure=told_of, timeout="1h")
async def watched(ctx: tw.Durable, number: str) -> str:
    started: str = await ctx.start(order, number, key=number, delay="1m")
    await ctx.signal("begun", {"number": number}, key=number)
    ctx.stream("begun")
    return started


def free_in(run: str) -> int:
    with tw.context().client() as client:
        return int(client.read(run, "free"))


def submitted(server: tw.Client) -> int:
    handle: tw.Handle[int] = server.submit(order, number="1")
    return server.result(handle)
