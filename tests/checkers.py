"""What must hold of every journal, as functions over (settings, rows) that name what is wrong, in words.

They know the ledger, the published tables and the definitions, and nothing of the machine's own
bookkeeping. The names are those of the reliability catalogue.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ledger import Ledger, Limit, Row, Run, Task, request_of, walk
from tickwork.core.base.values import unpack
from tickwork.core.definition.model import ApprovalNode, MapNode, RepeatNode, Retry, Trigger
from tickwork.core.definition.plan import Kind, plan_of
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import ENDED, RUN_MOVES, TASK_MOVES, Phase, RunState, RunTrigger
from tickwork.core.state.state import Settings

Found = Iterator[str]
Checker = Callable[[Settings, list[Row]], Found]

BAD = (Phase.FAILED, Phase.BLOCKED, Phase.CANCELLED)
BEGINNINGS = (ev.TaskReady, ev.TaskChecking, ev.TaskWaiting)
STARTS = (ev.TaskDispatched, ev.ChildDispatched)


def all_found(settings: Settings, rows: list[Row]) -> list[str]:
    return [f"{name}: {words}" for name, check in CHECKERS.items() for words in check(settings, rows)]


# ---- time


def ticks_rise(settings: Settings, rows: list[Row]) -> Found:
    """I15"""
    before = 0
    for tick, _, _ in rows:
        if tick <= before:
            yield f"tick {tick} after {before}"
        before = tick


def nothing_is_early(settings: Settings, rows: list[Row]) -> Found:
    """I16: nothing fires before its time, and no time is set sooner than was asked for."""
    for ledger, (tick, asked, event) in walk(settings, rows):
        due = ledger.due_of(event)
        if due is not None and tick < due[0]:
            yield f"tick {tick}: {event} was due at {due[0]}"
        if isinstance(event, ev.RunScheduled):
            if ledger.now_ms() < event.due_ms and event.way != "update":  # those of one millisecond are one apart
                yield f"tick {tick}: {event} at {ledger.now_ms()} ms"
            if event.way == "due" and ledger.schedule_due.get(event.schedule) != event.due_ms:
                yield f"tick {tick}: {event} was announced for {ledger.schedule_due.get(event.schedule)}"
        elif isinstance(event, ev.RunMoved) and event.trigger == RunTrigger.START:
            run = ledger.runs.get(event.run)
            if run is not None and run.start_at:
                yield f"tick {tick}: run {run.id} starts before {run.start_at}"
        yield from _set_too_soon(ledger, tick, asked, event)


def _set_too_soon(ledger: Ledger, tick: int, asked: list[Any], event: Any) -> Found:
    least = tick
    if isinstance(event, ev.TaskWaiting) and event.until:
        found = ledger.step_of(event)
        node = found[1].node if found else None
        wait_ms = getattr(node, "duration_ms", None) or getattr(node, "timeout_ms", None) or 0
        least = tick + ledger.ticks(wait_ms)
        set_to = event.until
    elif isinstance(event, ev.RunSubmitted | ev.RunDebounced) and isinstance(request_of(event, asked), inp.Submit):
        terms = request_of(event, asked).terms or inp.SubmitOptions()
        wait_ms = terms.delay_ms or max(0, (terms.start_at_ms or 0) - ledger.now_ms())
        least = tick + ledger.ticks(wait_ms) if wait_ms else 0
        pending = ledger.runs.get(event.run)
        if terms.at_most_ms is not None and pending is not None:
            least = min(least, max(tick + 1, pending.submitted + ledger.ticks(terms.at_most_ms)))
        set_to = event.start_at
    elif isinstance(event, ev.IterationDelayed):
        task = ledger.tasks.get(event.task)
        least = tick + ledger.ticks(task.step.node.delay_ms if task and isinstance(task.step.node, RepeatNode) else 0)
        set_to = event.due
    else:
        return
    if set_to < least:
        yield f"tick {tick}: {event} may not be sooner than {least}"


def order_in_a_tick(settings: Settings, rows: list[Row]) -> Found:
    """I19: timers by (due, kind, number), before the visits; visits by (wanted since, run id), nobody passed over."""
    at, last, visited = 0, (0, 0, 0), False
    for ledger, (tick, _, event) in walk(settings, rows):
        if tick != at:
            at, last, visited = tick, (0, 0, 0), False
        due = ledger.due_of(event)
        if due is not None:
            if visited:
                yield f"tick {tick}: {event} after the visits"
            if due < last:
                yield f"tick {tick}: {event}, due {due}, after {last}"
            last = due
        if isinstance(event, ev.Visited):
            visited = True
            yield from _visit_order(ledger, tick, event.runs)


def _visit_order(ledger: Ledger, tick: int, numbers: list[int]) -> Found:
    wanted = [run for run in ledger.runs.values() if 0 < run.wanted <= tick]
    wanted.sort(key=lambda run: (run.wanted, run.id, run.tenant))
    expected = [run.number for run in wanted[: ledger.settings.max_runs_per_tick]]
    if numbers != expected:
        yield f"tick {tick}: visited {numbers[:9]}, in order are {expected[:9]}"


# ---- where runs come from


def scheduled_ids(settings: Settings, rows: list[Row]) -> Found:
    """I22: one run for each (tenant, schedule, nominal time), and no id twice among live runs."""
    made: set[tuple[str, str, int]] = set()
    again = {
        event.backfill for _, asked, events in rows for event in events
        if isinstance(event, ev.BackfillStarted) and asked[event.input].forced
    }  # fmt: skip
    for ledger, (tick, _, event) in walk(settings, rows):
        if not isinstance(event, ev.RunScheduled) or event.way not in ("due", "buffered", "backfill", "update"):
            continue
        if event.backfill in again:
            continue
        put = ledger.schedules.get(event.schedule)
        if put is None:
            yield f"tick {tick}: {event} of no schedule"
            continue
        key = (put.tenant, put.schedule, event.due_ms)
        if key in made:
            yield f"tick {tick}: {key} became a second run"
        made.add(key)
        live = [run.id for run in ledger.runs.values() if run.tenant == put.tenant]
        live += [run.id for run in ledger.past.values() if run.tenant == put.tenant]
        name = f"sched-{put.schedule}-"
        if event.next_ms and event.next_ms <= event.due_ms:
            yield f"tick {tick}: {event} goes back in time"
        if len([run_id for run_id in live if run_id.startswith(name)]) > len(made):
            yield f"tick {tick}: more runs named {name} than times"


def one_run_per_key(settings: Settings, rows: list[Row]) -> Found:
    """I27: within the window a key gives one run, and only to the same body."""
    window = settings.clock.ticks(settings.dedupe_window_ms)
    for ledger, (tick, asked, event) in walk(settings, rows):
        if not isinstance(event, ev.RunSubmitted | ev.Duplicate | ev.InputRefused | ev.RunDebounced):
            continue
        put = request_of(event, asked)
        if not isinstance(put, inp.Submit):
            continue
        terms = put.terms or inp.SubmitOptions()
        holders = _holders(ledger, put, terms, tick, window)
        bodies = dict(holders)
        match event:
            case ev.RunSubmitted() | ev.RunDebounced() if holders:
                yield f"tick {tick}: {put.run_id} under key {terms.key!r}, which {sorted(bodies)} has"
            case ev.Duplicate() if event.run_id not in bodies:
                yield f"tick {tick}: {put.run_id} is answered with {event.run_id}, holders are {sorted(bodies)}"
            case ev.Duplicate() if put.terms is not None and bodies[event.run_id] != terms.body:
                yield f"tick {tick}: {put.run_id} has another body than {event.run_id}"
            case ev.InputRefused(code="key_reused") if all(body == terms.body for body in bodies.values()):
                yield f"tick {tick}: {put.run_id} is refused for a body that is the same"


def _holders(
    ledger: Ledger, put: inp.Submit, terms: inp.SubmitOptions, tick: int, window: int
) -> list[tuple[str, str]]:
    """Who has the id or the key now: (run id, body), live ones and the one that the shell found."""
    found: list[tuple[str, str]] = []
    for run in ledger.runs.values():
        same_key = bool(terms.key) and run.key == terms.key and run.submitted + window > tick
        if run.tenant == put.tenant and (run.id == put.run_id or same_key):
            found.append((run.id, run.body))
    known = terms.known
    if known is not None and (known.run_id == put.run_id or known.submitted + window > tick):
        found.append((known.run_id, known.body))
    return found


def nothing_from_nowhere(settings: Settings, rows: list[Row]) -> Found:
    """I33: each run has an input, a schedule or a parent; each attempt a task; each event the input it names."""
    numbers: set[int] = set()
    for ledger, (tick, asked, event) in walk(settings, rows):
        place = getattr(event, "input", -1)
        if place >= len(asked):
            yield f"tick {tick}: {event} names an input that is not there"
            continue
        wanted = _CAUSED_BY.get(type(event))
        if wanted is not None and (place < 0 or not isinstance(request_of(event, asked), wanted)):
            yield f"tick {tick}: {event} was not asked for by {asked[place] if place >= 0 else 'anybody'}"
        number = event.run if isinstance(event, _NEW_RUNS) else 0
        if number and number in numbers:
            yield f"tick {tick}: {event} has a number that was given before"
        numbers.add(number)
        if isinstance(event, ev.RunScheduled) and event.schedule not in ledger.schedules:
            yield f"tick {tick}: {event} of no schedule"
        if isinstance(event, ev.RunRestored) and event.run not in ledger.past:
            yield f"tick {tick}: {event} brings back what never was"
        if isinstance(event, ev.RunSpawned | ev.ChildDispatched | ev.IterationStarted):
            parent = ledger.tasks.get(event.task if isinstance(event, ev.RunSpawned) else event.parent)
            if parent is None or parent.phase != Phase.WAITING:
                yield f"tick {tick}: {event} has no waiting parent"
        elif isinstance(event, ev.FollowUpStarted):
            before = ledger.runs.get(event.of)
            of_success = event.cause == "completed"
            head = before.plan.definition if before is not None else None
            if head is None or (head.on_success if of_success else head.on_failure) is None:
                yield f"tick {tick}: {event} follows nothing that asks for it"
        elif isinstance(event, _OF_TASKS) and event.task not in ledger.tasks:
            yield f"tick {tick}: {event} of no task"
        elif isinstance(event, ev.RunMoved) and event.run not in ledger.runs:
            yield f"tick {tick}: {event} of no run"
        if isinstance(event, STARTS) and event.worker not in ledger.workers:
            yield f"tick {tick}: {event} on no worker"


_NEW_RUNS = (ev.RunSubmitted, ev.RunScheduled, ev.RunSpawned, ev.RunRerun, ev.FollowUpStarted)
_OF_TASKS = (
    ev.TaskDispatched,
    ev.TaskTaken,
    ev.AttemptStarted,
    ev.TaskSucceeded,
    ev.TaskRetrying,
    ev.TaskDue,
    ev.TaskRequeued,
    ev.TaskFailed,
    ev.TaskSkipped,
    ev.WaitElapsed,
    ev.TaskAnswered,
    ev.FanOutEnded,
    ev.AttemptCheckpointed,
    ev.StepsAppended,
    ev.FunctionSuspended,
    ev.StepRetrying,
    ev.AwaitMet,
    ev.FunctionWoken,
    ev.FunctionContinued,
    ev.FunctionCancelled,
)
_CAUSED_BY: dict[type, tuple[type, ...]] = {
    ev.RunSubmitted: (inp.Submit,),
    ev.RunDebounced: (inp.Submit,),
    ev.Duplicate: (inp.Submit, inp.SendUpdate, inp.Ingest, inp.UpdateAsset),
    ev.UpdateHeard: (inp.Ingest,),
    ev.EventIdKept: (inp.Ingest, inp.UpdateAsset),
    ev.AssetUpdated: (inp.UpdateAsset,),
    ev.RunRerun: (inp.Rerun,),
    ev.RunRestored: (inp.Resolve, inp.Redrive, inp.DropDeadLetters),
    ev.StepAccepted: (inp.Resolve,),
    ev.TaskSucceeded: (inp.Succeeded, inp.CacheAnswered),
    ev.AttemptCheckpointed: (inp.Checkpointed,),
    ev.TaskSkipped: (inp.Failed,),
    ev.StepsAppended: (inp.StepsRecorded,),
    ev.FunctionSuspended: (inp.Suspended,),
    ev.StepRetrying: (inp.Suspended,),
    ev.FunctionContinued: (inp.Continued,),
    ev.FunctionCancelled: (inp.Cancel,),
    ev.EventStored: (inp.Ingest,),
    ev.UpdateReceived: (inp.SendUpdate,),
    ev.ExtractKept: (inp.Extracted,),
    ev.WorkerOffered: (inp.Offer,),
    ev.TaskTaken: (inp.Taken,),
    ev.TenantPut: (inp.PutTenant,),
    ev.QueuePut: (inp.PutQueue,),
    ev.MailboxPut: (inp.PutMailbox,),
    ev.MailboxRemoved: (inp.RemoveMailbox,),
    ev.MessageKept: (inp.Ingest,),
    ev.MessageRefused: (inp.Ingest,),
    ev.LabelLimitPut: (inp.PutLabelLimit,),
    ev.DefinitionPut: (inp.PutDefinition,),
    ev.PolicyPut: (inp.PutPolicy,),
    ev.PolicyRemoved: (inp.RemovePolicy,),
    ev.QueueRemoved: (inp.RemoveQueue,),
    ev.WorkflowRemoved: (inp.RemoveWorkflow,),
    ev.SettingsPut: (inp.PutSettings,),
    ev.SchedulePut: (inp.PutSchedule, inp.ApplySchedules, inp.RegisterVersion, inp.SetLatestVersion),
    ev.ScheduleRemoved: (inp.RemoveSchedule, inp.ApplySchedules, inp.RegisterVersion, inp.SetLatestVersion),
    ev.ScopePaused: (inp.Pause,),
    ev.ScopeResumed: (inp.Resume,),
    ev.ClockGapRecorded: (inp.ClockGap,),
    ev.TimersHeld: (inp.HoldTimers,),
    ev.CommandQueued: (inp.Submit, inp.Ingest),
    ev.CommandReceived: (inp.Submit, inp.Ingest),
    ev.CommandAcknowledged: (inp.Acknowledged,),
}


def accepted_or_refused(settings: Settings, rows: list[Row]) -> Found:
    """I47: a submission has exactly one answer, and beyond the limit of live runs that is a refusal."""
    for tick, asked, events in rows:
        fates = Counter(
            event.input
            for event in events
            if isinstance(event, ev.RunSubmitted | ev.RunDebounced | ev.Duplicate | ev.InputRefused)
        )
        for place, put in enumerate(asked):
            if isinstance(put, inp.Submit) and fates[place] != 1:
                yield f"tick {tick}: {put.run_id} has {fates[place]} answers"
    for ledger, (tick, asked, event) in walk(settings, rows):
        if not isinstance(event, ev.RunSubmitted | ev.RunRerun):
            continue
        tenant = getattr(request_of(event, asked), "tenant", "")
        own_max = ledger.live_runs_max.get(tenant)
        own = sum(run.tenant == tenant for run in ledger.runs.values())
        if len(ledger.runs) >= settings.max_live_runs or (own_max is not None and own >= own_max):
            yield f"tick {tick}: {event} although {len(ledger.runs)} runs are live, {own} of {tenant}"


def commands_share_the_fate_of_their_report(settings: Settings, rows: list[Row]) -> Found:
    """A result that is accepted brings each of its commands about once, in its tick; any other report, none of them.
    What goes to another partition is numbered without gaps, and what comes from one is decided once."""
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for tick, asked, events in rows:
        accepted = {event.input for event in events if isinstance(event, ev.TaskSucceeded)}
        done = Counter(
            (event.input, event.command)
            for event in events
            if isinstance(event, ev.RunSubmitted | ev.Duplicate) and event.command >= 0
        )
        queued = Counter(
            (event.input, event.command, event.partition) for event in events if isinstance(event, ev.CommandQueued)
        )
        for place, report in enumerate(asked):
            if not isinstance(report, inp.Succeeded):
                continue
            for index, command in enumerate(report.commands):
                here = not command.partitions or settings.partition in command.partitions
                starts = isinstance(command.request, inp.Submit) and here and place in accepted
                if done.pop((place, index), 0) != starts:
                    yield f"tick {tick}: command {index} of {report.task} began no run, or several, or one too many"
                for partition in command.partitions:
                    goes = partition != settings.partition and place in accepted
                    if queued.pop((place, index, partition), 0) != goes:
                        yield f"tick {tick}: command {index} of {report.task} is not sent once to {partition}"
        if done or queued:
            yield f"tick {tick}: commands of no report are done: {[*done, *queued]}"
        decided = Counter(
            event.input for event in events if isinstance(event, ev.CommandReceived | ev.StaleReport | ev.InputRefused)
        )
        for place, item in enumerate(asked):
            if isinstance(item, inp.Delivered) and decided[place] != 1:
                yield f"tick {tick}: command {item.number} of partition {item.sender} has {decided[place]} answers"
        for event in events:
            if isinstance(event, ev.CommandQueued):
                sent[event.partition] += 1
                if event.number != sent[event.partition]:
                    yield f"tick {tick}: {event} does not follow {sent[event.partition] - 1}"
            elif isinstance(event, ev.CommandReceived):
                delivered = asked[event.input]
                received[delivered.sender] += 1
                if delivered.number != received[delivered.sender]:
                    yield f"tick {tick}: {event} does not follow {received[delivered.sender] - 1}"


# ---- attempts


def taken_once(settings: Settings, rows: list[Row]) -> Found:
    """I34, I35: what a worker takes is on a lane, is the task's current attempt, and goes to who asked for it."""
    for ledger, (tick, asked, event) in walk(settings, rows):
        if not isinstance(event, ev.TaskTaken):
            continue
        task, report = ledger.tasks.get(event.task), asked[event.input]
        if task is None or task.phase != Phase.RUNNING:
            yield f"tick {tick}: {event} of a task that does not run"
            continue
        carrier, worker = ledger.workers.get(task.worker), ledger.workers.get(event.worker)
        if carrier is None or not carrier.id.startswith("lane:"):
            yield f"tick {tick}: {event} of what is on no lane"
        if worker is None or worker.id.startswith("lane:") or worker.id != report.worker:
            yield f"tick {tick}: {event} by another than who asked"
        if (report.task, report.attempt) != (task.number, task.attempt):
            yield f"tick {tick}: {event} of another attempt"


