"""What is always true of a partition after a tick, as functions.

Each takes a state and names what is wrong with it, in words; no words means that it holds. They count
everything again from runs, tasks and workers, so they are slow and for tests, drills and audits.
The names are those of the reliability catalogue.
"""

from collections.abc import Callable, Iterator

from tickwork.core.definition.plan import Kind
from tickwork.core.evolve.follow_ups import failed_steps
from tickwork.core.evolve.indexes import DUE_KIND
from tickwork.core.evolve.races import open_parents
from tickwork.core.evolve.schedules import is_held, may_unbuffer, must_pause, updates_ready
from tickwork.core.evolve.worker_pools import has_credit
from tickwork.core.state.bulk import JOBS_MAX
from tickwork.core.state.history import History
from tickwork.core.state.lifecycle import BUSY, ENDED, IDLE, Phase, RunState
from tickwork.core.state.mailboxes import KEPT
from tickwork.core.state.ready_queues import Limiter, ReadyQueue
from tickwork.core.state.retry import SCHEDULE_JITTER_MS_MAX
from tickwork.core.state.state import FanOut, Run, Schedule, State, Task, Timer


def violations(state: State) -> list[str]:
    """Every broken invariant, each with its id."""
    return [f"{name}: {words}" for name, check in INVARIANTS.items() for words in check(state)]


def conservation(state: State) -> Iterator[str]:
    """I26: what was accepted is completed, failed, cancelled or active, and the counters agree with the runs."""
    live: dict[str, int] = {}
    for run in state.runs.values():
        live[run.tenant.id] = live.get(run.tenant.id, 0) + 1
    for tenant in state.tenants.values():
        ended = tenant.completed + tenant.failed + tenant.cancelled
        if tenant.accepted != ended + tenant.active:
            yield f"{tenant.id}: {tenant.accepted} accepted, {ended} ended, {tenant.active} active"
        if tenant.active != live.get(tenant.id, 0):
            yield f"{tenant.id}: {tenant.active} active, {live.get(tenant.id, 0)} in memory"
    if state.live_runs != len(state.runs):
        yield f"{state.live_runs} live runs counted, {len(state.runs)} there"


def runs_and_nodes(state: State) -> Iterator[str]:
    """I38: where a run stands follows from its nodes; WAITING means that nothing is running or ready."""
    by_run: dict[int, list[Task]] = {}
    for task in state.tasks.values():
        by_run.setdefault(task.run.number, []).append(task)
    for run in state.runs.values():
        yield from _run_counts(run, by_run.pop(run.number, []))
    for number in by_run:
        yield f"tasks of run {number} outlive it"


def _run_counts(run: Run, tasks: list[Task]) -> Iterator[str]:
    unfinished = sum(phase not in ENDED for phase in run.phases)
    if run.unfinished != unfinished:
        yield f"{run.id}: {run.unfinished} unfinished nodes counted, {unfinished} there"
    giving = sum(task.queued and task.fan is not None for task in tasks)
    busy = sum(task.phase in BUSY for task in tasks) + giving
    waiting = sum(task.phase == Phase.WAITING for task in tasks)
    if (run.busy, run.waiting) != (busy, waiting):
        yield f"{run.id}: busy {run.busy}, waiting {run.waiting} counted; {busy}, {waiting} there"
    if run.state == RunState.WAITING and busy:
        yield f"{run.id}: WAITING while {busy} of its tasks are running or ready"
    if run.state in (RunState.COMPLETED, RunState.CANCELLED) or (run.state == RunState.FAILED and not run.start_at):
        yield f"{run.id}: {RunState(run.state).name} and still in memory"
    sought = any(extract is None for extract in (run.extracts or {}).values())
    looked_at = run.wanted or run.gated or sought or run.state in (RunState.PAUSED, RunState.FAILED)
    if not unfinished and not looked_at:
        yield f"{run.id}: all nodes have ended, and nobody will look"
    if run.failures != len(failed_steps(run.plan, run.phases)):
        yield f"{run.id}: {run.failures} failures counted"
    if run.counts is not None:
        for step in run.plan.steps:
            left = open_parents(step, run.phases)
            if run.counts[step.index] != left:
                yield f"{run.id}/{step.id}: {run.counts[step.index]} parents counted, {left} unfinished"
    for task in tasks:
        if not task.parent and run.phases[task.step.index] != task.phase:
            yield f"{run.id}/{task.step.id}: the run says {run.phases[task.step.index]}, the task {task.phase}"


