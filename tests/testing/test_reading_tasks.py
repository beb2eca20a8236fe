"""What tasks read through `ctx.client()`, in a world."""

import pytest

import tickwork as tw


@tw.durable
async def shop(ctx: tw.Durable, free: int = 3) -> int:
    ctx.publish("free", free)
    await ctx.event("closed")
    return free


def free_in(run: str) -> int:
    with tw.context().client() as client:
        return int(client.read(run, "free"))


@tw.task
def look(ctx: tw.Context, run: str) -> list[object]:
    with ctx.client() as client:
        return [client.get(run).state, client.read(run, "free"), [known.id for known in client.list("shop")]]


@tw.task
async def look_later(ctx: tw.Context, run: str) -> object:
    async with ctx.async_client() as client:
        return await client.result(run)


@tw.task
def write(ctx: tw.Context) -> None:
    with ctx.client() as client:
        client.submit("shop")


@tw.durable
async def watcher(ctx: tw.Durable, run: str) -> int:
    return await ctx.step(free_in, run)


@tw.durable
async def careless(ctx: tw.Durable, run: str) -> int:
    return free_in(run)


@pytest.fixture
def open_shop(world):
    run = world.start(shop)
    world.settle()
    return run


def test_a_task_reads_runs_and_published_values(world, open_shop):
    run = world.run(tw.workflow(name="looking")(lambda: look(open_shop.id)))

    run.assert_completed(output=["waiting", 3, [open_shop.id]])


def test_an_asynchronous_task_reads_the_result_of_another_run(world, open_shop):
    world.signal("closed")
    open_shop.assert_completed()

    world.run(tw.workflow(name="looking_back")(lambda: look_later(open_shop.id))).assert_completed(output=3)


def test_the_client_of_a_task_changes_nothing(world):
    run = world.run(tw.workflow(name="writing")(lambda: write()))

    assert run.state == "failed"
    assert "read_only" in run.why() or "reads only" in run.why()
    assert world.runs(shop) == []


def test_a_durable_function_reads_in_its_steps_only(world, open_shop):
    assert world.run(watcher, run=open_shop.id).output == 3
    failed = world.run(careless, run=open_shop.id)

    assert failed.state == "failed"
    assert "await ctx.step(look)" in failed.why()


def test_a_function_that_is_called_directly_has_no_server():
    with pytest.raises(tw.Refused, match=r"use tw.Client\(\)"):
        tw.Context(run_id="r").client()
