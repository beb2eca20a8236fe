"""What must hold afterwards. Rows are read from the database and starts from the tasks' own file, both past the
running product: only its unpacking of ended runs is used, and the journal is decided again by the machine that decided
it, from its first row.
"""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

import msgspec

from chaos.deployment import LEASE_TTL_S, Stage, ended_runs
from chaos.faults import KINDS, PAUSES_S, SKEW_MS, Fault
from chaos.load import TASKS, Load
from chaos.verdicts import Verdict, some
from chaos.watch import BELIEFS_S, Beliefs, Epochs
from tickwork.core.machine import Machine
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import HandedBack
from tickwork.core.state.state import Settings
from tickwork.journal.record import GENESIS, SealedRow, unseal
from tickwork.journal.replay import replay
from tickwork.system.zone_data import load_zones

COMPLETED, FAILED = 4, 5
FAIL_AGAIN = ("/pay", "/kills")  # tasks that fail as often as they are tried while their fault lasts
JOURNAL_PAGE = 2_000
WAIT_MS = 1_000  # of the workflow `later`


class Start(NamedTuple):
    key: str
    attempt: int
    agent: int
    pid: int
    at_ns: int


def starts_of(stage: Stage) -> list[Start]:
    found = []
    for line in stage.ledger.read_text().splitlines():
        key, attempt, agent, pid, at_ns = line.split()
        found.append(Start(key, int(attempt), int(agent), int(pid), int(at_ns)))
    return found


# ---- runs


async def unfinished(stage: Stage, load: Load) -> int:
    ended = sum(row.state in (COMPLETED, FAILED) for row in await ended_runs(stage))
    return len(load.accepted) + len(load.failing) - ended


async def check_runs(stage: Stage, load: Load) -> list[Verdict]:
    rows = await ended_runs(stage)
    live = (await stage.ask_database("select count(*) from tickwork.live_runs"))[0][0]
    load.learn({row.key: row.id for row in rows if row.key})
    states = {row.id: row.state for row in rows}
    keys = Counter(row.key for row in rows if row.key)
    lost = [f"{name} ({workflow})" for name, (run, workflow) in load.accepted.items() if states.get(run) != COMPLETED]
    twice = [key for key, count in keys.items() if count > 1]
    lost += [f"{name} (poison)" for name, run in load.failing.items() if states.get(run) != FAILED]
    known = {run for run, _ in load.accepted.values()} | set(load.failing.values())
    named = load.accepted.keys() | load.failing.keys()
    unasked = [row.id for row in rows if row.id not in known and row.key not in named]
    many = f"{len(load.accepted)} runs, {load.tasks} tasks acknowledged, {load.enqueued} runs by SQL"
    many += f"; asked again {load.asked_again} times"
    return [
        Verdict("nothing acknowledged is lost", not lost, f"lost {len(lost)} of {many}. {some(lost)}", "I25 I12"),
        Verdict("one key, one run", not twice, f"doubled {len(twice)}. {some(twice)}", "I27"),
        Verdict("nothing from nowhere", not unasked, f"{len(unasked)} runs that nobody asked for", "I33"),
        Verdict("nothing is left over", not live, f"{live} runs still live", "I25"),
        Verdict("every answer was right", not load.wrong, f"{len(load.wrong)} wrong. {some(load.wrong)}", "I27"),
    ]


# ---- starts


