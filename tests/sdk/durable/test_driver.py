import asyncio
from contextvars import Context, ContextVar
from datetime import UTC, datetime

import pytest

from sdk.durable.history_keeper import Keeper, attempt, lived, replayed
from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import FunctionHistory, HistoryEntry
from tickwork.sdk.context import StepsChanged
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.outcomes import CallFailed, Cancelled, ContinueAsNew, StepFailed


def double(number: int) -> int:
    return 2 * number


def broken(_number: int = 0) -> int:
    raise ValueError("no")


def test_a_step_gives_its_result_and_is_not_run_again():
    calls: list[int] = []

    def noted(number: int) -> int:
        calls.append(number)
        return number

    async def function(ctx: Durable) -> int:
        return await ctx.step(noted, 1) + await ctx.step(noted, 2)

    keeper = Keeper()

    assert lived(function, keeper) == 3
    assert replayed(function, keeper.history()) == 3
    assert calls == [1, 2]


def test_a_failed_step_raises_the_same_in_every_replay():
    async def function(ctx: Durable) -> str:
        try:
            await ctx.step(broken)
        except StepFailed as failed:
            return f"{failed.step} {failed.error} {failed.position}"
        return "unreached"

    keeper = Keeper()

    assert lived(function, keeper) == "broken ValueError 0"
    assert replayed(function, keeper.history()) == "broken ValueError 0"


def test_a_step_is_tried_again_after_a_suspension():
    tries: list[int] = []

    def third_time() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("away")
        return "there"

    async def function(ctx: Durable) -> str:
        return await ctx.step(third_time, retries=5)

    keeper = Keeper()

    assert lived(function, keeper) == "there"
    assert [entry.kind for entry in keeper.entries] == ["retry", "retry", "step"]
    assert [entry.tries for entry in keeper.entries] == [1, 2, 1]


def test_the_server_decides_that_no_tries_are_left():
    async def function(ctx: Durable) -> str:
        try:
            return str(await ctx.step(broken, retries=1))
        except StepFailed:
            return "failed"

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    (step,) = driver.start
    keeper.record("step", step.operation, error="ValueError", tries=2)

    assert replayed(function, keeper.history()) == "failed"


def test_what_awaits_the_server_suspends_and_goes_on_with_the_outcome():
    async def function(ctx: Durable) -> tuple[object, ...]:
        await ctx.sleep("3d")
        paid = await ctx.event("paid", key="7", timeout="1h")
        late = await ctx.event("late", timeout=10)
        result = await ctx.call("other", number=1)
        decision = await ctx.approval("release", "really?")
        return paid, late, result, decision.approved, decision.by

    keeper = Keeper()
    outcomes = {"paid": {"sum": 3}, "late": "!timeout", "other": [1], "release": {"approved": True, "by": "eve"}}

    result = lived(function, keeper, outcomes=outcomes)

    assert result == ({"sum": 3}, None, [1], True, "eve")
    assert replayed(function, keeper.history()) == result


def test_a_failed_call_names_its_run():
    async def function(ctx: Durable) -> str:
        try:
            return str(await ctx.call("other"))
        except CallFailed as failed:
            return f"{failed.run_id}/{failed.error}"

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0, error="FAILED")
    entry = keeper.entries[0]
    keeper.entries[0] = type(entry)(
        entry.position, entry.kind, entry.name, entry.digest, None, "FAILED", "run.1: out of stock"
    )

    assert replayed(function, keeper.history()) == "run.1/FAILED"


def test_gather_gives_results_in_the_order_of_its_members():
    async def branch(ctx: Durable, number: int) -> int:
        await ctx.sleep(number)
        return await ctx.step(double, number)

    async def function(ctx: Durable) -> list[int]:
        return await ctx.gather(branch(ctx, 1), ctx.step(double, 10), branch(ctx, 2), *[branch(ctx, 3)])

    keeper = Keeper()

    assert lived(function, keeper) == [2, 20, 4, 6]
    assert replayed(function, keeper.history()) == [2, 20, 4, 6]


