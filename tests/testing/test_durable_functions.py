"""Durable functions in a world. Each suspension drops the function, so that every test is a test of the replay."""

import asyncio
from dataclasses import dataclass

import pytest

import tickwork as tw


@dataclass
class Weight:
    grams: int


ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def charge(card: str) -> int:
    ran.append(f"charge {card}")
    return len(card)


def refund(card: str) -> None:
    ran.append(f"refund {card}")


def decline(card: str) -> None:
    raise ValueError(f"{card} is declined")


@tw.task
def pack(number: str) -> str:
    ran.append(f"pack {number}")
    return f"parcel {number}"


@tw.task
def broken() -> None:
    raise RuntimeError("no parcel")


@tw.workflow
def graph(number: str) -> str:
    return pack(number)


@tw.durable
async def order(ctx: tw.Durable, number: str) -> dict[str, object]:
    paid = await ctx.step(charge, number)
    await ctx.sleep("3d")
    parcel, other = await ctx.gather(ctx.call(pack, number), ctx.call(graph, number=number))
    return {"paid": paid, "parcel": parcel, "other": other, "at": ctx.now().isoformat()}


def test_a_function_sleeps_calls_and_ends(world):
    run = world.run(order, number="abc")

    assert run.state == "waiting"
    assert ran == ["charge abc"]

    world.advance(days=3)

    assert run.state == "completed", run.why()
    assert ran == ["charge abc", "pack abc", "pack abc"]
    assert run.output["parcel"] == run.output["other"] == "parcel abc"
    assert run.output["paid"] == 3


def test_events_and_approvals_wake_it(world):
    @tw.durable
    async def release(ctx: tw.Durable) -> list[object]:
        late = await ctx.event("late", timeout="1h")
        paid = await ctx.event("paid", "7")
        decision = await ctx.approval("release", "really?")
        return [late, paid, decision.approved, decision.by, decision.comment]

    run = world.run(release)
    world.advance(hours=2)
    world.signal("paid", key="7", payload={"sum": 3})
    world.approve(run, "release", by="eve", comment="fine")

    assert run.output == [None, {"sum": 3}, True, "eve", "fine"]


def test_an_error_undoes_what_was_done(world):
    @tw.durable
    async def failing(ctx: tw.Durable) -> None:
        async with ctx.undo() as undo:
            await ctx.step(charge, "1")
            undo(refund, "1")
            await ctx.sleep(5)
            await ctx.step(decline, "1")

    run = world.run(failing)
    world.advance(minutes=1)

    assert run.state == "failed"
    assert "declined" in run.error
    assert ran == ["charge 1", "refund 1"]


def test_a_failed_call_is_an_error_that_can_be_caught(world):
    @tw.durable
    async def careful(ctx: tw.Durable) -> str:
        try:
            await ctx.call(broken)
        except tw.CallFailed as failed:
            return failed.run_id
        return "unreached"

    run = world.run(careful)

    assert run.state == "completed", run.why()
    assert run.output.startswith(run.id)


def test_a_step_is_tried_again(world):
    tries: list[int] = []

    def third_time() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("away")
        return len(tries)

    @tw.durable
    async def patient(ctx: tw.Durable) -> int:
        return await ctx.step(third_time, retries=5, retry_delay="10s")

    run = world.run(patient)
    world.advance(minutes=2)

    assert run.output == 3
    assert len(tries) == 3


def test_the_first_outcome_withdraws_the_others(world):
    @tw.durable
    async def race(ctx: tw.Durable) -> str:
        winner = await ctx.first(paid=ctx.event("paid"), slow=ctx.call(order, number="x"), late=ctx.sleep("1h"))
        await ctx.sleep(1)
        return winner.name

    run = world.run(race)
    world.advance(hours=2)

    assert run.output == "late"
    assert [child.state for child in world.runs(order)] == ["cancelled"]


def test_it_continues_as_new_under_the_same_id(world):
    @tw.durable
    async def pages(ctx: tw.Durable, page: int = 1) -> int:
        await ctx.step(charge, str(page))
        await ctx.sleep(1)
        if page < 3:
            ctx.continue_as_new(page=page + 1)
        return page

    run = world.run(pages)
    world.advance(minutes=1)

    assert run.output == 3
    assert ran == ["charge 1", "charge 2", "charge 3"]


def test_a_large_value_of_a_step_is_kept_elsewhere(world):
    @tw.durable
    async def large(ctx: tw.Durable) -> int:
        text = await ctx.step(lambda: "x" * 200_000, name="large")
        await ctx.sleep(1)
        return len(text)

    run = world.run(large)
    world.advance(minutes=1)

    assert run.output == 200_000


def test_many_steps_and_calls_at_once(world):
    @tw.durable
    async def wide(ctx: tw.Durable) -> int:
        steps = await ctx.gather(*[ctx.step(charge, str(number)) for number in range(150)])
        parcels = await ctx.gather(*[ctx.call(pack, str(number)) for number in range(20)])
        return len(steps) + len(parcels)

    assert world.run(wide).output == 170


def test_another_await_fails_the_run_and_shows_the_line(world):
    import asyncio

    @tw.durable
    async def foreign(ctx: tw.Durable) -> None:
        await asyncio.sleep(1)

    run = world.run(foreign)

    assert run.state == "failed"
    assert "await asyncio.sleep(1)" in run.error


