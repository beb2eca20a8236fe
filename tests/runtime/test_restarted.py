"""A worker that died and is back under its name before anybody missed it."""

import pytest

from runtime.house import Hand, House, task


@pytest.mark.proves("I5")
async def test_what_a_dead_worker_had_begun_does_not_begin_again_under_the_same_attempt():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    await house.submit("flow")
    dead = Hand(house, session="start1")
    await dead.sit_down()
    [first] = await dead.take()
    engine.connection_closed(dead.peer)
    again = Hand(house, session="start2")
    again.peer = "w1:2"
    await again.sit_down()
    [second] = await again.take()
    await engine.stop()

    assert (first.attempt, second.attempt) == (1, 2)