def limits(state: State) -> Iterator[str]:
    """I43: what each limit counts is what runs, counted from the tasks."""
    running: dict[tuple[str, str, str], int] = {}
    for task in state.tasks.values():
        if task.phase == Phase.RUNNING and task.lane is not None:
            for gauge in task.lane.counted:
                key = _gauge_key(task.lane, gauge)
                running[key] = running.get(key, 0) + 1
    for lane in state.lanes.values():
        for gauge in lane.counted:
            counted = running.get(_gauge_key(lane, gauge), 0)
            if gauge.running != counted:
                yield f"{gauge.scope} {gauge.name}: {gauge.running} counted, {counted} running"
    for gauge in state.rated.values():
        empty = gauge.rate_ms and gauge.tokens_at(state.now_ms) < gauge.rate_ms
        if empty and gauge.waiting and not gauge.due:
            yield f"{gauge.scope} {gauge.name}: {gauge.waiting} lanes wait for a token, and nobody wakes them"


def _gauge_key(lane: ReadyQueue, gauge: Limiter) -> tuple[str, str, str]:
    return (gauge.scope, gauge.name, lane.tenant.id if gauge.scope in ("tenant", "workflow") else "")


def lanes(state: State) -> Iterator[str]:
    """I47, explained: every ready task stands in a lane, and every lane that does not move says why."""
    queued: dict[int, int] = {}
    for task in state.tasks.values():
        if task.queued:
            assert task.lane is not None
            queued[task.lane.number] = queued.get(task.lane.number, 0) + 1
            if task.fan is None and task.phase != Phase.READY:
                yield f"task {task.number} is {Phase(task.phase).name} and stands in line"
        elif task.phase == Phase.READY and task.run.state != RunState.PAUSED:
            yield f"task {task.number} is ready and stands in no line"
    opened = {lane.number: None for lane in state.open}
    for lane in state.lanes.values():
        if lane.live != queued.get(lane.number, 0):
            yield f"lane {lane.key}: {lane.live} counted, {queued.get(lane.number, 0)} in line"
        if lane.live and not lane.held and lane.number not in opened:
            yield f"lane {lane.key} has work, does not move, and nobody knows why"
        if lane.held and not lane.live:
            yield f"lane {lane.key} is empty and held"


def workers(state: State) -> Iterator[str]:
    """I35: a worker holds exactly the attempts that name it, and no more than its credit let it take."""
    held: dict[int, list[int]] = {}
    for task in state.tasks.values():
        if task.phase == Phase.RUNNING:
            assert task.worker is not None
            held.setdefault(task.worker.number, []).append(task.number)
        elif task.worker is not None:
            yield f"task {task.number} is {Phase(task.phase).name} and names a worker"
    for worker in state.workers.values():
        if sorted(worker.tasks) != sorted(held.pop(worker.number, [])):
            yield f"worker {worker.id} holds other attempts than name it"
        for station in state.stations.values():
            free = bool(station.free >> worker.number & 1)
            if free != (has_credit(worker) and station.serves(worker)):
                yield f"worker {worker.id} is {'' if free else 'not '}listed as free for {station.queue}"
    for lane in state.lanes.values():
        if lane.pools is not None and lane.station is not lane.pools[not lane.pools[0].workers]:
            yield f"ready queue {lane.number} is not served by the workers of its version, or by others without need"
    for number in held:
        yield f"attempts name worker {number}, who is gone"


def timers(state: State) -> Iterator[str]:
    """I17: the timers that are set are exactly those that something waits for."""
    expected_timers = sorted(_expected_timers(state))
    there = sorted((due, key & 31, key >> 5) for due, key in state.wheel.items())
    if expected_timers != there:
        missing = [timer for timer in expected_timers if timer not in there]
        extra = [timer for timer in there if timer not in expected_timers]
        yield f"missing (due, kind, number) {missing[:3]}, not waited for {extra[:3]}"


