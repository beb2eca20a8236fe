"""The smallest node, worker and client that can live in the simulated world: one partition, whole journal in memory.

They stand where runtime, agent and client stand later, with just enough of them to put the kernel under load.
`SmallNode` has its safeguards as attributes, so that tests can take one away and see the checkers find it.
"""

import asyncio
import json
from dataclasses import replace

from sim.cluster import Alive, ClientSeat, Cluster, NodeSeat, Options, Programs, WorkerSeat
from sim.executor import Handler, SimExecutor
from sim.hosts import ORIGIN_MS
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.base.values import pack
from tickwork.core.machine import Machine
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.events import RunSubmitted
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.journal.record import GENESIS, unseal
from tickwork.journal.replay import Recorder, fold
from tickwork.ports.store import Fenced, OutcomeUnknown
from tickwork.protocol.http_models import Owners
from tickwork.protocol.worker_messages import AttemptJob, Call, NodeSpec, Reply, Succeeded, WorkerProfile

SETTINGS = Settings(clock=LogicalClock(origin_ms=ORIGIN_MS - 86_400_000))
TENANT, WORKFLOW = "acme", "pair"
LOST_S, CLOSED_S, STANDBY_S, BEAT_S = 25.0, 3.0, 15.0, 5.0
DOCUMENT = json.dumps({
    "name": WORKFLOW,
    "nodes": [
        {"kind": "task", "id": "first", "handler": "first", "retry": {"attempts": 20, "delay_ms": 100},
         "timeout": {"running_ms": 120_000}},
        {"kind": "task", "id": "second", "handler": "second", "needs": ["first"],
         "retry": {"attempts": 20, "delay_ms": 100}, "timeout": {"running_ms": 120_000}},
    ],
}).encode()  # fmt: skip
SETUP = [inp.PutTenant("op", TENANT), inp.PutQueue("op", "default"), inp.PutDefinition("op", TENANT, DOCUMENT)]