def check_starts(starts: list[Start], faults: list[Fault], load: Load) -> list[Verdict]:
    by_key: dict[str, list[Start]] = defaultdict(list)
    for start in sorted(starts, key=lambda one: one.at_ns):
        by_key[start.key].append(start)
    exact = Counter((start.key, start.attempt) for start in starts)
    doubled = [f"{key} attempt {attempt}" for (key, attempt), count in exact.items() if count > 1]
    again = untouched = by_worker = by_other = 0
    examples: list[str] = []
    for key, several in by_key.items():
        for before, after in pairwise(several):
            if (before.attempt == 1 and key.endswith("/flaky")) or key.endswith(FAIL_AGAIN):
                again += 1
            elif any(fault.workers and fault.touches(before.agent, before.at_ns, after.at_ns) for fault in faults):
                by_worker += 1
            elif any(fault.touches(before.agent, before.at_ns, after.at_ns) for fault in faults):
                by_other += 1
            else:
                untouched += 1
                examples.append(f"{key} {before.attempt}->{after.attempt}")
    missing = sum(TASKS[workflow] for _, workflow in load.accepted.values()) + len(load.failing) - len(by_key)
    workers = sum(len(fault.workers) for fault in faults)
    return [
        Verdict("an attempt starts once", not doubled, f"{len(doubled)} twice. {some(doubled)}", "I5 I35"),
        Verdict(
            "a task starts again only where a fault touched it",
            not untouched,
            f"{by_worker} by {workers} faults of workers, {by_other} by {len(faults) - workers} other faults, "
            f"{untouched} by none; {again} were to fail first. {some(examples)}",
            "I30 F1 F3",
        ),
        Verdict("every task started", missing == 0, f"{len(by_key)} tasks began, {missing} never", "I25"),
    ]


def check_waits(starts: list[Start], load: Load, *, allowed_ms: int) -> Verdict:
    """By the clock of this machine, the second task of `later` begins no sooner than its wait and the skew allow."""
    begun: dict[str, dict[str, int]] = {run: {} for run, workflow in load.accepted.values() if workflow == "later"}
    for start in starts:
        _, run, node = start.key.split("/")[:3]
        if run in begun:
            begun[run][node] = min(begun[run].get(node, start.at_ns), start.at_ns)
    waits_ms = [(found["brief"] - found["quick"]) / 1e6 for found in begun.values() if len(found) == 2]
    early = [wait for wait in waits_ms if wait < WAIT_MS - allowed_ms]
    text = f"{len(early)} of {len(waits_ms)}; the shortest of {WAIT_MS} ms took {min(waits_ms, default=0):.0f} ms"
    return Verdict("nothing fires early", not early and bool(waits_ms), text, "I16 F16")


# ---- journals


async def check_journals(stage: Stage, epochs: Epochs, load: Load, tally: Counter[str] | None = None) -> list[Verdict]:
    """`tally` is told how many attempts were lost, and how many workers gave back before they had begun."""
    rows = 0
    succeeded: Counter[int] = Counter()
    tally = Counter() if tally is None else tally
    stale = taken = 0
    broken: list[str] = []
    fenced: list[str] = []
    zones = load_zones()
    heads = {row["id"]: row for row in await stage.ask_database("select id, epoch, owner from tickwork.partitions")}
    for partition in sorted(heads):
        machine = Machine(settings=await _settings(stage, partition), zones=zones)
        seq, epoch, head = 0, 0, GENESIS
        while page := await _page(stage, partition, seq):
            sealed = [SealedRow(row["seq"], row["tick"], row["hash"], row["data"]) for row in page]
            before = head
            try:
                head = replay(sealed, machine, head=head, seq=seq)
            except Exception as error:
                broken.append(f"partition {partition} after seq {seq}: {error}")
                break
            for row, one in zip(page, sealed, strict=True):
                if row["epoch"] < epoch:
                    fenced.append(f"partition {partition}: seq {row['seq']} of epoch {row['epoch']} after {epoch}")
                epoch = row["epoch"]
                decided = unseal(one, before)
                before = one.hash
                if decided.rules != machine.rules:
                    broken.append(f"partition {partition}: seq {row['seq']} was not decided again")
                for event in decided.events:
                    if isinstance(event, ev.TaskSucceeded):
                        succeeded[event.task] += 1
                    elif isinstance(event, ev.StaleReport):
                        stale += 1
                    elif isinstance(event, ev.TaskTaken):
                        taken += 1
                    elif isinstance(event, ev.TaskRequeued):
                        tally["lost"] += event.cause == "lost"
                tally["given_back"] += sum(isinstance(asked, HandedBack) for asked in decided.inputs)
            seq = page[-1]["seq"]
        rows += seq
        asked = "select epoch from tickwork.partitions where id = $1"
        [[claimed]] = await stage.ask_database(asked, partition)  # it may have moved while its journal was read
        if epoch > claimed:
            fenced.append(f"partition {partition}: epoch {epoch} was written, {claimed} was claimed")
    doubled = [str(task) for task, count in succeeded.items() if count > 1]
    fenced += epochs.wrong
    carried = sum(workflow == "carried" for _, workflow in load.accepted.values())
    by_broker = f"{taken} dispatches for {carried} tasks"
    return [
        *([Verdict("the broker carried its part", taken >= carried, by_broker, "F19 F20")] if carried else []),
        Verdict(
            "journals decide again to the same",
            not broken,
            f"{rows} rows in {len(heads)} journals. {some(broken)}",
            "I8",
        ),
        Verdict(
            "one accepted result per task",
            not doubled and len(succeeded) >= load.tasks,
            f"doubled {len(doubled)} of {len(succeeded)}; {stale} reports came too late, "
            f"{tally['lost']} attempts were given up",
            "I29 I5",
        ),
        Verdict(
            "one writer at a time",
            not fenced,
            f"{epochs.changes} changes of owner, {epochs.looks} looks. {some(fenced)}",
            "I1 I2 I3",
        ),
    ]


