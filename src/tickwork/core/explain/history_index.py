"""Which journal rows concern a run, and what those rows alone do not say.

`why` must cost what the run costs. Most rows of a run follow from its record: the ticks of its submission, start and
end, and of each attempt's dispatch, start and end. Every visit follows one of these, because a run that wants a visit
says so in its own state. This index lists the rest, while ticks are observed:

    COVERED  epoch          the rows after `seq` and up to the one in the data are indexed
    LANE     ready queue    what holds it, at the end of a tick in which that changed
    WORKER   worker number  which worker has this number, and which start of it
    RUN      run or task    another row about a run: timers, waits, children, commands, failures
    REPORT   task           a report without effect, also one that came after the run had ended
    COMMAND  id of a run    a command without effect, likewise

Task numbers of a run's nodes follow the run's own number, so one range of subjects has all entries of a run. Children
of a map have numbers elsewhere; what happens to them is noted under their run.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from tickwork.core.base.stable_hash import stable_hash
from tickwork.core.explain.run_history_text import fired_words
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Input, Submit
from tickwork.core.state.lifecycle import RunTrigger
from tickwork.core.state.ready_queues import HANDLER_LABEL, PREFERRED, ReadyQueue
from tickwork.core.state.state import State, Task

COVERED, LANE, WORKER, RUN, REPORT, COMMAND = 1, 2, 3, 4, 5, 6
DERIVED_MOVES = frozenset((int(RunTrigger.START), int(RunTrigger.COMPLETE), int(RunTrigger.WAIT), int(RunTrigger.WAKE)))


class Place(NamedTuple):
    kind: int
    subject: int
    seq: int


class LaneNote(msgspec.Struct, frozen=True, array_like=True):
    """What held a ready queue at the end of a tick; no reason: nothing."""

    tick: int
    reason: str
    by: str
    since: int  # tick


class WorkerNote(msgspec.Struct, frozen=True, array_like=True):
    id: str
    start: str


class RunNote(msgspec.Struct, array_like=True):
    """What a row about a run does not say by itself."""

    later: str = ""  # why a scheduled run does not begin at its nominal time
    governed: str = ""  # why its schedule was due then
    leaver: str = ""  # the run that handed over its concurrency key
    lanes: dict[int, int] = {}  # task -> ready queue, where that depends on which workers have the handler


_encode = msgspec.msgpack.Encoder().encode
decode_lane = msgspec.msgpack.Decoder(LaneNote).decode
decode_worker = msgspec.msgpack.Decoder(WorkerNote).decode
decode_through = msgspec.msgpack.Decoder(int).decode
_decode_run = msgspec.msgpack.Decoder(RunNote).decode


def decode_run(data: bytes) -> RunNote:
    return _decode_run(data) if data else RunNote()


def command_subject(tenant: str, run_id: str) -> int:
    return stable_hash("run", tenant, run_id) >> 1  # as a signed number


class HistoryIndex:
    """Begin it with the state after the row `seq`, then observe every row. Entries collect until `take`."""

    def __init__(self, state: State, seq: int) -> None:
        self.state = state
        self.begin = self.seq = seq
        self.entries: dict[Place, bytes] = {}
        self._workers = {worker.number: WorkerNote(worker.id, worker.start) for worker in state.workers.values()}
        self._lanes = {lane.number: (lane.held, lane.held_by) for lane in state.lanes.values() if lane.held}
        self._first = self._held_and_known()

    def cover(self, epoch: int, *, through: int) -> None:
        """Entries up to `through` are written with this one. The first of an owner brings along what is not new but
        may be needed for: who the workers are, and what holds the ready queues."""
        self.entries = {**self._first, **self.entries, Place(COVERED, epoch, self.begin): _encode(through)}
        self._first = {}

    def _held_and_known(self) -> dict[Place, bytes]:
        seq, tick = self.seq, self.state.tick
        workers = {Place(WORKER, number, seq): _encode(note) for number, note in self._workers.items()}
        lanes = {
            Place(LANE, lane.number, seq): _encode(LaneNote(tick, lane.held, lane.held_by, lane.held_since))
            for lane in self.state.lanes.values()
            if lane.held
        }
        return workers | lanes

    def take(self) -> dict[Place, bytes]:
        entries, self.entries = self.entries, {}
        return entries

    def observe(self, inputs: list[Input], events: Iterable[ev.Event]) -> None:
        """Once after each tick, with its events; those whose rows follow from the run's record may be left out."""
        rules, state = _RULES, self.state
        for event in events:
            rule = rules.get(type(event))
            if rule is not None:
                rule(self, event, inputs)
        for lane in state.released:
            self._lane(lane)
        for run, leaver in state.let_in:
            self._note(run.number, leaver=leaver)

    def add(self, subject: int) -> None:
        """This row concerns the run, or the run of this node's task."""
        self.entries.setdefault(Place(RUN, subject, self.seq), b"")

    def note_lanes(self, tasks: Iterable[Task]) -> None:
        """Call it while some handlers are known to be missing: which queue these tasks stand in depends on that."""
        for task in tasks:
            lane = task.lane
            if (
                task.queued
                and lane is not None
                and (
                    any(label[0] == HANDLER_LABEL for label in lane.key[4])
                    or (lane.pools is None and task.run.pin.startswith(PREFERRED))
                )
            ):
                self._note(task.run.number, lanes={task.number: lane.number})

    # ---- rules

    def _note(self, subject: int, **more: Any) -> None:
        key = Place(RUN, subject, self.seq)
        note = decode_run(self.entries.get(key, b""))
        for name, value in more.items():
            setattr(note, name, {**note.lanes, **value} if name == "lanes" else value)
        self.entries[key] = _encode(note)

    def _lane(self, lane: ReadyQueue) -> None:
        held = (lane.held, lane.held_by)
        if self._lanes.get(lane.number, ("", "")) == held and held[0] == "":
            return
        if held[0]:
            self._lanes[lane.number] = held
        else:
            self._lanes.pop(lane.number, None)
        note = LaneNote(self.state.tick, *held, lane.held_since)
        self.entries[Place(LANE, lane.number, self.seq)] = _encode(note)

    def _on_lane_held(self, event: ev.QueueHeld, _: list[Input]) -> None:
        self._lane(self.state.lane_numbers[event.lane])

    def _on_offered(self, event: ev.WorkerOffered, inputs: list[Input]) -> None:
        offer: Any = inputs[event.input]
        known = self._workers.get(event.worker)
        if known is None or known.id != offer.worker or known.start != offer.start:
            note = self._workers[event.worker] = WorkerNote(offer.worker, offer.start)
            self.entries[Place(WORKER, event.worker, self.seq)] = _encode(note)

    def _on_run(self, event: Any, _: list[Input]) -> None:
        self.add(event.run)

    def _on_moved(self, event: ev.RunMoved, _: list[Input]) -> None:
        if event.trigger not in DERIVED_MOVES:
            self.add(event.run)

    def _on_follow_up(self, event: ev.FollowUpStarted, _: list[Input]) -> None:
        self.add(event.run)
        self.add(event.of)

    def _on_parent(self, event: ev.IterationStarted, _: list[Input]) -> None:
        self.add(event.parent)

    def _on_task(self, event: Any, _: list[Input]) -> None:
        number: int = event.task
        task = self.state.tasks.get(number)
        if task is None:
            task = next((ended for ended in self.state.ended if ended.number == number), None)
        self.add(task.run.number if task is not None and task.parent else number)

    def _on_scheduled(self, event: ev.RunScheduled, _: list[Input]) -> None:
        later, governed = fired_words(self.state, event)
        if later or governed:
            self._note(event.run, later=later, governed=governed)

    def _on_without_effect(self, event: ev.StaleReport | ev.InputRefused | ev.Duplicate, inputs: list[Input]) -> None:
        request: Any = inputs[event.input]
        if number := getattr(request, "task", 0):
            if 0 < number < self.state.next_number:  # others no run can have, and no store takes
                self.entries[Place(REPORT, number, self.seq)] = b""
            return
        run_id = getattr(request, "run_id", "") or (request.name if getattr(request, "scope", "") == "run" else "")
        tenant = getattr(request, "tenant", "")
        if run_id and not (isinstance(request, Submit) and self._is_of_no_run(request)):
            self.entries[Place(COMMAND, command_subject(tenant, run_id), self.seq)] = b""

    def _is_of_no_run(self, request: Submit) -> bool:
        """Whether a submission without effect names a run that does not exist, which has no history."""
        tenant = self.state.tenants.get(request.tenant)
        if tenant is not None and tenant.runs.get(request.run_id) is not None:
            return False
        known = request.terms.known if request.terms is not None else None
        return known is None or known.run_id != request.run_id


