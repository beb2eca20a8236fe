"""What one second costs beside many schedules that are not due in it, seen through the API and in virtual time.

Twenty thousand are held here. The wheel alone is tested with two million in tests/core/state/test_timing_wheel.py, and
`bench/start.py` and `bench/schedules.py` measure servers with two million timers and a million schedules.
"""

import asyncio
from datetime import datetime, timedelta
from time import thread_time_ns

import httpx2
import pytest

from api.scripted_worker import flow, publish
from runtime.engine_fixture import House
from tickwork.api.app import make_app
from tickwork.core.machine import Machine

SECONDS = 12


async def of_one_second(monkeypatch, held: int) -> tuple[int, list[str]]:
    """CPU of the cheapest tick in which one of the schedules fires, in ns, and when its runs were due."""
    house, ticks = House(), []
    engine = await house.open()
    real = Machine.apply

    def timed(machine, *args, **fields):
        begun = thread_time_ns()
        outcome = real(machine, *args, **fields)
        if any(type(event).__name__ == "RunScheduled" for event in outcome.events):
            ticks.append(thread_time_ns() - begun)
        return outcome

    transport = httpx2.ASGITransport(app=make_app(engine), client=("127.0.0.1", 5000))
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            await publish(http, flow())
            hour = (datetime.fromtimestamp(house.clock.wall_ms() / 1000).hour + 12) % 24
            for first in range(0, held, 2_000):
                schedules = {
                    f"s{number}": {"workflow": "greet", "cron": f"{number % 60} {hour} * * *"}
                    for number in range(first, min(first + 2_000, held))
                }
                answer = await http.put("/v1/schedules", json={"owner": f"o{first}", "schedules": schedules})
                assert answer.status_code == 200, answer.text
            assert (await http.put("/v1/schedules/beat", json={"workflow": "greet", "every": "1s"})).status_code < 300
            with monkeypatch.context() as patch:
                patch.setattr(Machine, "apply", timed)
                async with asyncio.timeout(60):
                    while len(ticks) < SECONDS:
                        house.clock.pass_ms(1_000)
                        action = ("pause", "resume")[len(ticks) % 2]  # any input gives a tick now
                        assert (await http.post(f"/v1/queues/default/{action}")).status_code in (204, 409)
            runs = (await http.get("/v1/runs", params={"limit": 100})).json()["runs"]
    finally:
        await engine.stop()
    return min(ticks), sorted(run["scheduled_at"] for run in runs)


@pytest.mark.proves("S001-54")
async def test_a_schedule_fires_each_second_at_the_cost_of_one_however_many_wait_beside_it(monkeypatch):
    few_ns, _ = await of_one_second(monkeypatch, 200)
    many_ns, due = await of_one_second(monkeypatch, 20_000)

    times = [datetime.fromisoformat(text) for text in due]
    assert times == [times[0] + timedelta(seconds=number) for number in range(len(times))]
    assert len(times) >= SECONDS
    assert many_ns < 8 * few_ns, (few_ns, many_ns)  # a look at each of them would cost a hundred times as much