def one_result(settings: Settings, rows: list[Row]) -> Found:
    """I29, I5: a result counts once, and only from the attempt that is the task's current one."""
    for ledger, (tick, asked, event) in walk(settings, rows):
        place = getattr(event, "input", -1)
        if (
            not isinstance(
                event,
                ev.TaskSucceeded
                | ev.TaskRetrying
                | ev.TaskFailed
                | ev.TaskSkipped
                | ev.AttemptCheckpointed
                | ev.StepsAppended
                | ev.FunctionSuspended
                | ev.FunctionContinued,
            )
            or place < 0
        ):
            continue
        report, task = asked[place], ledger.tasks.get(event.task)
        if isinstance(report, inp.Decide | inp.CancelTask):
            continue
        if task is None or task.phase not in (Phase.RUNNING, Phase.CHECKING):
            yield f"tick {tick}: {event} of a task that does not run"
        elif report.task != event.task:
            yield f"tick {tick}: {event} by a report about task {report.task}"
        elif isinstance(report, inp.CacheAnswered) != (task.phase == Phase.CHECKING):
            yield f"tick {tick}: {event} by {report} while {Phase(task.phase).name}"
        elif not isinstance(report, inp.CacheAnswered) and report.attempt != task.attempt:
            yield f"tick {tick}: {event} by attempt {report.attempt}, current is {task.attempt}"


