"""The scenario `sim.function_scenario:run`: random programs of durable functions and graphs, under every fault.

The functions are real ones, run by the driver of the SDK. The application changes in the middle: attempts that begin
afterwards have the new code. At the end each run has returned the sum of its parts, and no outcome was recorded twice.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import msgspec

import function_programs
from sim import scenario, workload
from sim.checkers import rows_of
from sim.cluster import Cluster, Options, Programs, WorkerSeat
from sim.executor import Handler, SimExecutor, Write, key_of
from sim.node import SETTINGS, Node, no_foreign_results, recovers_as_it_lives, unserved
from sim.report import Report, Violation
from tickwork.core.base.values import Ref
from tickwork.core.state import events as ev
from tickwork.journal.record import SealedRow
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Catalog,
    Failed,
    NodeSpec,
    StepsRecorded,
    Succeeded,
    WorkerProfile,
)
from tickwork.protocol.worker_messages import Report as WorkerReport
from tickwork.sdk.authoring.app_loader import App, app_with
from tickwork.sdk.context import commands_of, running
from tickwork.sdk.durable.driver import seed_of
from tickwork.sdk.durable.parked import ParkedFunctions
from tickwork.sdk.runner.attempt import AttemptContext, explained, is_permanent, items_in
from tickwork.sdk.runner.function_attempt import FunctionAttempt, FunctionResult, history_of
from tickwork.sdk.values.encode import NULL, encode
from tickwork.worker.agent import Agent

SHAPE = {"nodes": "2", "workers": "3", "safety_s": "200", "tasks": "6"}
CHANGED_S = 80  # when the new code is deployed
MESSAGES = 6
UPDATES = 8  # of a counter
PAUSE_MS = 9_000
LOOK_S = 5.0
WORK_MS_MAX = 400
FAILS = 0.3
logging.getLogger("tickwork.task").setLevel(logging.ERROR)  # steps fail all the time


class FunctionExecutor(SimExecutor):
    """Runs the application of `function_programs`. Its effect is the end of a function, which has many attempts."""

    def __init__(self, seat: WorkerSeat) -> None:
        super().__init__(seat.host, {}, seat.ledger, slots=scenario.SLOTS, catalog=Catalog())
        self._parked = ParkedFunctions(count_max=self.chance.pick((0, 3, 100)), bytes_max=1 << 24)
        self._apps = {version: application(version, self) for version in (1, function_programs.VERSION)}
        self.handlers = {name: Handler(ms=(0, 20)) for name in self._apps[1].handlers}

    async def work(self, _name: str) -> None:
        await asyncio.sleep(self.chance.below(WORK_MS_MAX) / 1000)
        await self._crash("crash_before_effect")

    def fails(self) -> bool:
        return self.chance.happens(FAILS)

    async def _act(self, handler: Handler, work: AttemptJob, spec: NodeSpec, begun_ms: int) -> WorkerReport:
        changed = self.world.loop.time() >= CHANGED_S
        known = self._apps[function_programs.VERSION if changed else 1].handlers[spec.handler]
        here = AttemptContext((work, None, spec, lambda _: self))  # type: ignore[arg-type, return-value]  # no channel
        assert not work.fetch, "arguments are small here"
        with running(here):
            try:
                if known.durable:
                    history = await history_of(work.checkpoint, partial(self._fetched))
                    name = seed_of(work)
                    parked = self._parked.take(name, history)
                    attempt = FunctionAttempt(work, known, here, _Host(self), history, parked=parked)
                    value = await attempt.run(park=partial(self._parked.keep, name, history_bytes=1_000))
                    if not isinstance(value, FunctionResult):
                        return value
                    value = value.value
                else:
                    value = await known.call(work.args, here)
            except Exception as error:
                text, ended_ms = explained(error), self.host.clock.wall_ms()
                return Failed(
                    work.task, work.attempt, type(error).__name__, text, is_permanent(error), None, begun_ms, ended_ms
                )
            data, commands = encode(value, what="result"), commands_of(here)
        at = self.world.note(self.host.name, "effect", f"{key_of(work, spec)}, attempt {work.attempt}")
        self.ledger.write(Write(key_of(work, spec), work.task, work.attempt, self.host.name, True, at))
        ended_ms = self.host.clock.wall_ms()
        return Succeeded(work.task, work.attempt, None if data == NULL else data, begun_ms, ended_ms, commands)

    async def _fetched(self, digest: str) -> bytes:
        assert self._sink is not None
        return await self._sink.fetch(digest)

    async def record(self, report: StepsRecorded) -> None:
        recorded = self._saving[report.task, report.attempt] = self.world.loop.create_future()
        self._report(report)
        if self._strikes("reports_twice"):
            self._report(report)
        await recorded

    async def put(self, data: bytes) -> Ref:
        assert self._sink is not None
        return Ref(await self._sink.store(data), len(data), items_in(data), "artifact")


class _Host:
    """What an attempt needs of its process."""

    def __init__(self, executor: FunctionExecutor) -> None:
        self.record, self.put, self.wall_ms = executor.record, executor.put, executor.host.clock.wall_ms


def application(version: int, outside: function_programs.Outside) -> App:
    return app_with(*vars(function_programs.make(version, outside)).values())


async def worker(seat: WorkerSeat) -> None:
    executor = FunctionExecutor(seat)
    agent = Agent(
        seat.link, [executor], clock=seat.host.clock, ids=seat.host.ids, name=seat.host.name,
        profile=WorkerProfile(host=seat.host.name),
    )  # fmt: skip
    try:
        await agent.run()
    finally:
        seat.link.close()


class Client(workload.Client):
    """Submits programs, sends each its messages, and sees them through."""

    async def main(self) -> None:
        options = self._seat.cluster.options
        await self._publish()
        self._given: dict[str, dict[str, Any]] = {}
        if options.tasks > 2:  # a scenario for one defect has nothing beside it
            self._more.append(self._loop.create_task(self._count(f"{self._host.name}-counter")))
        for number in range(options.tasks):
            random = Random(self._chance.below(1 << 30))
            given = function_programs.inputs(random, leaves=random.randint(1, 8), messages=MESSAGES, pause_ms=PAUSE_MS)
            await self._begin(f"{self._host.name}-{number:04}", given)
            await asyncio.sleep(self._chance.below(2 * options.safety_s * 500 // options.tasks) / 1000)
        for task in self._more:
            await task
        for run, given in self._given.items():
            await self._see_through(run, function_programs.result(given))

    async def _publish(self) -> None:
        catalog = application(1, _Nowhere()).catalog()
        documents = [msgspec.json.decode(data) for data in catalog.documents]
        answer = await self._http.ask("PUT", "/v1/workflows", {"documents": documents})
        if answer.status != 200:
            self._wrong(f"publishing is answered with {answer.status} {answer.body.decode()}")

    async def _begin(self, name: str, given: dict[str, Any]) -> None:
        self._seat.asks()
        answer = await self._http.ask("POST", "/v1/runs", {"workflow": "rounds", "inputs": given, "key": name})
        if answer.status not in (200, 201):
            self._wrong(f"submitting {name} is answered with {answer.status} {answer.body.decode()}")
            return
        run = answer.json()["id"]
        self._seat.accepted(workload.TENANT, run)
        self._given[run] = given
        self._more.append(self._loop.create_task(self._tell_all(run)))

    async def _tell_all(self, run: str) -> None:
        for number in range(self._given[run]["messages"]):
            if self._chance.happens(0.4):  # the others come at once
                await self._a_while(30)
            body = {"event": self._chance.pick(function_programs.MESSAGES), "run": run, "payload": number}
            answer = await self._http.ask("POST", "/v1/events", body)
            if answer.status not in (200, 204, 404, 409):  # a message that came twice may come after the end
                self._wrong(f"message {number} to {run} is answered with {answer.status} {answer.body.decode()}")

    async def _count(self, name: str) -> None:
        """Updates from several callers at once, each sent until it has its reply, and once more after the end."""
        self._seat.asks()
        body = {"workflow": "counter", "inputs": {"updates": UPDATES}, "key": name}
        answer = await self._http.ask("POST", "/v1/runs", body)
        if answer.status not in (200, 201):
            self._wrong(f"submitting {name} is answered with {answer.status} {answer.body.decode()}")
            return
        run = answer.json()["id"]
        self._seat.accepted(workload.TENANT, run)
        numbers = [Random(f"{name} {index}").randint(1, 1_000) for index in range(UPDATES)]
        asked = await asyncio.gather(*(self._ask(run, index, number) for index, number in enumerate(numbers)))
        replies = [reply for reply in asked if reply is not None]
        if len(replies) < len(asked):
            return  # its run was given up, after one crash after the other
        wanted = sum(number for number in numbers if number % 5)
        await self._see_through(run, wanted)
        totals = sorted(reply["value"] for reply in replies if reply["state"] == "replied")
        refused = sum(reply["state"] == "refused" for reply in replies)
        if (
            totals != sorted(set(totals))
            or (totals or [0])[-1] != wanted
            or refused != sum(n % 5 == 0 for n in numbers)
        ):
            self._wrong(f"updates of {run} are {numbers}, and the replies {replies}")
        again = [await self._ask(run, index, number) for index, number in enumerate(numbers)]
        if again != replies:
            self._wrong(f"repeated updates of {run} are answered with {again}, and were with {replies}")

    async def _ask(self, run: str, index: int, number: int) -> dict[str, Any] | None:
        """The reply; None where the run has failed."""
        await asyncio.sleep(Random(f"{run} {index}").uniform(0, 60))
        body = {"payload": {"n": number}, "key": f"update-{index}", "wait_ms": 5_000}
        while True:
            answer = await self._other().ask("POST", f"/v1/runs/{run}/updates/add", body)
            if answer.status == 200:
                return dict(answer.json())
            if answer.status not in (202, 404):
                if "is failed" not in answer.body.decode():
                    self._wrong(f"update {index} of {run} is answered with {answer.status} {answer.body.decode()}")
                return None
            await asyncio.sleep(LOOK_S)

    async def _see_through(self, run: str, wanted: int) -> None:
        options = self._seat.cluster.options
        until = options.safety_s + options.liveness_s - 3 * LOOK_S
        while (found := await self._state(run))["state"] not in workload.OVER and self._loop.time() < until:
            await asyncio.sleep(LOOK_S)
        if found["state"] == "failed" and "workers were lost" in str(found):
            return  # one crash after the other: a task that does that is given up
        if found["state"] != "completed":
            self._wrong(f"{run} is {found['state']}: {found.get('error') or found.get('reason')} {found['tasks']}")
            return
        output = (await self._http.ask("GET", f"/v1/runs/{run}/output")).json()
        if output != wanted:
            self._wrong(f"{run} has returned {output}, and the sum of its parts is {wanted}")


class _Nowhere:
    async def work(self, name: str) -> None:
        raise AssertionError(name)

    def fails(self) -> bool:
        raise AssertionError


def once(cluster: Cluster) -> list[Violation]:
    return [found for rows in cluster.kept().values() for found in outcomes_are_recorded_once(rows)]


def outcomes_are_recorded_once(rows: Sequence[SealedRow]) -> Iterator[Violation]:
    """Positions of a function go on when it continues as new, so each has one outcome. Tries before it do not count."""
    recorded: dict[tuple[int, int], int] = {}
    tried: dict[tuple[int, int], None] = {}
    for row in rows_of(rows):
        inputs: Sequence[Any] = row.inputs
        events: Sequence[Any] = row.events
        for event in events:
            if isinstance(event, ev.StepRetrying) and event.due:
                tried[event.task, inputs[event.input].steps[event.index].position] = None
            for position in _positions(inputs, event):
                key = (event.task, position)
                if isinstance(event, ev.AwaitMet) and key in tried:
                    del tried[key]
                    continue
                if key in recorded:
                    words = f"task {key[0]} has an outcome at {position} in seq {recorded[key]} and {row.seq}"
                    yield Violation("I60", words)
                recorded[key] = row.seq


def _positions(inputs: Sequence[Any], event: Any) -> list[int]:
    match event:
        case ev.AwaitMet():
            return [event.position]
        case ev.StepsAppended() | ev.FunctionSuspended():
            return [step.position for step in inputs[event.input].steps if step.retry is None or not step.error]
        case ev.StepRetrying(due=0):
            return [inputs[event.input].steps[event.index].position]
    return []


def programs() -> Programs:
    return Programs(
        node=lambda seat: Node(seat).main(),
        worker=worker,
        client=lambda seat: Client(seat).main(),
        settings=SETTINGS,
        checks=lambda cluster: [*recovers_as_it_lives(cluster), *no_foreign_results(cluster), *once(cluster)],
        unserved=unserved,
    )


def cluster(seed: int, words: Mapping[str, str]) -> Cluster:
    options = Options.of(seed, SHAPE | dict(words))
    options = replace(options, faults=options.faults.without("poison"))  # what takes every worker down fails in the end
    return Cluster(seed, programs(), options, scenario="sim.function_scenario:run")


def run(seed: int, words: Mapping[str, str]) -> Report:
    return cluster(seed, words).run()
