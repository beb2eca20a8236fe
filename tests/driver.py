"""The smallest shell: drives one machine through time, keeps its journal, and supplies facts.

It stands where the runtime stands later. Facts come from what it has seen: runs that left memory
and a cache of results. Task bodies are whatever the test answers.
"""

import json
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref, Value, pack, unpack
from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.definition.cel_extracts import extract
from tickwork.core.definition.input_fields import require_accepted
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve import output_of, record_of_run
from tickwork.core.machine import Machine, Outcome
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import (
    Alert,
    CancelAttempt,
    CommandResult,
    Dispatch,
    FindRuns,
    LookUpCache,
    ReadExtract,
    StoreCached,
)
from tickwork.core.state.evaluation_context import OF_CHECK, need_of, value_at
from tickwork.core.state.lifecycle import Phase, RunState, RunTrigger
from tickwork.core.state.schedule import FateRange
from tickwork.core.state.state import LogicalClock, Run, Settings, State, Task, Tenant
from tickwork.runtime.partition.task_assignment import ArgumentSource, AssignmentBuilder, BadArgument
from tickwork.runtime.storage.payloads import PayloadStore

T, BY = "acme", "alice"


def task(id: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "task", "id": id, "handler": fields.pop("handler", id), **fields}


def document(name: str, *nodes: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"name": name, "nodes": list(nodes), **fields}).encode()


class AtHand(PayloadStore):
    """Payloads of a test: none of them has to be waited for."""

    def __init__(self, driver: "Driver") -> None:
        self._driver = driver

    def at_hand(self, value: Value) -> bytes | None:
        return pack(self._driver.whole(value))