def attempts_are_new(settings: Settings, rows: list[Row]) -> Found:
    """I5: no two attempts of a task have one number, also where its run failed and was brought back in between."""
    given: set[tuple[int, int]] = set()
    for ledger, (tick, _, event) in walk(settings, rows):
        task = ledger.tasks.get(event.task) if isinstance(event, ev.TaskDispatched) else None
        if task is None:
            continue
        attempt = (task.number, task.attempt + 1)
        if attempt in given:
            yield f"tick {tick}: {event} is attempt {attempt[1]} once more"
        given.add(attempt)


def attempts_bounded(settings: Settings, rows: list[Row]) -> Found:
    """I31: no more attempts than the policy has, beside those that ended with their worker; those are bounded too."""
    for ledger, (tick, _, event) in walk(settings, rows):
        if isinstance(event, ev.TaskDispatched):
            task = ledger.tasks.get(event.task)
            if task is None:
                continue
            retry = task.step.retry
            allowed = max([retry.attempts, *(rule.attempts for rule in retry.rules if rule.attempts is not None)])
            if task.tries >= allowed:
                yield f"tick {tick}: {event} is attempt {task.tries + 1} of {allowed}"
        elif isinstance(event, ev.TaskRequeued) and event.cause == "lost":
            task = ledger.tasks.get(event.task)
            if task is not None and task.losses >= settings.loss_allowance:
                yield f"tick {tick}: {event} is loss {task.losses + 1} of {settings.loss_allowance}"


