"""What users do in a simulated run: workflows of every kind, handlers for them, and a client that asks for all of it.

The client learns only from answers, as a real one: it repeats what got none under the same key, and what it was
promised it holds against the cluster.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from sim.asgi import HttpClient
from sim.cluster import ClientSeat
from sim.executor import Handler
from sim.report import Violation
from tickwork.cluster.placement import home_of, partition_of_run
from tickwork.ports.store import InboxRow, Route
from tickwork.protocol.http_models import Signal, Submission
from tickwork.protocol.task_commands import GiveEvent, StartRun, encode_commands
from tickwork.protocol.worker_messages import AttemptJob
from tickwork.testing.seeded_random import Chance

TENANT = "default"
OVER = ("completed", "failed", "cancelled")
LARGE = "x" * 20_000  # more than fits into the journal
DAY_MS = 86_400_000
LOOK_S = 5.0
# An owner that stood still while another one took over answers reads from its memory until it notices. Only a lease
# that it must hold to answer ends that; until there is one, a read that finds nothing is asked again.
STALE_READS = 2

_RETRY = {"attempts": 20, "delay_ms": 100, "delay_ms_max": 5_000}
_TIMEOUT = {"running_ms": 120_000}


def _task(node: str, handler: str = "quick", **fields: Any) -> dict[str, Any]:
    return {"kind": "task", "id": node, "handler": handler, "retry": _RETRY, "timeout": _TIMEOUT, **fields}


def _workflow(name: str, *nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "format": 1, "nodes": list(nodes), **fields}


def _from(source: str) -> dict[str, str]:
    return {"from": source}


DOCUMENTS: tuple[dict[str, Any], ...] = (
    _workflow("single", _task("one")),
    _workflow("chain", *(_task(f"n{i}", "add", args={"value": _from(f"nodes.n{i - 1}") if i else {"value": 0}},
                               needs=[f"n{i - 1}"] if i else []) for i in range(4)), output="nodes.n3"),
    _workflow("fan", _task("source", "large"),
              *(_task(f"part{i}", "size", needs=["source"], args={"value": _from("nodes.source")}) for i in range(3)),
              _task("join", "total", needs=["part0", "part1", "part2"],
                    args={f"v{i}": _from(f"nodes.part{i}") for i in range(3)}), output="nodes.join"),
    _workflow("mapped", _task("source", "numbers", args={"count": _from("inputs.count")}),
              {"kind": "map", "id": "each", "needs": ["source"], "over": "nodes.source", "max_parallel": 3,
               "body": {"kind": "task", "handler": "flaky", "args": {"value": _from("item")}, "retry": _RETRY,
                        "timeout": _TIMEOUT}},
              _task("sum", "sum", needs=["each"], args={"values": _from("nodes.each")}),
              inputs={"count": {"type": "integer"}}, output="nodes.sum"),
    _workflow("retried", _task("shaky", "flaky", args={"value": {"value": 7}})),
    _workflow("poison", _task("bad", "poison", retry={"attempts": 3, "delay_ms": 200}),
              _task("never", needs=["bad"]), _task("cleanup", needs=["bad"], trigger="any_failed")),
    _workflow("minutes", _task("before"), {"kind": "wait", "id": "nap", "needs": ["before"], "duration_ms": 150_000},
              _task("after", needs=["nap"])),
    _workflow("days", _task("before"), {"kind": "wait", "id": "sleep", "needs": ["before"], "duration_ms": 3 * DAY_MS},
              _task("after", needs=["sleep"])),
    _workflow("parent", {"kind": "workflow", "id": "inner", "workflow": "chain"},
              {"kind": "workflow", "id": "copy", "workflow": "echo", "args": {"text": _from("inputs.text")},
               "needs": ["inner"]}, inputs={"text": {"type": "string"}}, output="nodes.copy"),
    _workflow("echo", _task("say", "echo", args={"text": _from("inputs.text")}), inputs={"text": {"type": "string"}},
              output="nodes.say"),
    _workflow("cached", _task("look", "large", cache={"ttl_ms": 3_600_000}, handler_version="1"),
              _task("use", "size", needs=["look"], args={"value": _from("nodes.look")})),
    _workflow("saving", _task("long", "saver")),
    _workflow("starting", _task("begin", "starter")),
    _workflow("approved", _task("build"), {"kind": "approval", "id": "release", "needs": ["build"]},
              _task("ship", needs=["release"])),
    _workflow("paid", {"kind": "event", "id": "payment", "event": "paid", "key": "inputs.order"},
              _task("send", needs=["payment"]), inputs={"order": {"type": "string"}}),
    _workflow("raced", _task("quickly"), {"kind": "wait", "id": "slowly", "duration_ms": 150_000},
              {"kind": "first", "id": "winner", "of": ["quickly", "slowly"], "needs": ["quickly", "slowly"]},
              _task("early", needs=["quickly", "slowly"], trigger="any_succeeded"), _task("end", needs=["winner"])),
    _workflow("sized", _task("source", "numbers", args={"count": _from("inputs.count")}),
              {"kind": "map", "id": "each", "needs": ["source"], "over": "nodes.source",
               "max_parallel_from": "inputs.most",
               "body": {"kind": "task", "handler": "flaky", "args": {"value": _from("item")}, "retry": _RETRY,
                        "timeout": _TIMEOUT, "queue_from": "inputs.queue"}},
              _task("sum", "sum", needs=["each"], args={"values": _from("nodes.each")}),
              inputs={"count": {"type": "integer"}, "most": {"type": "integer"}, "queue": {"type": "string"}},
              output="nodes.sum"),
    _workflow("looped", {"kind": "repeat", "id": "again", "until": "last >= 3", "max_iterations": 9,
                         "body": {"kind": "task", "handler": "add", "retry": _RETRY, "timeout": _TIMEOUT,
                                  "args": {"value": _from("iteration")}}}),
)  # fmt: skip


def _poison() -> None:
    raise ValueError("this input kills every handler")


def _started(work: AttemptJob) -> bytes:
    """Two runs, one under a key, which lives at home; and an event that nobody waits for."""
    return encode_commands([
        StartRun(Submission(workflow="single", key=f"after {work.run_id}")),
        StartRun(Submission(workflow="echo", inputs={"text": LARGE})),
        GiveEvent(Signal(event="paid", key="of nobody")),
    ])  # fmt: skip


class ForeignResult(Exception):
    """What a task of another store ends with: no store of ours may ever have it."""


def _foreign() -> None:
    raise ForeignResult


HANDLERS: dict[str, Handler | Callable[..., Any]] = {
    "quick": Handler(ms=(1, 300)),
    "add": Handler(ms=(1, 100), body=lambda value: value + 1),
    "large": Handler(ms=(1, 100), body=lambda: LARGE),
    "size": Handler(ms=(1, 2_000), body=lambda value: len(value)),
    "total": Handler(ms=(1, 100), body=lambda v0, v1, v2: v0 + v1 + v2),
    "numbers": Handler(ms=(1, 100), body=lambda count: list(range(count))),
    "flaky": Handler(ms=(1, 1_000), body=lambda value: value, fails=0.2),
    "sum": Handler(ms=(1, 100), body=lambda values: sum(values)),
    "poison": Handler(ms=(1, 50), body=_poison),
    "echo": Handler(ms=(1, 100), body=lambda text: text),
    "starter": Handler(ms=(1, 300), fails=0.1, commands=_started),
    "saver": Handler(ms=(200, 4_000), saves=4),
    "foreign": Handler(ms=(1_000, 15_000), body=_foreign),
}


# name -> how often it is drawn, its inputs, and what it must answer where it completes
KINDS: dict[str, tuple[int, Callable[[int], dict[str, Any]], Callable[[int], Any]]] = {
    "single": (4, lambda _: {}, lambda _: None),
    "chain": (4, lambda _: {}, lambda _: 4),
    "fan": (3, lambda _: {}, lambda _: 3 * len(LARGE)),
    "mapped": (3, lambda n: {"count": n % 8}, lambda n: sum(range(n % 8))),
    "retried": (2, lambda _: {}, lambda _: 7),
    "poison": (1, lambda _: {}, lambda _: None),
    "minutes": (1, lambda _: {}, lambda _: None),
    "days": (1, lambda _: {}, lambda _: None),
    "parent": (2, lambda n: {"text": f"{n}" + LARGE * (n % 2)}, lambda n: f"{n}" + LARGE * (n % 2)),
    "cached": (3, lambda _: {}, lambda _: len(LARGE)),
    "starting": (0, lambda _: {}, lambda _: None),  # drawn where a test says so
    "saving": (2, lambda _: {}, lambda _: None),
    "approved": (2, lambda _: {}, lambda _: None),
    "paid": (2, lambda n: {"order": f"order-{n}"}, lambda _: None),
    "raced": (2, lambda _: {}, lambda _: None),
    "sized": (2, lambda n: {"count": n % 8, "most": 1 + n % 3, "queue": "default"}, lambda n: sum(range(n % 8))),
    "looped": (2, lambda _: {}, lambda _: 3),
}
DRAWN = [name for name, (weight, _, _) in KINDS.items() for _ in range(weight)]


class Client:
    """`main` ends when everything was asked for and everything it wanted to see through has happened."""

    def __init__(self, seat: ClientSeat) -> None:
        self._seat = seat
        self._host, self._loop = seat.host, seat.cluster.world.loop
        self._chance = seat.host.chance.stream("workload")
        self._http = HttpClient(seat.cluster.net, seat.host, seat.nodes)
        self._promised: dict[str, tuple[str, int]] = {}  # run -> workflow, number
        self._more: list[asyncio.Task[None]] = []

    async def main(self) -> None:
        options = self._seat.cluster.options
        await self._publish()
        spreads = self._seat.cluster.world.faults.spreads
        if spreads and options.partitions > 1:
            count = max(1, spreads * options.safety_s // 3600)
            self._more += [self._loop.create_task(self._spread_beside_publish(number)) for number in range(count)]
        if options.enqueues:
            self._more.append(self._loop.create_task(self._enqueue(options.enqueues)))
        gap_ms = options.safety_s * 800 // options.tasks
        for number in range(options.tasks):
            await self._submit(number)
            await asyncio.sleep(self._chance.below(2 * gap_ms) / 1000)
        for task in self._more:
            await task
        await self._deed("remove_schedule", name="often")
        await self._compare()

    async def _publish(self) -> None:
        schedule = {"workflow": "single", "every": "90s"}
        answer = await self._http.ask(
            "PUT", "/v1/workflows", {"documents": DOCUMENTS, "schedules": {"often": schedule}}
        )
        if answer.status != 200:
            self._wrong(f"publishing is answered with {answer.status} {answer.body.decode()}")

    async def _spread_beside_publish(self, number: int) -> None:
        """At the same moment and at different nodes. Whoever is told that a workflow is published may submit it
        anywhere, and every run that was accepted is there."""
        cluster = self._seat.cluster
        chance = self._host.chance.stream(f"spreads/{number}")
        await asyncio.sleep(chance.below(cluster.options.safety_s * 800) / 1000)
        cluster.world.fault(self._host.name, "spreads")
        name = f"late{number}"
        wider = self._loop.create_task(self._spread(chance))
        await asyncio.sleep(chance.below(200) / 1000)
        document = _workflow(name, _task("one"))
        answer = await self._other().ask("PUT", "/v1/workflows", {"documents": [document]})
        if answer.status != 200:
            self._wrong(f"publishing {name} is answered with {answer.status} {answer.body.decode()}")
        for place in range(2 * cluster.options.partitions):
            run = f"{self._host.name}-{name}-{place}"
            body = {"workflow": name, "inputs": {}} | ({"id": run} if place % 2 else {})
            self._seat.asks()
            answer = await self._other().ask("POST", "/v1/runs", body)
            if answer.status not in (200, 201):
                self._wrong(f"submitting {name} is answered with {answer.status} {answer.body.decode()}")
            else:
                self._seat.accepted(TENANT, answer.json()["id"])
        await wider

    async def _spread(self, chance: Chance) -> None:
        cluster = self._seat.cluster
        while (now := cluster.disk.routes[TENANT].spread) < cluster.options.partitions:
            answer = await self._other().ask("PUT", "/v1/cluster/spread", {"spread": now + 1})
            if answer.status == 204:
                return
            if answer.status not in (400, 409, 422):  # somebody else spread it meanwhile
                self._wrong(f"spreading is answered with {answer.status} {answer.body.decode()}")
                return
            await asyncio.sleep(chance.below(1_000) / 1000)

    def _other(self) -> HttpClient:
        """Of another node than the one before, perhaps."""
        return HttpClient(self._seat.cluster.net, self._host, self._seat.nodes)

    async def _enqueue(self, count: int) -> None:
        """Transactions of an application put runs into the store, whether or not a node lives."""
        cluster, chance = self._seat.cluster, self._host.chance.stream("enqueues")
        for number in range(count):
            await asyncio.sleep(chance.below(2 * cluster.options.safety_s * 800 // count) / 1000)
            route = cluster.disk.routes.get(TENANT) or Route(TENANT, home_of(TENANT, cluster.options.partitions))
            for part in range(chance.between(1, 4)):  # in one transaction
                workflow = chance.pick(("single", "chain", "retried"))
                run, key = f"{self._host.name}-sql-{number}-{part}", chance.happens(0.5)
                submission = Submission(workflow=workflow, id=run, key=f"key of {run}" if key else "")
                place = route.home if key else partition_of_run(route, run, cluster.options.partitions)
                row = InboxRow(run, place, TENANT, msgspec.json.encode(submission), "sql:app")
                self._seat.asks()
                cluster.disk.inbox[place].setdefault(run, row)
                self._seat.accepted(TENANT, run)
                self._promised[run] = (workflow, 0)

    def _is_in_inbox(self, run: str) -> bool:
        return any(run in rows for rows in self._seat.cluster.disk.inbox.values())

    async def _submit(self, number: int) -> None:
        workflow = self._chance.pick(DRAWN)
        body: dict[str, Any] = {"workflow": workflow, "inputs": KINDS[workflow][1](number)}
        name = f"{self._host.name}-{number:04}"
        body["id" if self._chance.happens(0.3) else "key"] = name
        if self._chance.happens(0.1):
            body["delay_ms"] = self._chance.between(1_000, 60_000)
        self._seat.asks()
        answer = await self._http.ask("POST", "/v1/runs", body)
        if answer.status not in (200, 201):
            self._wrong(f"submitting {name} is answered with {answer.status} {answer.body.decode()}")
            return
        run = answer.json()["id"]
        self._seat.accepted(TENANT, run)
        self._promised[run] = (workflow, number)
        for more in self._plans(run, workflow, number, body):
            self._more.append(self._loop.create_task(more))

    def _plans(self, run: str, workflow: str, number: int, body: dict[str, Any]) -> list[Coroutine[Any, Any, None]]:
        """What else becomes of a run that was accepted."""
        chance, plans = self._chance, []
        if workflow == "approved" and chance.happens(0.8):
            plans.append(self._approve(run, chance.happens(0.8)))
        if workflow == "paid" and chance.happens(0.8):
            plans.append(self._pay(run, f"order-{number}"))
        if workflow == "poison" and chance.happens(0.5):
            plans.append(self._retry(run))
        if chance.happens(0.15):
            plans.append(self._again(run, body))
        if chance.happens(0.1):
            plans.append(self._cancel(run))
        elif chance.happens(0.1):
            plans.append(self._hold(run))
        return plans

    # ---- what may be done with a run

    async def _again(self, run: str, body: dict[str, Any]) -> None:
        """The same key, sooner or later: the same run."""
        await self._a_while(90)
        answer = await self._http.ask("POST", "/v1/runs", body)
        if answer.status != 200 or answer.json()["id"] != run:
            self._wrong(f"{run} was submitted again, and the answer is {answer.status} {answer.body.decode()}")

    async def _cancel(self, run: str) -> None:
        await self._a_while(60)
        await self._tell(run, "cancel", {"reason": "drawn"})

    async def _hold(self, run: str) -> None:
        await self._a_while(20)
        await self._tell(run, "pause", {"reason": "drawn"})
        await self._a_while(90)
        await self._tell(run, "resume")

    async def _retry(self, run: str) -> None:
        while (await self._state(run))["state"] not in OVER:
            await asyncio.sleep(LOOK_S)
        await self._tell(run, "retry", {"reason": "drawn"})

    async def _approve(self, run: str, approve: bool) -> None:
        await self._a_while(90)
        while (found := await self._state(run))["state"] not in OVER:
            node = next((task for task in found["tasks"] if task["node"] == "release"), None)
            if node is not None and node["state"] == "waiting":
                await self._tell(run, "approvals/release", {"approve": approve})
            elif node is not None and node["state"] in ("succeeded", "failed"):
                return
            await asyncio.sleep(LOOK_S)

    async def _pay(self, run: str, order: str) -> None:
        await self._a_while(90)
        while (found := await self._state(run))["state"] not in OVER:
            node = next((task for task in found["tasks"] if task["node"] == "payment"), None)
            if node is not None and node["state"] == "waiting":
                await self._deed("signal", event="paid", key=order, payload={"cents": 100})
            elif node is not None and node["state"] == "succeeded":
                return
            await asyncio.sleep(LOOK_S)

    async def _tell(self, run: str, what: str, body: dict[str, Any] | None = None) -> None:
        """It may have ended meanwhile, or have been told before without an answer; unknown it must not be."""
        unknown = self._http.unknown
        answer = await self._http.ask("POST", f"/v1/runs/{run}/{what}", body)
        if answer.status == 404 and (self._http.unknown > unknown or (await self._state(run))["state"] in OVER):
            return  # an approval wants an unfinished run, a retry a failed one; others are unknown to them
        if answer.status not in (204, 409):
            self._wrong(f"{what} of {run} is answered with {answer.status} {answer.body.decode()}")

    async def _state(self, run: str) -> dict[str, Any]:
        while self._is_in_inbox(run):
            await asyncio.sleep(LOOK_S)
        answer = await self._http.ask("GET", f"/v1/runs/{run}")
        for _ in range(STALE_READS):
            if answer.status == 404:
                await asyncio.sleep(LOOK_S)
                answer = await self._http.ask("GET", f"/v1/runs/{run}")
        if answer.status != 200:
            self._wrong(
                f"{run} was accepted, and asking for it is answered with {answer.status} {answer.body.decode()}"
            )
            return {"state": "failed", "tasks": []}
        found: dict[str, Any] = answer.json()
        return {"tasks": [], **found}

    async def _deed(self, deed: str, **fields: Any) -> None:
        if deed == "signal":
            answer = await self._http.ask("POST", "/v1/events", fields)
        else:
            answer = await self._http.ask("DELETE", f"/v1/schedules/{fields['name']}")
        if answer.status not in (200, 204, 404):
            self._wrong(f"{deed} is answered with {answer.status} {answer.body.decode()}")

    async def _compare(self) -> None:
        """Runs that completed have the output that their workflow makes."""
        for run, (workflow, number) in self._promised.items():
            found = await self._state(run)
            wanted = KINDS[workflow][2](number)
            if found["state"] != "completed" or wanted is None:
                continue
            output = (await self._http.ask("GET", f"/v1/runs/{run}/output")).json()
            if output != wanted:
                self._wrong(f"{run} of {workflow} has the output {str(output)[:80]}, not {str(wanted)[:80]}")

    async def _a_while(self, seconds_max: int) -> None:
        await asyncio.sleep(self._chance.below(seconds_max * 1000) / 1000)

    def _wrong(self, text: str) -> None:
        at = self._seat.cluster.world.note(self._host.name, "is told wrong", text)
        self._seat.cluster.violations.append(Violation("ANSWER", text, at))