def test_calls_of_one_gather_wake_the_function_together():
    async def function(ctx: Durable) -> list[object]:
        return await ctx.gather(*[ctx.call("part", number=number) for number in range(4)])

    driver = attempt(function, None)
    driver.advance()

    assert driver.suspension().together == ((0, 1, 2, 3),)


def test_an_error_in_a_gather_withdraws_the_others():
    async def function(ctx: Durable) -> str:
        try:
            await ctx.gather(ctx.event("never"), ctx.call("other"), ctx.step(broken))
        except StepFailed as failed:
            return failed.step
        return "unreached"

    keeper = Keeper()

    assert lived(function, keeper) == "broken"
    assert [entry.kind for entry in keeper.entries] == ["step"]


def test_gather_can_return_errors():
    async def function(ctx: Durable) -> list[str]:
        results = await ctx.gather(ctx.step(broken), ctx.step(double, 1), return_errors=True)
        return [type(result).__name__ for result in results]

    assert lived(function, Keeper()) == ["StepFailed", "int"]


def test_the_losers_of_first_are_withdrawn():
    cleaned: list[str] = []

    async def waits(ctx: Durable) -> str:
        try:
            await ctx.event("never")
        except Cancelled:
            cleaned.append("loser")
            raise
        return "never"

    async def function(ctx: Durable) -> tuple[str, int, object]:
        winner = await ctx.first(slow=waits(ctx), paid=ctx.event("paid"), late=ctx.sleep("3d"))
        await ctx.sleep(1)
        return winner.name, winner.index, winner.value

    keeper = Keeper()

    assert lived(function, keeper, outcomes={"paid": 5}) == ("paid", 1, 5)
    assert sorted(entry.position for entry in keeper.entries if entry.kind == "withdrawn") == [1, 2]
    cleaned.clear()
    assert replayed(function, keeper.history()) == ("paid", 1, 5)
    assert cleaned == ["loser"]


def test_undo_runs_its_calls_in_reverse_order_when_the_block_fails():
    undone: list[int] = []

    async def function(ctx: Durable) -> None:
        async with ctx.undo() as undo:
            for number in (1, 2):
                await ctx.step(double, number)
                undo(undone.append, number, retries=3)
            await ctx.step(broken)

    keeper = Keeper()

    with pytest.raises(StepFailed, match="broken"):
        lived(function, keeper)
    assert undone == [2, 1]


def test_a_cancelled_function_cleans_up_with_steps():
    undone: list[str] = []

    async def function(ctx: Durable) -> None:
        async with ctx.undo() as undo:
            undo(undone.append, "reserved")
            await ctx.gather(ctx.event("never"), ctx.sleep("9d"))

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    driver.close()
    keeper.entries.append(tw_entry("cancel"))

    with pytest.raises(Cancelled):
        lived(function, keeper)
    assert undone == ["reserved"]


def test_a_cancelled_function_may_have_calls_that_nobody_awaits():
    async def function(ctx: Durable) -> None:
        ctx.event("never")
        try:
            await ctx.sleep("9d")
        finally:
            await ctx.step(double, 1)

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    driver.close()
    keeper.entries.append(tw_entry("cancel"))
    for position, (_, name, digest) in keeper.awaits.items():
        keeper.entries.append(tw_entry("withdrawn", position=position, name=name, digest=digest))
    keeper.awaits.clear()

    with pytest.raises(Cancelled):
        lived(function, keeper)


def cancel(keeper: Keeper) -> None:
    """As the server does it: first the cancellation, then every await is given up."""
    keeper.entries.append(tw_entry("cancel"))
    for position, (_, name, digest) in keeper.awaits.items():
        keeper.entries.append(tw_entry("withdrawn", position=position, name=name, digest=digest))
    keeper.awaits.clear()


