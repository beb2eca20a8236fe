"""One partition at work: take inputs, pick a tick, decide, commit, then act.

A tick is decided once and its bytes are committed until the outcome is known; nothing leaves before its own tick
is durable. While one tick commits, the next one is decided if much waits or a timer is due (never more than that), so
load turns into larger batches by itself. Rows follow behind. Idle, it waits for an input or for the next due timer,
and costs nothing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from tickwork.core.base.errors import OutcomeUnknown, TickworkError, Unavailable
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Value
from tickwork.core.decide.worker_reports import stand_in
from tickwork.core.snapshot.dirty_rows import DirtyRows
from tickwork.core.state.effects import CommandResult, Dispatch, Effect
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import ClockGap, Input, Submit
from tickwork.journal.record import SealedRow
from tickwork.journal.replay import Recorder
from tickwork.ports.store import Fenced, Head, Payload, Rows, Store, StoreUnusable
from tickwork.runtime.partition.commit_writer import CommitWriter
from tickwork.runtime.partition.fact_lookup import FactLookup
from tickwork.runtime.partition.input_queue import BatchSlice, InputBatch, InputQueue
from tickwork.runtime.partition.interpreter_tuning import InterpreterTuning
from tickwork.runtime.partition.logical_clock import TickClock
from tickwork.runtime.partition.pacing import FlushPolicy, TickPacer
from tickwork.runtime.partition.recovery import RecoveredPartition
from tickwork.runtime.partition.task_assignment import Assignment, AssignmentBuilder, ReadyAssignment
from tickwork.runtime.partition.write_behind import WriteBehind
from tickwork.runtime.storage.store_retry import RETRY_S, retry_until_available

if TYPE_CHECKING:
    from tickwork.core.machine import Machine, Outcome

UNDURABLE_MAX = 2  # one tick commits, one is decided
AHEAD_INPUTS = 200  # that make it worth while; fewer wait for the commit, and take along what comes until then
WRITTEN_S = 0.002
STOP_S = 10.0  # an owner that ends waits no longer for a store that takes nothing
BESIDE_TIMERS, TIMER_TICKS_MAX = 32, 8  # inputs that a tick takes while timers are due, and for how many ticks
REASON_CHARACTERS_MAX = 500
RESOLVED_S = 0.002


class DecidedTick(msgspec.Struct, eq=False):
    """A tick that is not durable yet, and the actions that follow. Without `row`, only rows are written."""

    seq: int
    row: SealedRow | None = None
    payloads: list[Payload] = []
    through: list[InputBatch] = []
    fired: int = 0  # timers that it took
    orders: list[ReadyAssignment | Assignment] = []
    effects: list[Effect] = []  # beside what the orders came of
    inputs: list[Input] = []
    events: list[Event] = []  # out of the ordinary
    rows: Rows | None = None
    tick: int = 0
    head: bytes = b""
    changed: frozenset[int] = frozenset()  # runs that are watched
    committing: "asyncio.Future[None] | None" = None  # where nothing stood before it: begun at once


class PartitionFailed(TickworkError):
    """A tick without inputs cannot be decided, or the shell failed: an internal error that stops the partition."""

    code = "poisoned"


class Partition:
    def __init__(
        self,
        *,
        number: int,
        store: Store,
        machine: "Machine",
        head: Head,
        watermark_head: bytes,
        keeper: TickClock,
        write_behind: WriteBehind,
        assigner: AssignmentBuilder,
        facts: FactLookup,
        on_durable: Callable[[DecidedTick], None],
        on_alarm: Callable[[str, str], None],
        rebuild: Callable[[], Awaitable[RecoveredPartition]],
        tuning: InterpreterTuning,
    ) -> None:
        self.number = number
        self.machine = machine
        self.epoch = head.epoch
        self.durable_seq = head.seq
        self.writer = CommitWriter(store, number, head=head, watermark_head=watermark_head, on_alarm=on_alarm)
        self.durable_tick = machine.state.tick
        self.write_behind = write_behind
        self.write_behind.epoch = head.epoch
        self.keeper = keeper
        self.watched = False  # whether any caller watches changed runs
        self.failed: TickworkError | None = None
        self.inputs_taken = self.dispatches = self.tasks_ended = 0  # since the start
        self._facts = facts
        self.assigner = assigner
        self._recorder = Recorder(seq=head.seq, head=head.hash, rules=machine.rules)
        self._inbox = InputQueue()
        self._pace = TickPacer()
        self._row_pace = FlushPolicy()
        self._on_durable = on_durable
        self._on_alarm = on_alarm
        self._rebuild = rebuild
        self._tuning = tuning
        self._in_hand: list[BatchSlice] = []  # taken from the inbox and not decided yet
        self._one_by_one = 0  # inputs to be tried alone, because one of them cannot be decided
        self._wake = asyncio.Event()
        self._undurable: deque[DecidedTick] = deque()
        self._pending = asyncio.Event()
        self._room = asyncio.Event()
        self._committed = asyncio.Event()
        self._behind: deque[DecidedTick] = deque()  # rows to write
        self._rows_left = False  # to the next owner
        self._rows_ready = asyncio.Event()
        self._stopping = False
        self._over = False  # nothing is decided any more
        self._resolved_at = 0.0
        self._timer_ticks = 0  # in a row that took few inputs
        self._tasks: list[asyncio.Task[None]] = []

    # ---- from outside

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._row_pace.ticked(loop.time(), events=0)  # what a recovery has folded may be unwritten
        self._tasks = [loop.create_task(job) for job in (self._run(), self._commit_all(), self._write_behind())]
        self._tasks[1].add_done_callback(lambda _: self._rows_ready.set())

    async def stop(self) -> None:
        """Decide and commit what waits, write the rows, then end. If the store accepts nothing, waiting callers learn
        that the outcome is unknown; rows that are missing are in the journal."""
        self._stopping = True
        self._wake.set()
        taken = -1
        while not all(task.done() for task in self._tasks):
            if taken == self.writer.taken:
                await self._drop(
                    Unavailable("the store accepts no commits, and this owner is stopping", retry_after_ms=5_000)
                )
                return
            taken = self.writer.taken
            await asyncio.wait(self._tasks, timeout=STOP_S)

    async def abandon(self, reason: str) -> None:
        """End without another decision or write, because another owner may have the partition. Waiting callers fail."""
        await self._drop(Fenced(reason))

    async def _drop(self, error: TickworkError) -> None:
        self._fail(error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def pause_flushing(self) -> None:
        """Write the rows up to now, and leave later ones to the next owner, which reads ahead from there."""
        await self._until_written()
        self._close_window(force=True)
        self._rows_left = True
        await self._until_written()

    def resume_flushing(self) -> None:
        self._rows_left = False
        self._wake.set()

    async def _until_written(self) -> None:
        while self.write_behind.writing is not None and self.failed is None:
            await asyncio.sleep(WRITTEN_S)

    def submit_inputs(
        self, inputs: list[Input], payloads: list[Payload] | None = None, *, facts: bool = False
    ) -> InputBatch:
        """Hand over inputs; `batch.done` is set when the tick that took the last of them is durable."""
        if self.failed is not None:
            raise Unavailable(f"this partition has stopped: {self.failed}", retry_after_ms=5_000)
        if self._over:  # the request would never get a response
            raise Unavailable("this partition has stopped on this node; try again in a moment", retry_after_ms=50)
        batch = InputBatch(inputs, asyncio.get_running_loop().create_future(), payloads or [], facts)
        batch.weight = sum(len(payload.data) for payload in batch.payloads)
        self._inbox.add(batch)
        if self._inbox.waiting >= AHEAD_INPUTS:
            self._room.set()
        if type(inputs[0]) is Submit:
            self._pace.heard(asyncio.get_running_loop().time())
        self._wake.set()
        return batch

    @property
    def backlog(self) -> int:
        return self._inbox.waiting

    def unwritten_children(self, run: int, step: int) -> dict[int, Value]:
        """Results of a map's children that are not in the store yet."""
        return self.write_behind.children_of(run, step)

    @property
    def decided_seq(self) -> int:
        """What views are built from; at most two ticks ahead of `durable_seq`."""
        return self._recorder.seq

    @property
    def decided_hash(self) -> bytes:
        """Of that seq."""
        return self._recorder.head

    @property
    def idle(self) -> bool:
        """Whether all inputs are decided and durable, and no timer is due."""
        return not (self._inbox or self._in_hand or self._undurable or self._timer_due())

    def refresh(self) -> None:
        """Look for due timers: the clock was moved by hand."""
        self._wake.set()

    async def next_commit(self) -> None:
        committed = self._committed
        await committed.wait()

    # ---- deciding

    async def _run(self) -> None:
        try:
            while True:
                await self._until_something_is_due()
                if self._stopping and not self._inbox:
                    break
                await self._until_room()
                await self._until_gathered()
                if self.failed is not None:
                    break
                if self._inbox or self._timer_due():
                    await self._yield_to_responses()
                    await self._tick()
                    await asyncio.sleep(0)  # what is decided goes to the store while the next tick is
                    await self._yield_to_responses()
                self._close_window()
        except Exception as error:
            self._fail(error)
        finally:
            self._stopping = self._over = True
            self._close_window(force=True)
            self._pending.set()

    async def _until_something_is_due(self) -> None:
        """An input, a timer, or rows that have waited long enough."""
        while not self._inbox and not self._stopping and self.failed is None:
            due = self.machine.next_tick()
            wait = None if due is None else self.keeper.seconds_until(due)
            if self.write_behind.unwritten and self.write_behind.writing is None and not self._rows_left:
                rows = self._rows_wait()
                wait = rows if wait is None else min(wait, rows)
            if wait is not None and wait <= 0:
                return
            self._wake.clear()
            loop = asyncio.get_running_loop()  # by its clock: a wait that is rounded down to nothing would spin
            alarm = None if wait is None else loop.call_at(loop.time() + wait, self._wake.set)
            await self._wake.wait()
            if alarm is not None:
                alarm.cancel()

    def _rows_wait(self) -> float:
        """One piece of arithmetic for waiting and for acting: where they round differently, nothing would do either."""
        window = self.write_behind.window
        return self._row_pace.wait_s(asyncio.get_running_loop().time(), ticks=window.ticks, ended=len(window.left))

    def _timer_due(self) -> bool:
        due = self.machine.next_tick()
        return due is not None and due <= self.keeper.tick()

    def _inputs_beside_timers(self) -> int | None:
        """What waits for its time goes before what only reports; but not for long, or a stream of timers would
        keep everybody else waiting."""
        few = self._inbox.waiting <= BESIDE_TIMERS
        if few or self._timer_ticks >= TIMER_TICKS_MAX or not self._timer_due():
            self._timer_ticks = 0
            return None
        self._timer_ticks += 1
        return BESIDE_TIMERS

    async def _until_room(self) -> None:
        while self._undurable and self.failed is None:
            ahead = self._inbox.waiting >= AHEAD_INPUTS or self._timer_due()
            if ahead and len(self._undurable) < UNDURABLE_MAX:
                return
            self._room.clear()
            await self._room.wait()

    async def _until_gathered(self) -> None:
        loop = asyncio.get_running_loop()
        wait = self._pace.wait_s(loop.time(), waiting=self._inbox.waiting)
        if wait > 0 and not self._stopping:
            await asyncio.sleep(wait)
        self._pace.ticked(loop.time())

    async def _yield_to_responses(self) -> None:
        """Let callers whose inputs have just become durable send their responses before the next tick."""
        if asyncio.get_running_loop().time() - self._resolved_at < RESOLVED_S:
            await asyncio.sleep(0)

    async def _next_tick(self) -> int:
        """Above the last one, and not ahead of real time. Where logical time is ahead already, it is the next one."""
        last = self.machine.state.tick
        while (tick := self.keeper.tick()) <= last:
            if self.keeper.is_ahead():
                await asyncio.sleep(self.machine.state.settings.clock.resolution_ms / 1000)
                return max(self.keeper.tick(), self.keeper.creep(last))
            await asyncio.sleep(max(self.keeper.seconds_until(last + 1), 0.0005))
        return tick

    async def _tick(self) -> None:
        limit = 1 if self._one_by_one else self._inputs_beside_timers()
        parts = self._in_hand = self._inbox.take() if limit is None else self._inbox.take(limit=limit)
        self._one_by_one = max(0, self._one_by_one - 1)
        try:
            requests = await self._facts.attach(parts)
        except StoreUnusable:
            raise  # an outage: nothing could be committed either
        except Exception as error:
            self._refuse_unreadable(parts, error)
            return
        tick = await self._next_tick()
        if self.failed is not None:
            return  # the callers have their answers
        gaps: list[Input] = [ClockGap(gap.from_ms, gap.to_ms, gap.cause, gap.by) for gap in self.keeper.take_gaps()]
        inputs = gaps + requests if gaps else requests
        try:
            outcome = self.machine.apply(tick, inputs)
            taken = inputs if outcome.taken == len(inputs) else inputs[: outcome.taken]
            row = self._recorder.row(outcome.tick, taken, outcome.events)  # fails where an input cannot be encoded
        except Exception as error:
            await self._isolate(parts, error)
            return
        self._in_hand = []
        self._decided(outcome, row, parts, taken, len(gaps))

    def _decided(
        self, outcome: "Outcome", row: SealedRow, parts: list[BatchSlice], taken: list[Input], gaps: int
    ) -> None:
        payloads = [payload for part in parts if part.start == 0 for payload in part.batch.payloads]
        began = asyncio.get_running_loop().time()
        committing = None if self._undurable else self.writer.begin(row, payloads)
        took = asyncio.get_running_loop().time() - began
        others = self.write_behind.observe(taken, outcome.events)
        for difference in self.write_behind.ledger.take_found():
            self._on_alarm("ledger_gap", difference)
        effects = [effect for effect in outcome.effects if type(effect) is not Dispatch]
        _sort_answers(parts, effects, gaps)
        orders = self.assigner.orders(self.machine.state.tasks, outcome.effects)
        self.inputs_taken += len(taken)
        self.dispatches += len(orders)
        self.tasks_ended += len(self.machine.state.ended)
        decided = DecidedTick(
            seq=row.seq,
            row=row,
            payloads=payloads,
            through=self._inbox.settle(parts, max(0, outcome.taken - gaps)),
            fired=outcome.fired,
            orders=orders,
            effects=effects,
            inputs=taken,
            events=others,
            tick=outcome.tick,
            changed=self._changed(outcome.events) if self.watched else frozenset(),
            committing=committing,
        )
        self._undurable.append(decided)
        if committing is not None and committing.done() and committing.exception() is None:
            self._made_durable(decided, took)
            self._undurable.popleft()
        else:
            self._pending.set()
        self._row_pace.ticked(asyncio.get_running_loop().time(), events=len(outcome.events))
        self._tuning.ticked(inputs=len(taken))

    def _changed(self, events: list[Event]) -> frozenset[int]:
        noted = DirtyRows(self.machine.state)
        noted.note(self.machine.state, events)
        return frozenset(noted.runs)

    async def _isolate(self, parts: list[BatchSlice], error: Exception) -> None:
        """Handle a tick that cannot be decided, which is an internal error.

        The machine is rebuilt from the store, the inputs are tried one by one, and the faulty one is set aside with an
        alarm. A worker's report is replaced by one that ends its task, otherwise it would be sent again forever. Then
        the partition continues.
        """
        reason = f"{type(error).__name__}: {error}"
        while (self._undurable or self.write_behind.writing is not None) and self.failed is None:
            await asyncio.sleep(RETRY_S)
        if self.failed is not None:
            return
        self.machine, self.write_behind, self.writer.watermark_head = await retry_until_available(self._rebuild)
        self.write_behind.epoch = self.epoch
        self._in_hand = []
        self._facts = self._facts.over(self.write_behind)
        count = sum(part.count for part in parts)
        if count == 0:
            raise PartitionFailed(f"a tick without inputs could not be decided: {reason}") from error
        if count > 1:
            self._inbox.settle(parts, 0)
            self._one_by_one = count
            return
        message = "this request cannot be decided; it is set aside"
        self._set_aside(parts, "quarantined", message, reason)

    def _refuse_unreadable(self, parts: list[BatchSlice], error: Exception) -> None:
        """Handle a lookup that failed permanently. The inputs are tried one by one, and an input whose own lookup fails
        is refused with an alarm. Nothing was decided, so the machine is unchanged."""
        if self.failed is not None:
            return  # the senders know that the outcome is not known
        self._in_hand = []
        if (count := sum(part.count for part in parts)) > 1:
            self._inbox.settle(parts, 0)
            self._one_by_one = count
            return
        message = "the stored data for this request cannot be read, so it was refused; see the server's alarms"
        self._set_aside(parts, "lookup_failed", message, f"{type(error).__name__}: {error}")

    def _set_aside(self, parts: list[BatchSlice], code: str, message: str, reason: str) -> None:
        """Answer a single input, and take it out of the inbox."""
        batch = parts[0].batch
        request = batch.inputs[batch.taken]
        reason = shortened(reason, REASON_CHARACTERS_MAX)
        self._on_alarm(code, f"a {type(request).__name__} was set aside: {reason}")
        instead = stand_in(request, reason)
        if instead is not None:
            batch.inputs[batch.taken] = instead
            self._inbox.settle(parts, 0)
            self._one_by_one = 1
            return
        batch.answers[batch.taken] = CommandResult(0, "", code, message)
        for through in self._inbox.settle(parts, 1):
            through.done.set_result(None)

    def _close_window(self, *, force: bool = False) -> None:
        write_behind = self.write_behind
        if not write_behind.unwritten or write_behind.writing is not None or self.failed is not None:
            return
        if self._rows_left and not (force and write_behind.window.cache):  # the journal tells all but what is cached
            return
        if not force and self._rows_wait() > 0:
            return
        now, window = asyncio.get_running_loop().time(), write_behind.window
        whole = force or self._row_pace.is_whole(now) or bool(window.reopened)
        self._row_pace.wrote(now, whole=whole)
        rows, last = (
            write_behind.rows() if whole else write_behind.ended_rows(),
            self._undurable[-1] if self._undurable else None,
        )
        if last is not None and last.rows is None:
            last.rows, last.head = rows, self._recorder.head
        else:
            self._undurable.append(DecidedTick(seq=self._recorder.seq, rows=rows, head=self._recorder.head))
            self._pending.set()

    # ---- committing

    async def _commit_all(self) -> None:
        """In order, one after the other, each until its outcome is known."""
        try:
            while True:
                if not self._undurable:
                    if self._stopping and self._tasks[0].done():
                        return
                    self._pending.clear()
                    await self._pending.wait()
                    continue
                decided = self._undurable[0]
                if decided.row is not None:
                    began = asyncio.get_running_loop().time()
                    await self.writer.commit(decided.row, decided.payloads, decided.committing)
                    if self.failed is not None:
                        return  # the waiting callers know that the outcome is unknown
                    self._made_durable(decided, asyncio.get_running_loop().time() - began)
                self._undurable.popleft()
                self._room.set()
                if decided.rows is not None:
                    self._behind.append(decided)
                    self._rows_ready.set()
        except Exception as error:
            self._fail(error)

    def _made_durable(self, decided: DecidedTick, took: float) -> None:
        self.writer.committed(took)
        self.durable_seq, self.durable_tick = decided.seq, decided.tick
        self._on_durable(decided)
        if decided.orders:  # workers first: their replies leave after all ready callbacks have run
            asyncio.get_running_loop().call_soon(_resolve_batches, decided.through)
        else:
            _resolve_batches(decided.through)
        self._resolved_at = asyncio.get_running_loop().time()
        committed, self._committed = self._committed, asyncio.Event()
        committed.set()

    async def _write_behind(self) -> None:
        """Write rows in portions between commits, so that no commit waits long."""
        try:
            while True:
                if self._behind:
                    decided = self._behind.popleft()
                    assert decided.rows is not None
                    await self.writer.write_rows(decided.rows, through=decided.seq, head=decided.head)
                    self.write_behind.written()
                    self._wake.set()
                    continue
                if self._tasks[1].done() or self.failed is not None:
                    return
                self._rows_ready.clear()
                await self._rows_ready.wait()
        except Exception as error:
            self._fail(error)

    def _fail(self, cause: Exception) -> None:
        """Stop the partition: decide and write nothing more, and fail all waiting calls."""
        if self.failed is not None:
            return
        error = cause if isinstance(cause, TickworkError) else PartitionFailed(f"{type(cause).__name__}: {cause}")
        self.failed = error
        self._on_alarm(error.code, str(error))
        decided_upon = [batch for decided in self._undurable for batch in decided.through]
        waiting = [part.batch for part in self._in_hand] + self._inbox.drain()
        for batch in (*decided_upon, *waiting):
            if not batch.done.done():
                batch.done.set_exception(_outcome(batch, error))
                batch.done.exception()  # some callers never read the outcome
        for decided in self._undurable:
            if decided.committing is not None:
                decided.committing.cancel()
        self._undurable.clear()
        for event in (self._wake, self._pending, self._room, self._committed, self._rows_ready):
            event.set()


def _outcome(batch: InputBatch, error: TickworkError) -> Unavailable:
    """Return the outcome of a request whose partition failed. Inputs that a tick took may have been executed."""
    if not batch.taken:
        return Unavailable(f"nothing was done: {error}; try again", retry_after_ms=1_000)
    message = f"the outcome is unknown: {error}; read the state, or repeat the request with the same key"
    return OutcomeUnknown(message, retry_after_ms=1_000)


def _resolve_batches(batches: list[InputBatch]) -> None:
    for batch in batches:
        if not batch.done.done():
            batch.done.set_result(None)


def _sort_answers(parts: list[BatchSlice], effects: list[Effect], gaps: int) -> None:
    """Give each batch the machine's answers to its inputs, by their position in the batch."""
    answers = [effect for effect in effects if type(effect) is CommandResult]
    if not answers:
        return
    ends: list[tuple[int, int, BatchSlice]] = []
    start = gaps
    for part in parts:
        ends.append((start, start + part.count, part))
        start += part.count
    for answer in answers:
        for begin, end, part in ends:
            if begin <= answer.input < end:
                part.batch.answers[part.start + answer.input - begin] = answer
                break
