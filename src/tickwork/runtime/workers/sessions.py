"""The floor where workers sit: calls come in as inputs, dispatched work goes out with the replies.

A seat is what this node remembers of a worker between two calls. Beats stay here; only their absence becomes an
input. A call with reports is answered when they are durable, a repeated call gets the same reply, and where
memory and worker may differ (a new session, a restart of the server) the worker says everything it holds.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.state.effects import CancelAttempt, ReleaseAttempt
from tickwork.core.state.inputs import Failed, WorkerLost
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.state import State
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import Call, LogPiece, Reply, Taken, of_other_store, protocol_mismatch
from tickwork.runtime.partition.partition import Partition
from tickwork.runtime.partition.task_assignment import Assignment, AssignmentBuilder, BadArgument, ReadyAssignment
from tickwork.runtime.partition.write_behind import WriteBehind
from tickwork.runtime.storage.payloads import PayloadStore
from tickwork.runtime.storage.store_retry import retry_until_available
from tickwork.runtime.supervision import supervised
from tickwork.runtime.workers.failure_detector import SILENT_MS, FailureDetector, HeartbeatAges
from tickwork.runtime.workers.reports import ReportTranslator
from tickwork.runtime.workers.seat import WorkerSession, introduced
from tickwork.runtime.workers.session_attempts import Pair, SessionAttemptsTable

CHECK_S, CHECK_S_MAX = 0.5, 60.0
WAIT_MS_MAX = 20_000
VIA_WAIT_MS_MAX = 60_000  # of a node: it beats for all its workers at once
RETRY_MS = 50
GIVEN_UP = "the call that this one repeats was given up; ask again"
MOVED = "it speaks to another node by now"


class WorkerSessions:
    _partition: Partition  # from `attach` on
    _assigner: AssignmentBuilder
    _reporting: ReportTranslator
    _store: str  # its identity

    def __init__(
        self,
        *,
        clock: Clock,
        vault: PayloadStore,
        on_alarm: Callable[[str, str], None],
        detector: FailureDetector,
    ) -> None:
        self._clock = clock
        self._vault = vault
        self._on_alarm = on_alarm
        self._detector = detector
        self._check_s = min(max(CHECK_S, detector.lost_after_ms / 50_000), CHECK_S_MAX)
        self.seats: dict[str, WorkerSession] = {}
        self._sessions = SessionAttemptsTable()
        self._jobs: set[asyncio.Task[None]] = set()
        self._loading: set[Pair] = set()  # attempts whose arguments are being loaded
        self._closing = False
        self.fenced = 0  # reports that came too late
        self.deals = False  # there is somebody who deals credit out

    def attach(self, partition: Partition, *, store: str) -> None:
        """Serve this partition, which keeps its identity when its machine is rebuilt."""
        self._partition, self._assigner, self._store = partition, partition.assigner, store
        self._reporting = ReportTranslator(partition, self._vault)

    @property
    def _books(self) -> WriteBehind:
        return self._partition.books

    @property
    def _state(self) -> State:
        return self._partition.machine.state

    def heartbeat_ages(self) -> HeartbeatAges:
        now_ms, workers = self._clock.mono_ms(), self._state.workers.values()
        ages_ms = {
            seat.worker: now_ms - seat.heard_ms for seat in self.seats.values() if not is_broker_worker(seat.worker)
        }
        orphaned = [
            len(one.tasks)
            for one in workers
            if not is_broker_worker(one.id) and ages_ms.get(one.id, self._detector.lost_after_ms) > SILENT_MS
        ]
        return HeartbeatAges([age_ms / 1000 for age_ms in ages_ms.values()], sum(orphaned))

    def start(self) -> None:
        """Every worker that the state knows has its loss clock started anew. One whose process has ended on this host
        is not waited for: it died with the server, or while there was none."""
        now_ms = self._clock.mono_ms()
        for worker in self._state.workers.values():
            seat = self.seats.setdefault(worker.id, WorkerSession(worker.id, "", now_ms))
            seat.process = worker.process
        self._spawn(supervised(self._watch, name="losses of workers", on_alarm=self._on_alarm))

    def release(self) -> None:
        """No call waits for work any longer: the server is about to stop listening."""
        self._closing = True
        for seat in self.seats.values():
            seat.wake()

    async def close(self) -> None:
        self.release()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ---- calls

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        if (other := of_other_store(call, self._store)) is not None:
            return other
        seat = self._seat_for(call)
        if isinstance(seat, Reply):
            return seat
        seat.heard_ms, seat.closed_ms, seat.peer = self._clock.mono_ms(), 0, "" if call.via else peer
        seat.calls[peer] = seat.calls.get(peer, 0) + 1
        try:
            return await self._reply_to(seat, call)
        finally:
            seat.calls[peer] -= 1
            if not seat.calls[peer]:
                del seat.calls[peer]

    async def _reply_to(self, seat: WorkerSession, call: Call) -> Reply:
        if call.seq == seat.seq and seat.reply is not None and not _broken(seat.reply):
            return await asyncio.shield(seat.reply)
        if call.seq < seat.seq:
            return await self._overtaken(seat, call)
        if not call.reports or call.held is not None:
            seat.wake()  # an older call that still waits ends now; beside reports it goes on waiting
        before, seat.seq = seat.reply, call.seq
        told = seat.reply = asyncio.get_running_loop().create_future()
        try:
            # In the caller's own task: a worker that waits for work gets it before whoever submitted it is told.
            reply = await self._answer(seat, call, before)
        except BaseException as error:
            seat.wake()  # what it would have brought goes another way
            if not told.done():
                given_up = isinstance(error, asyncio.CancelledError)  # whoever repeated the call has not given up
                told.set_exception(Unavailable(GIVEN_UP, retry_after_ms=RETRY_MS) if given_up else error)
                _broken(told)  # nobody else may ever ask what became of it
            raise
        if not told.done():
            told.set_result(reply)
        return reply

    def _seat_for(self, call: Call) -> WorkerSession | Reply:
        seat = self.seats.get(call.worker)
        if seat is not None and seat.session == call.session:
            return seat
        if call.profile is None or call.held is None:
            return Reply(call.seq, resync=True)
        if not call.via and (
            why := protocol_mismatch(call.profile.protocol)
        ):  # nodes looked at each other when they joined
            return Reply(call.seq, refused=why)
        # The node that stands for a worker knows when one start of it is over and another began.
        start, count = introduced(call)
        if seat is not None and seat.start == start:
            if count < seat.introduced:
                return Reply(call.seq, refused=MOVED)
        elif seat is not None and seat.session and not seat.closed_ms and not (call.via and call.via == seat.via):
            idle_ms = self._clock.mono_ms() - seat.heard_ms
            return Reply(
                call.seq,
                refused=f"a worker named {call.worker!r} is here already, heard {idle_ms} ms ago; choose another name",
            )
        if seat is not None:
            seat.wake()
        seat = self.seats[call.worker] = WorkerSession(call.worker, call.session, self._clock.mono_ms())
        seat.via, seat.start, seat.introduced = call.via, start, count
        seat.deals = call.share or bool(call.via)
        known = self._start_of(call.worker)
        seat.known = self._sessions.begin(call.worker, start, since_ms=0 if known == start else self._state.now_ms)
        self._forget_told(call.worker)
        self.deals = self.deals or seat.deals
        return seat

    async def _answer(self, seat: WorkerSession, call: Call, before: "asyncio.Future[Reply] | None") -> Reply:
        beside = seat.reporting and not call.reports and call.held is None  # it waits for work, and for nothing else
        if before is not None and not before.done() and before is not seat.waiting and not beside:
            await asyncio.wait([before])  # mail goes out in the order of the calls
        inputs, payloads, places = await self._reporting.inputs_of(seat, call)
        if self.seats.get(seat.worker) is not seat:
            return Reply(call.seq, resync=True)  # a late offer of this start would end the one that replaced it
        fenced: tuple[Pair, ...] = ()
        if inputs:
            letter = self._partition.submit_inputs(inputs, payloads)
            seat.reporting += 1
            try:
                await letter.done
            finally:
                seat.reporting -= 1
            refused = [answer for place, answer in letter.answers.items() if answer.code and place not in places]
            if refused:
                seat.wake()
                return Reply(call.seq, refused=refused[0].message)
            late = [places[place] for place, answer in sorted(letter.answers.items()) if answer.code == "fenced"]
            self.fenced += len(late)
            fenced = tuple((report.task, report.attempt) for report in late)
            self._note_taken(call)
            seat.known.note_reports(call.reports, fenced)
        if call.goodbye or call.lost:
            if self.seats.get(seat.worker) is seat:  # it may have come back meanwhile, and sits in another
                del self.seats[seat.worker]
            if call.lost:
                self._on_alarm("worker_lost", f"{seat.worker}: as {seat.via or 'it'} says")
            return Reply(call.seq, fenced=fenced)
        if call.held is not None:
            self._reconcile(seat, call)
        elif not inputs and not seat.mail and not seat.stops and call.seq == seat.seq:
            await self._until_mail(seat, call)
        return self._reply(seat, call, fenced)

    async def _overtaken(self, seat: WorkerSession, call: Call) -> Reply:
        """A later call came first, on another connection. What it says counts; mail goes out with later replies only,
        because nobody may be there to read this one."""
        inputs, payloads, places = await self._reporting.inputs_of(
            seat, msgspec.structs.replace(call, credit=seat.credit)
        )
        if self.seats.get(seat.worker) is not seat:
            return Reply(call.seq, resync=True)
        fenced: tuple[Pair, ...] = ()
        if inputs:
            letter = self._partition.submit_inputs(inputs, payloads)
            await letter.done
            late = [places[place] for place, answer in sorted(letter.answers.items()) if answer.code == "fenced"]
            fenced = tuple((report.task, report.attempt) for report in late)
            seat.known.note_reports(call.reports, fenced)
        if call.held is not None:
            self._reconcile(seat, call)
            seat.wake()
        return Reply(call.seq, fenced=fenced)

    async def _until_mail(self, seat: WorkerSession, call: Call) -> None:
        if seat.seq != call.seq or not call.wait_ms:
            return
        self._must_be_open()
        loop = asyncio.get_running_loop()
        woken = seat.woken = loop.create_future()
        seat.waiting = seat.reply
        wait_ms = min(call.wait_ms, VIA_WAIT_MS_MAX if call.via else WAIT_MS_MAX)
        alarm = loop.call_at(loop.time() + wait_ms / 1000, seat.wake)
        try:
            await woken
        finally:
            alarm.cancel()
            if seat.woken is woken:
                seat.woken = seat.waiting = None
        self._must_be_open()

    def _must_be_open(self) -> None:
        """Whoever wants to wait for work is not answered with nothing: it would ask again at once."""
        if self._closing:
            raise Unavailable("the server is shutting down; ask again in a moment", retry_after_ms=1_000)

    def _reply(self, seat: WorkerSession, call: Call, fenced: tuple[Pair, ...]) -> Reply:
        if self.seats.get(seat.worker) is not seat:
            return Reply(call.seq, fenced=fenced)  # it sits elsewhere by now, and says there what it holds
        mail, seat.mail = seat.mail, []
        stops, seat.stops = seat.stops, []
        opened, seq = self._books.open, call.seq
        for work, _ in mail:
            if (held := opened.get(work.task)) is not None:
                held.told = seq
        fresh = {spec.id: spec for _, spec in mail if spec.id not in seat.specs}
        seat.specs.update(dict.fromkeys(fresh))
        seat.told_wanted = self._wanted(seat) if seat.deals else 0
        return Reply(
            call.seq,
            tuple([work for work, _ in mail]),
            tuple(fresh.values()),
            tuple(stops),
            fenced,
            wanted=seat.told_wanted,
            store=self._store if call.profile is not None else "",
        )

    def heartbeats(self, via: str, workers: Iterable[str]) -> None:
        """Record that these workers are alive, as the node that speaks for them reports."""
        now_ms, seats = self._clock.mono_ms(), self.seats
        for name in workers:
            seat = seats.get(name)
            if seat is not None and seat.via == via:
                seat.heard_ms = now_ms

    # ---- what whoever deals credit out wants to know

    def look_for_room(self) -> None:
        """A tick is durable. Where work waits for credit, those hear it who deal a worker's credit out to partitions:
        this one may need more of it."""
        if not any(station.parked for station in self._state.stations.values()):
            return  # nearly always, and nothing here may grow with the number of workers
        for seat in self.seats.values():
            if seat.deals and seat.woken is not None and not seat.told_wanted and self._wanted(seat):
                seat.wake()

    def _wanted(self, seat: WorkerSession) -> int:
        number = self._state.worker_numbers.get(seat.worker)
        if number is None:
            return 0
        worker = self._state.workers[number]
        waiting = [station for station in self._state.stations.values() if station.parked and station.serves(worker)]
        return sum(lane.live for station in waiting for _, stamp, lane in station.parked if lane.stamp == stamp)

    def _reconcile(self, seat: WorkerSession, call: Call) -> None:
        """What is assigned and not held is offered again; what is held and not assigned is to be stopped."""
        held = dict.fromkeys(call.held or ())
        seat.specs.clear()
        number = self._state.worker_numbers.get(seat.worker)
        tasks = self._state.workers[number].tasks if number is not None else {}
        on_its_way = {(work.task, work.attempt) for work, _ in seat.mail} | self._loading
        missing: list[ReadyAssignment | Assignment] = []
        for _, task in sorted(tasks.items()):
            pair = (task.number, task.attempt)
            # What was dispatched in a tick that still commits is delivered when that is durable.
            durable = task.dispatched <= self._partition.durable_tick
            if durable and pair not in held and pair not in on_its_way and not self._told_since(task.number, call):
                missing.append(self._assigner.order(task))
        self.deliver(missing)
        assigned = {(task.number, task.attempt) for task in tasks.values()}
        seat.stops += [pair for pair in held if pair not in assigned]

    def _told_since(self, task: int, call: Call) -> bool:
        """Whether it went out with the reply to a later call, which the worker could not know of in this one."""
        held = self._books.open.get(task)
        return held is not None and held.told > call.seq

    def _forget_told(self, worker: str) -> None:
        """Calls are counted by session: what another one was told says nothing to this one."""
        number = self._state.worker_numbers.get(worker)
        for task in self._state.workers[number].tasks.values() if number is not None else ():
            if (held := self._books.open.get(task.number)) is not None:
                held.told = 0

    # ---- what the machine wants done

    def deliver(self, orders: list[ReadyAssignment | Assignment], *, burst: bool = False) -> None:
        """Work for workers, once its tick is durable. That of a burst of timers goes out beside reports: these stand
        behind the timers that are still due. Otherwise it goes with their reply, and the call that waits goes on
        waiting."""
        opened, seats = self._books.open, self.seats
        got: dict[str, WorkerSession] = {}
        for order in orders:
            ready = order if isinstance(order, tuple) else self._made(order)
            if ready is None:
                continue
            worker, work, spec = ready
            held, seat = opened.get(work.task), seats.get(worker)
            if seat is None or held is None or held.row.attempt != work.attempt:
                continue  # it ended while its arguments were loaded, or its worker is gone: the machine knows
            seat.mail.append((work, spec))
            got[worker] = seat
        for seat in got.values():
            if burst or not seat.reporting:
                seat.wake()

    def _made(self, order: Assignment) -> ReadyAssignment | None:
        """None: it comes later, or not at all."""
        try:
            work = self._assigner.at_once(order)
        except BadArgument as error:
            self._refuse(order, str(error))
            return None
        if work is None:
            self._loading.add((order.task, order.attempt))
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
            self._loading.discard((order.task, order.attempt))

    def _refuse(self, order: Assignment, message: str, *, code: str = "BadArgument") -> None:
        with contextlib.suppress(Exception):
            self._partition.submit_inputs([Failed(order.task, order.attempt, code, message, permanent=True)])

    def _note_taken(self, call: Call) -> None:
        """What this call took its worker has from the lane, and knows of it from this reply on."""
        for report in call.reports:
            if type(report) is Taken:
                held = self._books.open.get(report.task)
                if held is not None and (held.row.worker, held.row.attempt) == (call.worker, report.attempt):
                    held.told = max(held.told, call.seq)

    def stop(self, effect: CancelAttempt | ReleaseAttempt) -> None:
        """Its worker has nothing more to do with this attempt: it counts no more, or another one has it."""
        worker = self._state.workers.get(effect.worker)
        seat = self.seats.get(worker.id) if worker is not None else None
        if seat is None:
            return
        seat.mail = [
            (work, spec) for work, spec in seat.mail if (work.task, work.attempt) != (effect.task, effect.attempt)
        ]
        seat.stops.append((effect.task, effect.attempt))
        seat.known.note([(effect.task, effect.attempt)])
        seat.wake()

    # ---- logs

    def check_session(self, piece: LogPiece) -> None:
        """Raises `Refused` where its sender is not the worker that it names, and `Unavailable` where that one has yet
        to say that it is back."""
        seat, start = self.seats.get(piece.worker), self._start_of(piece.worker)
        if piece.session and piece.session in (start, seat.start if seat is not None and seat.session else ""):
            return
        known = self._sessions.get(piece.worker)
        if start is None and (known is None or known.start == piece.session) and piece.session:
            raise Unavailable(f"no worker {piece.worker!r} is registered now", retry_after_ms=RETRY_MS)
        raise Refused("not_holder", f"this is not the session of worker {piece.worker!r}; lines are for it to send")

    def holds(self, piece: LogPiece) -> bool:
        """Whether that worker has the attempt, or had it until it ended a short while ago."""
        held = self._books.open.get(piece.task)
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
        direct = (seat for seat in self.seats.values() if not seat.via)
        self._detector.connection_closed(direct, peer, now_ms=self._clock.mono_ms())

    async def _watch(self) -> None:
        while not self._closing:
            for seat, cause in self._detector.lost(self.seats.values(), now_ms=self._clock.mono_ms()):
                self._lose(seat, cause)
            await asyncio.sleep(self._check_s)

    def _lose(self, seat: WorkerSession, cause: str) -> None:
        self.seats.pop(seat.worker, None)
        seat.wake()
        self._on_alarm("worker_lost", f"{seat.worker}: {cause}")
        with contextlib.suppress(Exception):
            self._partition.submit_inputs([WorkerLost(seat.worker)])

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def _broken(reply: "asyncio.Future[Reply]") -> bool:
    return reply.done() and (reply.cancelled() or reply.exception() is not None)