def test_a_function_is_cancelled_while_the_loser_of_a_race_cleans_up():
    async def loser(ctx: Durable) -> None:
        try:
            await ctx.event("never")
        finally:
            await ctx.sleep("9d")

    async def function(ctx: Durable) -> str:
        async with ctx.undo() as undo:
            undo(double, 1)
            await ctx.first(ctx.event("paid"), loser(ctx))
            await ctx.event("never")
        return "unreached"

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    driver.close()
    keeper.settle(0)
    driver = attempt(function, keeper.history())
    driver.advance()
    keeper.suspend(driver, [])
    driver.close()
    cancel(keeper)

    with pytest.raises(Cancelled):
        lived(function, keeper)
    assert keeper.entries[-1].name == "double"


def test_a_step_to_be_tried_again_ends_with_the_cancellation_though_nobody_awaits_it():
    async def function(ctx: Durable) -> str:
        step = ctx.step(broken, retries=5)
        try:
            await ctx.event("never")
        finally:
            try:
                await step
            except Cancelled:
                await ctx.step(double, 1)
        return "unreached"

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [(driver.start.pop(), 1)])
    driver.close()
    cancel(keeper)

    with pytest.raises(Cancelled):
        lived(function, keeper)
    assert keeper.entries[-1].name == "double"


@pytest.mark.parametrize("kept", [True, False])
def test_an_event_that_the_function_gave_up_is_reported_until_it_was_given_back(kept):
    async def function(ctx: Durable) -> None:
        await ctx.first(ctx.event("assign"), ctx.event("stop"))
        await ctx.sleep(1)
        await ctx.sleep(2)

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0)
    keeper.settle(1, value="now")
    for expected in ((1,), ()):
        if kept:
            assert driver.is_extended_by(keeper.history())
            driver.extend(keeper.history())
        else:
            driver = attempt(function, keeper.history())
        driver.advance()
        assert driver.suspension().withdrawn == expected
        keeper.suspend(driver, [])
        keeper.settle(min(keeper.awaits))


def test_a_function_that_continues_as_new_reports_the_events_that_it_did_not_get():
    async def function(ctx: Durable) -> None:
        await ctx.first(ctx.event("assign"), ctx.event("stop"))
        ctx.continue_as_new()

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0)
    keeper.settle(1, value="now")
    driver = attempt(function, keeper.history())

    assert driver.advance()
    assert driver.suspension().withdrawn == (1,)


def test_a_step_to_be_tried_again_wakes_the_function_by_itself():
    async def function(ctx: Durable) -> list[object]:
        return await ctx.gather(ctx.step(broken, retries=3), ctx.event("a"), ctx.event("b"))

    keeper = Keeper()
    driver = attempt(function, None)
    driver.advance()
    keeper.suspend(driver, [(driver.start.pop(), 1)])

    assert keeper.together == ((1, 2),)


def tw_entry(kind: str, *, position: int = -1, name: str = "", digest: str = ""):
    return HistoryEntry(position, kind, name, digest)


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


def test_a_function_and_each_of_its_branches_have_context_variables_of_their_own():
    async def branch(ctx: Durable, name: str) -> str:
        before = VARIABLE.get()
        token = VARIABLE.set(name)
        await ctx.sleep(1)
        seen = VARIABLE.get()
        VARIABLE.reset(token)
        return f"{before} {seen} {VARIABLE.get()}"

    async def function(ctx: Durable) -> list[str]:
        token = VARIABLE.set("main")
        seen = await ctx.gather(branch(ctx, "a"), branch(ctx, "b"))
        VARIABLE.reset(token)
        return [*seen, VARIABLE.get()]

    keeper = Keeper()
    driver = attempt(function, keeper.history())
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0)
    keeper.settle(1)
    wanted = ["main a main", "main b main", "unset"]

    def go_on() -> list[str]:  # in another attempt, whose own context is another one
        driver.extend(keeper.history())
        driver.advance()
        result: list[str] = driver.outcome()
        return result

    assert Context().run(go_on) == wanted
    assert replayed(function, keeper.history()) == wanted