class Driver:
    def __init__(self, *, set_up: bool = True, credit: int = 1_000, zones: Zones = UTC_ONLY, **settings: Any) -> None:
        clock = settings.pop("clock", LogicalClock(origin_ms=1_800_000_000_000))
        self.settings = Settings(clock=clock, **settings)
        self.machine = Machine(settings=self.settings, zones=zones)
        self.state = self.machine.state
        self.tick = 0
        self.rows: list[tuple[int, list[inp.Input], list[Any]]] = []
        self.records: dict[str, inp.RunRecord] = {}
        self.running: dict[int, Dispatch] = {}
        self.started: list[Dispatch] = []
        self.stopped: list[CancelAttempt] = []
        self.alerts: list[Alert] = []
        self.answers: list[CommandResult] = []
        self.lookups: list[LookUpCache] = []
        self.searches: list[FindRuns] = []
        self.reads: list[ReadExtract] = []
        self.payloads: dict[str, Any] = {}  # plain values by the digest of their reference
        self.gathered: dict[tuple[int, int], dict[int, Value]] = {}  # results of map children, by run and step
        self._assigner = AssignmentBuilder(AtHand(self), clock)
        self._unmade: set[str] = set()  # inputs of child runs that name a part which is not there
        self._map_children: dict[int, tuple[int, int, int]] = {}  # run, step and index of each child that runs
        self.spans: list[FateRange] = []
        self.cache: dict[str, Any] = {}
        self.last_run = 0
        if set_up:
            self.send(inp.PutTenant(BY, T), inp.PutQueue(BY, "default"), inp.Offer("w1", credit))

    # ---- time

    def send(self, *asked: inp.Input, at: int | None = None) -> Outcome:
        """One tick with these inputs, and as many more as it takes until all of them are decided."""
        waiting = list(asked)
        outcome = self._apply(self.tick + 1 if at is None else at, waiting)
        while outcome.taken < len(waiting):
            waiting = waiting[outcome.taken :]
            outcome = self._apply(self.tick + 1, waiting)
        return outcome

    def _apply(self, tick: int, asked: list[inp.Input]) -> Outcome:
        self.tick = tick
        outcome = self.machine.apply(tick, asked)
        self.rows.append((tick, asked[: outcome.taken], outcome.events))
        self.spans += self.state.spans
        self._keep_children(asked, outcome)
        for run in outcome.closed:
            self.records[run.id] = record_of_run(run)
        for effect in outcome.effects:
            self._perform(effect, asked)
        return outcome

    def _keep_children(self, asked: list[inp.Input], outcome: Outcome) -> None:
        """What the core does not hold itself: the results of map children, and large inputs of child runs."""
        for event in outcome.events:
            if isinstance(event, ev.TaskSucceeded) and event.task in self._map_children:
                report: Any = asked[event.input]
                self._keep_child(*self._map_children.pop(event.task), report.value)
            elif isinstance(event, ev.TaskFailed | ev.TaskSkipped) and event.task in self._map_children:
                self._keep_child(*self._map_children.pop(event.task), None)
        for run in outcome.closed:
            if run.parent_run:
                output = output_of(run) if run.state == RunState.COMPLETED else None
                self._keep_child(run.parent_run, run.parent - run.parent_run, run.child, output)
        for event in outcome.events:
            if isinstance(event, ev.RunSpawned) and isinstance(event.inputs, Ref):
                self._keep_inputs(event, event.inputs.digest)

    def _keep_inputs(self, event: ev.RunSpawned, digest: str) -> None:
        parent = self.state.tasks.get(event.task)
        if parent is None:
            return
        try:
            self.payloads[digest] = self._assembled(self._assigner.child_inputs(parent, event.child))
            self._unmade.discard(digest)
        except LookupError:
            pass  # a test need not name every payload
        except BadArgument:
            self._unmade.add(digest)
            self.payloads.pop(digest, None)

    def _keep_child(self, run: int, step: int, child: int, value: Value) -> None:
        self.gathered.setdefault((run, step), {})[child] = value

    def arguments_of(self, number: int) -> Any:
        """The arguments that a worker is given for a task that it holds."""
        return self._assembled(self._assigner.order(self.state.tasks[number]).sources)

    def _assembled(self, sources: list[ArgumentSource]) -> Any:
        """Arguments, put together by the code that the runtime uses for them."""
        making = self._assigner.assemble(sources)
        try:
            making.send(None)
        except StopIteration as made:
            data, fetched = made.value
            assert not fetched, "no value of a test is an artifact"
            return unpack(data, what="arguments")
        raise AssertionError("every value is at hand, so nothing is waited for")

    def whole(self, value: Value) -> Any:
        """A plain value, wherever it is kept. Raises `LookupError` where it is not in the payloads."""
        if not isinstance(value, Ref):
            return unpack(value, what="a value")
        if value.place != "gather":
            return self.payloads[value.digest]
        run, step = (int(part) for part in value.digest.split("/"))
        children = self.gathered.get((run, step), {})
        if value.keys is not None:
            return {key: self.whole(children.get(child)) for child, key in enumerate(value.keys)}
        return [self.whole(children.get(child)) for child in range(value.items or 0)]

    def _perform(self, effect: Any, asked: list[inp.Input]) -> None:
        match effect:
            case Dispatch():
                self.running[effect.task] = effect
                self.started.append(effect)
                child = self.state.tasks[effect.task]
                if child.parent and child.run.plan.steps[child.step.index].kind is Kind.MAP:
                    self._map_children[effect.task] = (child.run.number, child.step.index, child.child)
            case CancelAttempt():
                self.stopped.append(effect)
                self.running.pop(effect.task, None)
            case Alert():
                self.alerts.append(effect)
            case CommandResult():
                self.answers.append(effect)
            case LookUpCache():
                self.lookups.append(effect)
            case FindRuns():
                self.searches.append(effect)
            case ReadExtract():
                self.reads.append(effect)
            case StoreCached():
                self.cache[effect.key] = asked[effect.input].value

    def quiet(self, ticks: int = 10_000) -> None:
        """Ticks until nothing more happens by itself at this moment; cached results are looked up on the way."""
        for _ in range(ticks):
            if self.lookups:
                answers = [inp.CacheAnswered(x.task, x.key in self.cache, self.cache.get(x.key)) for x in self.lookups]
                self.lookups = []
                self.send(*answers)
            elif self.searches:
                searches, self.searches = self.searches, []
                self.send(*(inp.RunsKnown(one.backfill, self.ran(one)) for one in searches))
            elif self.reads:
                reads, self.reads = self.reads, []
                self.send(*(self.extracted(one) for one in reads))
            elif self.machine.next_tick() == self.tick + 1:
                self.send()
            else:
                return
        raise AssertionError("it never becomes quiet")

    def advance(self, ms: int) -> None:
        """Let time pass; every timer on the way fires at its own tick."""
        target = self.tick + self.settings.clock.ticks(ms)
        self.quiet()
        while (due := self.machine.next_tick()) is not None and due <= target:
            self.send(at=due)
            self.quiet()
        if target > self.tick:
            self.send(at=target)

    def ran(self, search: FindRuns) -> tuple[int, ...]:
        """Of these occurrences, those that have had a run."""
        return tuple(due for due in search.dues_ms if f"sched-{search.schedule}-{instant_text(due)}" in self.records)

    def extracted(self, wanted: ReadExtract) -> inp.Extracted:
        """What the shell answers: from the payloads, or that there is none."""
        run = self.state.runs.get(wanted.run)
        value = value_at(run, wanted.source, wanted.key) if run is not None else None
        digest = value.digest if isinstance(value, Ref) and value.place == "arguments" else ""
        lost = inp.Extracted(wanted.run, wanted.source, wanted.key, None, "corrupt", "it is not there")
        if run is None:
            return lost
        if digest in self._unmade:
            return inp.Extracted(wanted.run, wanted.source, wanted.key, None, "bad_reference", "a part is not there")
        if wanted.key == OF_CHECK:
            return self._checked(run, wanted, self.payloads.get(digest))
        try:
            whole = self.whole(value)
        except LookupError:
            return lost
        try:
            data = extract(pack(whole), need_of(run, wanted.source, wanted.key), what="a value")
        except Refused as refused:
            return inp.Extracted(wanted.run, wanted.source, wanted.key, None, refused.code, refused.message)
        return inp.Extracted(wanted.run, wanted.source, wanted.key, data)

    @staticmethod
    def _checked(run: Run, wanted: ReadExtract, values: Any) -> inp.Extracted:
        """Inputs of a child run that the test does not name are right."""
        try:
            if values is not None:
                require_accepted(run.plan.definition, values)
        except Refused as refused:
            return inp.Extracted(wanted.run, wanted.source, wanted.key, None, refused.code, refused.message)
        return inp.Extracted(wanted.run, wanted.source, wanted.key, pack(None))

    @property
    def now_ms(self) -> int:
        return self.settings.clock.ms_of(self.tick)

    # ---- asking

    def define(self, name: str, *nodes: dict[str, Any], tenant: str = T, **fields: Any) -> None:
        self.expect(inp.PutDefinition(BY, tenant, document(name, *nodes, **fields)))

    def expect(self, *asked: inp.Input) -> None:
        """Send, and fail the test if anything is refused."""
        before = len(self.answers)
        self.send(*asked)
        refused = [answer for answer in self.answers[before:] if answer.code]
        assert not refused, refused

    def refusal(self, asked: inp.Input) -> str:
        """The code with which this is refused; "" if it is not."""
        before = len(self.answers)
        self.send(asked)
        return next((answer.code for answer in self.answers[before:] if answer.code), "")

    def submit(self, workflow: str, run_id: str = "", *, tenant: str = T, inputs: Any = None, **terms: Any) -> str:
        self.last_run += 1
        run_id = run_id or f"r{self.last_run:04}"
        extra = inp.SubmitOptions(**terms) if terms else None
        value = pack(inputs) if inputs is not None else None
        self.expect(inp.Submit(BY, tenant, run_id, workflow, value, extra))
        self.quiet()
        return run_id

    # ---- answering for workers

    def attempt_of(self, run_id: str, node: str, child: int | None = None) -> Dispatch:
        """The running attempt of a node, or of one child of a map or repeat."""
        found = [
            effect
            for effect in self.running.values()
            if (item := self.state.tasks.get(effect.task)) is not None
            and item.run.id == run_id
            and self._node_of(item) == node
            and (child is None or item.child == child)
        ]
        assert len(found) == 1, f"{node} of {run_id} has {len(found)} running attempts"
        return found[0]

    @staticmethod
    def _node_of(item: Task) -> str:
        return item.run.plan.steps[item.step.index].id

    def is_running(self, run_id: str, node: str) -> bool:
        return any(
            (item := self.state.tasks.get(effect.task)) is not None
            and item.run.id == run_id
            and self._node_of(item) == node
            for effect in self.running.values()
        )

    def finish(self, run_id: str, node: str, value: Any = None, child: int | None = None) -> Outcome:
        attempt = self.attempt_of(run_id, node, child)
        del self.running[attempt.task]
        outcome = self.send(inp.Succeeded(attempt.task, attempt.attempt, None if value is None else pack(value)))
        self.quiet()
        return outcome

    def fail(self, run_id: str, node: str, error: str = "ValueError", child: int | None = None, **more: Any) -> Outcome:
        attempt = self.attempt_of(run_id, node, child)
        del self.running[attempt.task]
        outcome = self.send(inp.Failed(attempt.task, attempt.attempt, error, "no good", **more))
        self.quiet()
        return outcome

    def finish_all(self, limit: int = 10_000) -> int:
        """Every attempt succeeds, one after the other, until none runs. How many there were."""
        for count in range(limit):
            if not self.running:
                return count
            attempt = self.running.pop(min(self.running))
            self.send(inp.Succeeded(attempt.task, attempt.attempt))
            self.quiet()
        raise AssertionError("there is always one more")

    # ---- looking

    def run(self, run_id: str, tenant: str = T) -> Run | None:
        return self.state.tenants[tenant].runs.get(run_id)

    def state_of(self, run_id: str) -> str:
        live = self.run(run_id)
        return RunState(live.state if live is not None else self.records[run_id].state).name

    def phases(self, run_id: str) -> dict[str, str]:
        live = self.run(run_id)
        if live is not None:
            return {step.id: Phase(live.phases[step.index]).name for step in live.plan.steps}
        record = self.records[run_id]
        plan = self.state.plans[record.definition]
        return {step.id: Phase(record.phases[step.index]).name for step in plan.steps}

    def result(self, run_id: str, node: str) -> Any:
        record = self.records[run_id]
        return unpack(dict(record.results).get(self.state.plans[record.definition].index[node]), what=node)

    def id_of_child(self, run_id: str, node: str, child: int = 0) -> str:
        """The latest child run of a node, whether it still runs or not."""
        start = f"{run_id}.{node}.{child}."
        found = [run.id for run in self.state.runs.values() if run.id.startswith(start)]
        found += [name for name in self.records if name.startswith(start)]
        return max(
            (name for name in found if "." not in name.removeprefix(start)),
            key=lambda name: int(name.removeprefix(start)),
        )

    def phase(self, run_id: str, node: str) -> str:
        return self.phases(run_id)[node]

    def moves(self, run_id: str) -> list[str]:
        """The triggers by which a run moved, in order."""
        number = self.number_of(run_id)
        return [RunTrigger(event.trigger).name for event in self.events(ev.RunMoved) if event.run == number]

    def number_of(self, run_id: str) -> int:
        live = self.run(run_id)
        return live.number if live is not None else self.records[run_id].number

    def assert_empty(self) -> None:
        """All runs have ended: nothing of them is left, live or in a state folded from the journal."""
        _assert_empty(self.state)
        folded = Machine(settings=self.settings)
        for tick, asked, events in self.rows:
            folded.fold(tick, asked, events)
        _assert_empty(folded.state)
        for name, tenant in self.state.tenants.items():
            assert _counters(folded.state.tenants[name]) == _counters(tenant)

    def events(self, *kinds: type) -> list[Any]:
        return [event for _, _, events in self.rows for event in events if isinstance(event, kinds)]