def backoff_within_bounds(settings: Settings, rows: list[Row]) -> Found:
    """I32: the next attempt is due within the bounds of its policy; only a spent retry budget makes it later."""
    for ledger, (tick, _, event) in walk(settings, rows):
        task = ledger.tasks.get(event.task) if isinstance(event, ev.TaskRetrying) else None
        if task is None:
            continue
        low, high = _bounds_ms(task.step.retry, task.tries, event.cause)
        first, last = tick + max(1, ledger.ticks(low)), tick + max(1, ledger.ticks(high))
        if event.due < first or (event.due > last and not event.held):
            yield f"tick {tick}: {event} is not in [{first}, {last}]"
        if event.held and not task.step.requirement[4]:
            yield f"tick {tick}: {event} is held by a budget, and depends on nothing"


def _bounds_ms(retry: Retry, tries: int, error: str) -> tuple[int, int]:
    rule = next((rule for rule in retry.rules if rule.error in (error, "*")), None)
    first_ms = retry.delay_ms if rule is None or rule.delay_ms is None else rule.delay_ms
    low = min(first_ms * retry.factor ** max(tries - 1, 0), retry.delay_ms_max)
    return low, low + low * retry.jitter_percent // 100


# ---- workflow


def trigger_rules(settings: Settings, rows: list[Row]) -> Found:
    """I36: a node begins when its parents have ended in the way that its rule asks for, at an earlier event."""
    for ledger, (tick, _, event) in walk(settings, rows):
        found = ledger.step_of(event) if isinstance(event, BEGINNINGS) else None
        if found is None:
            continue
        run, step = found
        parents = _weighed(run, step)
        if step.node.teardown is not None:
            setup = run.phases[run.plan.index[step.node.teardown.of]]
            if setup != Phase.SUCCEEDED or any(phase not in ENDED for phase in parents):
                yield f"tick {tick}: {run.id}/{step.id} tears down what is {Phase(setup).name}"
        elif step.node.trigger in ONE_IS_ENOUGH:
            if not _one_is_there(run.plan, step, run.phases):
                yield f"tick {tick}: {run.id}/{step.id} begins after {[Phase(phase).name for phase in parents]}"
        elif any(phase not in ENDED for phase in parents):
            yield f"tick {tick}: {run.id}/{step.id} begins before what it needs has ended"
        elif not _rule_holds(step.node.trigger, parents):
            yield f"tick {tick}: {run.id}/{step.id} begins after {[Phase(phase).name for phase in parents]}"