async def _settings(stage: Stage, partition: int) -> Settings:
    rows = await stage.ask_database("select settings from tickwork.machines where partition_id = $1", partition)
    return msgspec.msgpack.decode(rows[0][0], type=Settings)


async def _page(stage: Stage, partition: int, after: int) -> list:
    return await stage.ask_database(
        "select seq, epoch, tick, hash, data from tickwork.journal where partition_id = $1 and seq > $2 "
        "order by seq limit $3",
        partition,
        after,
        JOURNAL_PAGE,
    )


# ---- was it worth a verdict


def check_weight(load: Load, faults: list[Fault], kinds: list[str], *, tasks_min: int) -> Verdict:
    missing = [kind for kind in kinds if not any(fault.kind == kind for fault in faults)]
    enough = load.tasks >= tasks_min and not missing
    text = f"{load.tasks} tasks (at least {tasks_min}), {len(faults)} faults"
    return Verdict("enough for a verdict", enough, text + (f"; never: {', '.join(missing)}" if missing else ""))


def check_recovery(faults: list[Fault]) -> list[Verdict]:
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        if fault.within_s is not None:
            by_kind[fault.kind].append(fault)
    found = []
    for kind, several in sorted(by_kind.items()):
        within = several[0].within_s
        times = sorted(fault.recovered_s for fault in several if fault.recovered_s is not None)
        kept = len(times) == len(several)
        text = f"{len(several)}x; worst {times[-1]:.1f} s" if times else f"{len(several)}x"
        late = f", {len(several) - len(times)} not within {within:g} s" if not kept else f" (at most {within:g})"
        text = f"{text}{late}; >= 95 % of {several[0].rate:.0f} tasks/s"
        found.append(Verdict(f"rate back after {kind}", kept, text, " ".join(KINDS[kind].proves)))
    return found


# ---- what single kinds promise


def check_promises(faults: list[Fault]) -> list[Verdict]:
    """Of the kinds that look for something themselves."""
    found = []
    for kind, promise in ((name, KINDS[name].promise) for name in sorted(KINDS)):
        several = [fault for fault in faults if fault.kind == kind]
        if promise and several:
            wrong = [text for fault in several for text in fault.wrong]
            figures = "; ".join(fault.figures for fault in several[:3])
            text = f"{len(several)}x {kind}; {figures}. {some(wrong)}"
            found.append(Verdict(promise, not wrong, text, " ".join(KINDS[kind].proves)))
    return found


def check_beliefs(beliefs: Beliefs, faults: list[Fault]) -> Verdict:
    """A lease, the skew of two clocks, a look, and what one of them stood still."""
    still_s = max((PAUSES_S.get(fault.kind, 0.0) for fault in faults), default=0.0)
    allowed_s = LEASE_TTL_S + 2 * SKEW_MS / 1000 + 2 * BELIEFS_S + still_s
    text = f"{beliefs.shared} of {beliefs.looks} looks; longest {beliefs.longest_s:.1f} s (at most {allowed_s:.1f})"
    kept = beliefs.longest_s <= allowed_s and beliefs.looks > 0
    return Verdict("two nodes call a partition theirs no longer than a lease", kept, text, "I4")
