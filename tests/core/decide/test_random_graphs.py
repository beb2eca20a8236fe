"""Random workflows, run by the machine and by a naive interpreter: they agree about every node of every run."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from campaign import LONG
from core.decide.graph_interpreter import Interpreter, Races
from core.decide.random_graphs import ERRORS, LABEL, LIVES, NOT_THERE, POLICIES, Case, make
from driver import BY, Driver, T
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value, pack
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.evolve.follow_ups import failed_steps
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.events import FirstEnded, FollowUpStarted, RunSpawned
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
        self.races = Races()
        self.refused = False  # to run it again
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
        self.note(number, "r", driver.state.tenants[T].plans[self.case.workflow])
        self.drain()
        while driver.records[run_id].state == RunState.FAILED and len(self.path) < LIVES:
            if not self.resolve(driver.records[run_id]):
                break
            self.drain()
        self.run_again(driver.records[run_id])

    def drain(self) -> None:
        """Answer until every run has ended."""
        driver = self.driver
        for _ in range(STEPS_MAX):
            driver.quiet()
            self.note_runs()
            if not driver.state.live_runs:
                self.note_ended()
                return
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
                assert due is not None, "it waits for nobody"
                driver.send(at=due)
        raise AssertionError("it never ends")

    def run_again(self, record: inp.RunRecord) -> None:
        driver, number = self.driver, self.driver.state.next_number
        from_node, whole = self.case.again_from(self.path)
        again = inp.Rerun(BY, T, f"again{self.case.seed}", record, from_node, from_start=whole)
        if refused := driver.refusal(again):
            assert refused == "not_taken", refused
            self.refused = True
            return
        self.note(number, "again", driver.state.plans[record.definition])
        self.drain()

    def resolve(self, record: inp.RunRecord) -> bool:
        """Somebody decides about the nodes that failed. False: none did, the output could not be made."""
        driver, plan = self.driver, self.driver.state.plans[record.definition]
        if not failed_steps(plan, record.phases):
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
        return True

    def note_ended(self) -> None:
        for record in self.driver.records.values():
            if record.number in self.runs:
                path = self.runs.pop(record.number)
                plan = self.driver.state.plans[record.definition]
                self.records[path], self.plans[path] = record, plan
                self.races.lost[path] = {step.id for step in plan.steps if record.phases[step.index] == Phase.CANCELLED}
                with suppress(LookupError):
                    self.inputs[path] = self.driver.whole(record.inputs)
                self.results[path] = {index: self.driver.whole(value) for index, value in record.results}

    def note(self, number: int, path: str, plan: Plan) -> None:
        self.runs[number] = path
        for step in plan.steps:
            self.nodes[number + step.index] = (path, step.id)

    def note_runs(self) -> None:
        plans = self.driver.state.plans
        for _, _, events in self.driver.rows[self.seen :]:
            for event in events:
                if isinstance(event, RunSpawned):
                    path, node = self.nodes[event.task]
                    place = f"{path}/{node}.{event.child}"
                    self.times[place] = self.times.get(place, 0) + 1
                    self.note(event.run, f"{place}.{self.times[place]}", plans[event.definition])
                elif isinstance(event, FollowUpStarted):
                    self.note(event.run, f"{self.nodes[event.of][0]}!", plans[event.definition])
                elif isinstance(event, FirstEnded):
                    path, _ = self.nodes[event.run]
                    node, winner = (self.nodes[event.run + step][1] for step in (event.step, event.winner))
                    self.races.winners[path, node] = winner
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
            elif how == "skip":
                yield inp.Failed(number, running.attempt, "Skip", skip=True)
            else:
                permanent = how == "permanent"
                yield inp.Failed(number, running.attempt, value, "no good", permanent=permanent, bases=ERRORS[value])

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
                    filled = self.case.filled_in(path, node) if task.step.node.fields else {}
                    yield inp.Decide(BY, T, task.run.id, node, answer == "approve", values=pack(filled))


def stored(value: Any) -> Value:
    """A value as a worker or a caller hands it in: a large one lies elsewhere."""
    if value is None:
        return None
    packed = pack(value)
    if len(packed) <= INLINE_BYTES_MAX:
        return packed
    return Ref(stable_digest(packed), len(packed), len(value) if isinstance(value, list) else None)


def cut_short(player: Player, path: str, node: str = "") -> bool:
    """Whether it is below a node that was cancelled. What such a node did before depends on the order of things."""
    lost = {f"{run}/{name}" for run, nodes in player.races.lost.items() for name in nodes}
    parts = path.split("/")
    above = ["/".join(parts[:depth]).rsplit(".", 2)[0] for depth in range(2, len(parts) + 1)]
    return any(place in lost for place in (*above, f"{path}/{node}"))


def compare(driver: Driver, case: Case) -> None:
    player = Player(driver, case)
    player.play()
    player.races.begun = set(player.records)
    player.races.reports = {path: inputs for path, inputs in player.inputs.items() if path.endswith("!")}
    interpreter = Interpreter(case, player.races)
    interpreter.run(case.workflow, case.inputs, "r")
    for path in sorted(player.records, key=len):
        if path.strip("'") == "r" and f"{path}'" in player.records:
            interpreter.resolve(case.workflow, path, *case.decisions(path, interpreter.endings[path].phases))
    if not player.refused:
        interpreter.rerun(case.workflow, player.path, "again", *case.again_from(player.path))

    paths = sorted(path for path in player.records if not cut_short(player, path))
    assert paths == sorted(interpreter.endings), "other runs"
    for path in paths:
        record, ending = player.records[path], interpreter.endings[path]
        steps = player.plans[path].steps
        phases = {step.id: Phase(record.phases[step.index]).name.lower() for step in steps}
        assert phases == ending.phases, path
        assert RunState(record.state).name == ending.state, path
        if ending.inputs is not None:
            assert player.inputs[path] == ending.inputs, path
        results = {steps[index].id: value for index, value in player.results[path].items()}
        assert results == ending.results, path
    attempts = [one for one in player.attempts if not cut_short(player, *one[:2])]
    assert sorted(attempts) == sorted(interpreter.attempts)
    assert {one: player.arguments[one] for one in attempts} == interpreter.arguments


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(CHUNK, GRAPHS, CHUNK))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_machine_and_a_naive_interpreter_agree_on_random_graphs(seed):
    for first in range(seed, seed + CHUNK, BATCH):
        driver = Driver()
        driver.send(inp.Offer("w1", 1_000, labels={"colour": LABEL}))
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