_RULES: dict[type[Any], Callable[[HistoryIndex, Any, list[Input]], None]] = {
    **dict.fromkeys(
        (
            ev.RunDebounced, ev.RunRestored, ev.RunGated, ev.RunRated, ev.GateTaken, ev.EventStored, ev.UpdateReceived,
            ev.SlaReached, ev.RunDue, ev.RunOverdue, ev.RunEnding, ev.StepCancelled, ev.RunDetached, ev.ExtractKept,
        ),
        HistoryIndex._on_run,
    ),
    **dict.fromkeys(
        (
            ev.TaskFailed, ev.TaskSkipped,
            ev.TaskRetrying, ev.TaskDue, ev.CacheMissed, ev.TaskSucceeded, ev.WaitElapsed,
            ev.TaskAnswered, ev.IterationDelayed, ev.FanOutEnded, ev.AttemptCheckpointed, ev.RunSpawned,
            ev.RepeatTimedOut, ev.TaskStopped,
            ev.StepsAppended, ev.FunctionSuspended, ev.StepRetrying, ev.AwaitMet, ev.FunctionWoken,
            ev.FunctionContinued, ev.FunctionCancelled,
        ),
        HistoryIndex._on_task,
    ),
    **dict.fromkeys((ev.StaleReport, ev.InputRefused, ev.Duplicate), HistoryIndex._on_without_effect),
    ev.RunMoved: HistoryIndex._on_moved,
    ev.FollowUpStarted: HistoryIndex._on_follow_up,
    ev.IterationStarted: HistoryIndex._on_parent,
    ev.RunScheduled: HistoryIndex._on_scheduled,
    ev.QueueHeld: HistoryIndex._on_lane_held,
    ev.WorkerOffered: HistoryIndex._on_offered,
}  # fmt: skip