def _expected_timers(state: State) -> Iterator[tuple[int, int, int]]:
    for run in state.runs.values():
        for kind, due in (
            (Timer.RUN_START, run.start_at),
            (Timer.RUN_TIMEOUT, run.deadline),
            (Timer.RUN_RESUME, run.resume_at),
            (Timer.SLA, run.sla_at),
        ):
            if due:
                yield (due, kind, run.number)
    for task in state.tasks.values():
        if task.due:
            yield (task.due, DUE_KIND[Phase(task.phase)], task.number)
        if task.fan is not None and task.fan.deadline:
            yield (task.fan.deadline, Timer.REPEAT, task.number)
        if task.silent_at:
            yield (task.silent_at, Timer.SILENT, task.number)
    for schedule in state.schedules.values():
        if schedule.due:
            yield (schedule.due, Timer.SCHEDULE, schedule.number)
    for backfill in state.backfills.values():
        if backfill.due:
            yield (backfill.due, Timer.BACKFILL, backfill.number)
    for message in state.messages.values():
        if message.due:
            yield (message.due, Timer.MESSAGE, message.number)
    for gauge in state.rated.values():
        if gauge.due:
            yield (gauge.due, Timer.RATE, gauge.number)
    if state.rate_keys_due:
        yield (state.rate_keys_due, Timer.RATE_KEYS, 0)


def fans(state: State) -> Iterator[str]:
    """I60: children begun are running, succeeded or failed, and never more than there are items."""
    for task in state.tasks.values():
        fan = task.fan
        if fan is None or task.phase != Phase.WAITING:
            continue
        if fan.begun != fan.running + fan.succeeded + fan.failed or fan.begun > fan.total:
            yield f"task {task.number}: {fan.begun} begun of {fan.total}, {fan.running} running"
        if len(fan.live) != fan.running:
            yield f"task {task.number}: {fan.running} children run, {len(fan.live)} are known"
        if _is_run(task) and fan.idle != _idle(state, fan):
            yield f"task {task.number}: {fan.idle} children wait, by its count"
        for child in fan.live.values():
            there = child in state.runs if _is_run(task) else child in state.tasks
            if not there:
                yield f"task {task.number}: child {child} is gone"


def functions(state: State) -> Iterator[str]:
    """I60 for functions: awaits are registered, calls are children, and an outcome lets the function go on."""
    for task in state.tasks.values():
        if task.history is None:
            continue
        name, waiting = f"function {task.number}", task.phase == Phase.WAITING
        yield from (f"{name}: {words}" for words in _awaits(state, task, task.history))
        run = task.run
        if waiting and task.history.woken and not run.wanted and run.state != RunState.PAUSED:
            yield f"{name}: an outcome is there, and nobody will look"
        if waiting and (run.fanning or {}).get(task.step.index) is not task:
            yield f"{name}: it is suspended, and no visit would tend it"
        if task.history.arrived and task.phase not in (Phase.RUNNING, Phase.WAITING):
            yield f"{name}: outcomes that no attempt would get"


def _awaits(state: State, task: Task, history: History) -> Iterator[str]:
    for position, pending in history.awaits.items():
        request = pending.request
        if request.kind == "event" and task.number not in task.run.tenant.waits.get((request.name, request.key), {}):
            yield f"nobody would hear the event {request.name} at {position}"
        if pending.child and (pending.child not in state.runs or state.runs[pending.child].child != position):
            yield f"child {pending.child} at {position} is gone"
    due = history.next_due()
    if task.phase == Phase.WAITING and bool(task.due) != bool(due):
        yield f"an await ends in tick {due}, and the timer is set to {task.due}"


def _idle(state: State, fan: FanOut) -> int:
    runs = (state.runs.get(child) for child in fan.live.values())
    return sum(run is not None and run.state in IDLE for run in runs)


def _is_run(task: Task) -> bool:
    return task.step.kind is Kind.WORKFLOW or (task.step.body is not None and task.step.body.kind is Kind.WORKFLOW)


def gates(state: State) -> Iterator[str]:
    """I43 for concurrency keys: the count of holders is right, and no run waits for a free key."""
    holders: dict[tuple[str, tuple[str, str]], int] = {}
    for run in state.runs.values():
        if run.gate is not None and not run.gated:
            key = next(key for key, gate in run.tenant.gates.items() if gate is run.gate)
            holders[run.tenant.id, key] = holders.get((run.tenant.id, key), 0) + 1
    for tenant in state.tenants.values():
        for key, gate in tenant.gates.items():
            if gate.holding != holders.get((tenant.id, key), 0):
                yield f"{tenant.id} {key}: {gate.holding} hold it by count, {holders.get((tenant.id, key), 0)} do"
            if gate.holding < gate.limit and any(run.gated for run in gate.line):
                yield f"{tenant.id} {key}: somebody waits although {gate.holding} of {gate.limit} hold it"