class SmallNode:
    answers_early = False  # True: clients are told before the tick is durable

    def __init__(self, seat: NodeSeat) -> None:
        self.seat, self.store, self.clock = seat, seat.store, seat.host.clock
        self.machine: Machine | None = None
        self.seq = self.epoch = 0
        self.inbox: list[tuple[inp.Input, asyncio.Future]] = []
        self.peers: dict[str, str] = {}
        self.heard: dict[str, float] = {}
        self.wake, self.moved = asyncio.Event(), asyncio.Event()
        seat.show = self.show

    def show(self) -> list[Alive]:
        return [] if self.machine is None else [Alive(0, self.recorder.seq, SETTINGS, self.machine.state)]

    async def main(self) -> None:
        await self._patiently(self.store.open)
        self.seat.serve(self)
        self.seat.cluster.net.listen(self.seat.host, self, port="api")
        while True:
            await self._stand_by()
            try:
                await self._own()
            except Fenced:
                self.seat.cluster.world.note(self.seat.host.name, "is fenced")
            self._drop()

    async def _patiently(self, deed, *args, **fields):
        while True:
            try:
                return await deed(*args, **fields)
            except Unavailable as error:
                await asyncio.sleep(error.retry_after_ms / 1000)

    async def _stand_by(self) -> None:
        """Until the head has not moved for a while."""
        seen, since = None, 0.0
        loop = asyncio.get_running_loop()
        while seen is None or loop.time() - since < STANDBY_S:
            head = await self._patiently(self.store.read_head, 0)
            if (head.epoch, head.seq) != seen:
                seen, since = (head.epoch, head.seq), loop.time()
            if seen == (0, 0):
                return
            await asyncio.sleep(1)

    async def _own(self) -> None:
        head = await self._patiently(self.store.claim, 0, owner=self.seat.host.name, settings=b"")
        rows = await self._patiently(self.store.journal, 0, after=0, limit=1_000_000)
        machine = Machine(settings=SETTINGS)
        last = fold(rows, machine)
        self.epoch, self.seq = head.epoch, head.seq
        assert len(rows) == head.seq or (await self._patiently(self.store.read_head, 0)).epoch != head.epoch
        self.recorder = Recorder(seq=len(rows), head=last)
        self.seq = len(rows)
        self.known = _known(rows)
        self.heard = {worker.id: self._now() for worker in machine.state.workers.values()}
        self.machine = machine
        if not rows:
            self.inbox = [(item, asyncio.get_running_loop().create_future()) for item in SETUP]
        while True:
            await self._tick()
            await self._pause()

    def _now(self) -> float:
        return self.clock.mono_ms() / 1000

    def _drop(self) -> None:
        self.machine = None
        for _, future in self.inbox:
            if not future.done():
                future.set_exception(Unavailable("not the owner", retry_after_ms=100))
                future.exception()
        self.inbox, self.peers = [], {}
        self.moved.set()
        self.moved.clear()

    async def _pause(self) -> None:
        """Until somebody asks, a timer is due, or it is time to show that we live."""
        state, due = self.machine.state, self.machine.next_tick()
        wait_s = BEAT_S if due is None else (SETTINGS.clock.ms_of(due) - self.clock.wall_ms()) / 1000
        if not self.inbox:
            self.wake.clear()
            try:
                async with asyncio.timeout(min(max(wait_s, 0.001), BEAT_S)):
                    await self.wake.wait()
            except TimeoutError:
                pass
        assert state is self.machine.state

    def _lost(self) -> list[inp.Input]:
        gone = [name for name, at in sorted(self.heard.items()) if self._now() - at > LOST_S]
        for name in gone:
            del self.heard[name]
        return [inp.WorkerLost(name) for name in gone]

    async def _tick(self) -> None:
        machine, taken = self.machine, self.inbox
        self.inbox = []
        asked = [item for item, _ in taken] + self._lost()
        tick = max(machine.state.tick + 1, self.clock.wall_ms() - SETTINGS.clock.origin_ms)
        outcome = machine.apply(tick, asked)
        assert outcome.taken == len(asked), "small loads only"
        row = self.recorder.row(tick, asked, outcome.events)
        try:
            await self._commit(row)
        except Fenced:
            self.inbox += taken  # `_drop` tells them
            raise
        self.seq = row.seq
        answers = {effect.input: effect for effect in outcome.effects if isinstance(effect, CommandResult)}
        for event in outcome.events:
            if isinstance(event, RunSubmitted):
                self.known[asked[event.input].run_id] = None
        for place, (_, future) in enumerate(taken):
            if not future.done():
                future.set_result(answers.get(place))
        self.moved.set()
        self.moved.clear()

    async def _commit(self, row) -> None:
        while True:
            try:
                return await self.store.commit(0, row, (), epoch=self.epoch)
            except OutcomeUnknown:
                head = await self._patiently(self.store.read_head, 0)
                if head.epoch != self.epoch:
                    raise Fenced("another owner") from None
                if head.seq == row.seq:
                    return None
            except Unavailable as error:
                await asyncio.sleep(error.retry_after_ms / 1000)

    async def _ask(self, *asked: inp.Input) -> list[CommandResult | None]:
        if self.machine is None:
            raise Unavailable("not the owner", retry_after_ms=100)
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in asked]
        self.inbox += zip(asked, futures, strict=True)
        self.wake.set()
        return [await future for future in futures]

    # ---- clients

    async def serve(self, request: bytes, peer: str) -> bytes:
        run_id = request.decode()
        if self.machine is None:
            raise Unavailable("not the owner", retry_after_ms=100)
        if run_id not in self.known:
            asked = inp.Submit("client", TENANT, run_id, WORKFLOW, pack({}))
            if self.answers_early:
                self.inbox.append((asked, asyncio.get_running_loop().create_future()))
                self.known[run_id] = None
                return b"accepted"
            (answer,) = await self._ask(asked)
            assert answer is None or not answer.code or answer.code == "already_submitted", answer
        return b"accepted"

    def closed(self, peer: str) -> None:
        pass

    # ---- workers

    async def owners(self) -> Owners:
        raise Refused("not_found", "it stands alone")

    async def exchange(self, call: Call, peer: str, partition: int) -> Reply:
        assert partition < 0, "nobody speaks to owners here"
        if self.machine is None:
            raise Unavailable("not the owner", retry_after_ms=100)
        reports = [
            inp.Succeeded(item.task, item.attempt, item.value)
            if isinstance(item, Succeeded)
            else inp.Failed(item.task, item.attempt, item.error)
            for item in call.reports
        ]
        offer = [] if self._offered(call) else [inp.Offer(call.worker, call.credit, start=call.session)]
        self.heard[call.worker] = self._now()
        self.peers[peer] = call.worker
        await self._ask(*offer, *reports)
        until = self._now() + call.wait_ms / 1000
        while self.machine is not None and not (work := self._work(call)) and self._now() < until:
            try:
                async with asyncio.timeout(max(until - self._now(), 0.001)):
                    await self.moved.wait()
            except TimeoutError:
                pass
        if self.machine is None:
            raise Unavailable("not the owner", retry_after_ms=100)
        self.heard[call.worker] = self._now()
        stop = tuple(name for name in call.held if not self._is_current(call.worker, *name))
        return Reply(
            call.seq, tuple(work), tuple(NodeSpec(n, "task", WORKFLOW, _NODES[n], "", _NODES[n]) for n in (0, 1)), stop
        )

    def _is_current(self, worker: str, number: int, attempt: int) -> bool:
        task = self.machine.state.tasks.get(number)
        return task is not None and task.attempt == attempt and task.worker is not None and task.worker.id == worker

    def _offered(self, call: Call) -> bool:
        number = self.machine.state.worker_numbers.get(call.worker)
        known = self.machine.state.workers[number] if number is not None else None
        return known is not None and (known.credit, known.start) == (call.credit, call.session)

    def _work(self, call: Call) -> list[AttemptJob]:
        state = self.machine.state
        number = state.worker_numbers.get(call.worker)
        tasks = state.workers[number].tasks.values() if number is not None else ()
        held = {*call.held, *((item.task, item.attempt) for item in call.reports)}
        return [
            AttemptJob(task.number, task.attempt, task.step.index, TENANT, task.run.id, b"\x80")
            for task in tasks
            if (task.number, task.attempt) not in held
        ]

    def connection_closed(self, peer: str) -> None:
        worker = self.peers.pop(peer, None)
        if worker is not None and worker not in self.peers.values():
            at = self.heard.get(worker)
            asyncio.get_running_loop().call_later(CLOSED_S, self._still_silent, worker, at)

    def _still_silent(self, worker: str, at: float | None) -> None:
        if self.machine is not None and at is not None and self.heard.get(worker) == at:
            self.heard[worker] = -LOST_S * 1000
            self.wake.set()