def _weighed(run: Run, step: Any) -> list[int]:
    """The failure of a teardown may be a warning, and is none to the nodes behind it."""
    return [Phase.SUCCEEDED if _is_warning(run, parent) else run.phases[parent] for parent in step.parents]


def _is_warning(run: Run, index: int) -> bool:
    teardown = run.plan.steps[index].node.teardown
    return run.phases[index] == Phase.FAILED and teardown is not None and not teardown.fail


ONE_IS_ENOUGH = (Trigger.ANY_SUCCEEDED, Trigger.ONE_DONE)


def _one_is_there(plan: Any, step: Any, phases: list[int]) -> bool:
    """Branches around it have ended, and one of the others has in the way that its rule asks for."""
    branches = [parent for parent in step.parents if plan.steps[parent].kind is Kind.BRANCH]
    others = [phases[parent] for parent in step.parents if parent not in branches] or [phases[one] for one in branches]
    wanted = [Phase.SUCCEEDED, Phase.SKIPPED, *(BAD if step.node.trigger is Trigger.ONE_DONE else ())]
    return not others or (any(one in wanted for one in others) and all(phases[one] in ENDED for one in branches))


def _rule_holds(trigger: Trigger, parents: list[int]) -> bool:
    failed = any(phase in BAD for phase in parents)
    match trigger:
        case Trigger.ALL_DONE:
            return True
        case Trigger.ANY_FAILED:
            return failed or not parents
        case Trigger.NONE_FAILED:
            return not failed
        case Trigger.ALL_FAILED:
            return failed or not parents
    return not failed and (not parents or any(phase != Phase.NOT_TAKEN for phase in parents))


def published_moves(settings: Settings, rows: list[Row]) -> Found:
    """I37: runs and tasks move by the published tables; what has completed or was cancelled stays so."""
    for ledger, (tick, _, event) in walk(settings, rows):
        if isinstance(event, ev.RunMoved):
            run = ledger.runs.get(event.run)
            if run is None or (run.state, event.trigger) not in RUN_MOVES:
                yield f"tick {tick}: {event} of a run that is {'gone' if run is None else RunState(run.state).name}"
            continue
        if isinstance(event, ev.RunRestored):
            past = ledger.past.get(event.run)
            if past is None or past.state != RunState.FAILED or event.run in ledger.runs:
                yield f"tick {tick}: {event} of a run that did not fail"
        cause = ledger.cause_of(event)
        if cause is not None:
            phase = ledger.phase_of(event)
            if phase is None or (phase, cause) not in TASK_MOVES:
                yield f"tick {tick}: {event} of what is {'gone' if phase is None else Phase(phase).name}"


def nothing_after_cancel(settings: Settings, rows: list[Row]) -> Found:
    """I39: once a run is cancelled no attempt of it starts, nor of a run below it. One that ends only tears down."""
    cancelled: dict[int, str] = {}
    for ledger, (tick, asked, event) in walk(settings, rows):
        if isinstance(event, ev.RunMoved) and event.trigger == RunTrigger.CANCEL:
            run = ledger.runs.get(event.run)
            if run is not None:
                cancelled |= dict.fromkeys(_tasks_below(ledger, run), run.id)
        elif isinstance(event, ev.RunEnding):
            run = ledger.runs.get(event.run)
            steps = [step for step in run.plan.steps if step.node.teardown is None] if run is not None else []
            cancelled |= {event.run + step.index: str(event.run) for step in steps}
        elif isinstance(event, ev.StepReset):  # a run that timed out may come back, its children may not
            cancelled.pop(event.run + event.step, None)
        elif isinstance(event, ev.RunSubmitted):
            put = request_of(event, asked)
            plan = ledger.plan_for(put) if isinstance(put, inp.Submit) else None
            for number in range(event.run, event.run + (len(plan.steps) if plan else 0)):
                cancelled.pop(number, None)
        elif isinstance(event, STARTS):
            number = event.task if isinstance(event, ev.TaskDispatched) else event.parent
            if number in cancelled:
                yield f"tick {tick}: {event} of {cancelled[number]}, which was cancelled"


