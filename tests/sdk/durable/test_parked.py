"""Suspended functions in memory: one goes on only where its history says so, and their number is limited."""

import msgspec
import pytest

from sdk.durable.history_keeper import Keeper, attempt
from tickwork.protocol.worker_messages import FunctionHistory
from tickwork.sdk.context import Context
from tickwork.sdk.durable.driver import Driver
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.parked import FUNCTION_BYTES, ParkedFunction, ParkedFunctions


async def waits(ctx: Durable) -> object:
    await ctx.event("one")
    return await ctx.event("two")


def suspended(keeper: Keeper) -> ParkedFunction:
    driver = attempt(waits, keeper.history())
    driver.advance()
    keeper.suspend(driver, [])
    return ParkedFunction(driver, Durable(driver, Context(run_id="run")), 3)


def history_after(keeper: Keeper, past: int) -> FunctionHistory:
    history = keeper.history()
    return FunctionHistory(
        history.started_ms, 0, history.entries, history.awaits, history.versions, None, (), (), 0, past
    )


@pytest.mark.parametrize(("past", "found"), [(3, True), (2, False), (4, False)])
def test_a_function_goes_on_where_its_suspension_was_the_last(past, found):
    keeper, parked = Keeper(), ParkedFunctions(count_max=9, bytes_max=1 << 30)
    function = suspended(keeper)
    parked.keep("f", function, history_bytes=10)
    keeper.settle(0, value=1)
    taken = parked.take("f", history_after(keeper, past))

    assert (taken is function) is found
    assert parked.take("f", history_after(keeper, past)) is None
    assert function.driver.closed is not found


@pytest.mark.parametrize("restored", ["another start", "another outcome", "the same"])
def test_a_function_does_not_go_on_in_the_store_of_another_time(restored):
    keeper, parked = Keeper(), ParkedFunctions(count_max=9, bytes_max=1 << 30)
    driver = attempt(waits, keeper.history())
    driver.advance()
    keeper.suspend(driver, [])
    keeper.settle(0, value=1)
    driver.extend(keeper.history())
    driver.advance()
    keeper.suspend(driver, [])
    parked.keep("f", ParkedFunction(driver, Durable(driver, Context(run_id="run")), 4), history_bytes=10)
    history = history_after(keeper, 4)
    if restored == "another start":
        history = msgspec.structs.replace(history, started_ms=history.started_ms + 1)
    if restored == "another outcome":
        entry = msgspec.structs.replace(history.entries[0], at_ms=history.entries[0].at_ms + 1)
        history = msgspec.structs.replace(history, entries=(entry,))

    assert (parked.take("f", history) is not None) is (restored == "the same")


def test_a_function_whose_history_began_anew_is_dropped():
    keeper, parked = Keeper(), ParkedFunctions(count_max=9, bytes_max=1 << 30)
    parked.keep("f", suspended(keeper), history_bytes=10)

    assert parked.take("f", FunctionHistory(1_000, 7, past=3)) is None
    assert parked.take("g", None) is None


@pytest.mark.parametrize(("count_max", "bytes_max"), [(2, 1 << 30), (9, 2 * FUNCTION_BYTES + 100)])
def test_of_too_many_functions_those_that_waited_longest_are_dropped(count_max, bytes_max):
    parked = ParkedFunctions(count_max=count_max, bytes_max=bytes_max)
    drivers: list[Driver] = []
    for number in range(4):
        function = suspended(Keeper())
        drivers.append(function.driver)
        parked.keep(f"f{number}", function, history_bytes=10)

    assert len(parked) == 2
    assert [driver.closed for driver in drivers] == [True, True, False, False]
    parked.keep("large", suspended(Keeper()), history_bytes=bytes_max)
    assert len(parked) == 0
