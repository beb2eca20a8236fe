"""What running code may know, save and repeat."""

import asyncio
import gc
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused
from tickwork.sdk.context import Context, StepsChanged, running


class Host:
    """Keeps what was saved, as the server would between attempts."""

    def __init__(self):
        self.saved = None
        self.saves = 0
        self.told = []

    def save(self, value):
        self.saved = value
        self.saves += 1

    def progress(self, done, total, message):
        self.told.append((done, total, message))

    def attempt(self, number=1):
        return Context(channel=self, attempt=number, checkpoint=self.saved, tenant="t", run_id="r", node="n")


@dataclass
class Receipt:
    number: int


def test_a_task_that_is_called_directly_has_a_folder_of_its_own_until_it_ends():
    @tw.task
    def writes() -> list[Path]:
        here = tw.context().workdir
        (here / "note").write_text("x")
        return [here, *tw.context().workdir.iterdir()]

    place, note = writes()
    gc.collect()

    assert note.name == "note" and note.parent == place and not place.exists()


def test_a_finished_step_is_not_called_again():
    host, calls = Host(), []

    def pay(amount: int) -> Receipt:
        calls.append(amount)
        return Receipt(amount)

    first = host.attempt()
    assert first.step("pay", pay, 5) == Receipt(5)
    again = host.attempt(2)

    assert again.step("pay", pay, 5) == Receipt(5)
    assert again.step("more", pay, 6) == Receipt(6)
    assert calls == [5, 6]


def test_a_step_that_failed_is_called_again():
    host = Host()
    with pytest.raises(ZeroDivisionError):
        host.attempt().step("divide", lambda: 1 / 0)

    assert host.attempt(2).step("divide", lambda: 1) == 1


def test_a_step_gives_the_recorded_value_the_first_time_too():
    assert Host().attempt().step("pair", lambda: (1, 2)) == [1, 2]


def test_other_steps_than_before_are_a_named_error():
    host = Host()
    first = host.attempt()
    first.step("a", lambda: 1)
    first.step("b", lambda: 2)
    second = host.attempt(2)

    with pytest.raises(StepsChanged, match="step 1 was 'a' in an earlier attempt and is 'b' now"):
        second.step("b", lambda: 3)


def test_a_step_inside_a_step_is_kept_until_the_outer_one_ends():
    host, calls = Host(), []

    def outer(fail):
        ctx.step("inner", lambda: calls.append("inner"))
        if fail:
            raise ValueError
        return "done"

    ctx = host.attempt()
    with pytest.raises(ValueError):  # noqa: PT011 - our own, bare
        ctx.step("outer", outer, True)
    ctx = host.attempt(2)
    assert ctx.step("outer", outer, False) == "done"
    ctx = host.attempt(3)
    ctx.step("outer", outer, False)
    ctx.step("next", lambda: calls.append("next"))

    assert calls == ["inner", "next"]


async def test_asynchronous_steps_side_by_side_keep_their_places():
    host, calls = Host(), []

    async def work(name: str, turns: int) -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        calls.append(name)
        return name

    async def both(ctx):
        return await asyncio.gather(ctx.step("slow", work, "slow", 9), ctx.step_async("fast", work, "fast", 1))

    assert await both(host.attempt()) == ["slow", "fast"]
    assert await both(host.attempt(2)) == ["slow", "fast"]
    assert calls == ["fast", "slow"]


async def test_a_lambda_around_a_coroutine_is_a_step_too():
    host = Host()

    async def work():
        return 7

    assert await host.attempt().step("a", lambda: work()) == 7
    assert host.saves == 1


def test_a_result_that_cannot_travel_is_refused_at_its_step():
    with pytest.raises(Refused, match=r"result of step 'a'.*cannot travel"):
        Host().attempt().step("a", object)


def test_a_checkpoint_is_there_for_the_next_attempt_and_beside_steps():
    host = Host()
    first = host.attempt()
    assert first.last_checkpoint is None
    first.checkpoint({"row": 3})
    first.step("a", lambda: 1)

    assert first.last_checkpoint == {"row": 3}
    assert host.attempt(2).last_checkpoint == {"row": 3}


async def test_asynchronous_code_saves_without_holding_the_loop():
    class Waiting(Host):
        async def save_async(self, value):
            await asyncio.sleep(0)
            self.save(value)

    for host in (Host(), Waiting()):
        await host.attempt().checkpoint_async([1])
        assert host.attempt(2).last_checkpoint == [1]


@pytest.mark.proves("S001-96")
def test_the_key_is_the_same_in_every_attempt_and_differs_by_child():
    host = Host()
    children = [Context(tenant="t", run_id="r", node="n", child=child).idempotency_key for child in (0, 1)]

    assert host.attempt(1).idempotency_key == host.attempt(2).idempotency_key == "t/r/n"
    assert children == ["t/r/n/0", "t/r/n/1"]


@pytest.mark.parametrize(("done", "total"), [(3, 2), (-1, 2), (0.5, 1)])
def test_progress_that_makes_no_sense_is_refused(done, total):
    host = Host()
    host.attempt().progress(1, 2, "half")

    with pytest.raises(Refused, match="progress"):
        host.attempt().progress(done, total)
    assert host.told == [(1, 2, "half")]


def test_lines_carry_run_node_and_attempt(caplog):
    with caplog.at_level(logging.INFO, logger="tickwork.task"):
        Host().attempt(2).log.info("hello")

    assert [(line.run_id, line.node, line.attempt) for line in caplog.records] == [("r", "n", 2)]


def test_times_are_aware():
    ctx = Context(scheduled_ms=1_767_323_045_000, submitted_ms=1_767_323_046_000)

    assert ctx.scheduled_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert ctx.submitted_at == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    assert Context().scheduled_time is None


def test_the_current_context_is_the_running_one():
    with pytest.raises(Refused, match="inside a function that runs as a task"):
        tw.context()
    ctx = Context(run_id="x")
    with running(ctx):
        assert tw.context() is ctx
    ctx.cancel()

    assert ctx.cancelled


def test_a_task_called_directly_has_a_context_whose_steps_just_run():
    @tw.task
    def work(n: int) -> int:
        assert tw.context().attempt == 1
        return tw.context().step("double", lambda: 2 * n)

    assert [work(2), work(3)] == [4, 6]


async def test_an_asynchronous_task_too():
    @tw.task
    async def work(n: int, ctx: tw.Context) -> int:
        return await ctx.step("double", double, n)

    async def double(n: int) -> int:
        return 2 * n

    assert await work(2) == 4