def rates(state: State) -> Iterator[str]:
    """I43 for rates: whoever is noted as waiting waits, and somebody will look for buckets that are full."""
    for tenant in state.tenants.values():
        for workflow, keys in tenant.rates.items():
            for key, bucket in keys.items():
                run = state.runs.get(bucket.waiting) if bucket.waiting else None
                if bucket.waiting and (run is None or run.rate_key != key or not run.start_at):
                    yield f"{tenant.id} {workflow} {key!r}: run {bucket.waiting} does not wait for its rate"
        if tenant.rates and not state.rate_keys_due:
            yield f"{tenant.id}: nobody will look whether its rates are full again"


def schedules(state: State) -> Iterator[str]:
    """I20, I23: every expected occurrence of a schedule has a timer, and its counters are consistent."""
    for schedule in state.schedules.values():
        name = f"{schedule.tenant.id}/{schedule.name}"
        yield from (f"{name}: {words}" for words in _schedule(state, schedule))
        group = schedule.tenant.groups.get(schedule.terms.group) if schedule.terms.group else None
        if schedule.terms.group and (group is None or schedule.number not in group.members):
            yield f"{name}: it is no member of its group"


def _schedule(state: State, schedule: Schedule) -> Iterator[str]:
    held, due, next_ms = is_held(schedule), schedule.due, schedule.next_ms
    busy = schedule.late is not None or may_unbuffer(schedule) or must_pause(schedule) or updates_ready(schedule)
    if schedule.governing is not None:
        quiet = held or schedule.active or schedule.broken or due
        if not quiet and (schedule.decision is None or schedule.ended or next_ms):
            yield "the Governor is not asked, or not heard"
        if schedule.decision is not None and not held and (schedule.decision.next_ms or 0) != next_ms:
            yield f"the Governor said {schedule.decision.next_ms}, and {next_ms} is next"
    elif not held:
        expected = max(state.settings.clock.tick_at(next_ms + schedule.wait_ms), state.tick + 1) if next_ms else 0
        expected = state.tick + 1 if busy else expected
        if expected != due and not 0 < due <= state.tick:  # the next tick starts with what did not fit into this one
            yield f"it wants a look in tick {expected} and gets one in {due}"
    late = schedule.late
    if late is not None and not 0 < next_ms <= late.to_ms <= state.now_ms:
        yield f"it catches up until {late.to_ms} while {next_ms} is next"
    if schedule.fired > schedule.fates[0]:
        yield f"it fired {schedule.fired} times and {schedule.fates[0]} occurrences ran"
    runs_max = schedule.terms.runs_max if schedule.governing is None else 0
    if runs_max and schedule.fired + len(schedule.buffer) >= runs_max and next_ms:
        yield f"{runs_max} runs were to be all, and {next_ms} is still expected"
    if not 0 <= schedule.wait_ms <= SCHEDULE_JITTER_MS_MAX:
        yield f"its next start is {schedule.wait_ms} ms late by jitter"


def overlaps(state: State) -> Iterator[str]:
    """I24, as far as one moment shows: what it takes for its runs goes on, and what waits may wait."""
    for schedule in state.schedules.values():
        name, terms = f"{schedule.tenant.id}/{schedule.name}", schedule.terms
        for number in schedule.active:
            run = state.runs.get(number)
            if run is None or run.schedule != schedule.name or run.tenant is not schedule.tenant:
                yield f"{name}: run {number} is not one of its live runs"
        if schedule.buffer and terms.overlap not in ("buffer_one", "buffer_all"):
            yield f"{name}: {len(schedule.buffer)} occurrences wait, and its terms ({terms.overlap}) let none"
        if list(schedule.buffer) != sorted(set(schedule.buffer)):
            yield f"{name}: an occurrence waits twice, or before an earlier one"
        if schedule.buffer and schedule.next_ms and schedule.buffer[-1] >= schedule.next_ms:
            yield f"{name}: an occurrence waits that is still expected"


