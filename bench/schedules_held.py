"""What holding schedules costs the core: memory, a put, the next time, idling, a changed row, a firing.

`schedules.py` runs this as a process of its own, so that its memory is that of the schedules alone: the figures are
the last line it prints. Times are CPU times of this thread; where something is done many times, each time counts with
the least that was seen for it, because the speed of a shared machine changes within milliseconds.
"""

import gc
import json
import sys
import threading
from pathlib import Path
from statistics import fmean
from time import perf_counter, perf_counter_ns, thread_time

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.machine import Machine
from tickwork.core.rules import rules_of
from tickwork.core.snapshot.dirty_rows import DirtyRows
from tickwork.core.snapshot.snapshot import capture, encode_header, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.journal.replay import Recorder
from tickwork.system.zone_data import load_zones

PER_TICK = 1_000
FEW = 1_000
TURNS = 5
ORIGIN_MS = 1_772_323_200_000  # 1 March 2026: clocks change in most zones within the month
TICK_MS = 1
MINUTE_MS = 60_000
ZONES = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Kyiv", "Europe/Istanbul", "America/New_York",
    "America/Chicago", "America/Denver", "America/Phoenix", "America/Los_Angeles", "America/Sao_Paulo",
    "America/St_Johns", "America/Caracas", "America/Santiago", "America/Mexico_City", "Asia/Tokyo", "Asia/Kolkata",
    "Asia/Kathmandu", "Asia/Shanghai", "Asia/Dubai", "Asia/Tehran", "Asia/Jerusalem", "Asia/Manila",
    "Australia/Sydney", "Australia/Lord_Howe", "Australia/Perth", "Pacific/Auckland", "Pacific/Chatham",
    "Pacific/Apia", "Africa/Cairo", "Africa/Casablanca", "Africa/Lagos", "Atlantic/Azores", "Indian/Maldives",
)  # fmt: skip
DOCUMENT = json.dumps({"name": "one", "nodes": [{"kind": "task", "id": "a", "handler": "noop"}]}).encode()


def expression(number: int) -> str:
    """Mostly daily or rarer, as people write them; the minutes and hours are spread."""
    minute, hour = number * 7 % 60, number // 60 * 5 % 24
    match number % 10:
        case 0:
            return "H H * * *"
        case 1:
            return f"{minute} {hour} * * MON-FRI"
        case 2:
            return f"{minute} {hour} L * *"
        case 3:
            return f"{minute} {hour} * * {number // 10 % 7}"
        case 4:
            return f"{minute} {hour} {number // 10 % 28 + 1} */3 *"
        case 5:
            return f"{minute} */4 * * *"
        case 6:
            return f"{minute} {hour} * * FRI#2"
        case _:
            return f"{minute} {hour} * * *"


