"""What a timer costs: memory, the price of each operation at 20,000 and at 2,000,000 held, the longest single one.

Run `bench/wheel.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.
Times are CPU times of this thread, so that a busy machine does not count as a slow wheel.
"""

import argparse
import gc
import json
import random
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import thread_time_ns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from tickwork.core.state.timing_wheel import Wheel

MONTH = 30 * 86_400_000  # in ticks of 1 ms
HELD_FEW, HELD_MANY = 20_000, 2_000_000
BATCH, FIRES = 1_000, 100  # of a round; small beside what is held
GATES = {  # at most
    "bytes_per_timer": 250,
    "insert_ratio": 1.3,
    "cancel_ratio": 1.3,
    "fire_ratio": 1.3,
    "nothing_due_us": 50,
    "idle_jump_us": 100,
    "longest_insert_us": 5_000,
    "longest_fire_us": 5_000,
    "longest_same_tick_us": 5_000,
}


def take(wheel: Wheel, tick: int, limit: int) -> list[tuple[int, int]]:
    """What a tick does with due timers: look at the first, let what it decides cancel it, look again."""
    taken: list[tuple[int, int]] = []
    while len(taken) < limit and (timer := wheel.first(tick)) is not None:
        wheel.cancel(*timer)
        taken.append(timer)
    return taken


class Held:
    """A wheel with timers at random dues over the next month; whatever leaves it is replaced."""

    def __init__(self, count: int) -> None:
        self.chance, self.wheel, self.now, self.longest_ns = random.Random(count), Wheel(), 0, 0
        self.dues = array("q", (self.chance.randrange(MONTH) for _ in range(count)))  # by number; -1 is cancelled
        gc.collect()
        before = resident_bytes()
        for number, due in enumerate(self.dues):
            self.longest_ns = max(self.longest_ns, timed(self.wheel.insert, due, number << 5 | 3))
        self.bytes_per_timer = (resident_bytes() - before) / count

    def new(self, count: int) -> list[tuple[int, int]]:
        first = len(self.dues)
        self.dues.extend(self.now + self.chance.randrange(1, MONTH) for _ in range(count))
        return [(self.dues[number], number << 5 | 3) for number in range(first, first + count)]

    def old(self, count: int) -> list[tuple[int, int]]:
        """To be cancelled: any of those held, most of them long out of the processor's caches."""
        picked: list[tuple[int, int]] = []
        while len(picked) < count:
            number = self.chance.randrange(len(self.dues))
            if self.dues[number] > self.now:
                picked.append((self.dues[number], number << 5 | 3))
                self.dues[number] = -1
        return picked


def timed(deed: Callable[..., object], *args: object) -> int:
    begin = thread_time_ns()
    deed(*args)
    return thread_time_ns() - begin


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def each_ns(deed: Callable[[int, int], None], timers: list[tuple[int, int]]) -> float:
    begin = thread_time_ns()
    for due, key in timers:
        deed(due, key)
    return (thread_time_ns() - begin) / len(timers)


def fire_ns(held: Held) -> float:
    """Per timer, each on its own tick: ask when, then take."""
    wheel = held.wheel
    begin = thread_time_ns()
    for _ in range(FIRES):
        held.now = wheel.next_due() or 0
        take(wheel, held.now, 500)
    return (thread_time_ns() - begin) / FIRES


def round_ns(held: Held) -> dict[str, float]:
    fire = fire_ns(held)
    cancel = each_ns(held.wheel.cancel, held.old(BATCH))
    return {"fire": fire, "cancel": cancel, "insert": each_ns(held.wheel.insert, held.new(BATCH + FIRES))}


def ratios(few: Held, many: Held, *, rounds: int) -> dict[str, float]:
    """Both wheels take turns, so that a slow second of the machine hits both."""
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, held in (("few", few), ("many", many)):
            for deed, ns in round_ns(held).items():
                samples.setdefault(f"{deed}_{name}_ns", []).append(ns)
    figures = {name: median(values) for name, values in samples.items()}
    for deed in ("insert", "cancel", "fire"):
        figures[f"{deed}_ratio"] = figures[f"{deed}_many_ns"] / figures[f"{deed}_few_ns"]
    return figures


def nothing_due_us(held: Held, *, polls: int = 2_000) -> float:
    """The 99th of a hundred polls in vain."""
    first = held.wheel.next_due()
    assert first is not None
    polled = sorted(timed(poll, held.wheel, first - 1) for _ in range(polls))
    return polled[polls * 99 // 100] / 1e3


def poll(wheel: Wheel, tick: int) -> None:
    wheel.next_due()
    assert take(wheel, tick, 500) == []


def idle_jump_us(*, jumps: int = 200) -> float:
    """From one lone timer to the next, a month later, with a crowd beyond them; the 99th of a hundred jumps."""
    wheel = Wheel()
    for number in range(jumps):
        wheel.insert(number * MONTH, number << 5)
    for number in range(HELD_FEW):
        wheel.insert((jumps + 1) * MONTH + number * 977, (jumps + number) << 5)
    take(wheel, 0, 1)
    jumped = sorted(timed(jump, wheel) for _ in range(jumps - 1))
    return jumped[jumps * 99 // 100 - 1] / 1e3


def jump(wheel: Wheel) -> None:
    due = wheel.next_due()
    assert due is not None
    assert len(take(wheel, due, 500)) == 1


def longest_fire_us(held: Held, *, takes: int) -> float:
    wheel, tick, longest = held.wheel, held.wheel.next_due() or 0, 0
    for _ in range(takes):
        tick += 40_000
        longest = max(longest, timed(take, wheel, tick, 500))
    return longest / 1e3


def longest_same_tick_us(*, count: int) -> float:
    """All due at one instant: set in any order, taken one by one. The longest single operation."""
    wheel, longest = Wheel(), 0
    for number in range(count):
        longest = max(longest, timed(wheel.insert, 1_000_000, (number * 7_919 % count) << 5))
    while len(wheel):
        longest = max(longest, timed(take, wheel, 1_000_000, 1))
    return longest / 1e3


def measure(*, quick: bool) -> dict[str, float]:
    many = Held(HELD_MANY)  # first: its memory is measured against a small process
    few = Held(HELD_FEW)
    figures = {"bytes_per_timer": many.bytes_per_timer, "longest_insert_us": many.longest_ns / 1e3}
    figures |= ratios(few, many, rounds=60 if quick else 200)
    figures["nothing_due_us"] = nothing_due_us(many)
    figures["longest_fire_us"] = longest_fire_us(many, takes=2_000 if quick else 20_000)
    figures["idle_jump_us"] = idle_jump_us()
    figures["longest_same_tick_us"] = longest_same_tick_us(count=200_000 if quick else 1_000_000)
    return figures


def missed(figures: dict[str, float]) -> list[str]:
    return [
        f"{name} is {figures[name]:.2f}, the gate is {gate}" for name, gate in GATES.items() if figures[name] > gate
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    figures = measure(quick=options.quick)
    if options.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    else:
        for name, value in figures.items():
            print(f"{name:22} {value:10.2f}" + (f"  (gate {GATES[name]})" if name in GATES else ""))
    problems = missed(figures) if options.check else []
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