def updates(state: State) -> Iterator[str]:
    """What a schedule has heard stands in the order in which it came, and no group of its trigger is complete."""
    for schedule in state.schedules.values():
        name, on, known = f"{schedule.tenant.id}/{schedule.name}", schedule.when.on, schedule.updates
        if (on is None) is not (known is None):
            yield f"{name}: it {'listens to nothing and' if on is None else 'listens and'} has heard {known}"
        if on is None or known is None:
            continue
        for listed in (known.heard, *(firing.updates for firing in known.waiting)):
            times = [update.at_ms for update in listed]
            if times != sorted(set(times)) or any(at_ms > known.last_ms for at_ms in times):
                yield f"{name}: updates at {times[:9]} are not in order, or later than the last one"
        for partition in sorted({update.partition for update in known.heard}):
            sources = {update.source for update in known.heard if update.partition in ("", partition)}
            if any(sources.issuperset(group) for group in on.groups):
                yield f"{name}: all of a group has come, and it has not fired"
        if any(not firing.updates or firing.updates[-1].at_ms != firing.due_ms for firing in known.waiting):
            yield f"{name}: a firing has another time than its last update"
        for index, source in enumerate(on.sources):
            if index not in schedule.tenant.listeners.get(source.subject, {}).get(schedule.number, ()):
                yield f"{name}: it would not hear {source.words}"
    listening = sum(
        any(source.ended for source in schedule.when.on.sources)
        for schedule in state.schedules.values()
        if schedule.when.on is not None
    )
    if listening != state.listening:
        yield f"{state.listening} schedules listen to ends by count, {listening} do"


def event_ids(state: State) -> Iterator[str]:
    """Each id of an event is known to its tenant, and once."""
    known = {kept.number for tenant in state.tenants.values() for kept in tenant.event_ids.values()}
    there = {kept.number for kept in state.event_ids.values()}
    if known != there:
        yield f"ids of events {sorted(known ^ there)[:5]} are known in one table only"


def outbox(state: State) -> Iterator[str]:
    """What waits for another partition is what was sent to it last, in order and without gaps."""
    for partition, waiting in state.outbox.items():
        numbers = [command.number for command in waiting]
        last = state.sent.get(partition, 0)
        if not numbers or numbers != list(range(last - len(numbers) + 1, last + 1)):
            yield f"partition {partition}: commands {numbers[:5]} wait, and {last} was the last"
        if partition == state.settings.partition:
            yield "commands wait for the partition that they are in"


def mailboxes(state: State) -> Iterator[str]:
    """Each message is in the queue of its key or has its fate, and no run waits for one that is kept."""
    there = {message.number for message in state.messages.values()}
    for tenant in state.tenants.values():
        for mailbox in tenant.mailboxes.values():
            name = f"{tenant.id}/{mailbox.name}"
            for key, queue in mailbox.queues.items():
                numbers = [message.number for message in queue]
                if not numbers or numbers != sorted(numbers):
                    yield f"{name} {key!r}: {numbers[:5]} are kept, not in the order in which they came"
                if any(message.fate != KEPT or not message.due for message in queue):
                    yield f"{name} {key!r}: a message is kept that has its fate, or never expires"
            if any(message.fate == KEPT or message.due for message in mailbox.ended):
                yield f"{name}: a message has its fate and is kept"
            listed = {message.number for message in mailbox.messages()}
            if not listed <= there:
                yield f"{name}: messages {sorted(listed - there)[:5]} are gone"
            there -= listed
    if there:
        yield f"messages {sorted(there)[:5]} are in no mailbox"


def bulks(state: State) -> Iterator[str]:
    """The report of a job adds up to the place that it has come to."""
    for tenant in state.tenants.values():
        for job in tenant.bulks.values():
            if job.position != job.done + job.changed + sum(job.refused.values()):
                yield f"{tenant.id}/{job.id}: the report does not add up to {job.position}"
            if not job.position <= job.count or (job.position == job.count) > bool(job.ended):
                yield f"{tenant.id}/{job.id}: at place {job.position} of {job.count}, ended at {job.ended}"
        if sum(not job.ended for job in tenant.bulks.values()) > JOBS_MAX:
            yield f"{tenant.id}: too many bulk jobs go on"


INVARIANTS: dict[str, Callable[[State], Iterator[str]]] = {
    "I26": conservation,
    "I38": runs_and_nodes,
    "I43": limits,
    "I47": lanes,
    "I35": workers,
    "I17": timers,
    "I60": fans,
    "I60 (calls)": functions,
    "I43 (keys)": gates,
    "I43 (rates)": rates,
    "I20": schedules,
    "I24": overlaps,
    "updates": updates,
    "event_ids": event_ids,
    "outbox": outbox,
    "mailboxes": mailboxes,
    "bulks": bulks,
}