@pytest.mark.parametrize("kind", ["step", "call"])
def test_what_is_never_awaited_is_an_error_that_names_its_line(kind):
    async def function(ctx: Durable) -> str:
        ctx.step(double, 1) if kind == "step" else ctx.call("other")
        return "done"

    driver = attempt(function, Keeper().history())

    assert driver.advance()
    with pytest.raises(Refused, match=f"has not awaited {kind} '(double|other)' at .*test_driver.py:"):
        driver.outcome()


def test_what_is_awaited_later_or_given_up_is_no_error():
    async def function(ctx: Durable) -> int:
        later = ctx.step(double, 1)
        await ctx.first(ctx.sleep(1), ctx.call("other"))
        ctx.event("never")
        return await later

    keeper = Keeper()

    assert lived(function, keeper) == 2
    assert replayed(function, keeper.history()) == 2


def test_dropping_a_function_has_no_effect():
    ran: list[str] = []

    async def function(ctx: Durable) -> None:
        async with ctx.undo() as undo:
            undo(ran.append, "undo")
            try:
                await ctx.gather(ctx.event("never"), nested(ctx))
            finally:
                await ctx.step(ran.append, "finally")

    async def nested(ctx: Durable) -> None:
        await ctx.event("never")

    driver = attempt(function, None)
    driver.advance()
    driver.close()

    assert driver.start == []
    assert ran == []


def test_time_and_chance_are_the_same_in_every_replay():
    async def function(ctx: Durable) -> list[object]:
        seen: list[object] = [ctx.now(), ctx.random(), ctx.uuid(), ctx.randint(1, 6)]
        await ctx.step(double, 1)
        seen += [ctx.now(), ctx.random(), ctx.uuid()]
        await ctx.sleep(5)
        return [*seen, ctx.now()]

    keeper = Keeper()
    result = lived(function, keeper)

    assert replayed(function, keeper.history()) == result
    assert result[0] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert result[0] < result[4] < result[7]
    assert len(set(result)) == len(result)
    assert 0 <= result[1] < 1


def test_continue_as_new_carries_the_inputs():
    async def function(ctx: Durable) -> None:
        await ctx.step(double, 1)
        ctx.continue_as_new(page=2)

    with pytest.raises(ContinueAsNew) as left:
        lived(function, Keeper())

    assert left.value.names == {"page": 2}


def test_positions_of_a_later_generation_begin_at_its_base():
    async def function(ctx: Durable) -> None:
        await ctx.event("x")

    driver = attempt(function, FunctionHistory(1_000, base=12))
    driver.advance()

    assert [call.position for call in driver.suspension().awaits] == [12]


def test_version_is_zero_where_old_code_came_by():
    async def old(ctx: Durable) -> int:
        await ctx.step(double, 1)
        await ctx.sleep(1)
        return 0

    async def new(ctx: Durable) -> int:
        version = ctx.version("split", 2)
        if version == 0:
            await ctx.step(double, 1)
        else:
            await ctx.step(double, 5)
        await ctx.sleep(1)
        return version

    keeper, fresh = Keeper(), Keeper()
    lived(old, keeper)

    assert replayed(new, keeper.history()) == 0
    assert lived(new, fresh) == 2
    assert replayed(new, fresh.history()) == 2
    assert fresh.versions == {"split": 2}


def test_an_extended_history_goes_on_where_the_function_waits():
    async def function(ctx: Durable) -> object:
        await ctx.event("one")
        return await ctx.event("two")

    keeper, calls = Keeper(), []
    driver = attempt(function, keeper.history(), calls)
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0, value=1)
    keeper.entries.append(tw_entry("withdrawn"))
    assert driver.is_extended_by(keeper.history())
    driver.extend(keeper.history())
    assert not driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(1, value=2)
    driver.extend(keeper.history())

    assert driver.advance()
    assert driver.outcome() == 2
    assert [call[0] for call in calls] == [0, 1]


# ---- changed code


async def recorded(ctx: Durable) -> int:
    await ctx.step(double, 1)
    await ctx.sleep(5)
    return await ctx.step(double, 2)