def _tasks_below(ledger: Ledger, run: Run) -> list[int]:
    below = [run.number + step.index for step in run.plan.steps]
    below += [task.number for task in ledger.tasks.values() if task.run is run]
    for child in ledger.runs.values():
        if child.parent in below and child is not run:
            below += _tasks_below(ledger, child)
    return below


def fail_closed(settings: Settings, rows: list[Row]) -> Found:
    """I40: nothing behind a failure or a denial begins unless its rule asks; a failed node never ends in a success."""
    allowed: set[tuple[int, int, str]] = set()
    at = 0
    for ledger, (tick, _, event) in walk(settings, rows):
        if tick != at:
            at, allowed = tick, set()
        if isinstance(event, ev.PolicyDecided):
            key = (event.run, event.step, event.policy)
            allowed = allowed | {key} if event.allowed else allowed - {key}
        elif isinstance(event, BEGINNINGS):
            found = ledger.step_of(event)
            if found is None:
                continue
            run, step = found
            rule = step.node.trigger
            careful = rule in (Trigger.ALL_SUCCEEDED, Trigger.NONE_FAILED) and step.node.teardown is None
            if careful and any(phase in BAD for phase in _weighed(run, step)):
                yield f"tick {tick}: {run.id}/{step.id} begins behind a failure"
            for policy in step.policies:
                if (run.number, step.index, policy) not in allowed:
                    yield f"tick {tick}: {run.id}/{step.id} begins although {policy} did not allow it"
        elif isinstance(event, ev.RunMoved) and event.trigger == RunTrigger.COMPLETE:
            run = ledger.runs.get(event.run)
            early = run is not None and bool(run.plan.exits) and bool(event.reason)
            given_up = run is not None and any(step.kind is Kind.FIRST for step in run.plan.steps)
            bad = (Phase.FAILED,) if given_up else BAD
            phases = (
                [run.phases[step.index] for step in run.plan.steps if not _is_warning(run, step.index)] if run else []
            )
            if run is not None and not early and any(p in bad or p not in ENDED for p in phases):
                yield f"tick {tick}: {run.id} completes with {[Phase(phase).name for phase in run.phases]}"


def pinned_definitions(settings: Settings, rows: list[Row]) -> Found:
    """I41: a run keeps the definition that it began with, whatever is put later, also when it is brought back."""
    for ledger, (tick, asked, event) in walk(settings, rows):
        if isinstance(event, ev.DefinitionPut):
            if plan_of(asked[event.input].document).hash != event.hash:
                yield f"tick {tick}: {event} is not the hash of its document"
        elif isinstance(event, ev.RunSpawned):
            task = ledger.tasks.get(event.task)
            body = None if task is None else task.step.body or task.step
            name = getattr(body.node, "workflow", "") if body is not None else ""
            if task is not None and event.child in task.awaits:
                name = task.awaits[event.child][1].name
            latest = ledger.latest.get((task.run.tenant, name)) if task is not None else None
            if latest is None or latest.hash != event.definition:
                yield f"tick {tick}: {event} is not {name} as it stands"
        elif isinstance(event, ev.RunRestored):
            put = asked[event.input]
            record = put.record if isinstance(put, inp.Resolve) else put.records[event.record]
            past = ledger.past.get(event.run)
            if past is None or (past.plan.hash, past.id, past.by) != (record.definition, record.run_id, record.by):
                yield f"tick {tick}: {event} is not the run that ended"
            elif list(record.phases) != past.phases:
                yield f"tick {tick}: {event} has other outcomes than those recorded"
        elif hasattr(event, "step"):
            run = ledger.runs.get(event.run)
            if run is not None and event.step >= len(run.plan.steps):
                yield f"tick {tick}: {event} is no node of {run.plan.name} {run.plan.hash[:8]}"


def approvals(settings: Settings, rows: list[Row]) -> Found:
    """I42: an approval is given by somebody entitled, or its time ran out where that is allowed; nothing passes by."""
    for ledger, (tick, asked, event) in walk(settings, rows):
        if isinstance(event, ev.StepAccepted):
            found = ledger.step_of(event)
            if found is not None and isinstance(found[1].node, ApprovalNode):
                yield from _entitled(found[0], found[1].node, asked[event.input].by, tick)
            continue
        if isinstance(event, ev.StepEnded) and event.phase == Phase.SUCCEEDED:
            found = ledger.step_of(event)
            if found is not None and found[1].kind is Kind.APPROVAL:
                yield f"tick {tick}: {found[0].id}/{found[1].id} is passed by"
        task = ledger.tasks.get(getattr(event, "task", -1))
        if task is None or not isinstance(task.step.node, ApprovalNode):
            continue
        match event:
            case ev.TaskAnswered():
                put = asked[event.input] if event.input >= 0 else None
                named = isinstance(put, inp.Decide) and (put.run_id, put.node) == (task.run.id, task.step.id)
                if not isinstance(put, inp.Decide) or not named or not put.approve or put.tenant != task.run.tenant:
                    yield f"tick {tick}: {event} by {put}"
                else:
                    yield from _entitled(task.run, task.step.node, put.by, tick)
            case ev.WaitElapsed() if task.step.node.on_timeout != "continue":
                yield f"tick {tick}: {task.run.id}/{task.step.id} goes on without an answer"
            case ev.TaskSucceeded() | ev.FanOutEnded():
                yield f"tick {tick}: {event} of an approval"


