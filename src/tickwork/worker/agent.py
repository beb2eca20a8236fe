"""The agent: exchanges work for results with the server, and hands work to executors.

It never runs user code, so nothing that user code does can stop its beats. A report is forgotten only when
a reply says that it is durable; until then it is sent again, in the same call under the same number. One call
waits at the server for work; when there is something to report meanwhile, the next call goes at once. At most
one call with reports is under way, so under load reports gather by themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tickwork.core.errors import Corrupt, Refused, Unavailable
from tickwork.core.lanes import PIN_LABEL
from tickwork.ports.artifacts import digest_of
from tickwork.ports.clock import Clock
from tickwork.ports.exchange import (
    Begun,
    Broke,
    Call,
    Catalog,
    Done,
    Link,
    Profile,
    Reply,
    Report,
    Returned,
    Saved,
    Spec,
    Taken,
    Work,
)
from tickwork.ports.executor import Executor, lacking
from tickwork.ports.ids import Ids
from tickwork.worker.credit import Credit
from tickwork.worker.logs import Logs

BEAT_MS = 10_000  # how long a call may wait for work; the next one follows at once
GATHER_S = 0.001  # after a call that carried many reports, the next waits so long for more
MANY = 16
REPORTS_MAX, REPORT_BYTES_MAX = 2_000, 4 * 1024 * 1024
BACKOFF_S, BACKOFF_S_MAX = 0.05, 1.0
LONG_MS = 1_000  # an attempt that is reported as begun has taken so long
HOARD_S = 1.0
FAREWELL_S = 5.0  # how long a worker that ends tries to reach a server that is away
Key = tuple[int, int]
T = TypeVar("T")


class Held(NamedTuple):
    work: Work
    spec: Spec
    executor: Executor


class Taking(NamedTuple):
    """`work` is None where it was too large for the lane: then it comes with the exchange."""

    work: Work | None
    spec: Spec | None
    settled: asyncio.Future[bool]


class Agent:
    """`run` ends after `drain`, or raises `Refused` where the server does not serve this worker."""

    def __init__(
        self,
        link: Link,
        executors: Sequence[Executor],
        *,
        clock: Clock,
        ids: Ids,
        name: str,
        profile: Profile | None = None,
        beat_ms: int = BEAT_MS,
        version: str = "",
    ) -> None:
        """`version` is that of the application where somebody says so; otherwise its own."""
        self._told_version = version
        self.application = self.version = ""
        self.latest = ""  # version of the application, as the server knows it
        self._link, self._clock, self._beat_ms = link, clock, beat_ms
        self._executors = list(executors)
        self._by_kind: dict[str, Executor] = {}
        self._profile = profile or Profile()
        self.name, self.session = name, ids.new()
        self._seq = 0
        self._held: dict[Key, Held] = {}
        self._specs: dict[int, Spec] = {}
        self._pending: list[Report] = []
        self._stopped: dict[Key, None] = {}  # stops that came before their work
        self._taking: dict[Key, Taking] = {}  # came by a lane; the server is asked whose they are
        self._announced = 0  # credit in the last call
        self.freed = asyncio.Event()  # something that was held is over
        self._credit = Credit()
        self.logs = Logs(self._send_log)
        self._post: asyncio.Task[None] | None = None  # the call with reports
        self._poll: asyncio.Task[None] | None = None  # the call that waits for work
        self._pump_handle: asyncio.Handle | None = None
        self._hoard_handle: asyncio.Handle | None = None
        self._carried = 0  # reports in the last call
        self._introduce = True  # the server must hear profile and everything held
        self._doubt = False  # a reply may be lost: say what is held
        self._told_all = 0  # number of the last call that said what is held
        self._failures = 0
        self._draining = False
        self._over: asyncio.Future[None] | None = None
        self.fenced = 0  # reports that came too late
        self.reached = asyncio.Event()  # the server has answered at least once

    @property
    def held(self) -> tuple[Key, ...]:
        return tuple(self._held)

    @property
    def slots(self) -> int:
        return sum(executor.slots for executor in self._executors)

    @property
    def labels(self) -> dict[str, str]:
        return self._profile.labels

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def room(self) -> int:
        """How many attempts it would hold more, by its own account."""
        most = max(self._announced, self.slots)
        return 0 if self._draining or self._introduce else most - len(self._held) - len(self._taking)

    # ---- life

    async def run(self) -> None:
        self._over = asyncio.get_running_loop().create_future()
        try:
            catalog = await self._start(self._executors)
            await self._publish(catalog)
            self._pump()
            self._look_at_hoard()
            await self._over
        finally:
            await self._close()

    async def _start(self, executors: Iterable[Executor]) -> Catalog:
        catalogs = []
        for executor in executors:
            catalogs.append(await executor.start(self))
            self._by_kind.update(dict.fromkeys(executor.kinds, executor))
        return Catalog(
            tuple(one for catalog in catalogs for one in catalog.documents),
            tuple(one for catalog in catalogs for one in catalog.schedules),
            tuple(one for catalog in catalogs for one in catalog.handlers),
            next((catalog.application for catalog in catalogs if catalog.application), ""),
            next((catalog.version for catalog in catalogs if catalog.version), ""),
        )

    async def _publish(self, catalog: Catalog) -> None:
        """What the application declares, and from then on which version of it this worker has."""
        catalog = msgspec.structs.replace(catalog, version=self._told_version or catalog.version)
        latest = ""

        async def publish() -> None:
            nonlocal latest
            latest = await self._link.publish(catalog)

        await self._until_reached(publish)
        self.application, self.version, self.latest = catalog.application, catalog.version, latest
        if catalog.application and catalog.version:
            labels = self._profile.labels | {PIN_LABEL: f"{catalog.application}@{catalog.version}"}
            self._profile = msgspec.structs.replace(self._profile, labels=labels)
            self._introduce = True

    async def replace(self, old: Executor, new: Executor) -> None:
        """New code for old: what has not begun goes to `new`, what runs ends where it is. Where `new` does not
        start, its error is raised and `old` goes on."""
        await self._publish(await new.start(self))
        self._executors[self._executors.index(old)] = new
        self._by_kind.update(dict.fromkeys(new.kinds, new))
        for key in old.recall():
            held = self._held.get(key)
            if held is not None:
                self._held[key] = held._replace(executor=new)
                new.run(held.work, held.spec)
        await old.close(grace_s=60.0)

    async def drain(self, *, grace_s: float) -> None:
        """No new work; hand back what has not begun, let the rest end within the time given; say goodbye.
        Asked a second time, it goes on with the shorter of the two times."""
        if self._draining:
            await asyncio.gather(*(executor.close(grace_s=grace_s) for executor in self._executors))
            return
        self._draining = True
        for executor in self._executors:
            for key in executor.recall():
                self.report(Returned(*key))
        self._pump()
        await asyncio.gather(*(executor.close(grace_s=grace_s) for executor in self._executors))
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._say_farewell()
        except (TimeoutError, Unavailable):
            pass  # the server notices by itself
        self._end()

    async def _say_farewell(self) -> None:
        while self._pending or self._post is not None:
            if self._post is not None:
                await asyncio.wait([self._post])
            self._pump()
        await self.logs.flush()
        await self._link.call(self._call(goodbye=True))

    def _end(self, error: BaseException | None = None) -> None:
        assert self._over is not None
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)

    async def _close(self) -> None:
        for handle in (self._pump_handle, self._hoard_handle):
            if handle is not None:
                handle.cancel()
        calls = [task for task in (self._post, self._poll) if task is not None]
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls)
        for taking in self._taking.values():
            taking.settled.cancel()
        await self.logs.close()
        if not self._draining:
            for executor in self._executors:  # at once, and in turn: a loop that ends now leaves no task unbegun
                await executor.close(grace_s=0)

    def _look_at_hoard(self) -> None:
        """Where tasks turn out slower than those before, others may have what has not begun here."""
        loop = asyncio.get_running_loop()
        self._hoard_handle = loop.call_later(HOARD_S, self._look_at_hoard)
        credit = self._credit.now(slots=self.slots)
        if self._draining or len(self._held) <= 2 * credit:
            return
        spare = len(self._held) - credit
        for executor in self._executors:
            for key in executor.recall():
                held = self._held.get(key)
                if held is None:
                    continue
                if spare > 0:
                    spare -= 1
                    self.report(Returned(*key))
                else:
                    executor.run(held.work, held.spec)

    # ---- what executors say

    def report(self, report: Report) -> None:
        if (report.task, report.attempt) not in self._held:
            return  # stopped meanwhile
        self._pending.append(report)
        kind = type(report)
        if kind is Done or kind is Broke:
            self._credit.ran(report.ended_ms - report.started_ms)  # type: ignore[union-attr]
        elif kind is Begun:
            self._credit.ran(LONG_MS)
        if self._post is None and self._pump_handle is None:
            self._pump_soon()

    def take(self, key: Key, work: Work | None, spec: Spec | None) -> "asyncio.Future[bool]":
        """What came by a lane. The answer is durable: True, and it runs here; False, and it is nobody's business."""
        if key in self._taking:
            return self._taking[key].settled
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if key in self._held:
            settled.set_result(True)  # another copy of it came before
            return settled
        self._taking[key] = Taking(work, spec, settled)
        self._pending.append(Taken(*key))
        if self._post is None and self._pump_handle is None:
            self._pump_soon()
        return settled

    def _settle(self, call: Call, reply: Reply) -> None:
        """What the server said of what this call took. Work begins only now: the taking is durable."""
        for report in call.reports:
            taking = self._taking.pop((report.task, report.attempt), None) if type(report) is Taken else None
            if taking is None:
                continue
            mine = (report.task, report.attempt) not in reply.fenced
            if mine and taking.work is not None and taking.spec is not None:
                self._specs[taking.spec.id] = taking.spec
                self._begin(taking.work)
            elif mine:
                self._doubt = True  # it is assigned and not held, so it is offered
            if not taking.settled.done():
                taking.settled.set_result(mine)

    def log(self, task: int, attempt: int, stream: str, text: str, at_ms: int) -> None:
        self.logs.add(task, attempt, stream, text, at_ms)

    async def fetch(self, digest: str) -> bytes:
        data = await self._until_reached(lambda: self._link.fetch(digest))
        if digest_of(data) != digest:
            raise Corrupt(f"the artifact {digest} came with other bytes than were put; it was not used")
        return data

    async def store(self, data: bytes) -> str:
        return await self._until_reached(lambda: self._link.store(data))

    async def _send_log(self, task: int, attempt: int, chunk: int, first: int, lines: bytes) -> None:
        await self._until_reached(lambda: self._link.log(task, attempt, chunk, first, lines))

    async def _until_reached(self, ask: Callable[[], Awaitable[T]]) -> T:
        delay_s = BACKOFF_S
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S_MAX)

    # ---- calls

    def _pump_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._carried >= MANY:
            self._pump_handle = loop.call_later(GATHER_S, self._pump)
        else:
            self._pump_handle = loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Start the call that is due, if one is."""
        if self._pump_handle is not None:
            self._pump_handle.cancel()
            self._pump_handle = None
        if self._post is not None or self._over is None or self._over.done():
            return
        loop = asyncio.get_running_loop()
        if self._pending:
            self._post = loop.create_task(self._deliver(self._call(self._batch())))
        elif self._poll is None and not self._draining:
            self._stopped.clear()
            wait_ms = 0 if self._introduce else self._beat_ms
            self._poll = loop.create_task(self._wait_for_work(self._call(wait_ms=wait_ms)))

    def _batch(self) -> tuple[Report, ...]:
        size = 0
        for count, report in enumerate(self._pending[:REPORTS_MAX]):
            if isinstance(report, Done | Saved) and type(report.value) is bytes:
                size += len(report.value)
                if size > REPORT_BYTES_MAX and count:
                    return self._take(count)
        return self._take(REPORTS_MAX)

    def _take(self, count: int) -> tuple[Report, ...]:
        taken, self._pending = self._pending[:count], self._pending[count:]
        return tuple(taken)

    def _call(self, reports: tuple[Report, ...] = (), *, wait_ms: int = 0, goodbye: bool = False) -> Call:
        self._seq += 1
        credit = self._announced = 0 if self._draining else self._credit.now(slots=self.slots)
        tell_all = self._introduce or self._doubt
        self._doubt = False
        if tell_all:
            self._told_all = self._seq
        return Call(
            self.name,
            self.session,
            self._seq,
            credit,
            wait_ms,
            reports,
            tuple(self._held) if tell_all else None,
            self._profile if self._introduce else None,
            goodbye,
        )

    async def _deliver(self, call: Call) -> None:
        """A call with reports, sent until it is answered."""
        try:
            reply = await self._asked(call)
            while reply is None:
                reply = await self._asked(call)
        except Exception as error:
            self._end(error)
            return
        finally:
            self._post = None
        if reply.resync:
            self._pending[:0] = call.reports  # a server that does not know us has taken nothing
        else:
            self._taken(call.reports)
        self._carried = len(call.reports)
        self._follow(call, reply)

    async def _wait_for_work(self, call: Call) -> None:
        """A call without reports. Where it is lost, the next says what is held, and the server offers the rest anew."""
        try:
            reply = await self._asked(call)
        except Exception as error:
            self._end(error)
            return
        finally:
            self._poll = None
        if reply is not None:
            self._follow(call, reply)
        else:
            self._pump()

    async def _asked(self, call: Call) -> Reply | None:
        """None: not reached, and some time has passed."""
        try:
            reply = await self._link.call(call)
        except Unavailable:
            self._doubt = True
            self._failures += 1
            await asyncio.sleep(min(BACKOFF_S * 2 ** min(self._failures - 1, 10), BACKOFF_S_MAX))
            return None
        self._failures = 0
        self.reached.set()
        return reply

    def _taken(self, reports: tuple[Report, ...]) -> None:
        """These are durable."""
        held, logged = self._held, self.logs.open
        for report in reports:
            kind = type(report)
            if kind is Done or kind is Broke or kind is Returned:
                key = (report.task, report.attempt)
                held.pop(key, None)
                self.freed.set()
                if key in logged:
                    self.logs.ended(key)
            elif kind is Saved:
                one = held.get((report.task, report.attempt))
                if one is not None:
                    one.executor.saved(report.task, report.attempt)

    def _follow(self, call: Call, reply: Reply) -> None:
        if reply.refused:
            self._end(Refused("worker_refused", f"the server does not serve this worker: {reply.refused}"))
            return
        self._introduce = reply.resync or (self._introduce and call.profile is None)
        self.fenced += len(reply.fenced)
        for spec in reply.specs:
            self._specs[spec.id] = spec
        for key in reply.stop:
            self._stop(key)
        # What an older reply brings was offered again after the call that said what is held, and may be over by now.
        if call.seq >= self._told_all:
            for work in reply.work:
                self._begin(work)
        if self._taking and not reply.resync:
            self._settle(call, reply)
        self._pump()

    def _stop(self, key: Key) -> None:
        held = self._held.pop(key, None)
        self.freed.set()
        if held is None:
            self._stopped[key] = None
            return
        held.executor.stop(*key)
        self._pending = [one for one in self._pending if (one.task, one.attempt) != key]

    def _begin(self, work: Work) -> None:
        key = (work.task, work.attempt)
        if key in self._held or key in self._stopped:
            return  # offered again, or called off before it came
        spec = self._specs.get(work.spec)
        if spec is None:
            self._doubt = True  # not held, so it is offered again; with `introduce`, the specs come anew
            self._introduce = True
            return
        executor = self._by_kind.get(spec.kind)
        if executor is None:
            self._held[key] = Held(work, spec, self._executors[0])
            known = ", ".join(sorted(self._by_kind)) or "none"
            message = f"this worker runs no {spec.kind} nodes, only {known}"
            self.report(lacking(work, message))
            return
        self._held[key] = Held(work, spec, executor)
        if self._draining:
            self.report(Returned(*key))
        else:
            executor.run(work, spec)
