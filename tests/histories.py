"""Random histories of one partition: every kind of node, input and trouble, from one number.

`History(seed).run(steps)` drives a machine through the driver. After every tick the invariants are
asked; what they find is an error with the seed in it.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from driver import BY, Driver, document, task
from overlaps import Overlaps
from tickwork.core.base.values import Ref, pack
from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.trigger_spec import TriggerSpec, UpdateSource
from tickwork.core.decide.runs.functions import approval_of
from tickwork.core.definition.model import ApprovalNode, InputField
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve.versions import declared_puts
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.snapshot.invariants import violations
from tickwork.core.state import inputs as inp
from tickwork.core.state.history import Await, StepEntry
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.messages import PublishedValue, UpdateReply
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.core.state.schedule import CATCH_UPS, OVERLAPS, GovernorLimits, SchedulePolicy
from tickwork.system.zone_data import load_zones

TENANTS = ("acme", "beta", "coop")

DOCUMENTS = {
    "one": document("one", task("a")),
    "urgent": document("urgent", task("a", priority=9, queue="gpu", labels={"gpu": "true"})),
    "heavy": document("heavy", task("a", resources={"slots": 2, "cpu_milli": 500, "gpu": 1})),
    "low": document("low", task("a", priority=0, on_worker_loss="fail"), task("b", priority=1, needs=["a"])),
    "retry": document(
        "retry",
        task(
            "a",
            retry={
                "attempts": 4,
                "delay": "200ms",
                "factor": 3,
                "delay_max": "2s",
                "jitter_percent": 50,
                "rules": [{"error": "Fatal", "attempts": 1}],
            },
            dependency="bank",
            timeout={"running_ms": 4_000, "silent_ms": 2_500, "queued_ms": 60_000},
        ),
    ),
    "fan": document(
        "fan",
        task("a"),
        *(task(f"b{i}", needs=["a"]) for i in range(4)),
        task("z", needs=["b0", "b1", "b2", "b3"]),
        task("clean", needs=["z"], trigger="all_done"),
        task("amends", needs=["b0", "b1"], trigger="any_failed"),
    ),
    "tidied": document(
        "tidied",
        task("a"),
        {"kind": "map", "id": "m", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}},
        {"kind": "workflow", "id": "c", "needs": ["a"], "workflow": "fan"},
        task("b", needs=["a", "m"], timeout={"queued_ms": 2_000}),
        task("clean", needs=["b", "c"], trigger="all_done"),
        {"kind": "wait", "id": "calm", "needs": ["clean"], "duration": "400ms"},
        task("alert", needs=["b", "m"], trigger="any_failed", retry=2),
        inputs={"items": {"type": "array"}},
        timeout="800ms",
    ),
    "branch": document(
        "branch",
        task("a"),
        {
            "kind": "branch",
            "id": "x",
            "needs": ["a"],
            "default": ["r"],
            "cases": [{"when": "has(inputs.left) && inputs.left", "to": ["l"]}],
        },
        task("l", needs=["x"]),
        task("r", needs=["x"], when="!has(inputs.no)"),
        task("j", needs=["l", "r"]),
        inputs={"left": {"type": "boolean", "required": False}, "no": {"type": "boolean", "required": False}},
    ),
    "waits": document(
        "waits",
        {"kind": "wait", "id": "w", "duration": "700ms"},
        {"kind": "event", "id": "e", "event": "opened", "timeout": "3s", "on_timeout": "continue"},
        {
            "kind": "approval",
            "id": "p",
            "needs": ["w"],
            "timeout": "5s",
            "approvers": ["bob"],
            "four_eyes": True,
            "fields": {"how": {"type": "string", "enum": ["all", "some"]}, "most": {"type": "integer", "default": 3}},
        },
        task("t", needs=["w", "e"]),
        timeout="20s",
        sla={"breach": "4s", "warn": "2s"},
        exits=[{"when": "events.exists(e, e.name == 'leave')", "outcome": "completed"}],
    ),
    "map": document(
        "map",
        task("a"),
        {
            "kind": "map",
            "id": "m",
            "needs": ["a"],
            "over": "nodes.a",
            "max_parallel": 3,
            "tolerate": 1,
            "body": {"kind": "task", "handler": "h", "retry": 2, "args": {"x": {"from": "item"}}},
        },
        task("z", needs=["m"], when="results.a == null || results.a.all(x, x != 9)"),
    ),
    "wide": document(
        "wide",
        {"kind": "map", "id": "m", "over": "inputs.items", "body": {"kind": "task", "handler": "h", "queue": "gpu"}},
        inputs={"items": {"type": "array"}},
    ),
    "chosen": document(
        "chosen",
        task("a", queue_from="inputs.queue", labels_from={"gpu": "inputs.gpu"}, retry=2),
        {"kind": "event", "id": "e", "event": "opened", "timeout_from": "inputs.patience", "on_timeout": "continue"},
        {"kind": "wait", "id": "w", "duration_from": "inputs.patience"},
        {
            "kind": "map",
            "id": "m",
            "over": "inputs.items",
            "max_parallel_from": "inputs.most",
            "tolerate": 2,
            "body": {"kind": "task", "handler": "h", "queue_from": "inputs.queue", "retry": 2},
        },
        {
            "kind": "map",
            "id": "cs",
            "needs": ["e"],
            "over": "inputs.items",
            "max_parallel_from": "inputs.most",
            "body": {"kind": "workflow", "workflow": "one"},
        },
        task("z", needs=["w", "m"], trigger="all_done"),
        inputs={name: {"required": False} for name in ("queue", "gpu", "patience", "items", "most")},
    ),
    "race": document(
        "race",
        task("a"),
        task("b", needs=["a"], retry=2),
        {"kind": "event", "id": "e", "event": "opened", "needs": ["a"]},
        {"kind": "wait", "id": "w", "duration": "900ms"},
        {"kind": "map", "id": "m", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}},
        {"kind": "workflow", "id": "c", "workflow": "fan"},
        {"kind": "first", "id": "f", "of": ["b", "e", "w", "m", "c"], "needs": ["b", "e", "w", "m", "c"]},
        task("z", needs=["f"]),
        task("log", needs=["e"], trigger="all_done"),
        inputs={"items": {"type": "array"}},
    ),
    "early": document(
        "early",
        task("a"),
        task("b"),
        {"kind": "wait", "id": "w", "duration": "600ms"},
        task("any", needs=["a", "b", "w"], trigger="any_succeeded"),
        task("one", needs=["a", "b"], trigger="one_done"),
        task("none", needs=["a", "b"], trigger="all_failed"),
        {"kind": "first", "id": "f", "of": ["any", "one"], "needs": ["any", "one", "none"]},
        task("z", needs=["f", "w"], trigger="all_done"),
    ),
    "repeat": document(
        "repeat",
        {
            "kind": "repeat",
            "id": "r",
            "until": "iteration >= 3",
            "max_iterations": 4,
            "delay": "300ms",
            "tolerate": 1,
            "body": {"kind": "task", "handler": "h"},
        },
        {
            "kind": "repeat",
            "id": "p",
            "until": "false",
            "max_iterations": 1_000_000,
            "delay": "100ms",
            "timeout": "900ms",
            "on_max": "continue",
            "tolerate": 3,
            "body": {"kind": "task", "handler": "h"},
        },
        {
            "kind": "repeat",
            "id": "q",
            "until": "false",
            "max_iterations": 9,
            "timeout_from": "inputs.patience",
            "tolerate": 1,
            "body": {"kind": "workflow", "workflow": "one"},
        },
        inputs={"patience": {"required": False}},
    ),
    "parent": document(
        "parent",
        {"kind": "workflow", "id": "c", "workflow": "fan", "retry": {"attempts": 2, "delay": "100ms"}},
        {
            "kind": "map",
            "id": "cs",
            "over": "inputs.items",
            "max_parallel": 2,
            "body": {"kind": "workflow", "workflow": "one"},
        },
        task("z", needs=["c", "cs"], trigger="all_done"),
        inputs={"items": {"type": "array"}},
    ),
    "leaving": document(
        "leaving",
        {"kind": "workflow", "id": "c", "workflow": "fan", "on_cancel": "abandon"},
        {
            "kind": "map",
            "id": "cs",
            "over": "inputs.items",
            "body": {"kind": "workflow", "workflow": "one", "on_cancel": "abandon"},
        },
        task("z", needs=["c", "cs"], trigger="all_done"),
        inputs={"items": {"type": "array"}},
        timeout="3s",
    ),
    "keyed": document(
        "keyed",
        task("a"),
        task("b", needs=["a"]),
        concurrency={"limit": 2, "key": "inputs.k"},
        inputs={"k": {"type": "string"}},
    ),
    "rated": document(
        "rated",
        task("a"),
        rate={"limit": 2, "per_ms": 3_000, "key": "inputs.k", "over": "last"},
        concurrency={"limit": 1, "key": "inputs.k", "second": "replace"},
        inputs={"k": {"type": "string"}},
    ),
    "spaced": document(
        "spaced",
        task("a"),
        rate={"limit": 1, "per_ms": 500},
        concurrency={"limit": 1, "key": "inputs.k", "second": "buffer_one"},
        inputs={"k": {"type": "string"}},
    ),
    "followed": document(
        "followed",
        task("a"),
        {"kind": "map", "id": "m", "needs": ["a"], "over": "inputs.items", "body": {"kind": "task", "handler": "h"}},
        task("b", needs=["m"], when="!has(inputs.no) || inputs.no.x > 1"),
        inputs={"items": {"type": "array"}, "no": {"type": "object", "required": False}},
        timeout="2s",
        on_failure={"workflow": "report", "input": "failure"},
        on_success={"workflow": "followed"},
    ),
    "report": document(
        "report",
        task("a", args={"x": {"from": "inputs.failure"}}),
        inputs={"failure": {"type": "object", "required": False}},
        on_failure={"workflow": "report", "input": "failure"},
        on_success={"workflow": "one"},
    ),
    "cluster": document(
        "cluster",
        task("create"),
        task("mount", needs=["create"], retry=2),
        task("work", needs=["mount"]),
        task("unmount", needs=["mount", "work"], teardown={"of": "mount", "fail": True}, retry=2),
        task("report", needs=["work"], trigger="all_done"),
        task("remove", needs=["create", "work", "unmount"], teardown={"of": "create"}),
        task("note", needs=["remove"]),
        timeout="3s",
        exits=[{"when": "events.exists(e, e.name == 'leave')", "outcome": "cancelled"}],
    ),
    "clusters": document(
        "clusters",
        task("rent"),
        {"kind": "workflow", "id": "c", "needs": ["rent"], "workflow": "cluster", "retry": 2},
        {"kind": "map", "id": "cs", "over": "inputs.items", "body": {"kind": "workflow", "workflow": "cluster"}},
        {
            "kind": "workflow",
            "id": "return",
            "needs": ["rent", "c", "cs"],
            "workflow": "one",
            "teardown": {"of": "rent"},
        },
        {"kind": "wait", "id": "w", "duration": "2s"},
        {"kind": "first", "id": "f", "of": ["cs", "w"], "needs": ["cs", "w"]},
        inputs={"items": {"type": "array"}},
        timeout="4s",
    ),
    "gated": document("gated", task("a", policy=["hours"]), task("b", needs=["a"], policy=["never", "hours"])),
    "function": document(
        "function",
        task("function", durable=True, budget=200, timeout={"running_ms": 4_000, "queued_ms": 60_000}),
        inputs={"n": {"type": "integer", "default": 0}},
    ),
    "cached": document(
        "cached",
        task("a", cache={"ttl": "1h"}, handler_version="1", args={"x": {"from": "inputs.x"}}),
        inputs={"x": {"type": "integer"}},
    ),
}
NEW_FAN = document("fan", task("a"), *(task(f"b{i}", needs=["a"]) for i in range(2)), task("z", needs=["b0", "b1"]))


def some_inputs(rng: random.Random, workflow: str) -> Any:
    match workflow:
        case "branch":
            return rng.choice([{}, {"left": True}, {"left": False, "no": True}])
        case "followed" if rng.random() < 0.3:
            return {"items": [1], "no": {}}
        case "wide" | "parent" | "tidied" | "followed" | "race" | "leaving" | "clusters":
            return {"items": list(range(rng.randrange(5)))}
        case "repeat":
            return {"patience": rng.choice(["1s", "400ms", "3s", 5])}
        case "chosen":
            return {
                "queue": rng.choice(["gpu", "gpu", "default", None, "nobody", 7]),
                "gpu": rng.choice([None, None, True]),
                "patience": rng.choice(["1s", "400ms", "PT2S", None, 5, "soon"]),
                "items": list(range(rng.randrange(5))),
                "most": rng.choice([1, 2, None, 0]),
            }
        case "keyed" | "rated" | "spaced":
            return {"k": rng.choice("ab")}
        case "cached":
            return {"x": rng.randrange(2)}
        case "one" if rng.random() < 0.1:
            return {"surprise": 1}
    return None


class History:
    def __init__(self, seed: int, **settings: Any) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.inside = random.Random(f"inside {seed}")  # of what tasks ask for and other partitions send
        self.operators = random.Random(f"operators {seed}")  # who change settings and delete what nobody names
        self.people = random.Random(f"people {seed}")  # who act on single tasks
        self.check = True
        if self.rng.random() < 0.4:
            settings.setdefault("max_changes_per_tick", self.rng.choice([7, 20, 60]))
            settings.setdefault("max_runs_per_tick", self.rng.choice([2, 5, 50]))
        if self.rng.random() < 0.3:
            settings.setdefault("shed_lag_ms", 400)
        settings.setdefault("ageing_ms", 2_000)
        self.driver = Driver(set_up=False, **settings)
        self.driver.payloads["d"] = [1, 2, 3]
        self.ledger, self.overlaps = Ledger(self.driver.state), Overlaps()
        self.names = 0
        self.known_runs: list[tuple[str, str]] = []
        self.deeds: list[tuple[int, Callable[[], list[inp.Input]]]] = [
            (30, self.submit), (34, self.report), (8, self.offer), (3, self.lose), (4, self.pause), (5, self.resume),
            (4, self.cancel), (4, self.bring_back), (5, self.ingest), (4, self.update), (4, self.decide),
            (2, self.limit), (4, self.schedule), (1, self.redefine), (3, self.stale), (2, self.hostile), (1, self.gap),
            (6, self.take), (2, self.mailbox),
        ]  # fmt: skip

    def run(self, steps: int) -> "History":
        self.send(self.set_up())
        for _ in range(steps):
            asked: list[inp.Input] = []
            for _ in range(self.rng.choice([0, 1, 1, 2, 5])):
                asked += self.choose()()
            asked += [inp.CacheAnswered(x.task, x.key in self.driver.cache, self.driver.cache.get(x.key))
                      for x in self.driver.lookups]  # fmt: skip
            asked += [inp.RunsKnown(x.backfill, self.driver.ran(x)) for x in self.driver.searches]
            asked += [self.driver.extracted(x) for x in self.driver.reads]
            asked += self.between_partitions()
            asked += self.act_on_tasks()
            asked += self.operate()
            self.driver.lookups, self.driver.searches, self.driver.reads = [], [], []
            self.pass_time()
            self.send(asked)
        return self

    def choose(self) -> Callable[[], list[inp.Input]]:
        draw = self.rng.randrange(sum(weight for weight, _ in self.deeds))
        for weight, deed in self.deeds:
            draw -= weight
            if draw < 0:
                return deed
        raise AssertionError

    def pass_time(self) -> None:
        self.driver.tick += self.rng.choice([0, 0, 0, 1, 7, 40, 300, 1_500])

    def send(self, asked: list[inp.Input]) -> None:
        waiting = list(asked)
        while True:
            outcome = self.driver._apply(self.driver.tick + 1, waiting)
            self.ledger.observe(waiting[: outcome.taken], outcome.events)
            found = self.overlaps.observe(waiting, outcome.events)
            if self.check:
                found += violations(self.driver.state) + self.ledger.take_found()
                assert not found, f"seed {self.seed}, tick {self.driver.tick}: {found[:5]}"
            waiting = [self.looked_up_again(item) for item in waiting[outcome.taken :]]
            if not waiting:
                return

    def looked_up_again(self, item: inp.Input) -> inp.Input:
        """Facts are those of the tick that decides: a run that came back meanwhile may have ended once more."""
        records = self.driver.records
        if isinstance(item, inp.Resolve) and item.record is not None:
            return msgspec.structs.replace(item, record=records[item.record.run_id])
        if isinstance(item, inp.Redrive | inp.DropDeadLetters):
            return msgspec.structs.replace(item, records=[records[record.run_id] for record in item.records])
        return item

    # ---- deeds

    def set_up(self) -> list[inp.Input]:
        rng = self.rng
        asked: list[inp.Input] = [inp.PutQueue(BY, "default"), inp.PutQueue(BY, "gpu", 4, 20, 1_000, 5)]
        asked += [inp.PutTenant(BY, name, rng.randint(1, 5), rng.choice([None, 3, 8])) for name in TENANTS]
        asked.append(inp.PutPolicy(BY, "hours", "clock.now_ms % 4000 < 2500", "closed", "pause", rng.choice([0, 900])))
        asked.append(inp.PutPolicy(BY, "never", "clock.tick % 3 != 0", "no", rng.choice(["fail", "skip_with_log"])))
        asked += [inp.PutDefinition(BY, tenant, text) for tenant in TENANTS for text in DOCUMENTS.values()]
        if rng.random() < 0.4:
            asked.append(inp.Offer("lane:bus", rng.choice([2, 5]), rng.choice([("default",), ("default", "gpu")])))
        return [*asked, inp.Offer("w0", 3), inp.Offer("w1", 2, ("default", "gpu"), {"gpu": "true"}, 4, 1_000, 0, 1)]

    def submit(self) -> list[inp.Input]:
        rng = self.rng
        tenant, workflow = rng.choice(TENANTS), rng.choice(sorted(DOCUMENTS))
        self.names += 1
        run_id = f"r{rng.randrange(10_000):04}-{self.names}" if rng.random() < 0.95 else f"r{rng.randrange(3)}"
        plain = some_inputs(rng, workflow)
        terms = None
        if rng.random() < 0.3:
            key = rng.choice(["", "", f"k{rng.randrange(6)}"])
            body = rng.choice(["x", "x", "x", "y"]) if key else ""
            holder = next((r for r in self.driver.records.values() if key and r.key == key), None)
            known = inp.KnownRun(holder.run_id, holder.body, holder.submitted) if holder else None
            terms = inp.SubmitOptions(
                key, body, None, rng.choice([None, None, 500, 5_000]), "", rng.choice([None, 0, 9]), "", known
            )
            if terms.delay_ms and rng.random() < 0.5:
                latest_ms = terms.delay_ms + 1_000 if self.names % 2 else None
                terms = inp.SubmitOptions(
                    key, body, None, terms.delay_ms, "quiet", None, "", known, at_most_ms=latest_ms
                )
        self.known_runs.append((tenant, run_id))
        return [
            inp.Submit(rng.choice([BY, "bob"]), tenant, run_id, workflow, None if plain is None else pack(plain), terms)
        ]

    def report(self) -> list[inp.Input]:
        """Workers report on what they hold, mostly well."""
        rng, running = self.rng, self.driver.running
        asked: list[inp.Input] = []
        for number in rng.sample(sorted(running), min(len(running), rng.randint(1, 4))):
            attempt = running[number]
            draw = rng.random()
            held = self.driver.state.tasks.get(number)
            if held is not None and held.step.durable and draw < 0.8:
                asked.append(self.function_report(number, attempt.attempt))
            elif draw < 0.65:
                del running[number]
                value = rng.choice([None, pack([1, 2, 3]), pack(["x"]), Ref("d", 5_000, rng.randrange(5))])
                asked.append(inp.Succeeded(number, attempt.attempt, value, commands=self.commands(number)))
            elif draw < 0.85:
                del running[number]
                error = rng.choice(["ValueError", "Fatal"])
                permanent, skip = rng.random() < 0.1, rng.random() < 0.1
                asked.append(inp.Failed(number, attempt.attempt, error, "no", permanent, skip=skip))
            elif draw < 0.9:
                asked.append(inp.Started(number, attempt.attempt))
            elif draw < 0.95:
                asked.append(inp.Checkpointed(number, attempt.attempt, pack(1)))
            else:
                del running[number]
                worker = (
                    self.driver.state.workers[attempt.worker].id if attempt.worker in self.driver.state.workers else ""
                )
                by = worker if worker.startswith("lane:") else ""
                asked.append(inp.HandedBack(number, attempt.attempt, by, rng.random() < 0.3))
        return asked

    def commands(self, number: int) -> tuple[inp.TaskCommand, ...]:
        """What the task asks for with its result: seldom something, and now and then what is refused."""
        rng, state = self.inside, self.driver.state
        if rng.random() < 0.75 or len(state.runs) > 60:
            return ()
        tenant = state.tasks[number].run.tenant.id if number in state.tasks else "acme"
        return tuple(self.command(tenant) for _ in range(rng.choice([1, 1, 2, 4])))

    def command(self, tenant: str) -> inp.TaskCommand:
        rng = self.inside
        partitions = rng.choice([(), (), (), (5,), (0, 5, 6)])
        if rng.random() < 0.3:
            name = rng.choice(["opened", "opened", "leave", "no name"] if rng.random() < 0.1 else ["opened", "leave"])
            return inp.TaskCommand(inp.Ingest(BY, tenant, name, "", "", rng.choice([None, pack(1)])), partitions)
        self.names += 1
        workflow = "nobody" if rng.random() < 0.05 else rng.choice(["one", "fan", "waits", "keyed"])
        plain = {"k": rng.choice("ab")} if workflow == "keyed" else None
        terms = None
        if rng.random() < 0.4:
            key = rng.choice(["", f"c{rng.randrange(5)}"])
            holder = next((r for r in self.driver.records.values() if key and r.key == key), None)
            known = inp.KnownRun(holder.run_id, holder.body, holder.submitted) if holder else None
            body = rng.choice(["x"] * 9 + ["y"]) if key else ""
            terms = inp.SubmitOptions(key, body, None, rng.choice([None, None, 700]), known=known)
        run_id = f"c{rng.randrange(10_000):04}-{self.names}"
        self.known_runs.append((tenant, run_id))
        submit = inp.Submit(BY, tenant, run_id, workflow, None if plain is None else pack(plain), terms)
        return inp.TaskCommand(submit, partitions)

    def act_on_tasks(self) -> list[inp.Input]:
        """People cancel a task that goes on, or do not wait for its next attempt."""
        rng, tasks = self.people, self.driver.state.tasks
        live = [task for task in tasks.values() if rng.random() < 0.1] if rng.random() < 0.015 else []
        waiting = [task for task in tasks.values() if task.phase == Phase.BACKOFF and rng.random() < 0.05]
        cancels: list[inp.Input] = [inp.CancelTask(BY, task.run.tenant.id, task.number, "now") for task in live[:2]]
        return [*cancels, *(inp.RetryTask(BY, task.run.tenant.id, task.number, "now") for task in waiting)]

    def operate(self) -> list[inp.Input]:
        """Seldom: settings change, and queues, policies and workflows are deleted and come again."""
        rng = self.operators
        if rng.random() > 0.02:
            return []
        values = {
            "ageing_ms": rng.choice([0, 500, 2_000]), "shed_below": rng.choice([0, 3, 9]),
            "max_runs_per_tick": rng.choice([2, 5, 50]),
        }  # fmt: skip
        tenant = rng.choice(TENANTS)
        return rng.choice(
            [
                [inp.PutSettings(BY, {name: value for name, value in values.items() if rng.random() < 0.6})],
                [inp.PutPolicy(BY, "spare", "true", "", "fail"), inp.RemovePolicy(BY, "spare")],
                [inp.RemovePolicy(BY, "hours"), inp.RemoveQueue(BY, "gpu"), inp.RemoveWorkflow(BY, tenant, "one")],
                [inp.RemoveWorkflow(BY, tenant, "fan"), inp.PutDefinition(BY, tenant, DOCUMENTS["fan"])],
                [inp.PutQueue(BY, "spare", 1), inp.RemoveQueue(BY, "spare")],
            ]
        )

    def between_partitions(self) -> list[inp.Input]:
        """Commands of tasks in other partitions come, some of them twice; those sent there are acknowledged."""
        rng, state = self.inside, self.driver.state
        asked: list[inp.Input] = []
        if rng.random() < 0.1:
            sender = rng.choice([5, 6])
            number = max(1, state.received.get(sender, 0) + rng.choice([1, 1, 1, 1, 0, 2]))
            request = self.command(rng.choice(TENANTS)).request
            asked.append(inp.Delivered(sender, number, request, "task a of elsewhere"))
        if state.outbox and rng.random() < 0.5:
            partition = rng.choice(sorted(state.outbox))
            first = state.outbox[partition][0].number
            number = first + rng.choice([0, 0, 0, 0, -1, 1])
            asked.append(inp.Acknowledged(partition, number, rng.choice(["", "", "", "key_reused"]), "no"))
        return asked

    def function_report(self, number: int, attempt: int) -> inp.Input:
        """What the worker of a durable function says, whatever its code may be."""
        rng, history = self.rng, self.driver.state.tasks[number].history
        position = history.next_position() if history is not None else 0
        steps = tuple(
            StepEntry(position + index, "book", "d", pack(index), cost=rng.choice([0, 0, 0, 60]))
            for index in range(rng.randrange(3))
        )
        position += len(steps)
        versions = (("split", 2),) if rng.random() < 0.1 else ()
        draw = rng.random()
        said = self.said(number)
        if draw < 0.2:
            return inp.StepsRecorded(number, attempt, steps, versions, "", *said)
        self.driver.running.pop(number)
        events = [*history.entries, *history.arrived] if history is not None else []
        given_up = [entry.position for entry in events if entry.kind in ("event", "receive")]
        unseen = tuple(position for position in given_up if rng.random() < 0.3)
        if draw < 0.25:
            return inp.Continued(number, attempt, pack({"n": rng.choice([1, "one"])}), withdrawn=unseen)
        if rng.random() < 0.2:
            failed = StepEntry(position, "pay", "d", error="Timeout", tries=rng.randint(1, 3), retry=(2, 300, 900, 200))
            steps, position = (*steps, failed), position + 1
        awaits = tuple(self.some_await(position + index) for index in range(rng.randrange(4)))
        positions = tuple(request.position for request in awaits)
        open_ones = sorted(history.awaits) if history is not None else []
        withdrawn = (*open_ones[: rng.choice([0, 0, 1, 3])], *unseen)
        together = (positions,) if rng.random() < 0.3 and positions else ()
        if not awaits and not steps and not open_ones:
            return inp.Failed(number, attempt, "StepFailed", "no", True, position=position - 1)
        return inp.Suspended(number, attempt, steps, awaits, withdrawn, together, versions, "", *said)

    def said(self, number: int) -> tuple[tuple[UpdateReply, ...], tuple[PublishedValue, ...]]:
        """Replies to some of what it received, and now and then to what it did not, and a published value."""
        rng, messages = self.rng, self.driver.state.tasks[number].run.messages
        received = [update.update for update in messages.open] if messages is not None else []
        answered = [key for key in (*received, "u0") if rng.random() < 0.6]
        replies = tuple(UpdateReply(key, pack(1), rng.random() < 0.3, "no") for key in answered)
        published = (PublishedValue("state", f"{number}", pack(number)),) if rng.random() < 0.3 else ()
        return replies, published

    def some_await(self, position: int) -> Await:
        rng = self.rng
        return rng.choice(
            [
                Await(position, "sleep", "", "d", rng.choice([0, 50, 2_000])),
                Await(position, "sleep", "", "d", until_ms=self.driver.now_ms + rng.choice([-5, 900])),
                Await(position, "event", rng.choice(["opened", "leave"]), "d", rng.choice([-1, 700])),
                Await(position, "call", rng.choice(["one", "one", "function", "nobody"]), "d"),
                Await(
                    position,
                    "approval",
                    "agree",
                    "d",
                    rng.choice([-1, 3_000]),
                    approvers=("bob",),
                    fields=rng.choice([(), (("how", InputField(type="string", required=False)),)]),
                ),
                Await(position, "receive", "any", "d", rng.choice([-1, 700]), names=("assign", "opened")),
            ]
        )

    def offer(self) -> list[inp.Input]:
        rng = self.rng
        labels: dict[str, str] = rng.choice([{}, {"gpu": "true"}, {"gpu": "false"}])
        if rng.random() < 0.3:
            labels = labels | {PIN_LABEL: f"shop@v{rng.randrange(30)}"}
        queues = rng.choice([("default",), ("gpu",), ("default", "gpu")])
        name, state = f"w{rng.randrange(4)}", self.driver.state
        number = state.worker_numbers.get(name)
        start = state.workers[number].start if number is not None else ""
        if rng.random() < 0.1:  # another process under the same name
            start = rng.choice(["first", "second"])
        credit, slots = rng.choice([0, 1, 3, 6]), rng.choice([0, 4])
        return [inp.Offer(name, credit, queues, labels, slots, 1_000, 0, 2, start, f"{start}/1")]

    def take(self) -> list[inp.Input]:
        """A worker got something from a lane: often what is there to take, sometimes what is long over."""
        rng, state = self.rng, self.driver.state
        asked: list[inp.Input] = []
        lane = state.worker_numbers.get("lane:bus")
        on_lane = sorted(state.workers[lane].tasks) if lane is not None else []
        for number in on_lane[: rng.randint(0, 3)]:
            attempt = state.tasks[number].attempt - (rng.random() < 0.1)
            asked += [inp.Taken(number, attempt, f"w{rng.randrange(5)}")] * rng.choice([1, 1, 2])
        if self.driver.running and rng.random() < 0.2:
            number = rng.choice(sorted(self.driver.running))
            asked.append(inp.Taken(number, self.driver.running[number].attempt, rng.choice(["w0", "lane:bus"])))
        return asked

    def lose(self) -> list[inp.Input]:
        worker = f"w{self.rng.randrange(4)}" if self.rng.random() < 0.9 else "lane:bus"
        number = self.driver.state.worker_numbers.get(worker)
        if number is not None:
            for task_number in self.driver.state.workers[number].tasks:
                self.driver.running.pop(task_number, None)
        return [inp.WorkerLost(worker, self.rng.random() < 0.4)]

    def some_run(self) -> tuple[str, str]:
        return self.rng.choice(self.known_runs[-30:]) if self.known_runs else ("acme", "nobody")

    def pause(self) -> list[inp.Input]:
        rng = self.rng
        tenant, run_id = self.some_run()
        scope = rng.choice(["run", "run", "run", "queue", "workflow", "tenant", "schedule"])
        name = {"run": run_id, "queue": "gpu", "workflow": "fan", "tenant": tenant, "schedule": "s0"}[scope]
        if scope == "queue" and self.driver.state.tick % 4 == 0:
            scope, tenant, name = "partition", "", str(self.driver.settings.partition)
        until = self.driver.now_ms + 2_000 if scope == "run" and rng.random() < 0.5 else None
        return [inp.Pause(BY, scope, tenant, name, "because", until)]

    def resume(self) -> list[inp.Input]:
        [paused] = self.pause()
        assert isinstance(paused, inp.Pause)
        if self.driver.state.gauge.paused:  # not for long: nothing else would happen
            return [inp.Resume(BY, "partition", "", str(self.driver.settings.partition))]
        if paused.scope == "run":
            runs = [run for run in self.driver.state.runs.values() if run.state == RunState.PAUSED]
            if runs:
                run = self.rng.choice(runs)
                return [inp.Resume(BY, "run", run.tenant.id, run.id)]
        return [inp.Resume(BY, paused.scope, paused.tenant, paused.name)]

    def cancel(self) -> list[inp.Input]:
        tenant, run_id = self.some_run()
        if self.people.random() < 0.4:
            return self.in_bulk(tenant, run_id)
        return [inp.Cancel(BY, tenant, run_id, "enough")]

    def in_bulk(self, tenant: str, run_id: str) -> list[inp.Input]:
        """A bulk job that begins, acts on this run, out of turn at times, or is cancelled."""
        people = self.people
        jobs = [job for job in self.driver.state.tenants[tenant].bulks.values() if not job.ended]
        if not jobs or people.random() < 0.2:
            job_id = f"bulk-{people.randrange(20)}"
            count = people.choice([0, 1, 2, 4])
            return [inp.StartBulk(BY, tenant, job_id, people.choice(["cancel", "pause", "no"]), "d", count, "{}", 10)]
        job = people.choice(jobs)
        place = inp.BulkPlace(job.id, job.position + people.choice([0, 0, 0, 0, 1, -1]), people.choice([1, 4, 5]))
        match people.randrange(5):
            case 0:
                return [inp.CancelBulk(BY, tenant, job.id, people.choice(["", "enough"]))]
            case 1:
                return [inp.SkipInBulk(tenant, run_id, people.choice(["gone", "illegal_move"]), "it is gone", place)]
            case 2:
                return [inp.Pause(BY, "run", tenant, run_id, "in bulk", bulk=place)]
            case 3:
                return [inp.Resume(BY, "run", tenant, run_id, bulk=place)]
            case _:
                return [inp.Cancel(BY, tenant, run_id, "in bulk", bulk=place)]

    def bring_back(self) -> list[inp.Input]:
        """Resolve, redrive or repeat a run that has left memory."""
        rng = self.rng
        ended = [
            (tenant, self.driver.records[run_id]) for tenant, run_id in self.known_runs if run_id in self.driver.records
        ]
        if not ended:
            return []
        tenant, record = rng.choice(ended[-25:])
        plan = self.driver.state.plans[record.definition]
        failed = [step.id for step in plan.steps if record.phases[step.index] == Phase.FAILED]
        if self.operators.random() < 0.1:
            dead = [r for t, r in ended[-25:] if t == tenant and r.state == RunState.FAILED]
            return [inp.DropDeadLetters(BY, tenant, "hopeless", list({r.run_id: r for r in dead[-2:]}.values()))]
        match rng.randrange(4):
            case 0:
                decisions = (
                    {node: rng.choice(["retry", "accept", "skip"]) for node in failed} if rng.random() < 0.6 else {}
                )
                values = {node: pack(1) for node, deed in decisions.items() if deed == "accept"}
                stay = bool(decisions) and self.people.random() < 0.4
                if stay:
                    decisions = {node: deed for node, deed in decisions.items() if self.people.random() < 0.6}
                    values = {node: value for node, value in values.items() if node in decisions}
                return [inp.Resolve(BY, tenant, record.run_id, "fixed", decisions, values, record, stay)]
            case 1:
                records = [r for t, r in ended[-25:] if t == tenant and r.state == RunState.FAILED]
                return [
                    inp.Redrive(
                        BY, tenant, "again", rng.choice([1, 5, 50]), list({r.run_id: r for r in records}.values())
                    )
                ]
            case _:
                self.names += 1
                node = rng.choice(["", plan.steps[0].id, plan.steps[-1].id])
                self.known_runs.append((tenant, f"again-{self.names}"))
                return [inp.Rerun(BY, tenant, f"again-{self.names}", record, node, from_start=self.names % 5 == 0)]

    def ingest(self) -> list[inp.Input]:
        rng = self.rng
        waiting = [run for run in self.driver.state.runs.values() if run.plan.name in ("waits", "function")]
        target = rng.choice(waiting).id if waiting and rng.random() < 0.7 else ""
        tenant = next((run.tenant.id for run in waiting if run.id == target), rng.choice(TENANTS))
        return [
            inp.Ingest(
                BY, tenant, rng.choice(["opened", "opened", "leave"]), "", target, rng.choice([None, pack({"n": 1})])
            )
        ]

    def update(self) -> list[inp.Input]:
        """To a function, mostly; under few keys, so that some are repeated."""
        rng = self.rng
        runs = [run for run in self.driver.state.runs.values() if run.plan.name == "function" or rng.random() < 0.1]
        if not runs:
            return []
        run, key = rng.choice(runs), f"u{rng.randrange(8)}"
        body = rng.choice(["x"] * 9 + ["y"])
        return [inp.SendUpdate(BY, run.tenant.id, run.id, "assign", key, body, rng.choice([None, pack({"n": 1})]))]

    def mailbox(self) -> list[inp.Input]:
        """Declared late and declared anew; small, so that it is often full, and short, so that messages expire."""
        rng = self.rng
        if rng.random() < 0.2:
            return [inp.RemoveMailbox(BY, rng.choice(TENANTS), "leave")]
        fields = rng.choice([b"{}", b"{}", b'{"n": {"type": "integer", "required": false}}', b"no"])
        return [
            inp.PutMailbox(BY, rng.choice(TENANTS), "leave", rng.choice([1_000, 30_000]), rng.choice([1, 2]), fields)
        ]

    def decide(self) -> list[inp.Input]:
        waiting = [
            item
            for item in self.driver.state.tasks.values()
            if item.step.kind is Kind.APPROVAL and isinstance(item.step.node, ApprovalNode)
        ]
        functions = [item for item in self.driver.state.tasks.values() if approval_of(item, "agree") is not None]
        if functions and (not waiting or self.rng.random() < 0.5):
            run = self.rng.choice(functions).run
            values = self.rng.choice([None, None, None, pack({"how": "all"})])
            return [inp.Decide("bob", run.tenant.id, run.id, "agree", self.rng.random() < 0.5, values=values)]
        if not waiting:
            return []
        item = self.rng.choice(waiting)
        by = self.rng.choice(["bob", "bob", BY])
        values = pack({"how": "all"} if self.rng.random() < 0.9 else {"how": "none"})
        return [
            inp.Decide(by, item.run.tenant.id, item.run.id, item.step.id, self.rng.random() < 0.7, "ok", values=values)
        ]

    def limit(self) -> list[inp.Input]:
        rng = self.rng
        return [
            rng.choice(
                [
                    inp.PutTenant(BY, rng.choice(TENANTS), rng.randint(1, 5), rng.choice([None, 0, 1, 9])),
                    inp.PutQueue(BY, "gpu", rng.choice([None, 1, 4]), rng.choice([None, 5, 50]), 1_000, 3),
                    inp.PutLabelLimit(BY, "gpu", "true", rng.choice([None, 1, 3])),
                ]
            )
        ]

    def schedule(self) -> list[inp.Input]:
        rng = self.rng
        tenant, name = rng.choice(TENANTS), f"s{rng.randrange(2)}"
        if rng.random() < 0.2:
            return [inp.RemoveSchedule(BY, tenant, name)]
        if rng.random() < 0.5:
            return [rng.choice(self.schedule_deeds(tenant, name))]
        when = rng.choice(
            [
                ScheduleSpec(cron="* * * * *"),
                ScheduleSpec(cron="*/7 * * * * *"),
                ScheduleSpec(every_ms=1_000),
                ScheduleSpec(every_ms=3_000),
                ScheduleSpec(),
                ScheduleSpec(cron="*/9 * * * * *", holidays=("feasts",)),
            ]
        )
        overlap, catch_up = rng.choice(OVERLAPS), rng.choice(CATCH_UPS)
        terms = SchedulePolicy(
            queue=rng.choice(["", "", "gpu"]), overlap=overlap, catch_up=catch_up,
            catch_up_ms=9_000 if catch_up in ("window", "spread") else 0, catch_up_cap=rng.choice([1, 3, 50]),
            grace_ms=rng.choice([0, 500, 60_000]), jitter=rng.random() < 0.3, pause_after=rng.choice([0, 0, 2]),
            priority=rng.choice([-1, 4]), runs_max=rng.choice([0, 0, 5]), group=rng.choice(["", "g"]),
            automatic_backfill=catch_up == "all" and rng.random() < 0.5,
        )  # fmt: skip
        governing = GovernorLimits(*rng.choice([(None, None), (2_000, 9_000)])) if rng.random() < 0.3 else None
        return [inp.PutSchedule(BY, tenant, name, rng.choice(["one", "fan"]), when, terms, governing=governing)]

    def some_backfill(self, tenant: str) -> tuple[str, str, int]:
        walks = [(BY, one.schedule.tenant.id, one.number) for one in self.driver.state.backfills.values()]
        return self.rng.choice([*walks, *walks, (BY, tenant, 7)])

    def some_governed(self, tenant: str, name: str) -> tuple[str, str, str]:
        found = [(BY, one.tenant.id, one.name) for one in self.driver.state.schedules.values() if one.governing]
        return self.rng.choice([*found, *found, (BY, tenant, name)])

    def schedule_deeds(self, tenant: str, name: str) -> list[inp.Input]:
        rng, now_ms = self.rng, self.driver.now_ms
        return [
            inp.Trigger(BY, tenant, name, rng.random() < 0.3, rng.choice(["", "", "t1", "t2"])),
            inp.Backfill(
                BY, tenant, name, now_ms - rng.choice([5_000, 60_000]), now_ms + rng.choice([-1_000, 9_000]),
                rng.choice([1, 5]), rng.choice([None, 2]), rng.random() < 0.5, rng.random() < 0.3,
            ),
            inp.SteerBackfill(
                *self.some_backfill(tenant), rng.choice(["pause", "pause", "resume", "resume", "cancel"])
            ),
            inp.Advise(
                *self.some_governed(tenant, name), rng.choice([None, 1_500]), rng.choice([None, now_ms + 700]), 4_000,
                "load",
            ),
            inp.Advise(*self.some_governed(tenant, name), clear=True),
            inp.Pause(BY, "schedule", tenant, name, "rest", rng.choice([None, now_ms + 5_000])),
            inp.Resume(BY, "schedule", tenant, name),
            inp.Pause(BY, "group", tenant, "g"),
            inp.Resume(BY, "group", tenant, "g"),
            inp.SteerSchedule(BY, tenant, name, rng.choice(["archive", "restore", "reset_failures"])),
            inp.ApplySchedules(BY, tenant, "app", [
                inp.PutSchedule(BY, tenant, f"a{number}", "one", ScheduleSpec(every_ms=2_000), owner="app")
                for number in range(rng.randrange(3))
            ]),
            inp.PutHolidays(BY, tenant, "feasts", rng.choice([("2027-01-15",), ("2027-01-16",), None])),
            inp.NewZones("2099z"),
            inp.ChooseCatchUp(BY, rng.choice(["all", "none", "coalesce"])),
            self.registration(tenant),
            self.registration(tenant),
            self.rollback(tenant),
        ]  # fmt: skip

    def registration(self, tenant: str) -> inp.Input:
        """A version of an application, new or known; some name a definition that nobody put."""
        rng, plans = self.rng, self.driver.state.tenants[tenant].plans
        name = f"b{rng.randrange(2)}"
        puts = [inp.PutSchedule(BY, tenant, name, "one", ScheduleSpec(every_ms=3_000), owner="shop")] * rng.randrange(2)
        plan = plans["one"].hash if "one" in plans and rng.random() < 0.9 else "none"
        return inp.RegisterVersion(
            BY, tenant, "shop", f"v{rng.randrange(30)}", {"one": plan}, puts, rng.random() < 0.2, carried=True
        )

    def rollback(self, tenant: str) -> inp.Input:
        known = self.driver.state.tenants[tenant].applications.get("shop", {})
        name = self.rng.choice([*sorted(known), "v99"])
        declared = known[name].declared if name in known else None
        puts = declared_puts(declared, BY) if declared is not None else []
        return inp.SetLatestVersion(BY, tenant, "shop", name, puts)

    def of_schedules(self) -> None:
        """Everything that can happen to schedules, in one fixed order: chance alone would take long to find it all."""
        driver, tenant = self.driver, "gold"
        driver.send(inp.PutTenant(BY, tenant), inp.PutDefinition(BY, tenant, DOCUMENTS["one"]))
        later = inp.SubmitOptions(delay_ms=5_000, debounce="quiet")
        driver.send(*(inp.Submit(BY, tenant, f"d{number}", "one", terms=later) for number in range(2)))
        driver.send(inp.PutHolidays(BY, tenant, "feasts", ("2027-12-24",)))

        def put(name: str, when: ScheduleSpec, **terms: Any) -> inp.PutSchedule:
            return inp.PutSchedule(BY, tenant, name, "one", when, SchedulePolicy(**terms))

        minutely, now_ms = ScheduleSpec(cron="* * * * *"), driver.now_ms
        driver.send(
            put("moved", ScheduleSpec(cron="0 0 * * *", holidays=("feasts",))), put("buffered", minutely,
            overlap="buffer_all"),
            put("late", minutely, catch_up="last", pause_after=1), put("walked", minutely),
            inp.PutSchedule(BY, tenant, "governed", "one", ScheduleSpec(every_ms=60_000), governing=GovernorLimits()),
            inp.ApplySchedules(
                BY, tenant, "app", [inp.PutSchedule(BY, tenant, "a", "one", ScheduleSpec(every_ms=2_000), owner="app")]
            ),
        )  # fmt: skip
        tomorrow = instant_text(now_ms + 86_400_000)[:10]
        driver.send(inp.PutHolidays(BY, tenant, "feasts", (tomorrow,)), inp.Trigger(BY, tenant, "walked"))
        driver.send(inp.Advise(BY, tenant, "governed", 2_000, ttl_ms=9_000), inp.NewZones("2099z"))
        driver.send(inp.SteerSchedule(BY, tenant, "walked", "reset_failures"), self.registration(tenant))
        driver.send(self.rollback(tenant), inp.Backfill(BY, tenant, "walked", now_ms - 300_000, now_ms))
        driver.quiet()
        (number,) = [one.number for one in driver.state.backfills.values() if one.schedule.tenant.id == tenant]
        driver.send(inp.SteerBackfill(BY, tenant, number, "pause"))
        driver.send(inp.SteerBackfill(BY, tenant, number, "resume"))
        for _ in range(30):
            driver.advance(5_000)
            driver.finish_all()
        driver.advance(130_000)
        driver.send(inp.Pause(BY, "schedule", tenant, "walked"), inp.RemoveSchedule(BY, tenant, "buffered"))
        driver.send(inp.Resume(BY, "schedule", tenant, "walked"), inp.ChooseCatchUp(BY, "all"))
        driver.send(at=driver.tick + 400_000)
        driver.quiet()

    def of_functions(self) -> None:
        """Likewise everything that can happen to durable functions."""
        driver, tenant = self.driver, "gold"
        driver.send(inp.PutDefinition(BY, tenant, DOCUMENTS["function"]), inp.Offer("w9", 100_000))
        driver.quiet()

        def begin(name: str) -> tuple[int, int]:
            driver.send(inp.Submit(BY, tenant, name, "function"))
            driver.quiet()
            return attempt_of(name)

        def attempt_of(name: str) -> tuple[int, int]:
            run = driver.state.tenants[tenant].runs.get(name)
            assert run is not None, f"{name} has ended"
            driver.running.pop(run.number, None)
            return run.number, driver.state.tasks[run.number].attempt

        failed = StepEntry(1, "pay", "d", error="Timeout", tries=1, retry=(1, 300, 900, 200))
        asleep = Await(2, "sleep", "", "d", 100)
        driver.send(inp.PutMailbox(BY, tenant, "mail", 1_000, 1))
        driver.send(*(inp.Ingest(BY, tenant, "mail") for _ in range(2)))
        driver.advance(1_000)
        driver.send(inp.RemoveMailbox(BY, tenant, "mail"))
        driver.send(inp.StepsRecorded(*begin("function-1"), (StepEntry(0, "book", "d"),)))
        driver.send(inp.Suspended(*attempt_of("function-1"), (failed,), (asleep, Await(3, "call", "one", "d"))))
        driver.advance(2_000)
        driver.send(inp.Continued(*attempt_of("function-1"), pack({"n": 2})))
        driver.quiet()
        driver.send(inp.StepsRecorded(*attempt_of("function-1"), (StepEntry(4, "book", "d"),)))
        driver.send(inp.Suspended(*attempt_of("function-1"), (), (Await(5, "event", "paid", "d"),)))
        driver.send(inp.Cancel(BY, tenant, "function-1", "enough"))
        driver.quiet()
        driver.send(inp.Failed(*attempt_of("function-1"), "Cancelled"))
        driver.quiet()

    def of_operators(self) -> None:
        """Likewise what operators delete and drop."""
        driver, tenant = self.driver, "gold"
        driver.send(inp.PutSettings(BY, {"loss_allowance": 4}))
        driver.send(inp.PutQueue(BY, "spare", 1), inp.RemoveQueue(BY, "spare"))
        denied = document("denied", task("a", policy=["spare"]))
        driver.send(inp.PutPolicy(BY, "spare", "false", "", "fail"), inp.PutDefinition(BY, tenant, denied))
        driver.send(inp.Submit(BY, tenant, "denied-1", "denied"))
        driver.quiet()
        driver.send(inp.RemoveWorkflow(BY, tenant, "denied"), inp.RemovePolicy(BY, "spare"))
        driver.send(inp.DropDeadLetters(BY, tenant, "hopeless", [driver.records["denied-1"]]))

    def of_tasks(self) -> None:
        """Likewise a task that is cancelled with its children, and one that is tried again at once."""
        driver, tenant = self.driver, "gold"
        driver.send(*(inp.PutDefinition(BY, tenant, DOCUMENTS[name]) for name in ("wide", "retry")))
        driver.send(inp.PutQueue(BY, "gpu"), inp.Offer("w8", 9, ("gpu",)))
        driver.send(inp.Submit(BY, tenant, "wide-1", "wide", pack({"items": [1]})))
        driver.send(inp.Submit(BY, tenant, "retry-1", "retry"))
        driver.quiet()
        runs = driver.state.tenants[tenant].runs
        wide, again = runs.get("wide-1"), runs.get("retry-1")
        assert wide is not None and again is not None
        driver.send(inp.CancelTask(BY, tenant, wide.number, "enough"))
        driver.send(inp.Failed(again.number, driver.running.pop(again.number).attempt, "Timeout"))
        driver.send(inp.RetryTask(BY, tenant, again.number, "at once"))
        driver.send(inp.StartBulk(BY, tenant, "bulk", "pause", "d", 3, "{}", 10))
        driver.send(inp.Pause(BY, "run", tenant, again.id, "in bulk", bulk=inp.BulkPlace("bulk", 0, 1)))
        driver.send(inp.Resume(BY, "run", tenant, again.id))
        driver.send(inp.SkipInBulk(tenant, "none", "gone", "it is gone", inp.BulkPlace("bulk", 1, 1)))
        driver.send(inp.CancelBulk(BY, tenant, "bulk", "enough"))
        driver.quiet()
        driver.finish_all()

    def of_updates(self) -> None:
        """Likewise schedules that events and the ends of runs fire, one of which is edited while updates wait."""
        driver, tenant = self.driver, "gold"
        driver.send(*(inp.PutDefinition(BY, tenant, DOCUMENTS[name]) for name in ("one", "wide")))
        order, paid = UpdateSource(event="order", where="event.n > 1"), UpdateSource(event="paid", key="k")
        both = TriggerSpec(sources=(order, paid), groups=((0, 1),), coalesce=True)
        ends = TriggerSpec(sources=(UpdateSource(ended="wide", state="any"),), groups=((0,),))
        waiting = SchedulePolicy(overlap="buffer_one")
        driver.send(
            inp.PutSchedule(BY, tenant, "both", "one", ScheduleSpec(on=both), waiting),
            inp.PutSchedule(BY, tenant, "ends", "one", ScheduleSpec(cron="0 6 * * *", on=ends)),
        )
        for number in range(3):
            event = inp.Ingest(BY, tenant, "order", payload=pack({"n": 2}), id=f"order-{number}")
            driver.send(event, event, inp.Ingest(BY, tenant, "paid", "k"))
        driver.send(inp.Submit(BY, tenant, "wide-2", "wide", pack({"items": [1]})))
        driver.send(inp.Ingest(BY, tenant, "order", payload=pack({"n": 9})))
        driver.send(inp.Cancel(BY, tenant, "wide-2", "enough"))
        driver.quiet()
        data = TriggerSpec(sources=(UpdateSource(asset="data"),), groups=((0,),), coalesce=True)
        driver.send(inp.PutSchedule(BY, tenant, "data", "one", ScheduleSpec(on=data)))
        for number in range(2):
            driver.send(inp.UpdateAsset(BY, tenant, "data", f"part-{number}", pack({"rows": 7}), f"data-{number}"))
        driver.send(inp.PutSchedule(BY, tenant, "both", "one", ScheduleSpec(on=ends), waiting))
        driver.send(inp.RemoveSchedule(BY, tenant, "ends"))
        driver.finish_all()

    def of_teardowns(self) -> None:
        """Likewise a run that is cancelled while a child run of it has something to tear down."""
        driver, tenant = self.driver, "gold"
        driver.send(*(inp.PutDefinition(BY, tenant, DOCUMENTS[name]) for name in ("one", "cluster", "clusters")))
        driver.send(inp.Submit(BY, tenant, "clusters-1", "clusters", pack({"items": [1]})))
        driver.quiet()
        child = next(run for run in driver.state.tenants[tenant].runs.values() if run.id.startswith("clusters-1.cs"))
        driver.send(inp.Succeeded(child.number, driver.running.pop(child.number).attempt))
        driver.quiet()
        driver.send(inp.Cancel(BY, tenant, "clusters-1", "enough"))
        driver.quiet()
        driver.finish_all()

    def redefine(self) -> list[inp.Input]:
        return [inp.PutDefinition(BY, self.rng.choice(TENANTS), self.rng.choice([NEW_FAN, DOCUMENTS["fan"]]))]

    def stale(self) -> list[inp.Input]:
        """Reports about attempts that are not current: of tasks that run, that ended, that never were."""
        rng, running = self.rng, self.driver.running
        if running and rng.random() < 0.5:
            number = rng.choice(sorted(running))
            if rng.random() < 0.3:  # of a worker that does not hold it
                current, other = running[number].attempt, "stranger"
                forged = [inp.Succeeded(number, current, None, other), inp.Failed(number, current, "X", sender=other)]
                return [
                    rng.choice([*forged, inp.Started(number, current, other), inp.HandedBack(number, current, other)])
                ]
            attempt = running[number].attempt + rng.choice([-1, 1])
            return [rng.choice([inp.Succeeded(number, attempt), inp.Failed(number, attempt, "X")])]
        number = rng.randrange(max(1, self.driver.state.next_number))
        return [rng.choice([inp.Succeeded(number, 99), inp.Failed(number, 0, "X"), inp.CacheAnswered(number, True)])]

    def hostile(self) -> list[inp.Input]:
        return [
            self.rng.choice(
                [
                    inp.Submit(BY, "nobody", "x", "one"),
                    inp.Submit(BY, "acme", "../x", "one"),
                    inp.Submit(BY, "acme", "big", "one", b"\xc5" + b"\0" * 2_000),
                    inp.PutDefinition(BY, "acme", b'{"name": "x", "nodes": []}'),
                    inp.PutDefinition(BY, "acme", document("q", task("a", queue="nowhere"))),
                    inp.Offer("w9", -1),
                    inp.Pause(BY, "moon", "acme", "x"),
                    inp.Redrive(BY, "acme", "x", 0),
                    inp.WorkerLost("w77"),
                ]
            )
        ]

    def gap(self) -> list[inp.Input]:
        gap = inp.ClockGap(self.driver.now_ms, self.driver.now_ms + 60_000, "suspended")
        return [gap, inp.HoldTimers(True, "ahead of real time"), inp.HoldTimers(False)]


class ScheduleHistory(History):
    """Mostly schedules, in zones, with stops of hours and days."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, zones=load_zones(), **settings)
        self.deeds = [(3, self.submit), (30, self.report), (2, self.lose), (4, self.offer), (30, self.schedule),
                      (3, self.bring_back), (2, self.limit), (2, self.gap)]  # fmt: skip

    def pass_time(self) -> None:
        self.driver.tick += self.rng.choice([0, 0, 1, 40, 1_500, 9_000, 61_000, 3_600_000, 90_000_000])

    def schedule(self) -> list[inp.Input]:
        [asked] = super().schedule()
        if isinstance(asked, inp.PutSchedule) and asked.when != ScheduleSpec() and self.rng.random() < 0.7:
            when = self.rng.choice([
                ScheduleSpec(cron="30 2 * * *", zone="America/New_York"), ScheduleSpec(cron="0 * * * *",
                zone="Australia/Lord_Howe"),
                ScheduleSpec(cron="*/30 * * * *", zone="Asia/Kathmandu"), ScheduleSpec(every_ms=3_600_000),
                ScheduleSpec(every_ms=90_000),
                ScheduleSpec(rrule="FREQ=HOURLY;INTERVAL=5", zone="Europe/Berlin"),
                ScheduleSpec(at_ms=self.driver.now_ms + 70_000),
                ScheduleSpec(cron="*/5 * * * *", holidays=("feasts",)),
                ScheduleSpec(cron="*/7 * * * *", end_ms=self.driver.now_ms + 7_200_000),
            ])  # fmt: skip
            governing = asked.governing if when.cron or when.every_ms else None
            return [msgspec.structs.replace(asked, when=when, governing=governing)]
        return [asked]