def outcomes(settings: Settings, rows: list[Row]) -> Found:
    """I29 for functions: an outcome is of what is awaited, once; no function goes on without one."""
    fresh: dict[int, int] = {}  # tasks to the outcomes since their last suspension
    for ledger, (tick, asked, event) in walk(settings, rows):
        task = ledger.tasks.get(getattr(event, "task", -1))
        if task is None:
            continue
        if isinstance(event, ev.FunctionCancelled):
            fresh[task.number] = 1
        elif isinstance(event, ev.AwaitMet):
            fresh[task.number] = 1
            yield from _outcome(ledger, tick, asked, task, event)
        elif isinstance(event, ev.StepRetrying) and not event.due:
            fresh[task.number] = 1
        elif isinstance(event, ev.FunctionWoken):
            ended = not all(number in ledger.runs for number in task.live.values()) or task.begun > len(task.live)
            if not fresh.pop(task.number, 0) and not ended:
                yield f"tick {tick}: {event} without an outcome"


def _outcome(ledger: Ledger, tick: int, asked: list[Any], task: Task, event: ev.AwaitMet) -> Found:
    if event.position not in task.awaits:
        yield f"tick {tick}: {event} of what nobody awaits"
        return
    due, request = task.awaits[event.position]
    put = inp.request_in(asked[event.input], event.command) if event.input >= 0 else None
    if isinstance(put, inp.Ingest):
        if (request.kind, request.name, request.key) != ("event", put.event, put.key):
            yield f"tick {tick}: {event} by {put}"
    elif isinstance(put, inp.Decide):
        if (request.kind, request.name, task.run.id) != ("approval", put.node, put.run_id):
            yield f"tick {tick}: {event} by {put}"
        elif request.approvers and put.by not in request.approvers:
            yield f"tick {tick}: {event} by {put.by}"
    elif put is not None:
        yield f"tick {tick}: {event} by {put}"
    elif ledger.is_timed(event) and not 0 < due <= tick:
        yield f"tick {tick}: {event} is due at {due}"


def _entitled(run: Run, node: ApprovalNode, by: str, tick: int) -> Found:
    if (node.approvers and by not in node.approvers) or (node.four_eyes and by == run.by):
        yield f"tick {tick}: {run.id}/{node.id} is approved by {by}"


def fan_counts(settings: Settings, rows: list[Row]) -> Found:
    """I60: a map has as many children as items, each begun once; it ends when all have, and no more run than may."""
    for ledger, (tick, _, event) in walk(settings, rows):
        if isinstance(event, ev.TaskWaiting):
            yield from _fan_width(ledger, tick, event)
        number = (
            event.parent if isinstance(event, ev.ChildDispatched | ev.IterationStarted) else getattr(event, "task", -1)
        )
        task = ledger.tasks.get(number)
        if task is None:
            continue
        node = task.step.node
        if isinstance(event, ev.ChildDispatched | ev.IterationStarted | ev.RunSpawned):
            yield from _fan_grows(tick, task, event)
        elif isinstance(event, ev.FanOutEnded) and isinstance(node, MapNode):
            if task.begun != task.total or task.running or task.failed > node.tolerate:
                yield f"tick {tick}: {event} after {task.begun} of {task.total}, {task.failed} failed"
        elif isinstance(event, ev.FanOutEnded) and (task.running or not (task.begun or task.timed_out)):
            yield f"tick {tick}: {event} while {task.running} of {task.begun} run"


def _fan_width(ledger: Ledger, tick: int, event: ev.TaskWaiting) -> Found:
    found = ledger.step_of(event)
    node = found[1].node if found else None
    if found is not None and isinstance(node, MapNode) and node.over == "inputs.items":
        items = unpack(found[0].inputs, what="inputs")["items"]
        if event.total != len(items):
            yield f"tick {tick}: {event} over {len(items)} items"


def _fan_grows(tick: int, task: Task, event: Any) -> Found:
    node = task.step.node
    width = node.max_parallel if isinstance(node, MapNode) else 1
    if task.step.durable:
        due_request = task.awaits.get(event.child)
        if due_request is None or due_request[1].kind != "call":
            yield f"tick {tick}: {event} was not called"
        return
    if task.begun >= task.total:
        yield f"tick {tick}: {event} is child {task.begun + 1} of {task.total}"
    if width is not None and task.running >= width:
        yield f"tick {tick}: {event} while {task.running} of {width} run"
    if isinstance(event, ev.RunSpawned) and event.child != task.begun:
        yield f"tick {tick}: {event} is not child {task.begun}"


# ---- limits


def starts(ledger: Ledger, event: Any) -> Task | None:
    """The task in line from which an attempt starts by this event: itself, or the map whose child it is."""
    return ledger.task_of(event) if isinstance(event, STARTS) else None


