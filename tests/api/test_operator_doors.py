"""What operators set, through the client and the API: policies, limits, settings, dead letters, workflows, ticks."""

import asyncio

import httpx2
import pytest

import tickwork as tw
from api import scripted_worker
from api.scripted_worker import flow, publish, submit, task
from tickwork.api.app import make_app
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.sdk.client.async_client import AsyncClient


class Worker(scripted_worker.Worker):
    """Keeps what comes with any reply until it is asked for."""

    def __init__(self, http, name="w1"):
        super().__init__(http, name)
        self.kept = []

    async def call(self, *reports, **fields):
        reply = await super().call(*reports, **fields)
        self.kept += reply.work
        return reply

    async def work(self, count=1):
        """So many attempts, asked for until they are here."""
        for _ in range(20):
            if len(self.kept) >= count:
                works, self.kept = self.kept[:count], self.kept[count:]
                return works
            await self.call(wait_ms=500)
        raise AssertionError(f"{len(self.kept)} of {count} attempts came")

    async def has_none(self):
        await self.call(wait_ms=50)
        return not self.kept


@pytest.fixture
async def client(engine, closing):
    transport = httpx2.ASGITransport(app=make_app(engine, closing=closing), client=("127.0.0.1", 5001))
    async with AsyncClient("http://127.0.0.1", transport=transport, deadline=5.0) as client:
        yield client


async def gated(client, allow, **options):
    await client.put_policy("gate", allow, reason="not today", **options)
    fields = {"x": {"type": "any", "required": False}}
    await client.put_workflows(flow("flow", task("a"), task("b", needs=["a"], policy=["gate"]), inputs=fields))


async def run_to_b(client, worker, **inputs):
    """A run whose first node has succeeded."""
    run = await client.submit("flow", inputs)
    await worker.finish(*await worker.work(), value={"n": 7})
    return run


@pytest.mark.proves("S002-39", "S002-40", "S002-41", "S002-44")
async def test_a_policy_is_asked_before_each_step_that_names_it_and_its_answer_is_recorded(client, http):
    await gated(client, "inputs.x == 1 && results.a.n == 7")
    worker = Worker(http)
    run = await run_to_b(client, worker, x=1)
    await worker.finish(*await worker.work())
    other = await run_to_b(client, worker, x=2)

    ended = await client.wait(other, timeout=20)
    assert (ended.state, ended.error) == ("failed", "b: policy gate: not today")
    assert "policy gate allowed" in " ".join(step.text for step in (await client.why(run)).steps)
    assert "policy gate denied (fail): not today" in " ".join(step.text for step in (await client.why(other)).steps)
    [policy] = await client.policies()
    assert (policy.name, policy.workflows, policy.action) == ("gate", ("flow",), "fail")


@pytest.mark.proves("S002-17", "S002-18", "S002-20", "S002-21", "S002-22", "S002-23")
async def test_a_policy_sees_run_results_events_outcomes_and_clock(client, http):
    await gated(
        client,
        "run.id.startsWith('known') && run.workflow == 'flow' && results.a.n == 7 && outcome.a == 'succeeded' "
        "&& clock.now_ms > 1600000000000 && events.exists(e, e.name == 'opened')",
    )
    run = await client.submit("flow", id="known-1")
    await client.signal("opened", {"by": "ann"}, run=run)
    worker = Worker(http)
    await worker.finish(*await worker.work(), value={"n": 7})

    assert len(await worker.work()) == 1, (await client.get(run)).error


@pytest.mark.proves("S002-42", "S002-45", "S002-11")
async def test_a_denial_pauses_a_run_until_it_is_resumed_and_the_policy_allows_it(client, http):
    await gated(client, "inputs.x == 1", action="pause")
    worker = Worker(http)
    run = await run_to_b(client, worker, x=2)
    paused = await client.get(run)
    assert (paused.state, paused.reason) == ("paused", "policy gate: not today")
    assert "not today" in " ".join((await client.why(run)).waiting_for)

    await client.put_policy("gate", "true", action="pause")
    await client.resume(run)
    assert len(await worker.work()) == 1


