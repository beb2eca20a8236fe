"""Values that people and programs send to runs: events, resolved results, inputs of reruns. Any size up to 16 MiB."""

import asyncio

import msgspec
import pytest

from runtime.engine_fixture import Hand, House, task
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire
from tickwork.runtime.storage.payloads import INPUT_BYTES_MAX

SIZES = pytest.mark.parametrize("size", [10, 5_000, 100_000], ids=["inline", "payload", "artifact"])
EVENT = {"kind": "event", "id": "paid", "event": "paid"}
NOT_SMALL = {"when": "results.paid.amount > 3", "needs": ["paid"], "args": {"order": {"from": "nodes.paid"}}}


class Fetching(Hand):
    """A worker that fetches arguments which are artifacts."""

    def do(self, work):
        args = msgspec.msgpack.decode(work.args)
        for fetch in work.fetch:
            value = msgspec.msgpack.decode(self.house.artifacts.kept[fetch.digest])
            for step in fetch.walk:
                value = value[step]
            args[fetch.name] = value
        return super().do(msgspec.structs.replace(work, args=msgspec.msgpack.encode(args), fetch=()))


@pytest.fixture
async def house():
    house = House()
    await house.open()
    yield house
    await house.crash()


async def work_on(house, run_id, **functions):
    hand = Fetching(house)
    hand.functions = functions
    await hand.sit_down()
    job = asyncio.create_task(hand.serve())
    try:
        return await house.until(run_id, "completed", "failed", seconds=10)
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


@SIZES
async def test_a_waiting_run_takes_an_event_of_any_size(house, size):
    await house.define("w", EVENT, task("use", **NOT_SMALL), output="nodes.use")
    run_id = await house.submit("w")
    await house.until(run_id, "waiting")
    payload = {"amount": 5, "text": "x" * size}
    heard = await house.engine.runs.signal(wire.Signal(event="paid", payload=payload), by="test")
    run = await work_on(house, run_id, use=lambda order: len(order["text"]))

    assert (heard.waiting, run.state, run.output) == (1, "completed", size)


@SIZES
async def test_a_run_keeps_an_event_of_any_size_until_it_waits_also_over_a_restart(house, size):
    first = task("first")
    await house.define("w", first, {**EVENT, "needs": ["first"]}, task("use", **NOT_SMALL), output="nodes.use")
    run_id = await house.submit("w")
    payload = {"amount": 5, "text": "x" * size}
    await house.engine.runs.signal(wire.Signal(event="paid", run=run_id, payload=payload), by="test")
    await house.crash()
    await house.open()
    run = await work_on(house, run_id, first=lambda: None, use=lambda order: len(order["text"]))

    assert (run.state, run.output) == ("completed", size)


@SIZES
async def test_a_condition_over_all_events_reads_one_of_any_size(house, size):
    exits = [{"when": "events.exists(e, e.name == 'stop' && e.payload.really)", "outcome": "cancelled"}]
    await house.define("w", EVENT, exits=exits)
    run_id = await house.submit("w")
    await house.until(run_id, "waiting")
    for really in (False, True):
        payload = {"really": really, "text": "x" * size}
        await house.engine.runs.signal(wire.Signal(event="stop", run=run_id, payload=payload), by="test")
        run = await house.until(run_id, "cancelled" if really else "waiting")

    assert run.state == "cancelled"


@SIZES
async def test_a_failed_node_is_given_a_result_of_any_size(house, size):
    def fail():
        raise ValueError("no")

    use = task("use", needs=["a"], args={"text": {"from": "nodes.a"}})
    await house.define("w", task("a"), use, output="nodes.use")
    run_id = await house.submit("w")
    await work_on(house, run_id, a=fail, use=len)
    values = {"a": "x" * size}
    await house.engine.runs.resolve(run_id, by="test", decisions={"a": "accept"}, values=values)
    run = await work_on(house, run_id, use=lambda text: len(text))

    assert (run.state, run.output) == ("completed", size)


@SIZES
async def test_new_inputs_of_a_rerun_are_compared_with_their_types_whatever_their_size(house, size):
    use = task("use", args={"text": {"from": "inputs.text"}})
    await house.define("w", use, inputs={"text": {"type": "string"}}, output="nodes.use")
    run_id = await house.submit("w", inputs={"text": "first"})
    await work_on(house, run_id, use=lambda text: len(text))
    right, wrong = (wire.RerunRequest(from_start=True, inputs={"text": text}) for text in ("x" * size, [0] * size))
    again = await house.engine.runs.rerun(run_id, right, by="test")

    assert (await work_on(house, again, use=lambda text: len(text))).output == size
    with pytest.raises(Refused) as caught:
        await house.engine.runs.rerun(run_id, wrong, by="test")
    assert (caught.value.code, caught.value.path) == ("wrong_type", "inputs.text")


async def test_what_is_larger_than_the_limit_is_refused_with_it(house):
    await house.define("w", EVENT, inputs={"text": {"type": "string", "required": False}})
    run_id = await house.submit("w")
    huge = "x" * INPUT_BYTES_MAX
    engine = house.engine
    for sending, code in (
        (engine.runs.signal(wire.Signal(event="paid", run=run_id, payload=huge), by="test"), "value_too_large"),
        (house.submit("w", inputs={"text": huge}), "inputs_too_large"),
    ):
        with pytest.raises((Refused, AssertionError)) as caught:
            await sending
        assert code in repr(getattr(caught.value, "code", caught.value)) and "16 MiB" in str(caught.value)
