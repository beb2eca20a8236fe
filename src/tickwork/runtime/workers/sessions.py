"""Worker sessions: calls come in as inputs of the partition, assigned attempts go out with the replies.

A call with reports gets its reply when they are durable. Heartbeats stay in memory; only their absence becomes an
input. Where server and worker may disagree (a new session, a restarted server), the worker lists everything it holds.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.state.effects import CancelAttempt, CommandResult, ReleaseAttempt
from tickwork.core.state.inputs import Failed, Offer, WorkerLost
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.state import State
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    LogPiece,
    NodeSpec,
    Reply,
    Report,
    StepsRecorded,
    Succeeded,
    Taken,
    WorkerProfile,
    of_other_store,
    protocol_mismatch,
)
from tickwork.runtime.partition.input_queue import InputBatch
from tickwork.runtime.partition.task_assignment import Assignment, AssignmentBuilder, BadArgument, ReadyAssignment
from tickwork.runtime.partition.write_behind import ASSIGNED, LOADING, PENDING, SENT, WriteBehind
from tickwork.runtime.storage.payloads import PayloadStore
from tickwork.runtime.storage.store_retry import retry_until_available
from tickwork.runtime.supervision import supervised
from tickwork.runtime.workers.failure_detector import SILENT_MS, FailureDetector, HeartbeatAges
from tickwork.runtime.workers.reports import CommandReader, ReportTranslator, TranslatedCall
from tickwork.runtime.workers.session_attempts import AttemptKey, SessionAttempts, SessionAttemptsTable
from tickwork.runtime.workers.worker_session import RETRY_MS, ReplyFuture, WorkerSession

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import Partition

CHECK_S, CHECK_S_MAX = 0.5, 60.0
WAIT_MS_MAX = 20_000
VIA_WAIT_MS_MAX = 60_000  # of a node, which sends heartbeats for all its workers at once
LEASE_MS_MAX = 366 * 86_400_000  # a worker that may be silent longer is never lost
MOVED = "it speaks to another node by now"


class RegisteredWorker:
    """A worker as the owner of a partition knows it: its session, its last offer, and who speaks for it."""

    def __init__(
        self,
        session: WorkerSession,
        *,
        start: str = "",
        introduced: int = 0,
        via: str = "",
        shares_credit: bool = False,
        attempts: SessionAttempts | None = None,
    ) -> None:
        self.session = session
        self.start, self.introduced = start, introduced  # which start of the worker it is, and how far that was
        self.via = via  # the node that speaks for it
        self.shares_credit = shares_credit  # that node, or the worker itself, divides its credit among partitions
        self.attempts = attempts or SessionAttempts("")  # that ended in this start
        self.profile = WorkerProfile()
        self.offer: Offer | None = None
        self.waiting_sent = 0  # `waiting_tasks` of the latest reply

    @property
    def name(self) -> str:
        return self.session.worker

    @property
    def credit(self) -> int:
        return self.offer.credit if self.offer is not None else 0


class WorkerSessions:
    _partition: "Partition"  # from `attach` on
    _assigner: AssignmentBuilder
    _reporting: ReportTranslator
    _store: str  # its identity

    def __init__(
        self,
        *,
        clock: Clock,
        payload_store: PayloadStore,
        on_alarm: Callable[[str, str], None],
        detector: FailureDetector,
        read_commands: CommandReader,
    ) -> None:
        self._clock = clock
        self._read_commands = read_commands
        self._payload_store = payload_store
        self._on_alarm = on_alarm
        self._detector = detector
        self._check_s = min(max(CHECK_S, detector.lost_after_ms / 50_000), CHECK_S_MAX)
        self.registered: dict[str, RegisteredWorker] = {}
        self._sessions = SessionAttemptsTable()
        self._jobs: set[asyncio.Task[None]] = set()
        self._closing = False
        self.fenced = 0  # reports that came too late
        self.deals = False  # the credit of a worker is divided by a gateway or by itself

    def attach(self, partition: "Partition", *, store: str) -> None:
        """Serve this partition, which keeps its identity when its machine is rebuilt."""
        self._partition, self._assigner, self._store = partition, partition.assigner, store
        self._reporting = ReportTranslator(partition, self._payload_store, self._read_commands)

    @property
    def _write_behind(self) -> WriteBehind:
        return self._partition.write_behind

    @property
    def _state(self) -> State:
        return self._partition.machine.state

    def heartbeat_ages(self) -> HeartbeatAges:
        now_ms = self._clock.mono_ms()
        ages_ms = {
            name: now_ms - worker.session.heard_ms
            for name, worker in self.registered.items()
            if not is_broker_worker(name)
        }
        orphaned = [
            len(worker.tasks)
            for worker in self._state.workers.values()
            if not is_broker_worker(worker.id) and ages_ms.get(worker.id, self._detector.lost_after_ms) > SILENT_MS
        ]
        return HeartbeatAges([age_ms / 1000 for age_ms in ages_ms.values()], sum(orphaned))

    def lease_end_ms(self, worker: str) -> int:
        """When the worker counts as lost if nothing is heard of it until then; 0: it is not known here, or never."""
        registered, after_ms = self.registered.get(worker), self._detector.lost_after_ms
        if registered is None or after_ms > LEASE_MS_MAX:
            return 0
        return self._clock.wall_ms() + registered.session.heard_ms + after_ms - self._clock.mono_ms()

    def start(self) -> None:
        """Restart the period of silence of every worker in the state. A worker whose process has ended on this host is
        lost at once: it died with the server, or while there was none."""
        now_ms = self._clock.mono_ms()
        for worker in self._state.workers.values():
            session = WorkerSession(worker.id, "", now_ms, process=worker.process)
            self.registered.setdefault(worker.id, RegisteredWorker(session))
        self._spawn(supervised(self._watch, name="losses of workers", on_alarm=self._on_alarm))

    def release(self) -> None:
        """End the calls that wait for work: the server is about to stop listening."""
        self._closing = True
        for worker in self.registered.values():
            worker.session.wake()

    async def close(self) -> None:
        self.release()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ---- calls

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        if (other := of_other_store(call, self._store)) is not None:
            return other
        worker = self._worker_for(call)
        if isinstance(worker, Reply):
            return worker
        handle = partial(self._handle, worker)
        return await worker.session.exchange(call, handle, peer=peer, now_ms=self._clock.mono_ms())

    def _worker_for(self, call: Call) -> RegisteredWorker | Reply:
        worker = self.registered.get(call.worker)
        if worker is not None and worker.session.id == call.session:
            return worker
        if call.profile is None or call.held is None:
            return Reply(call.seq, resync=True)
        mismatch = "" if call.via else protocol_mismatch(call.profile.protocol)  # nodes compared theirs on joining
        if mismatch:
            return Reply(call.seq, refused=mismatch)
        # The node that speaks for a worker knows when one start of it is over and another began.
        start, count = introduction(call)
        if worker is not None and worker.start == start:
            if count < worker.introduced:
                return Reply(call.seq, refused=MOVED)
        elif worker is not None and self._is_connected(worker) and not (call.via and call.via == worker.via):
            return name_in_use(call, self._clock.mono_ms() - worker.session.heard_ms)
        if worker is not None:
            worker.session.wake()
        return self._register(call, start, count)

    def _is_connected(self, worker: RegisteredWorker) -> bool:
        return bool(worker.session.id) and not worker.session.closed_ms

    def _register(self, call: Call, start: str, count: int) -> RegisteredWorker:
        since_ms = 0 if self._start_of(call.worker) == start else self._state.now_ms
        worker = self.registered[call.worker] = RegisteredWorker(
            WorkerSession(call.worker, call.session, self._clock.mono_ms()),
            start=start,
            introduced=count,
            via=call.via,
            shares_credit=call.share or bool(call.via),
            attempts=self._sessions.begin(call.worker, start, since_ms=since_ms),
        )
        self._forget_sent(call.worker)
        self.deals = self.deals or worker.shares_credit
        return worker

    def _is_current(self, worker: RegisteredWorker) -> bool:
        """False: the worker was lost, or has another session by now."""
        return self.registered.get(worker.session.worker) is worker

    async def _handle(self, worker: RegisteredWorker, call: Call, previous: ReplyFuture | None) -> Reply:
        session = worker.session
        if session.is_late(call):
            return await self._late_call(worker, call)
        only_waits = session.reporting and not call.reports and call.held is None
        if previous is not None and not previous.done() and previous is not session.waiting and not only_waits:
            await asyncio.wait([previous])  # attempts go out in the order of the calls
        offer = self._changed_offer(worker, call, call.credit)
        translated = await self._reporting.inputs_of(call, offer)
        if not self._is_current(worker):
            return Reply(call.seq, resync=True)  # a late offer of this start would end the one that replaced it
        fenced: tuple[AttemptKey, ...] = ()
        if translated.inputs:
            batch = self._submit(translated)
            session.reporting += 1
            try:
                await batch.done
            finally:
                session.reporting -= 1
            refused = [
                answer for index, answer in batch.answers.items() if answer.code and translated.report_of(index) is None
            ]
            if refused:
                session.wake()
                return Reply(call.seq, refused=refused[0].message)
            fenced = _fenced(translated, batch.answers)
            self.fenced += len(fenced)
            if not translated.plain:
                self._note_taken(call)
            worker.attempts.note_reports(call.reports, fenced)
        if call.goodbye or call.lost:
            if self._is_current(worker):  # it may have come back meanwhile, in another session
                del self.registered[session.worker]
            if call.lost:
                self._on_alarm("worker_lost", f"{session.worker}: as {worker.via or 'it'} says")
            return Reply(call.seq, fenced=fenced)
        if call.held is not None:
            self._reconcile(worker, call)
        elif not translated.inputs and not session.pending and not session.cancelled and call.seq == session.seq:
            await self._wait_for_work(session, call)
        return self._reply(worker, call, fenced)

    def _submit(self, call: TranslatedCall) -> InputBatch:
        facts = not call.plain and _has_commands(call.reports)
        return self._partition.submit_inputs(call.inputs, call.payloads, facts=facts)

    async def _late_call(self, worker: RegisteredWorker, call: Call) -> Reply:
        """Its reports count. Attempts go out with later replies only, because this one may not be read any more."""
        offer = self._changed_offer(worker, call, worker.credit)
        translated = await self._reporting.inputs_of(call, offer)
        if not self._is_current(worker):
            return Reply(call.seq, resync=True)
        fenced: tuple[AttemptKey, ...] = ()
        if translated.inputs:
            batch = self._submit(translated)
            await batch.done
            fenced = _fenced(translated, batch.answers)
            worker.attempts.note_reports(call.reports, fenced)
        if call.held is not None:
            self._reconcile(worker, call)
            worker.session.wake()
        return Reply(call.seq, fenced=fenced)

    def _changed_offer(self, worker: RegisteredWorker, call: Call, credit: int) -> Offer | None:
        """The offer that the machine must learn before the reports of this call; None: it knows it."""
        if call.profile is not None:
            worker.profile = call.profile
        offer = offer_of(worker, credit)
        if offer == worker.offer or call.goodbye or call.lost:
            return None
        worker.offer = offer
        return offer

    async def _wait_for_work(self, session: WorkerSession, call: Call) -> None:
        if not call.wait_ms:
            return
        if self._closing:
            raise shutting_down()
        await session.wait_for_work(min(call.wait_ms, VIA_WAIT_MS_MAX if call.via else WAIT_MS_MAX))
        if self._closing:
            raise shutting_down()

    def _reply(self, worker: RegisteredWorker, call: Call, fenced: tuple[AttemptKey, ...]) -> Reply:
        if not self._is_current(worker):
            return Reply(call.seq, fenced=fenced)  # it lists what it holds in its other session
        opened, seq = self._write_behind.open, call.seq
        worker.waiting_sent = self._waiting_tasks(worker) if worker.shares_credit else 0
        reply = worker.session.reply(call, fenced=fenced, waiting_tasks=worker.waiting_sent, store=self._store)
        for job in reply.work:
            if (held := opened.get(job.task)) is not None:
                held.stage, held.sent_seq = SENT, seq
        return reply

    def heartbeats(self, via: str, workers: Iterable[str]) -> None:
        """Record that these workers are alive, as the node that speaks for them reports."""
        now_ms, registered = self._clock.mono_ms(), self.registered
        for name in workers:
            worker = registered.get(name)
            if worker is not None and worker.via == via:
                worker.session.heard_ms = now_ms

    # ---- credit that is divided among partitions

    def look_for_room(self) -> None:
        """A tick is durable. Where tasks wait for credit, wake the sessions whose credit is divided: this partition may
        need more of it."""
        if not any(pool.parked for pool in self._state.stations.values()):
            return  # nearly always, and nothing here may grow with the number of workers
        for worker in self.registered.values():
            waits = worker.shares_credit and worker.session.waits_for_work
            if waits and not worker.waiting_sent and self._waiting_tasks(worker):
                worker.session.wake()

    def _waiting_tasks(self, worker: RegisteredWorker) -> int:
        """Return how many ready tasks wait for credit of this worker."""
        number = self._state.worker_numbers.get(worker.name)
        if number is None:
            return 0
        known = self._state.workers[number]
        waiting = [pool for pool in self._state.stations.values() if pool.parked and pool.serves(known)]
        return sum(queue.live for pool in waiting for _, stamp, queue in pool.parked if queue.stamp == stamp)

    def _reconcile(self, worker: RegisteredWorker, call: Call) -> None:
        """Offer again what is assigned and not held; cancel what is held and not assigned."""
        session, held = worker.session, dict.fromkeys(call.held or ())
        session.forget_specs()
        number = self._state.worker_numbers.get(session.worker)
        tasks = self._state.workers[number].tasks if number is not None else {}
        missing: list[ReadyAssignment | Assignment] = []
        for _, task in sorted(tasks.items()):
            key = (task.number, task.attempt)
            # What was dispatched in a tick that still commits is delivered when that is durable.
            durable = task.dispatched <= self._partition.durable_tick
            if durable and key not in held and not self._is_on_its_way(task.number, call):
                missing.append(self._assigner.order(task))
        self.deliver(missing)
        assigned = {(task.number, task.attempt) for task in tasks.values()}
        session.cancelled += [key for key in held if key not in assigned]

    def _is_on_its_way(self, task: int, call: Call) -> bool:
        """Whether it goes out later, or went out with the reply to a later call, which the worker could not know of in
        this one."""
        attempt = self._write_behind.open.get(task)
        if attempt is None:
            return False
        return attempt.stage in (LOADING, PENDING) or (attempt.stage == SENT and attempt.sent_seq > call.seq)

    def _forget_sent(self, worker: str) -> None:
        """Calls are counted by session: the numbers of another one mean nothing in this one."""
        number = self._state.worker_numbers.get(worker)
        for task in self._state.workers[number].tasks.values() if number is not None else ():
            attempt = self._write_behind.open.get(task.number)
            if attempt is not None and attempt.stage != LOADING:  # that goes on, and ends in the new session
                attempt.stage, attempt.sent_seq = ASSIGNED, 0

    # ---- what the machine wants done

    def deliver(self, assignments: list[ReadyAssignment | Assignment], *, burst: bool = False) -> None:
        """Offer attempts to their workers, once the tick that dispatched them is durable. Those of a burst of timers go
        out beside reports, which stand behind the timers that are still due."""
        opened, registered = self._write_behind.open, self.registered
        jobs: dict[str, list[tuple[AttemptJob, NodeSpec]]] = {}
        for assignment in assignments:
            ready = assignment if isinstance(assignment, tuple) else self._made(assignment)
            if ready is None:
                continue
            name, job, spec = ready
            held = opened.get(job.task)
            if held is None or held.row.attempt != job.attempt:
                continue  # it ended while its arguments were loaded
            batch = jobs.get(name)
            if batch is None:
                batch = jobs[name] = []
            batch.append((job, spec))
            held.stage = PENDING
        for name, batch in jobs.items():
            if (worker := registered.get(name)) is not None:
                worker.session.offer(batch, beside_reports=burst)
                continue
            for job, _ in batch:  # the worker is gone, and the machine knows
                opened[job.task].stage = ASSIGNED

    def _made(self, order: Assignment) -> ReadyAssignment | None:
        """None: it comes later, or not at all."""
        try:
            work = self._assigner.at_once(order)
        except BadArgument as error:
            self._refuse(order, str(error))
            return None
        if work is None:
            self._set_stage((order.task, order.attempt), LOADING)
            self._spawn(self._deliver_later(order))
            return None
        return (order.worker, work, order.recipe.spec)

    async def _deliver_later(self, order: Assignment) -> None:
        try:
            work = await retry_until_available(lambda: self._assigner.later(order))
            self.deliver([(order.worker, work, order.recipe.spec)])
        except BadArgument as error:
            self._refuse(order, str(error))
        except Corrupt as error:  # another attempt would read the same bytes
            self._on_alarm("argument_damaged", f"task {order.task} of run {order.run_id}: {error}")
            self._refuse(order, f"an argument is damaged: {error}", code="DamagedArgument")
        except Exception as error:
            self._refuse(order, f"its arguments could not be loaded: {error}")
        finally:
            self._set_stage((order.task, order.attempt), ASSIGNED, instead_of=LOADING)

    def _set_stage(self, key: AttemptKey, stage: int, *, instead_of: int | None = None) -> None:
        attempt = self._write_behind.open.get(key[0])
        if attempt is not None and attempt.row.attempt == key[1] and instead_of in (None, attempt.stage):
            attempt.stage = stage

    def _refuse(self, order: Assignment, message: str, *, code: str = "BadArgument") -> None:
        with contextlib.suppress(Exception):
            self._partition.submit_inputs([Failed(order.task, order.attempt, code, message, permanent=True)])

    def _note_taken(self, call: Call) -> None:
        """What this call took its worker has from the lane, and knows of it from this reply on."""
        for report in call.reports:
            if type(report) is Taken:
                held = self._write_behind.open.get(report.task)
                if held is not None and (held.row.worker, held.row.attempt) == (call.worker, report.attempt):
                    held.stage, held.sent_seq = SENT, max(held.sent_seq, call.seq)

    def stop(self, effect: CancelAttempt | ReleaseAttempt) -> None:
        """The worker must end this attempt: its result does not count any more, or another worker has it."""
        known = self._state.workers.get(effect.worker)
        worker = self.registered.get(known.id) if known is not None else None
        if worker is None:
            return
        key = (effect.task, effect.attempt)
        if worker.session.withdraw(key):
            self._set_stage(key, ASSIGNED, instead_of=PENDING)
        worker.attempts.note([key])
        worker.session.cancel(key)

    # ---- logs

    def check_session(self, piece: LogPiece) -> None:
        """Raises `Refused` where its sender is not the worker that it names, and `Unavailable` where that one has yet
        to say that it is back."""
        worker, start = self.registered.get(piece.worker), self._start_of(piece.worker)
        called = worker.start if worker is not None and worker.session.id else ""
        if piece.session and piece.session in (start, called):
            return
        known = self._sessions.get(piece.worker)
        if start is None and (known is None or known.start == piece.session) and piece.session:
            raise Unavailable(f"no worker {piece.worker!r} is registered now", retry_after_ms=RETRY_MS)
        raise Refused("not_holder", f"this is not the session of worker {piece.worker!r}; lines are for it to send")

    def holds(self, piece: LogPiece) -> bool:
        """Whether that worker has the attempt, or had it until it ended a short while ago."""
        held = self._write_behind.open.get(piece.task)
        if held is not None and (held.row.attempt, held.row.worker) == (piece.attempt, piece.worker):
            return True
        known = self._sessions.get(piece.worker)
        return known is not None and known.start == piece.session and known.held((piece.task, piece.attempt))

    def session_since_ms(self, worker: str) -> int:
        known = self._sessions.get(worker)
        return known.since_ms if known is not None else 0

    def _start_of(self, worker: str) -> str | None:
        """Which start of it the machine knows."""
        number = self._state.worker_numbers.get(worker)
        return self._state.workers[number].start if number is not None else None

    # ---- losses

    def connection_closed(self, peer: str) -> None:
        # A node that speaks for a worker may come back, and it is the one that knows whether the worker is there.
        direct = (worker.session for worker in self.registered.values() if not worker.via)
        self._detector.connection_closed(direct, peer, now_ms=self._clock.mono_ms())

    async def _watch(self) -> None:
        while not self._closing:
            sessions = [worker.session for worker in self.registered.values()]
            for session, cause in self._detector.lost(sessions, now_ms=self._clock.mono_ms()):
                self._lose(session, cause)
            await asyncio.sleep(self._check_s)

    def _lose(self, session: WorkerSession, cause: str) -> None:
        self.registered.pop(session.worker, None)
        session.wake()
        self._on_alarm("worker_lost", f"{session.worker}: {cause}")
        with contextlib.suppress(Exception):
            self._partition.submit_inputs([WorkerLost(session.worker)])

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def offer_of(worker: RegisteredWorker, credit: int) -> Offer:
    profile = worker.profile
    return Offer(
        worker.name,
        credit,
        profile.queues,
        profile.labels,
        profile.slots,
        profile.cpu_milli,
        profile.memory_mb,
        profile.gpu,
        # Messages on a broker stay there when another process publishes for it.
        "" if is_broker_worker(worker.name) else worker.start,
        profile.process,
    )


def introduction(call: Call) -> tuple[str, int]:
    """Return which start of a worker calls, and the number of the call by which that start introduced itself, here or
    to the gateway that divides its credit. The worker is where it introduced itself last."""
    start, _, more = call.session.partition("@")
    if not call.via and not call.share:
        return start, call.seq
    count = more.partition(".")[0]
    return start, int(count) if count.isascii() and count.isdigit() and len(count) < 18 else 0


def name_in_use(call: Call, idle_ms: int) -> Reply:
    message = f"a worker named {call.worker!r} is here already, heard {idle_ms} ms ago; choose another name"
    return Reply(call.seq, refused=message)


def shutting_down() -> Unavailable:
    """A call that waits for work does not get an empty reply, because the worker would repeat it at once."""
    return Unavailable("the server is shutting down; try again in a moment", retry_after_ms=1_000)


def _fenced(call: TranslatedCall, answers: dict[int, CommandResult]) -> tuple[AttemptKey, ...]:
    """Attempts whose reports came too late, or were not this worker's to send."""
    late = [call.report_of(index) for index, answer in sorted(answers.items()) if answer.code == "fenced"]
    return tuple((report.task, report.attempt) for report in late if report is not None)


def _has_commands(reports: Sequence[Report]) -> bool:
    """Whether facts must be looked up for a report: only commands of a task's code may need them."""
    return any(isinstance(report, Succeeded | StepsRecorded) and report.commands is not None for report in reports)