def _counters(tenant: Tenant) -> tuple[int, ...]:
    return (tenant.accepted, tenant.completed, tenant.failed, tenant.cancelled)


def _assert_empty(state: State) -> None:
    gauges = [gauge for tenant in state.tenants.values() for gauge in (tenant.gauge, *tenant.workflow_gauges.values())]
    gauges += [queue.gauge for queue in state.queues.values()] + list(state.label_gauges.values())
    left: dict[str, Any] = {
        "runs": [run.id for run in state.runs.values()],
        "live runs": state.live_runs,
        "tasks": [task.number for task in state.tasks.values()],
        "timers": len(state.wheel) - bool(state.rate_keys_due),
        "gauges": [gauge.name for gauge in gauges if gauge.running],
        "lanes": [lane.key for lane in state.lanes.values() if lane.live or lane.held],
        "held": [worker.id for worker in state.workers.values() if worker.tasks or worker.slots],
        "important work": state.protected,
    }
    for tenant in state.tenants.values():
        left |= {
            f"counts of {tenant.id}": tenant.active + tenant.queued + tenant.slots + tenant.usage + sum(tenant.more),
            f"names of {tenant.id}": [name for name, _ in (*tenant.runs.items(), *tenant.keys.items())],
            f"waits of {tenant.id}": [*tenant.debounced, *tenant.gates, *tenant.waits],
        }
    assert not any(left.values()), {name: what for name, what in left.items() if what}