@pytest.mark.proves("S002-42")
async def test_a_denied_step_may_be_skipped(client, http):
    await gated(client, "false", action="skip_with_log")
    run = await run_to_b(client, Worker(http))
    ended = await client.wait(run, timeout=20)

    assert ended.state == "completed"
    assert [entry.state for entry in ended.tasks] == ["succeeded", "skipped"]


async def test_a_workflow_that_names_an_unknown_policy_is_refused_and_a_named_one_stays(client, http):
    with pytest.raises(tw.Refused, match="tickwork policies put gate") as refused:
        await client.put_workflows(flow("flow", task("a", policy=["gate"])))
    assert refused.value.code == "policy_missing"

    await gated(client, "true")
    with pytest.raises(tw.Conflict, match="the workflow flow names it"):
        await client.delete_policy("gate")
    run = await run_to_b(client, Worker(http))
    await client.put_workflows(flow("flow", task("a")))
    with pytest.raises(tw.Conflict, match="unfinished run"):
        await client.delete_policy("gate")
    await client.cancel(run)
    await client.delete_policy("gate")
    assert not await client.policies()
    with pytest.raises(tw.Refused, match="no policy"):
        await client.delete_policy("gate")


async def test_a_policy_is_tested_against_what_was_recorded(client, http):
    await gated(client, "inputs.x == 1")
    worker = Worker(http)
    runs = [await run_to_b(client, worker, x=x) for x in (2, 1)]
    same = await client.test_policy("gate")
    assert (same.runs, same.steps, same.denied, same.changed) == (2, 2, 1, 0)

    other = await client.test_policy("gate", allow="results.a.n == 8")
    assert (other.denied, other.changed) == (2, 1)
    [verdict] = other.verdicts
    assert (verdict.run, verdict.node, verdict.recorded, verdict.allowed) == (runs[1].id, "b", "allowed", False)

    new = await client.test_policy("unheard", allow="inputs.x != 2", workflow="flow")
    assert (new.steps, new.denied) == (3, 1), "the first run was stopped before its second step"
    with pytest.raises(tw.Refused, match="no policy"):
        await client.test_policy("unheard")
    assert [policy.allow for policy in await client.policies()] == ["inputs.x == 1"], "a test changes nothing"


@pytest.mark.proves("S001-11", "S001-26", "S001-101", "S001-24", "S001-103", "S001-104", "S001-157")
async def test_a_tenant_has_a_limit_a_rate_and_a_share(client, http):
    await publish(http, flow())
    await client.put_tenant(limit=2, weight=3)
    for _ in range(4):
        await submit(http)
    worker = Worker(http)
    works = await worker.work(2)
    assert len(works) == 2 and await worker.has_none()
    [tenant] = await client.tenants()
    assert (tenant.weight, tenant.limit, tenant.running, tenant.ready, tenant.live_runs) == (3, 2, 2, 2, 4)

    await client.put_tenant(rate=1, per="1h", max_live_runs=4)
    answer = await http.post("/v1/runs", json={"workflow": "greet"})
    assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")
    assert len(await worker.work()) == 1, "the bucket has one start, and one an hour"
    assert await worker.has_none()
    with pytest.raises(tw.Refused, match="no tenant"):
        await client.put_tenant("other", limit=1)
    with pytest.raises(tw.Refused, match="1 to 100"):
        await client.put_tenant(weight=101)


@pytest.mark.proves("S001-102", "S001-57")
async def test_a_label_has_a_limit_of_its_own(client, http):
    await publish(http, flow("greet", task("hello", labels={"gpu": "true"})))
    await client.put_label_limit("gpu", "true", 1)
    for _ in range(3):
        await submit(http)
    plain = Worker(http, name="plain")
    await plain.call()
    worker = Worker(http, name="gpu")
    profile = WorkerProfile(queues=("default",), labels={"gpu": "true"}, host="here", pid=8)
    await worker.call(profile=profile)
    assert len(await worker.work()) == 1 and await worker.has_none()
    assert await plain.has_none(), "it has no such label"
    assert [(one.label, one.value, one.limit, one.running) for one in await client.label_limits()] == [
        ("gpu", "true", 1, 1)
    ]

    await client.delete_label_limit("gpu", "true")
    assert len(await worker.work(2)) == 2
    assert not await client.label_limits()
    with pytest.raises(tw.Refused, match="no limit"):
        await client.delete_label_limit("gpu", "true")


