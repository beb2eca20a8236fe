"""What must hold over the journals and the ledger of a run, checked by somebody who was not there.

Each checker reads what was written down (`Journals`, `EffectLedger`, the journal as the store gives it back) and yields
what is wrong. The lives of runs and tasks are followed here by the published tables alone; only I7 and I25 ask the
machine, one to compare it, the other for the reasons it states.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sim.executor import EffectLedger, Write
from sim.recorder import Belief, Commit, Grant, Journals
from sim.report import Violation
from tickwork.core.base.errors import Corrupt
from tickwork.core.calendar.durations import instant_text
from tickwork.core.explain.blockers import BlockKind
from tickwork.core.explain.why_not import why_not
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RUN_MOVES, RunState, RunTrigger
from tickwork.core.state.state import Run, Settings, State
from tickwork.journal.record import GENESIS, Row, SealedRow, unseal
from tickwork.journal.replay import fold

Found = Iterator[Violation]
OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)
# For these a run may wait as long as it likes; whatever else holds it must have let go by the end.
REASONS = frozenset(
    {
        BlockKind.DELAY,
        BlockKind.DEBOUNCE,
        BlockKind.KEY,
        BlockKind.PAUSED,
        BlockKind.WAIT,
        BlockKind.EVENT,
        BlockKind.APPROVAL,
        BlockKind.BACKOFF,
    }
)


# ---- ownership and the journal


def one_journal(journals: Journals, kept: dict[int, Sequence[SealedRow]]) -> Found:
    """I1: one record per seq, contiguous from 1, epochs never decrease, each epoch has one owner; and the store gives
    back exactly what it accepted."""
    for partition in journals.partitions():
        owners: dict[int, str] = {}
        seq, epoch = 0, 0
        for commit in journals.commits(partition):
            where = f"partition {partition}, seq {commit.row.seq}"
            if commit.row.seq != seq + 1:
                yield Violation("I1", f"{where} follows seq {seq}", commit.at)
            if commit.epoch < epoch:
                yield Violation("I1", f"{where} has epoch {commit.epoch} after epoch {epoch}", commit.at)
            if owners.setdefault(commit.epoch, commit.owner) != commit.owner:
                both = f"{owners[commit.epoch]} and {commit.owner}"
                yield Violation("I1", f"{where}: epoch {commit.epoch} belongs to {both}", commit.at)
            seq, epoch = commit.row.seq, max(epoch, commit.epoch)
        yield from _same(partition, journals.commits(partition), kept.get(partition, ()))


def _same(partition: int, commits: list[Commit], kept: Sequence[SealedRow]) -> Found:
    for place, row in enumerate(kept):
        if place >= len(commits):
            yield Violation("I1", f"partition {partition}, seq {row.seq} is in the journal, and nobody committed it")
        elif commits[place].row != row:
            text = f"partition {partition}, seq {row.seq} is not the row that was committed"
            yield Violation("I1", text, commits[place].at)


def fenced(journals: Journals) -> Found:
    """I2: after an epoch was granted or has written, nothing of an earlier one is written."""
    newest: dict[int, int] = {}
    for item in journals.written:
        latest = newest.get(item.partition, 0)
        if item.epoch < latest:
            what = type(item).__name__.lower()
            text = f"partition {item.partition}: {what} of epoch {item.epoch} ({item.owner}) after epoch {latest}"
            yield Violation("I2", text, item.at)
        elif isinstance(item, Grant) and item.epoch == latest:
            text = f"partition {item.partition}: epoch {item.epoch} was granted to {item.owner}, and it was in use"
            yield Violation("I2", text, item.at)
        newest[item.partition] = max(latest, item.epoch)


def one_believes(
    beliefs: Sequence[Belief], pauses: Mapping[str, Sequence[tuple[int, int]]], *, allowed_ns: int, now_ns: int
) -> Found:
    """I4: two nodes believe that a partition is theirs for no longer than a lease and the skew, and what the first of
    them stood still meanwhile. That only the second one commits then is I2: it claimed before it began to believe."""
    for place, one in enumerate(beliefs):
        for other in beliefs[place + 1 :]:
            if other.partition != one.partition or other.owner == one.owner:
                continue
            first, second = sorted((one, other), key=lambda belief: belief.begin_ns)
            begin, end = second.begin_ns, min(_end_of(first, now_ns), _end_of(second, now_ns))
            still_ns = sum(max(0, min(to, end) - max(since, begin)) for since, to in pauses.get(first.owner, ()))
            if end - begin > allowed_ns + still_ns:
                both = f"partition {one.partition} was {first.owner}'s and {second.owner}'s"
                yield Violation("I4", f"{both} for {(end - begin) / 1e9:.3f} s, {still_ns / 1e9:.3f} of them still")


def _end_of(belief: Belief, now_ns: int) -> int:
    return now_ns if belief.end_ns is None else belief.end_ns


def never_early(commits: Sequence[Commit], settings: Settings, *, origin_ms: int, allowed_ms: int) -> Found:
    """I16: logical time is not ahead of true time by more than the skew that clocks are allowed, so nothing that waits
    for its time happens before it."""
    for commit in commits:
        true_ms = origin_ms + commit.at_ns // 1_000_000
        early_ms = settings.clock.ms_of(commit.row.tick) - true_ms
        if early_ms > allowed_ms:
            where = f"partition {commit.partition}, seq {commit.row.seq} of {commit.owner}"
            yield Violation("I16", f"{where} was decided {early_ms} ms ahead of true time", commit.at)
            return  # the rows behind it say the same


def folds_to(settings: Settings, rows: Sequence[SealedRow], live: State) -> Found:
    """I7: the fold of the journal is the live state. `rows` end where the live state stands."""
    machine = Machine(settings=settings)
    try:
        fold(rows, machine)
    except Corrupt as error:
        yield Violation("I7", f"the journal cannot be folded: {error}")
        return
    if (folded := digest(machine.state)) != (lives := digest(live)):
        at = f"tick {machine.state.tick} against {live.tick}"
        yield Violation("I7", f"the fold of {len(rows)} rows has digest {folded}, the live state {lives}; {at}")


def nothing_acknowledged_is_gone(journals: Journals, kept: dict[int, Sequence[SealedRow]]) -> Found:
    """I12: the journal that is left holds every record that its owner was told of, and verifies."""
    for commit in journals.acknowledged:
        rows, seq = kept.get(commit.partition, ()), commit.row.seq
        if len(rows) < seq or rows[seq - 1] != commit.row:
            text = f"partition {commit.partition}, seq {seq} was acknowledged and is not in the journal"
            yield Violation("I12", text, commit.at)
    for partition, rows in sorted(kept.items()):
        try:
            list(rows_of(rows))
        except Corrupt as error:
            yield Violation("I12", f"partition {partition}: {error}")


def rows_of(rows: Iterable[SealedRow]) -> Iterator[Row]:
    before = GENESIS
    for sealed in rows:
        yield unseal(sealed, before)
        before = sealed.hash


# ---- runs


@dataclass(slots=True)
class Lives:
    """Runs and results as the journal tells them."""

    runs: dict[int, tuple[str, str]] = field(default_factory=dict)  # number -> tenant, id
    states: dict[tuple[str, str], int] = field(default_factory=dict)
    results: list[tuple[int, int, bool]] = field(default_factory=list)  # seq, task, whether a worker reported it
    ended: dict[int, tuple[str, int]] = field(default_factory=dict)  # task -> how and at which seq, until it is reset
    again: list[tuple[int, int, str, int]] = field(
        default_factory=list
    )  # seq of a result, task, its end before and that seq
    given: dict[int, int] = field(default_factory=dict)  # task -> attempts so far; the last is the current one
    stale: list[tuple[int, int, int, int]] = field(default_factory=list)  # seq, task, attempt that counted, current one

    def begin(self, number: int, tenant: str, run_id: str, state: int = RunState.PENDING) -> None:
        self.runs[number] = (tenant, run_id)
        self.states[tenant, run_id] = state


def lives_of(rows: Sequence[SealedRow]) -> Lives:
    lives = Lives()
    schedules: dict[int, tuple[str, str]] = {}
    for row in rows_of(rows):
        for event in row.events:
            _live(lives, schedules, row, event)
    return lives


def _live(lives: Lives, schedules: dict[int, tuple[str, str]], row: Row, event: Any) -> None:
    asked: Any = row.inputs[event.input] if getattr(event, "input", -1) >= 0 else None
    match event:
        case ev.RunSubmitted():
            request: Any = inp.request_in(asked, event.command)
            lives.begin(event.run, request.tenant, request.run_id)
        case ev.SchedulePut():
            schedules[event.schedule] = (asked.tenant, asked.schedule)
        case ev.RunRerun():
            lives.begin(event.run, asked.tenant, asked.run_id)
        case ev.RunRestored():
            record = asked.records[event.record] if isinstance(asked, inp.Redrive) else asked.record
            lives.begin(event.run, asked.tenant, record.run_id, record.state)
            for task in range(event.run, event.run + len(record.phases)):
                lives.given[task] = record.tried
        case ev.RunScheduled(run=run) if run:
            tenant, name = schedules[event.schedule]
            lives.begin(run, tenant, f"sched-{name}-{instant_text(event.due_ms)}")
        case ev.RunMoved(run=run) if run in lives.runs:
            whose = lives.runs[run]
            lives.states[whose] = RUN_MOVES.get((lives.states[whose], RunTrigger(event.trigger)), lives.states[whose])
        case ev.TaskDispatched() | ev.ChildDispatched():
            lives.given[event.task] = lives.given.get(event.task, 0) + 1
        case ev.TaskSucceeded():
            lives.results.append((row.seq, event.task, isinstance(asked, inp.Succeeded)))
            if event.task in lives.ended:
                lives.again.append((row.seq, event.task, *lives.ended[event.task]))
            lives.ended[event.task] = ("succeeded", row.seq)
        case ev.TaskFailed():
            lives.ended[event.task] = ("failed", row.seq)
        case ev.StepReset():  # somebody resolved the run, and the step begins anew
            lives.ended.pop(event.run + event.step, None)
    if isinstance(asked, inp.Succeeded | inp.Failed | inp.Checkpointed) and not isinstance(event, ev.StaleReport):
        current = lives.given.get(asked.task, 0)
        if asked.attempt != current:
            lives.stale.append((row.seq, asked.task, asked.attempt, current))


def nothing_is_lost(
    settings: Settings, rows: Sequence[SealedRow], accepted: Iterable[tuple[str, str]], *, workers: bool = True
) -> Found:
    """I25: every submission that was accepted, by its answer or by the journal, has ended or waits for a stated reason.

    `workers`: somebody is left to do the work; where nobody is, waiting for a worker is a reason too."""
    lives = lives_of(rows)
    machine = Machine(settings=settings)
    fold(rows, machine)
    for name in sorted({*accepted, *lives.states}):
        state = lives.states.get(name)
        if state is None:
            yield Violation("I25", f"{'/'.join(name)} was accepted, and the journal does not know it")
        elif state not in OVER and why_not(machine.state, *name) is None:
            yield Violation("I25", f"{'/'.join(name)} is {RunState(state).name}, and the machine does not know it")
    for run in machine.state.runs.values():  # also those that other runs began
        if trouble := _stuck(machine.state, run, workers=workers):
            yield Violation("I25", f"{run.tenant.id}/{run.id} is {RunState(run.state).name} and {trouble}")


def _stuck(state: State, run: Run, *, workers: bool) -> str:
    """What is wrong with a run that has not ended: it could go on, or nothing says why it does not."""
    why = why_not(state, run.tenant.id, run.id)
    if why is None:
        return "has no name"
    held = [*why.obstacles, *(one for node in why.nodes for one in node.obstacles)]
    reasons = REASONS if workers else REASONS | {BlockKind.CREDIT, BlockKind.RESOURCES}
    bad = [item.text for item in held if item.held not in reasons | {BlockKind.PARENTS, BlockKind.CHILDREN}]
    if bad:
        return f"should go on: {bad[0]}"
    if any(item.held in reasons for item in held) or _has_children(state, run):
        return ""
    return "nothing holds it"


def _has_children(state: State, run: Run) -> bool:
    """Children are runs and tasks of their own, with reasons of their own."""
    tasks = [task for task in state.tasks.values() if task.run is run]
    numbers = {task.number for task in tasks}
    return any(task.parent for task in tasks) or any(other.parent in numbers for other in state.runs.values())


def only_the_current_attempt_counts(rows: Sequence[SealedRow]) -> Found:
    """I5: what is reported of an attempt that another one has replaced is recorded as stale, and changes nothing."""
    for seq, task, reported, current in lives_of(rows).stale:
        text = f"a report of attempt {reported} of task {task} counted while {current} was current"
        yield Violation("I5", f"seq {seq}: {text}")


def commands_happen_once(partitions: Sequence[Sequence[SealedRow]], states: Sequence[State]) -> Found:
    """Each run that the task of an accepted result asked for has begun once, in whichever partition; no other has."""
    expected: dict[tuple[str, str], str] = {}  # tenant and key, or id -> which task asked for it
    begun: dict[tuple[str, str], int] = {}
    for rows in partitions:
        for row in rows_of(rows):
            for event in row.events:
                position: int = getattr(event, "input", -1)
                asked: Any = row.inputs[position] if position >= 0 else None
                if isinstance(event, ev.TaskSucceeded) and isinstance(asked, inp.Succeeded):
                    for command in asked.commands:
                        if isinstance(command.request, inp.Submit):
                            expected[_name_of(command.request)] = f"task {asked.task}, at seq {row.seq}"
                elif isinstance(event, ev.RunSubmitted) and isinstance(asked, inp.Succeeded | inp.Delivered):
                    request: Any = inp.request_in(asked, event.command)
                    begun[_name_of(request)] = begun.get(_name_of(request), 0) + 1
    for name in sorted({*expected, *begun}):
        if begun.get(name, 0) != (name in expected):
            asker = expected.get(name, "no result that was accepted")
            yield Violation("COMMANDS", f"{'/'.join(name)}, asked for by {asker}, began {begun.get(name, 0)} times")
    for state in states:
        if state.outbox:
            yield Violation(
                "COMMANDS", f"partition {state.settings.partition} still has commands for {[*state.outbox]}"
            )


def _name_of(request: inp.Submit) -> tuple[str, str]:
    key = request.terms.key if request.terms is not None else ""
    return request.tenant, key or request.run_id


def every_start_is_an_attempt(ledger: EffectLedger) -> Found:
    """I5: an attempt begins in one start of one worker. Another start, also under the same name, is another attempt."""
    for (task, attempt), starts in sorted(ledger.begun.items()):
        if len(starts) > 1:
            words = " and ".join(dict.fromkeys(start for start, _ in starts))
            yield Violation("I5", f"task {task}, attempt {attempt} began {len(starts)} times: {words}", starts[1][1])


def neighbours_end_by_themselves(ledger: EffectLedger) -> Found:
    """I29: an attempt that was not called off and whose worker lives ends with its own result, whatever becomes of
    those that run in the same process; and two attempts of a task never run at once in a worker."""
    for cut in ledger.cuts:
        text = f"task {cut.task}, attempt {cut.attempt} at {cut.worker} was ended with another: {cut.how}"
        yield Violation("NEIGHBOURS", text, cut.at)
    for cut in ledger.overlaps:
        text = f"task {cut.task}, attempt {cut.attempt} at {cut.worker} began {cut.how}"
        yield Violation("OVERLAP", text, cut.at)


def one_result(rows: Sequence[SealedRow], ledger: EffectLedger) -> Found:
    """I29: at most one accepted result per task, none after it failed, and exactly one effect for each that a worker
    reported as done."""
    lives = lives_of(rows)
    writes: dict[int, list[Write]] = {}
    for write in ledger.writes:
        writes.setdefault(write.task, []).append(write)
    for seq, task, ended, at in lives.again:
        yield Violation("I29", f"task {task} {ended} at seq {at}, and has another result at seq {seq}")
    for _, task, reported in lives.results:
        if reported:
            yield from _one_effect(task, writes.get(task, []))
    yield from _one_per_key(ledger)


def _one_effect(task: int, writes: list[Write]) -> Found:
    applied = [write for write in writes if write.applied]
    if len(applied) != 1:
        at = applied[-1].at if applied else None
        yield Violation("I29", f"task {task} succeeded with {len(applied)} effects", at)


def _one_per_key(ledger: EffectLedger) -> Found:
    first: dict[str, Write] = {}
    for write in ledger.writes:
        if write.applied and (other := first.setdefault(write.key, write)) is not write:
            attempts = f"attempts {other.attempt} and {write.attempt}"
            yield Violation("I29", f"{write.key} had two effects, by {attempts}", write.at)