class Holder:
    """A machine with its journal; nothing of it is stored."""

    def __init__(self) -> None:
        zones = load_zones()
        self.machine = Machine(settings=Settings(clock=LogicalClock(ORIGIN_MS, TICK_MS)), zones=zones)
        self.recorder = Recorder(rules=rules_of(zones))
        self.tick, self.took = 0, 0.0
        set_up: list[inp.Input] = [
            inp.PutTenant("ops", "acme"),
            inp.PutQueue("ops", "default"),
            inp.Offer("w1", 50_000),
        ]
        self.apply([*set_up, inp.PutDefinition("ops", "acme", DOCUMENT)])

    def apply(self, asked: list[inp.Input], *, tick: int = 0) -> list[inp.Input]:
        """One tick. The reports of what it started: everything succeeds."""
        self.tick = max(self.tick + 1, tick)
        began = thread_time()
        outcome = self.machine.apply(self.tick, asked)
        self.recorder.row(self.tick, asked, outcome.events)
        self.took += thread_time() - began
        assert outcome.taken == len(asked), "a batch fits into a tick"
        starts = (effect for effect in outcome.effects if type(effect).__name__ == "Dispatch")
        return [inp.Succeeded(effect.task, effect.attempt) for effect in starts]  # type: ignore[union-attr]

    def hold(self, count: int) -> None:
        have = len(self.machine.state.schedules)
        for first in range(have, count, PER_TICK):
            self.apply([self.put(number) for number in range(first, min(first + PER_TICK, count))])
            if not self.tick & 15:
                gc.freeze()

    def put(self, number: int, description: str = "") -> inp.Input:
        when = ScheduleSpec(cron=expression(number), zone=ZONES[number % len(ZONES)])
        return inp.PutSchedule("api", "acme", f"schedule-{number:07}", "one", when, description=description)


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def next_times(holder: Holder, samples: int) -> dict[str, float]:
    """Microseconds to tell a next time, over the expressions and zones that are held, at as many moments."""
    state = holder.machine.state
    every = max(1, len(state.schedules) // samples)
    rhythms = [one.rhythm for place, one in enumerate(state.schedules.values()) if place % every == 0]
    least = []
    for place, rhythm in enumerate(rhythms):
        assert rhythm is not None
        after_ms, found = ORIGIN_MS + place * 7_919_000 % (366 * 86_400_000), []
        for _ in range(5):
            began = perf_counter_ns()
            rhythm.next_ms(after_ms)
            found.append(perf_counter_ns() - began)
        least.append(min(found) / 1e3)
    least.sort()
    return {"next_us": fmean(least), "next_p95_us": least[int(len(least) * 0.95)]}


def idle(holder: Holder) -> float:
    """Microseconds to ask when there is something to do, and for a tick with nothing."""
    found = []
    for _ in range(100):
        before, holder.took = holder.took, 0.0
        began = perf_counter()
        wanted = holder.machine.next_tick()
        assert wanted is not None and wanted > holder.tick + 1, "nothing is due"
        holder.machine.apply(holder.tick + 1, [])
        found.append(perf_counter() - began)
        holder.tick, holder.took = holder.tick + 1, before
    return min(found) * 1e6


def changed(holder: Holder) -> tuple[float, int, int]:
    """One schedule is edited: microseconds to say which rows to write, how many, and the bytes of the header."""
    state, found, rows = holder.machine.state, [], 0
    touched = DirtyRows(state)
    for turn in range(50):
        asked = [holder.put(turn, description=f"edited {turn} beside {len(state.schedules)}")]
        holder.tick += 1
        outcome = holder.machine.apply(holder.tick, asked)
        began = perf_counter()
        touched.note(state, outcome.events)
        changes = touched.take(state)
        found.append(perf_counter() - began)
        rows = max(rows, len(changes.schedules) + len(changes.live_runs) + len(changes.live_tasks))
    return min(found) * 1e6, rows, len(encode_header(state))


def firing(count: int, minutes: int) -> float:
    """CPU microseconds of the core for a scheduled run, from due to done, journal row included."""
    found = []
    holder = Holder()
    minute = ScheduleSpec(cron="* * * * *")
    for first in range(0, count, PER_TICK):
        names = (f"minute-{number}" for number in range(first, min(first + PER_TICK, count)))
        holder.apply([inp.PutSchedule("api", "acme", name, "one", minute) for name in names])
    for number in range(1, minutes + 1):
        holder.took = 0.0
        reports = holder.apply([], tick=number * MINUTE_MS // TICK_MS)
        while reports or holder.machine.state.live_runs:
            reports = holder.apply(reports)
        found.append(holder.took / count * 1e6)
    fired = sum(one.fired for one in holder.machine.state.schedules.values())
    assert fired == count * minutes, f"{fired} of {count * minutes} fired"
    return min(found)


def restored(holder: Holder) -> float:
    """Seconds from rows to a machine that knows every next time."""
    pieces = capture(holder.machine.state)
    gc.collect()
    gc.freeze()
    gc.disable()
    began = perf_counter()
    state = restore(*pieces, zones=load_zones())
    passed = perf_counter() - began
    assert len(state.schedules) == len(holder.machine.state.schedules)
    return passed


def measure(count: int) -> dict[str, float]:
    figures: dict[str, float] = {"held": count, "fire_us": firing(5_000, 3)}
    gc.collect()
    gc.freeze()
    few, holder = Holder(), Holder()
    few.hold(FEW)
    before = rss()
    holder.hold(count)
    figures["put_us"] = holder.took / count * 1e6
    figures["bytes_per_schedule"] = (rss() - before) / count
    figures["threads"] = threading.active_count()
    figures |= next_times(holder, 20_000)
    figures |= side_by_side(few, holder)
    figures["restore_s"] = restored(holder)
    return figures


def side_by_side(few: Holder, many: Holder) -> dict[str, float]:
    """What should not depend on how many are held. In turns, because the machine's speed changes meanwhile."""
    idles, changes = [], []
    for _ in range(TURNS):
        idles.append((idle(few), idle(many)))
        changes.append((changed(few), changed(many)))
    found: dict[str, float] = {}
    found["idle_few_us"], found["idle_us"] = (min(side) for side in zip(*idles, strict=True))
    for name, side in zip(("changed_few_us", "changed_us"), zip(*changes, strict=True), strict=True):
        found[name] = min(took for took, _, _ in side)
    found["changed_rows"] = max(rows for turn in changes for _, rows, _ in turn)
    found["header_growth"] = changes[-1][1][2] - changes[-1][0][2]
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