async def test_a_queue_is_deleted_when_nothing_names_it(client, http):
    await publish(http, flow("greet", task("hello", queue="slow")))
    with pytest.raises(tw.Conflict, match="the workflow greet names it"):
        await client.delete_queue("slow")
    await publish(http, flow())
    await client.create_schedule("nightly", "greet", cron="0 3 * * *", queue="slow")
    with pytest.raises(tw.Conflict, match="the schedule nightly names it"):
        await client.delete_queue("slow")
    await client.delete_schedule("nightly")
    await client.delete_queue("slow")

    assert [queue.name for queue in await client.queues()] == ["default"]
    await publish(http, flow("greet", task("hello", queue="slow")))
    assert [queue.name for queue in await client.queues()] == ["default", "slow"]


async def test_a_workflow_is_deleted_when_nothing_starts_it_and_its_runs_go_on(client, http):
    await publish(http, flow())
    run = await submit(http)
    await client.create_schedule("nightly", "greet", cron="0 3 * * *")
    with pytest.raises(tw.Conflict, match="the schedule nightly starts it"):
        await client.delete_workflow("greet")
    await client.delete_schedule("nightly")
    await client.delete_workflow("greet")

    assert not await client.workflows()
    with pytest.raises(tw.Refused, match="no workflow"):
        await client.submit("greet")
    worker = Worker(http)
    await worker.finish(*await worker.work())
    assert (await client.wait(run, timeout=20)).state == "completed"
    assert (await client.rerun(run, from_start=True)).id, "its version is known as long as its runs are"


async def ticks(client, engine):
    """What each tick with a row did."""
    for row in await engine.overview.journal(after=0, limit=500):
        yield await client.tick(row.tick)


@pytest.mark.proves("S000-32", "S000-07")
async def test_settings_in_force_are_shown_and_change_and_a_tick_says_which_runs_it_processed(client, http, engine):
    shown = {setting.name: setting for setting in await client.settings()}
    assert (shown["max_runs_per_tick"].value, shown["max_runs_per_tick"].changeable) == (500, True)
    assert (shown["resolution_ms"].value, shown["resolution_ms"].changeable) == (1, False)

    await publish(http, flow())
    await client.put_settings(max_runs_per_tick=2)
    batch = await http.post("/v1/runs/batch", json={"runs": [{"workflow": "greet"}] * 5})
    ids = sorted(entry["id"] for entry in batch.json()["runs"])
    visited = []
    async with asyncio.timeout(60):
        while sum(map(len, visited)) < 5:
            traces = [trace async for trace in ticks(client, engine)]
            visited = [[run.id for run in trace.visited] for trace in traces if trace.visited]
            await asyncio.sleep(0.01)  # nothing here waits for a socket, and the partition wants its turn
    assert [len(runs) for runs in visited] == [2, 2, 1]
    assert [run for runs in visited for run in runs] == ids, "by run id"
    assert any(trace.inputs.get("Submit") == 5 for trace in traces)
    with pytest.raises(tw.Refused, match="out of its bounds"):
        await client.put_settings({"max_runs_per_tick": 0})
    with pytest.raises(tw.Refused, match="no setting 'resolution_ms' that can be changed"):
        await client.put_settings(resolution_ms=5)


@pytest.mark.proves("S001-40")
async def test_the_window_of_keys_is_24_hours_and_a_setting(client, http):
    await publish(http, flow())
    first = await client.submit("greet", key="k")
    worker = Worker(http)
    await worker.finish(*await worker.work())
    assert (await client.submit("greet", key="k")).id == first.id
    assert {entry.name: entry.value for entry in await client.settings()}["dedupe_window_ms"] == 24 * 3_600_000

    await client.put_settings(dedupe_window_ms=0)
    assert (await client.submit("greet", key="k")).id != first.id


