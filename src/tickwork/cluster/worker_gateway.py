"""Gateway of a node: workers talk to this node, and it talks for each of them to the owners of all partitions.

It splits a worker's call by partition and joins the replies of the owners to one. It divides the worker's credit so
that the shares never exceed it. Heartbeats stay here: the node that hears a worker decides whether it is lost, and
reports all live workers to the owners in one message. A partition whose owner cannot be reached delays no other;
reports that could not be delivered are requested again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from tickwork.cluster.owner_session import ExchangeRoute, OwnerSession, ReportBatch
from tickwork.core.base.errors import Refused
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    NodeSpec,
    Reply,
    Report,
    WorkerProfile,
    of_other_store,
    protocol_mismatch,
)
from tickwork.runtime.supervision import supervised
from tickwork.runtime.workers.failure_detector import SILENT_MS, FailureDetector, HeartbeatAges
from tickwork.runtime.workers.sessions import (
    MOVED,
    WAIT_MS_MAX,
    name_in_use,
    shutting_down,
)
from tickwork.runtime.workers.worker_session import ReplyFuture, WorkerSession
from tickwork.worker.exchange import Key

DELIVER_S = 2.0  # after which a report that is not durable yet is requested again
CHECK_S = 0.5
HEARTBEATS_MS = 8_000  # how often owners hear which workers live: at most a third of what makes them doubt it
SPLIT_S = 0.1  # how often at most credit is divided again because a partition wants more


class ProxiedWorker:
    """A worker that talks to this node: its session here, and one session with the owner of each partition."""

    def __init__(self, gateway: "WorkerGateway", call: Call, heard_ms: int) -> None:
        self.session = WorkerSession(call.worker, call.session, heard_ms)
        self.profile = call.profile or WorkerProfile()
        self.credit = 0
        self.refused = ""
        self.gone = False
        self._gateway = gateway
        self._unmet = False  # a share is promised that another partition has yet to give up
        self._splitting: asyncio.Handle | None = None
        session_id = f"{call.session}@{call.seq}.{gateway.session}"
        self.owners = [
            OwnerSession(
                self,
                partition,
                route=gateway.route,
                name=call.worker,
                session=session_id,
                profile=self.profile,
                via=gateway.via,
                store=gateway.store,
            )
            for partition in range(gateway.partitions)
        ]

    @property
    def name(self) -> str:
        return self.session.worker

    # ---- called by owner sessions

    def offer(self, job: AttemptJob, spec: NodeSpec) -> None:
        self.session.offer([(job, spec)])

    def cancel(self, key: Key) -> None:
        if not self.session.withdraw(key):
            self.session.cancel(key)

    def owner_replied(self, owner: OwnerSession) -> None:
        """Divide the credit again where it helps, and not too often: the journal keeps each change of a share."""
        starving = owner.waiting_tasks > 0 and owner.holds >= owner.share
        if self._splitting is None and not self.gone and (starving or self._unmet):
            wait_s = 0.0 if self._unmet or not owner.share else SPLIT_S
            self._splitting = asyncio.get_running_loop().call_later(wait_s, self._split_again)

    def owner_session_ended(self, error: BaseException) -> None:
        self._gateway.refuse(self, str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}")

    # ---- credit

    def _split_again(self) -> None:
        self._splitting = None
        if not self.gone:
            self.split_credit()

    def split_credit(self) -> None:
        """What is taken from one partition goes to another only when the first owner has confirmed it."""
        owners = self.owners
        shares = split_credit(self.credit, [owner.holds for owner in owners], [owner.waiting_tasks for owner in owners])
        for owner, share in zip(owners, shares, strict=True):
            if share < owner.share:
                owner.set_share(share)
        free = self.credit - sum(max(owner.share, owner.believed_share) for owner in owners)
        for owner, share in zip(owners, shares, strict=True):
            more = min(share - owner.share, free)
            if more > 0:
                free -= more
                owner.set_share(owner.share + more)
        self._unmet = any(share > owner.share for owner, share in zip(owners, shares, strict=True))

    def stop_splitting(self) -> None:
        if self._splitting is not None:
            self._splitting.cancel()
            self._splitting = None


class WorkerGateway:
    """`route` brings a call to the owner of a partition, `heartbeats` reports all live workers to the owners;
    `session` is this start of the node. `own`: there is no node, a worker talks to the owners itself."""

    def __init__(
        self,
        *,
        route: ExchangeRoute,
        heartbeats: Callable[[Sequence[str]], Awaitable[None]],
        session: str,
        partitions: int,
        clock: Clock,
        on_alarm: Callable[[str, str], None],
        detector: FailureDetector,
        own: bool = False,
        store: str = "",
    ) -> None:
        self.route, self.session, self.partitions = route, session, partitions
        self.via = "" if own else session
        self.store = store  # identity of the store that the owners share
        self.workers: dict[str, ProxiedWorker] = {}
        self._heartbeats = heartbeats
        self._clock = clock
        self._on_alarm = on_alarm
        self._detector = detector
        self._jobs: set[asyncio.Task[None]] = set()
        self._closing = False

    def heartbeat_ages(self) -> HeartbeatAges:
        now_ms, workers = self._clock.mono_ms(), self.workers.values()
        silent = [worker for worker in workers if now_ms - worker.session.heard_ms > SILENT_MS]
        orphaned = sum(owner.holds for worker in silent for owner in worker.owners)
        return HeartbeatAges([(now_ms - worker.session.heard_ms) / 1000 for worker in workers], orphaned)

    def start(self) -> None:
        self._spawn(supervised(self._watch, name="losses of workers", on_alarm=self._on_alarm))
        self._spawn(supervised(self._send_heartbeats, name="beats to owners", on_alarm=self._on_alarm))

    def owner_moved(self, partition: int) -> None:
        """Retry at once where the owner could not be reached."""
        for worker in self.workers.values():
            worker.owners[partition].retry_now()

    def release(self) -> None:
        self._closing = True
        for worker in self.workers.values():
            worker.session.wake()

    async def close(self) -> None:
        self.release()
        for worker in list(self.workers.values()):  # an owner may refuse one meanwhile
            worker.gone = True
            worker.stop_splitting()
            for owner in worker.owners:
                await owner.hang_up()
        self.workers.clear()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ---- calls

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        if (other := of_other_store(call, self.store)) is not None:
            return other
        worker = self._worker_for(call)
        if isinstance(worker, Reply):
            return worker
        handle = partial(self._handle, worker)
        return await worker.session.exchange(call, handle, peer=peer, now_ms=self._clock.mono_ms())

    def _worker_for(self, call: Call) -> ProxiedWorker | Reply:
        worker = self.workers.get(call.worker)
        if worker is not None and worker.session.id == call.session:
            return worker if not worker.refused else Reply(call.seq, refused=worker.refused)
        if call.profile is None or call.held is None:
            return Reply(call.seq, resync=True)
        if mismatch := protocol_mismatch(call.profile.protocol):
            return Reply(call.seq, refused=mismatch)
        if self._closing:
            raise shutting_down()
        if worker is not None and not worker.session.closed_ms and not worker.refused:
            return name_in_use(call, self._clock.mono_ms() - worker.session.heard_ms)
        if worker is not None:
            self._forget(worker)
        worker = self.workers[call.worker] = ProxiedWorker(self, call, self._clock.mono_ms())
        worker.credit = call.credit
        worker.split_credit()
        held = _by_partition(call.held, worker.owners)
        for owner in worker.owners:
            owner.start(held[owner.partition])
        return worker

    async def _handle(self, worker: ProxiedWorker, call: Call, previous: ReplyFuture | None) -> Reply:
        session = worker.session
        if session.is_late(call):
            fenced, later = await self._deliver(worker, call)
            return Reply(call.seq, fenced=fenced, later=later)
        if previous is not None:  # the first call is in the profile and the sessions with owners already
            self._update(worker, call)
        if call.held is not None:
            session.forget_specs()
        if call.credit != worker.credit and not call.goodbye:
            worker.credit = call.credit
            worker.split_credit()
        session.reporting += 1
        try:
            fenced, later = await self._deliver(worker, call)
        finally:
            session.reporting -= 1
        if call.goodbye:
            await self._say_goodbye(worker)
            return Reply(call.seq, fenced=fenced, later=later)
        waits = not call.reports and call.held is None and not session.pending and not session.cancelled
        if waits and call.seq == session.seq:
            await self._wait_for_work(session, call)
        return self._reply(worker, call, fenced, later)

    def _update(self, worker: ProxiedWorker, call: Call) -> None:
        if call.profile is not None:
            worker.profile = call.profile
            for owner in worker.owners:
                owner.introduce(call.profile)
        if call.held is not None:
            on_its_way = [(job.task, job.attempt) for job, _ in worker.session.pending]
            held = _by_partition([*call.held, *on_its_way], worker.owners)
            for owner in worker.owners:
                owner.holds_only(held[owner.partition])

    async def _deliver(self, worker: ProxiedWorker, call: Call) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        """Return the reports that came too late, and those that are not durable yet."""
        if not call.reports:
            return (), ()
        parts: dict[int, list[Report]] = {}
        fenced: list[Key] = []
        for report in call.reports:
            partition = report.task >> NUMBER_BITS
            if partition < self.partitions:
                parts.setdefault(partition, []).append(report)
            else:
                fenced.append((report.task, report.attempt))
        batches: list[ReportBatch] = []
        later: list[Key] = []
        for partition, reports in parts.items():
            if worker.owners[partition].away:  # an owner that does not answer delays no other
                later += [(report.task, report.attempt) for report in reports]
            else:
                batches.append(worker.owners[partition].deliver(reports))
        try:
            async with asyncio.timeout(DELIVER_S):
                for batch in batches:
                    await batch.done.wait()
        except TimeoutError:
            later += [(report.task, report.attempt) for batch in batches for report in batch.waiting()]
        fenced += [key for batch in batches for key in batch.fenced]
        return tuple(fenced), tuple(later)

    async def _wait_for_work(self, session: WorkerSession, call: Call) -> None:
        if not call.wait_ms:
            return
        if self._closing:
            raise shutting_down()
        await session.wait_for_work(min(call.wait_ms, WAIT_MS_MAX))
        if self._closing:
            raise shutting_down()

    def _reply(self, worker: ProxiedWorker, call: Call, fenced: tuple[Key, ...], later: tuple[Key, ...]) -> Reply:
        if worker.refused:
            return Reply(call.seq, refused=worker.refused)
        if call.seq != worker.session.seq and not call.reports:
            return Reply(call.seq, fenced=fenced, later=later)  # a later call takes what is pending: this may be lost
        return worker.session.reply(call, fenced=fenced, later=later, store=self.store)

    # ---- ends

    async def _say_goodbye(self, worker: ProxiedWorker) -> None:
        self._drop(worker)
        await asyncio.gather(*(owner.end(lost=False) for owner in worker.owners))

    def refuse(self, worker: ProxiedWorker, message: str) -> None:
        """An owner does not serve it. If it only moved to another node, that node serves it."""
        if worker.gone:
            return
        self._drop(worker)
        if MOVED not in message:
            worker.refused = message.removeprefix("the server does not serve this worker: ")
            self.workers.setdefault(worker.name, worker)
        worker.session.wake()
        for owner in worker.owners:
            self._spawn(owner.hang_up())

    def connection_closed(self, peer: str) -> None:
        sessions = (worker.session for worker in self.workers.values())
        self._detector.connection_closed(sessions, peer, now_ms=self._clock.mono_ms())

    async def _watch(self) -> None:
        while not self._closing:
            await asyncio.sleep(CHECK_S)
            sessions = [worker.session for worker in self.workers.values()]
            for session, cause in self._detector.lost(sessions, now_ms=self._clock.mono_ms()):
                self._lose(self.workers[session.worker], cause)

    async def _send_heartbeats(self) -> None:
        """For the workers that are not lost here: that is for this node to decide."""
        while not self._closing:
            await asyncio.sleep(min(HEARTBEATS_MS, self._detector.lost_after_ms / 3) / 1000)
            names = [worker.name for worker in self.workers.values() if not worker.refused]
            if names:
                await self._heartbeats(names)

    def _lose(self, worker: ProxiedWorker, cause: str) -> None:
        self._drop(worker)
        if worker.refused:
            return
        self._on_alarm("worker_lost", f"{worker.name}: {cause}")
        for owner in worker.owners:
            self._spawn(owner.end(lost=True))

    def _forget(self, worker: ProxiedWorker) -> None:
        self._drop(worker)
        for owner in worker.owners:
            self._spawn(owner.hang_up())

    def _drop(self, worker: ProxiedWorker) -> None:
        worker.gone = True
        worker.stop_splitting()
        if self.workers.get(worker.name) is worker:
            del self.workers[worker.name]
        worker.session.wake()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def split_credit(credit: int, held: Sequence[int], requested: Sequence[int]) -> list[int]:
    """Divide a worker's credit among partitions, so that the sum of the shares never exceeds it.

    Each share includes what its partition holds. Of what is free, the partitions that want more get equal parts first,
    up to what they want; the rest is spread over all. A partition that gets nothing says so when it comes to want
    something."""
    shares = list(held)
    free = credit - sum(held)
    left = {partition: more for partition, more in enumerate(requested) if more > 0}
    while free > 0 and left:
        part = max(1, free // len(left))
        for partition in list(left):
            give = min(part, left[partition], free)
            shares[partition] += give
            free -= give
            left[partition] -= give
            if not left[partition]:
                del left[partition]
    count = len(shares)
    if free > 0 and count:
        each, rest = divmod(free, count)
        for partition in range(count):
            shares[partition] += each + (partition < rest)
    return shares


def _by_partition(keys: Sequence[Key], owners: list[OwnerSession]) -> dict[int, list[Key]]:
    by_partition: dict[int, list[Key]] = {owner.partition: [] for owner in owners}
    for key in keys:
        if key[0] >> NUMBER_BITS in by_partition:
            by_partition[key[0] >> NUMBER_BITS].append(key)
    return by_partition
