"""Random workflows, run by the machine and by a naive interpreter: they agree about every node of every run."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from campaign import LONG
from core.decide.graph_interpreter import Interpreter
from core.decide.random_graphs import LIVES, NOT_THERE, POLICIES, Case, make
from driver import BY, Driver, T
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value, pack
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.events import RunSpawned
from tickwork.core.state.lifecycle import Phase, RunState

GRAPHS = 100_000 if LONG else 2_000
CHUNK = 500  # graphs of one test
BATCH = 50  # graphs of one machine
STEPS_MAX = 5_000


class Player:
    """Answers for workers, people and callers, in an order of its own."""

    def __init__(self, driver: Driver, case: Case) -> None:
        self.driver = driver
        self.case = case
        self.rng = Random(case.seed + 1)
        self.attempts: list[tuple[str, str, int, int]] = []
        self.arguments: dict[tuple[str, str, int, int], Any] = {}  # that a worker gets for each attempt
        self.nodes: dict[int, tuple[str, str]] = {}  # run and node of each number
        self.runs: dict[int, str] = {}  # the path of each run, by number
        self.times: dict[str, int] = {}  # how often a child was begun
        self.records: dict[str, inp.RunRecord] = {}  # of each path, once it has ended
        self.plans: dict[str, Plan] = {}
        self.inputs: dict[str, Any] = {}  # and those of a child run that could not be made are not here
        self.results: dict[str, dict[int, Any]] = {}
        self.path = "r"  # of the run, with a mark for each time that it was resolved
        self.seen = len(driver.rows)

    def play(self) -> None:
        driver = self.driver
        for document in self.case.documents:
            fields = dict(document)
            driver.define(fields.pop("name"), *fields.pop("nodes"), **fields)
        run_id = f"r{self.case.seed}"
        number = driver.state.next_number
        driver.expect(inp.Submit(BY, T, run_id, self.case.workflow, self.stored(self.case.inputs)))
        driver.quiet()
        self.note(number, "r", driver.state.tenants[T].plans[self.case.workflow])
        for _ in range(STEPS_MAX):
            self.note_children()
            if run_id in driver.records:
                self.note_ended()
                if driver.records[run_id].state != RunState.FAILED or len(self.path) == LIVES:
                    return
                if not self.resolve(driver.records[run_id]):
                    return
                continue
            answers = self.answers()
            if answers:
                self.rng.shuffle(answers)
                count = self.rng.choice((1, len(answers)))
                for running in (driver.running.pop(one.task, None) for one in answers[:count] if hasattr(one, "task")):
                    assert running is not None
                    where = (*self.place(running.task), self.tried(running))
                    self.attempts.append(where)
                    self.arguments[where] = driver.arguments_of(running.task)
                driver.send(*answers[:count])
            else:
                due = driver.machine.next_tick()
                assert due is not None, f"it waits for nobody: {driver.phases(run_id)}"
                driver.send(at=due)
            driver.quiet()
        raise AssertionError("it never ends")

    def resolve(self, record: inp.RunRecord) -> bool:
        """Somebody decides about the nodes that failed. False: none did, the output could not be made."""
        driver, plan = self.driver, self.driver.state.plans[record.definition]
        if Phase.FAILED not in record.phases:
            return False
        phases = {step.id: Phase(record.phases[step.index]).name.lower() for step in plan.steps}
        decisions, values = self.case.decisions(self.path, phases)
        packed = {node: pack(value) for node, value in values.items()}
        del driver.records[record.run_id]
        resolve = inp.Resolve(BY, T, record.run_id, "again", decisions, packed, record)
        if refused := driver.refusal(resolve):
            assert refused == "bad_decision", "it reads what is tried again"
            driver.records[record.run_id] = record
            return False
        self.path += "'"
        self.note(record.number, self.path, plan)
        driver.quiet()
        return True

    def note_ended(self) -> None:
        for record in self.driver.records.values():
            if record.number in self.runs:
                path = self.runs.pop(record.number)
                self.records[path], self.plans[path] = record, self.driver.state.plans[record.definition]
                with suppress(LookupError):
                    self.inputs[path] = self.driver.whole(record.inputs)
                self.results[path] = {index: self.driver.whole(value) for index, value in record.results}

    def note(self, number: int, path: str, plan: Plan) -> None:
        self.runs[number] = path
        for step in plan.steps:
            self.nodes[number + step.index] = (path, step.id)

    def note_children(self) -> None:
        for _, _, events in self.driver.rows[self.seen :]:
            for event in events:
                if isinstance(event, RunSpawned):
                    path, node = self.nodes[event.task]
                    place = f"{path}/{node}.{event.child}"
                    self.times[place] = self.times.get(place, 0) + 1
                    self.note(event.run, f"{place}.{self.times[place]}", self.driver.state.plans[event.definition])
        self.seen = len(self.driver.rows)

    def place(self, number: int) -> tuple[str, str, int]:
        task = self.driver.state.tasks[number]
        path, node = self.nodes[task.run.number + task.step.index]
        return path, node, task.child if task.parent else -1

    def tried(self, running: Dispatch) -> int:
        """The number of an attempt in this life of its run."""
        task = self.driver.state.tasks[running.task]
        return running.attempt - (0 if task.parent else task.run.before)

    def answers(self) -> list[Any]:
        return [*self.reports(), *self.replies()]

    def stored(self, value: Any) -> Value:
        """A large value lies in the payload store, where conditions and references are read from."""
        found = stored(value)
        if isinstance(found, Ref):
            self.driver.payloads[found.digest] = value
        return found

    def reports(self) -> Iterator[inp.Input]:
        for number, running in sorted(self.driver.running.items()):
            how, value = self.case.attempt(*self.place(number), self.tried(running))
            if how == "ok":
                yield inp.Succeeded(number, running.attempt, self.stored(value))
            else:
                yield inp.Failed(number, running.attempt, "ValueError", "no good", permanent=how == "permanent")

    def replies(self) -> Iterator[inp.Input]:
        for task in self.driver.state.tasks.values():
            if task.step.kind not in (Kind.EVENT, Kind.APPROVAL) or task.phase != Phase.WAITING:
                continue
            path, node = self.nodes[task.number]
            if task.step.kind is Kind.EVENT:
                payload = self.case.event(path, node)
                if payload != NOT_THERE:
                    yield inp.Ingest(BY, T, task.step.node.event, payload=self.stored(payload), run_id=task.run.id)
            else:
                answer = self.case.approval(path, node)
                if answer != NOT_THERE:
                    yield inp.Decide(BY, T, task.run.id, node, answer == "approve")


def stored(value: Any) -> Value:
    """A value as a worker or a caller hands it in: a large one lies elsewhere."""
    if value is None:
        return None
    packed = pack(value)
    if len(packed) <= INLINE_BYTES_MAX:
        return packed
    return Ref(stable_digest(packed), len(packed), len(value) if isinstance(value, list) else None)


def compare(driver: Driver, case: Case) -> None:
    player, interpreter = Player(driver, case), Interpreter(case)
    player.play()
    interpreter.run(case.workflow, case.inputs, "r")
    for path in sorted(player.records, key=len):
        if path.strip("'") == "r" and f"{path}'" in player.records:
            interpreter.resolve(case.workflow, path, *case.decisions(path, interpreter.endings[path].phases))
    assert sorted(player.records) == sorted(interpreter.endings), "other child runs"
    for path, record in player.records.items():
        ending = interpreter.endings[path]
        steps = player.plans[path].steps
        phases = {step.id: Phase(record.phases[step.index]).name.lower() for step in steps}
        assert phases == ending.phases, path
        assert RunState(record.state).name == ending.state, path
        if ending.inputs is not None:
            assert player.inputs[path] == ending.inputs, path
        results = {steps[index].id: value for index, value in player.results[path].items()}
        assert results == ending.results, path
    assert sorted(player.attempts) == sorted(interpreter.attempts)
    assert player.arguments == interpreter.arguments


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(CHUNK, GRAPHS, CHUNK))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_machine_and_a_naive_interpreter_agree_on_random_graphs(seed):
    for first in range(seed, seed + CHUNK, BATCH):
        driver = Driver()
        for name, (allow, action) in POLICIES.items():
            driver.expect(inp.PutPolicy(BY, name, allow, "a rule", action))
        for number in range(first, first + BATCH):
            case = make(number)
            try:
                compare(driver, case)
            except Exception as error:
                error.add_note(str(case))
                raise
        driver.assert_empty()