async def failed_runs(client, http, count):
    await publish(http, flow())
    runs = [await submit(http) for _ in range(count)]
    worker = Worker(http)
    await worker.fail(*await worker.work(count))
    for run in runs:
        assert (await client.wait(run, timeout=20)).state == "failed"
    return runs, worker


@pytest.mark.proves("S001-14")
async def test_dead_letters_are_listed_redriven_and_dropped(client, http):
    runs, worker = await failed_runs(client, http, 4)
    letters = [letter async for letter in client.dead_letters(page_size=2)]
    assert [letter.id for letter in letters] == list(reversed(runs))
    assert {(letter.nodes, letter.attempts, letter.error) for letter in letters} == {
        (("hello",), 1, "hello: Boom: it broke")
    }

    assert (await client.redrive([runs[0]], reason="mended")).done == (runs[0],)
    dropped = await client.drop([runs[1], "nobody", runs[0]], reason="the customer left")
    assert dropped.done == (runs[1],)
    assert {(problem.run, problem.code) for problem in dropped.refused} >= {("nobody", "unknown_run")}
    await worker.finish(*await worker.work())
    assert (await client.wait(runs[0], timeout=20)).state == "completed"
    ended = await client.get(runs[1])
    assert ended.state == "cancelled" and ended.tasks[0].attempts[0].error == "Boom"
    assert "dropped: the customer left" in " ".join(step.text for step in (await client.why(runs[1])).steps)

    rest = await client.redrive(workflow="greet", per_second=1_000)
    assert set(rest.done) == {runs[2], runs[3]} and not rest.more
    await worker.finish(*await worker.work(2))
    assert [letter async for letter in client.dead_letters()] == []
    for wrong, code in (({}, "which_runs"), ({"runs": [runs[0]], "workflow": "greet"}, "which_runs")):
        with pytest.raises(tw.Refused) as refused:
            await client.redrive(**wrong)
        assert refused.value.code == code
    with pytest.raises(tw.Refused, match="say why"):
        await client.drop([runs[0]], reason=" ")


async def test_a_run_is_found_by_the_beginning_of_its_id(client, http):
    await publish(http, flow())
    for name in ("order-17", "order-18", "order-1", "other"):
        await submit(http, id=name)

    assert await client.find_run("oth") == "other"
    assert await client.find_run("order-1") == "order-1", "a whole id is meant as such"
    with pytest.raises(tw.Refused, match="several runs") as refused:
        await client.find_run("order")
    assert refused.value.code == "ambiguous_run" and "order-17" in str(refused.value)
    with pytest.raises(tw.Refused, match="no run"):
        await client.find_run("nothing")


async def test_alerts_are_listed_newest_first(client, http):
    await failed_runs(client, http, 1)
    alarms = await client.alarms()

    assert {alarm.kind for alarm in alarms} >= {"run_failed"}
    assert [alarm.at for alarm in alarms] == sorted((alarm.at for alarm in alarms), reverse=True)


async def test_failed_nodes_are_resolved_with_values_and_a_run_is_repeated_with_other_inputs(client, http):
    fields = {"x": {"type": "any", "required": False}}
    await publish(
        http, flow("greet", task("a"), task("b", needs=["a"], args={"v": {"from": "nodes.a"}}), inputs=fields)
    )
    run = await submit(http)
    worker = Worker(http)
    await worker.fail(*await worker.work())
    await client.wait(run, timeout=20)
    await client.resolve(run, {"a": "accept"}, values={"a": [1, 2]}, reason="by hand")
    await worker.finish(*await worker.work())
    assert (await client.wait(run, timeout=20)).state == "completed"

    again = await client.rerun(run, inputs={"x": 5}, from_start=True)
    assert (await client.get(again)).inputs == {"x": 5}
