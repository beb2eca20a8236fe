"""Random programs of functions and graphs in a world, where each suspension is a replay."""

from random import Random

import pytest

import function_programs
from campaign import seeds


class Quiet:
    """Every third try fails."""

    def __init__(self) -> None:
        self.tries = 0

    async def work(self, name: str) -> None:
        pass

    def fails(self) -> bool:
        self.tries += 1
        return self.tries % 3 == 0


@pytest.mark.parametrize("seed", seeds(0, few=6, many=300))
def test_a_program_returns_the_sum_of_its_parts(world, seed):
    random = Random(seed)
    given = function_programs.inputs(random, leaves=random.randint(2, 14), messages=5, pause_ms=9_000)
    run = world.run(function_programs.make(function_programs.VERSION, Quiet()).rounds, **given)
    for number in range(given["messages"]):
        world.advance(milliseconds=random.randint(0, 3_000))
        world.signal(random.choice(function_programs.MESSAGES), payload=number, run=run)
    world.advance(minutes=30)

    run.assert_completed(output=function_programs.result(given))
    assert {other.state for other in world.runs()} <= {"completed", "cancelled"}