def test_a_graph_calls_a_durable_function(world):
    @tw.durable
    async def inner(ctx: tw.Durable, number: int) -> int:
        return await ctx.step(abs, -number)

    @tw.workflow
    def outer(number: int) -> int:
        return inner(number)

    assert world.run(outer, number=4).output == 4


@pytest.mark.parametrize("length", [2_000, 200_000])
def test_inputs_of_a_call_may_be_large(world, length):
    @tw.durable
    async def inner(ctx: tw.Durable, text: str, page: int = 1) -> int:
        if page == 1:
            ctx.continue_as_new(text=text, page=2)
        return await ctx.step(len, text)

    @tw.durable
    async def outer(ctx: tw.Durable, size: int) -> int:
        return await ctx.call(inner, text="x" * size)

    run = world.run(outer, size=length)

    assert run.output == length, run.why()


def test_a_cancelled_function_undoes_what_it_did(world):
    @tw.durable
    async def reserved(ctx: tw.Durable) -> None:
        async with ctx.undo() as undo:
            await ctx.step(charge, "1")
            undo(refund, "1")
            await ctx.gather(ctx.event("never"), ctx.sleep("9d"))

    run = world.run(reserved)
    world.cancel(run)
    world.advance(minutes=1)

    assert run.state == "cancelled", run.why()
    assert ran == ["charge 1", "refund 1"]


async def weigh(number: str, *, exact: bool = False) -> Weight:
    raise AssertionError("the test replaces it")


@tw.durable
async def weighing(ctx: tw.Durable, number: str) -> int:
    weight = await ctx.step(weigh, number, exact=True, retries=2)
    return weight.grams


def test_a_step_is_replaced_by_a_value_of_its_type(world):
    world.replace(weigh, {"grams": 7})

    world.run(weighing, number="n").assert_completed(output=7)
    assert world.calls(weigh) == world.calls("weigh") == [{"number": "n", "exact": True}]


def test_a_step_is_replaced_by_a_function(world):
    async def heavier(number: str, exact: bool) -> Weight:
        return Weight(len(number) if exact else 0)

    world.replace("weigh", heavier)

    world.run(weighing, number="four").assert_completed(output=4)


def test_failures_of_a_step_use_up_its_retries(world):
    world.replace(weigh, Weight(1))
    world.fail(weigh, times=2, error=OSError("away"))
    run = world.run(weighing, number="n")
    world.advance(minutes=1)
    run.assert_completed(output=1)

    world.fail(weigh, error=OSError("away"))
    failed = world.run(weighing, number="n")
    world.advance(minutes=1)
    failed.assert_failed()
    assert "away" in failed.error
    assert len(world.calls(weigh)) == 6

    world.restore(weigh)
    world.run(weighing, number="n")
    assert len(world.calls(weigh)) == 9  # the function itself


def test_inputs_are_compared_with_the_signature(world):
    with pytest.raises(tw.Refused, match="number is declared as str"):
        world.run(weighing, number=5)


def test_a_node_of_a_later_workflow_may_have_the_name_of_a_function_that_has_run(world):
    @tw.durable(name="inner")
    async def inner(ctx: tw.Durable) -> int:
        return await ctx.step(abs, -4)

    @tw.workflow
    def outer() -> int:
        return inner()

    world.run(inner)

    assert world.run(outer).output == 4


def test_a_function_that_is_not_the_same_in_each_replay_fails_with_both_sides_and_the_line(world):
    runs: list[int] = []

    @tw.durable
    async def restless(ctx: tw.Durable) -> None:
        runs.append(1)
        await ctx.step(f"step {len(runs)}", charge, "1")
        await ctx.sleep(1)

    run = world.run(restless)
    world.advance(minutes=1)

    assert run.state == "failed"
    assert "the history has step 'step 1' where the code now has step 'step 2' at " in run.error
    assert f"{__file__}:{restless.function.__code__.co_firstlineno + 3}" in run.error


def saves(number: int) -> int:
    tw.context().checkpoint(number)
    return number


async def saves_by_awaiting(number: int) -> int:
    await tw.context().checkpoint_async(number)
    return number


def looks(number: int) -> object:
    return tw.context().last_checkpoint


@pytest.mark.parametrize("part", [saves, saves_by_awaiting, looks])
def test_a_step_that_uses_checkpoints_fails_with_advice(world, part):
    @tw.durable
    async def careless(ctx: tw.Durable) -> list[object]:
        return await ctx.gather(ctx.step(part, 1), ctx.step(part, 2))

    run = world.run(careless)

    assert run.state == "failed"
    assert "have no checkpoints" in run.why() and "await ctx.call(...)" in run.why()


def test_steps_of_a_task_run_beside_each_other(world):
    async def part(number: int) -> int:
        return number

    @tw.task
    async def parts(ctx: tw.Context) -> list[int]:
        return await asyncio.gather(*[ctx.step_async(f"part {number}", part, number) for number in range(3)])

    @tw.workflow
    def whole() -> list[int]:
        return parts()

    world.run(whole).assert_completed(output=[0, 1, 2])