async def other_kind(ctx: Durable) -> int:
    await ctx.sleep(5)
    await ctx.sleep(5)
    return await ctx.step(double, 2)


async def other_name(ctx: Durable) -> int:
    await ctx.step(broken, 1)
    await ctx.sleep(5)
    return await ctx.step(double, 2)


async def other_arguments(ctx: Durable) -> int:
    await ctx.step(double, 3)
    await ctx.sleep(5)
    return await ctx.step(double, 2)


async def one_missing(ctx: Durable) -> int:
    await ctx.step(double, 1)
    await ctx.sleep(5)
    return 2


async def one_more(ctx: Durable) -> int:
    await ctx.step(double, 1)
    await ctx.event("new")
    await ctx.sleep(5)
    return await ctx.step(double, 2)


async def waits_before(ctx: Durable) -> int:
    await ctx.step(double, 1)
    await ctx.sleep(5)
    with_error = ctx.event("new")
    return await with_error


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (other_kind, "has step 'double' where the code now has sleep 'sleep'"),
        (other_name, "has step 'double' where the code now has step 'broken'"),
        (other_arguments, "other arguments than the code now gives to step 'double'"),
        (
            one_missing,
            "goes on with step 'double', and the function ends before it, after sleep 'sleep' at .*test_driver.py",
        ),
        (one_more, "has sleep 'sleep' where the code now has event 'new'"),
        (waits_before, "has step 'double' where the code now has event 'new'"),
    ],
)
def test_a_replay_catches_changed_code(changed, text):
    keeper = Keeper()
    lived(recorded, keeper)
    driver = attempt(changed, keeper.history())

    assert driver.advance()
    with pytest.raises(StepsChanged, match=text):
        driver.outcome()


def test_a_replay_catches_code_that_waits_before_what_was_recorded():
    async def wide(ctx: Durable) -> None:
        await ctx.gather(ctx.event("a"), ctx.event("b"))

    async def narrow(ctx: Durable) -> None:
        await ctx.event("a")

    keeper = Keeper()
    driver = attempt(wide, None)
    driver.advance()
    keeper.suspend(driver, [])
    changed = attempt(narrow, keeper.history())

    assert changed.advance()
    with pytest.raises(StepsChanged, match=r"goes on with event 'b', and the code waits before it at .*test_driver.py"):
        changed.outcome()


def test_changed_code_fails_even_if_it_catches_the_error():
    async def catches(ctx: Durable) -> int:
        try:
            await ctx.step(broken)
        except Exception:
            return 0
        return 1

    keeper = Keeper()
    lived(recorded, keeper)
    driver = attempt(catches, keeper.history())
    driver.advance()

    with pytest.raises(StepsChanged):
        driver.outcome()


# ---- what cannot be repeated


async def test_another_await_is_refused_and_shows_its_line():
    async def function(ctx: Durable) -> None:
        await ctx.sleep(1)
        await helper()

    async def helper() -> None:
        await asyncio.sleep(1)  # here

    keeper = Keeper()
    with pytest.raises(Refused, match="put it into a step") as refused:
        lived(function, keeper)

    assert "await asyncio.sleep(1)  # here" in str(refused.value)


async def test_a_gather_takes_no_other_awaitable():
    async def function(ctx: Durable) -> None:
        await ctx.gather(asyncio.get_running_loop().create_future())

    with pytest.raises(Refused, match=r"test_driver.py:\d+"):
        lived(function, Keeper())


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: ctx.step(5),
        lambda ctx: ctx.step("name"),
        lambda ctx: ctx.step(double, 1, retries=-1),
        lambda ctx: ctx.sleep("soon"),
        lambda ctx: ctx.sleep(-1),
        lambda ctx: ctx.sleep_until(datetime(2026, 1, 1)),
        lambda ctx: ctx.call(double, 1),
        lambda ctx: ctx.call("other", 1),
        lambda ctx: ctx.first(),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    async def function(ctx: Durable) -> None:
        await call(ctx)

    with pytest.raises(Refused):
        lived(function, Keeper())