def limits_hold(settings: Settings, rows: list[Row]) -> Found:
    """I43: nothing starts above the limit in force, in a paused scope, or beyond what its worker takes."""
    for ledger, (tick, _, event) in walk(settings, rows):
        if isinstance(event, ev.GateTaken):
            yield from _gate_room(ledger, tick, event)
        task = starts(ledger, event)
        if task is None:
            continue
        for scope in ledger.scopes(task):
            limit = ledger.limits.get(scope, Limit())
            if limit.paused:
                yield f"tick {tick}: {event} in {scope}, which is paused"
            elif limit.running_max is not None and ledger.running_under(scope) >= limit.running_max:
                yield f"tick {tick}: {event} beyond {limit.running_max} of {scope}"
        if task.run.state not in (RunState.ACTIVE, RunState.WAITING):
            yield f"tick {tick}: {event} while its run is {RunState(task.run.state).name}"
        worker = ledger.workers.get(event.worker)
        if worker is None:
            continue
        if len(worker.held) >= worker.credit:
            yield f"tick {tick}: {event} beyond the credit of {worker.id}"
        used = [ledger.requirement(ledger.tasks[number])[3] for number in worker.held]
        own = ledger.requirement(task)[3]
        for place, have in enumerate(worker.capacity):
            if own[place] and sum(amounts[place] for amounts in used) + own[place] > have:
                yield f"tick {tick}: {event} beyond the resources of {worker.id}"


def _gate_room(ledger: Ledger, tick: int, event: ev.GateTaken) -> Found:
    run = ledger.runs.get(event.run)
    concurrency = run.plan.definition.concurrency if run is not None else None
    if run is None or concurrency is None:
        yield f"tick {tick}: {event} of what has no key"
    elif run.state != RunState.PENDING:
        return  # a failed run that an operator resolved goes on at once, whoever holds its key meanwhile
    elif len(ledger.gates.get((run.tenant, run.plan.name, event.key), [])) >= concurrency.limit:
        yield f"tick {tick}: {event} beyond {concurrency.limit} runs"


def rates_hold(settings: Settings, rows: list[Row]) -> Found:
    """I44: in every window no more starts than burst + rate x window. A bucket is full when its rate is set."""
    level: dict[tuple[str, ...], tuple[int, int]] = {}  # scope -> tokens, at ms; a start costs rate_ms
    for ledger, (tick, asked, event) in walk(settings, rows):
        if isinstance(event, ev.TenantPut | ev.QueuePut):
            put = asked[event.input]
            level.pop(("tenant", put.tenant) if isinstance(put, inp.PutTenant) else ("queue", put.queue), None)
        task = starts(ledger, event)
        for scope in ledger.scopes(task) if task is not None else ():
            limit = ledger.limits.get(scope, Limit())
            if limit.rate_starts is None:
                continue
            now_ms, full = ledger.now_ms(), limit.burst * limit.rate_ms
            tokens, since = level.get(scope, (full, now_ms))
            tokens = min(full, tokens + (now_ms - since) * limit.rate_starts) - limit.rate_ms
            level[scope] = (tokens, now_ms)
            if tokens < 0:
                yield f"tick {tick}: {event} is faster than {limit.rate_starts} per {limit.rate_ms} ms of {scope}"


def labels_match(settings: Settings, rows: list[Row]) -> Found:
    """I46: a worker serves the queue and has every label that a task asks for, when it is given to it. A lane has no
    labels and whoever takes from it may have no queues; between the two all is asked for."""
    for ledger, (tick, _, event) in walk(settings, rows):
        taken = isinstance(event, ev.TaskTaken)
        task = ledger.task_of(event) if taken else starts(ledger, event)
        worker = ledger.workers.get(event.worker) if task is not None else None
        if task is None or worker is None:
            continue
        queue, _, labels, _, _ = ledger.requirement(task)
        unserved = queue not in worker.queues and not taken
        lacking = any(worker.labels.get(name) != value for name, value in labels)
        if unserved or (lacking and not worker.id.startswith("lane:")):
            yield f"tick {tick}: {event} needs {queue} {labels}, {worker.id} has {worker.queues} {worker.labels}"


def priority_order(settings: Settings, rows: list[Row]) -> Found:
    """I59: of tasks that differ in priority only, the more important starts first, except by ageing."""
    for ledger, (tick, _, event) in walk(settings, rows):
        task = starts(ledger, event)
        if task is None:
            continue
        if not task.queued:
            yield f"tick {tick}: {event} does not stand in line"
            continue
        group, own = _group(ledger, task)
        for other in ledger.tasks.values():
            if other.queued and other is not task and ledger.requirement(other)[0] == group[2]:
                their_group, theirs = _group(ledger, other)
                if their_group == group and theirs < own and not ledger.shedding:
                    yield f"tick {tick}: {event} at {own} before task {other.number} at {theirs}"


def _group(ledger: Ledger, task: Task) -> tuple[tuple[Any, ...], int]:
    queue, priority, labels, resources, dependency = ledger.requirement(task)
    aged = ledger.settings.clock.ms_of(task.ready_at) - priority * ledger.settings.ageing_ms
    return (task.run.tenant, task.run.plan.name, queue, labels, resources, dependency), aged


CHECKERS: dict[str, Checker] = {
    "I5": attempts_are_new,
    "I15": ticks_rise,
    "I16": nothing_is_early,
    "I19": order_in_a_tick,
    "I22": scheduled_ids,
    "I27": one_run_per_key,
    "I29": one_result,
    "I29 (functions)": outcomes,
    "I31": attempts_bounded,
    "I32": backoff_within_bounds,
    "I33": nothing_from_nowhere,
    "I35": taken_once,
    "I36": trigger_rules,
    "I37": published_moves,
    "I39": nothing_after_cancel,
    "I40": fail_closed,
    "I41": pinned_definitions,
    "I42": approvals,
    "I43": limits_hold,
    "I44": rates_hold,
    "I46": labels_match,
    "I47": accepted_or_refused,
    "I59": priority_order,
    "I60": fan_counts,
    "commands": commands_share_the_fate_of_their_report,
}