_NODES = ("first", "second")


def _known(rows) -> dict[str, None]:
    known, before = {}, GENESIS
    for sealed in rows:
        row = unseal(sealed, before)
        before = sealed.hash
        known |= {row.inputs[e.input].run_id: None for e in row.events if isinstance(e, RunSubmitted)}
    return known


class SmallWorker:
    """Keeps each report until a reply has confirmed it. An attempt is held from when it came until then."""

    def __init__(self, seat: WorkerSeat, handlers) -> None:
        self.seat = seat
        self.executor = SimExecutor(seat.host, handlers, seat.ledger, slots=4)
        self.held: dict[tuple[int, int], None] = {}
        self.reports: list = []
        self.wake = asyncio.Event()

    def report(self, report) -> None:
        self.reports.append(report)
        self.wake.set()

    def log(self, *_) -> None:
        pass

    async def main(self) -> None:
        await self.executor.start(self)
        name, session, seq = self.seat.host.name, self.seat.host.ids.new(), 0
        while True:
            seq += 1
            self.wake.clear()
            sent = tuple(self.reports)
            call = Call(name, session, seq, 4, 0 if sent else 5_000, sent, tuple(self.held), WorkerProfile())
            try:
                reply = await self._exchange(call)
            except Unavailable as error:
                await asyncio.sleep(error.retry_after_ms / 1000)
                continue
            if reply is not None:
                self._take(reply, sent)

    async def _exchange(self, call: Call) -> Reply | None:
        """None where something happened here meanwhile: then a new call ends this one."""
        asked = asyncio.ensure_future(self.seat.link.call(call))
        woken = asyncio.ensure_future(self.wake.wait())
        try:
            await asyncio.wait([asked, woken], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() and call.reports:
                await asyncio.wait([asked])
            return await asked if asked.done() else None
        finally:
            for task in (asked, woken):
                task.cancel()
            await asyncio.wait([asked, woken])
            if asked.done() and not asked.cancelled():
                asked.exception()

    def _take(self, reply: Reply, sent) -> None:
        self.reports = self.reports[len(sent) :]
        for item in sent:
            self.held.pop((item.task, item.attempt), None)
        for name in reply.stop:
            self.executor.stop(*name)
            self.held.pop(name, None)
        specs = {spec.id: spec for spec in reply.specs}
        for work in reply.work:
            if (work.task, work.attempt) not in self.held:
                self.held[work.task, work.attempt] = None
                self.executor.run(work, specs[work.spec])


HANDLERS = {"first": Handler(ms=(5, 2_000), fails=0.05), "second": Handler(ms=(5, 200))}


async def small_client(seat: ClientSeat) -> None:
    """Submits one after the other, each until it is accepted, with a pause between them."""
    options, net = seat.cluster.options, seat.cluster.net
    gap_ms = options.safety_s * 800 // options.tasks
    for number in range(options.tasks):
        run_id = f"{seat.host.name}-{number:04}"
        seat.asks()
        node = seat.host.chance.below(len(seat.nodes))
        while True:
            try:
                async with asyncio.timeout(20):
                    await net.request(seat.host, seat.nodes[node], run_id.encode(), port="api")
                break
            except (Unavailable, TimeoutError):
                node = (node + 1) % len(seat.nodes)
                await asyncio.sleep(0.2)
        seat.accepted(TENANT, run_id)
        await asyncio.sleep(seat.host.chance.below(2 * gap_ms) / 1000)


def programs(node=SmallNode, handlers=HANDLERS) -> Programs:
    return Programs(
        node=lambda seat: node(seat).main(),
        worker=lambda seat: SmallWorker(seat, handlers).main(),
        client=small_client,
        settings=SETTINGS,
        doubts_clocks=False,
    )


# Faults that only the product's own node and worker know how to meet.
OF_THE_PRODUCT = ("foreign_stores", "neighbours", "spreads")


def run(seed: int, words: dict[str, str]):
    """The scenario `sim.small_node:run` of the command line."""
    options = Options.of(seed, words)
    options = replace(options, faults=options.faults.without(*OF_THE_PRODUCT))
    return Cluster(seed, programs(), options, scenario="sim.small_node:run").run()
