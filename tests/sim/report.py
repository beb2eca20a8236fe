"""What happened in a run: a trace with one hash, and, when something is violated, all it takes to see it again.

The hash is over the canonical text of every event, so two runs with one hash told the same story.
"""

import shlex
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

LAST_EVENTS = 60


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    at_ns: int
    who: str
    what: str
    detail: str = ""

    def __str__(self) -> str:
        return f"#{self.number} {self.at_ns / 1e9:.6f} s {self.who}: {self.what} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must hold did not. `at` is the number of the first event that shows it, where there is one."""

    invariant: str
    text: str
    at: int | None = None

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


class Trace:
    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Event] = deque(maxlen=LAST_EVENTS)
        self.faults: dict[str, int] = {}
        self._hash = blake2b(digest_size=16)

    def note(self, at_ns: int, who: str, what: str, detail: str = "") -> Event:
        self.count += 1
        event = Event(self.count, at_ns, who, what, detail)
        self.last.append(event)
        self._hash.update(f"{at_ns}\0{who}\0{what}\0{detail}\n".encode())
        return event

    def fault(self, at_ns: int, who: str, name: str, detail: str = "") -> None:
        self.faults[name] = self.faults.get(name, 0) + 1
        self.note(at_ns, who, f"fault {name}", detail)

    @property
    def hash(self) -> str:
        return self._hash.copy().hexdigest()


@dataclass(slots=True)
class Report:
    """The end of one run. `options` are what the command line takes, apart from the seed."""

    seed: int
    options: Mapping[str, str]
    trace: Trace
    violations: list[Violation] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)  # a line per host: how it stands

    @property
    def ok(self) -> bool:
        return not self.violations

    def command(self) -> str:
        """From the root of the repository, as it is."""
        words = ["env", "PYTHONPATH=tests", ".venv/bin/python", "-m", "sim", "--seed", str(self.seed)]
        for name, value in sorted(self.options.items()):
            words += [f"--{name.replace('_', '-')}", value]
        return shlex.join(words)

    def __str__(self) -> str:
        head = f"seed {self.seed}, {self.trace.count} events, hash {self.trace.hash}"
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.trace.faults.items())) or "none"
        lines = [head, f"options: {dict(sorted(self.options.items()))}", f"faults: {faults}"]
        if self.ok:
            return "\n".join([*lines, "nothing violated"])
        first = self.violations[0]
        lines += ["", f"VIOLATED {first}", f"first offending event: {self._offending(first)}"]
        lines += [f"also {other}" for other in self.violations[1:]]
        lines += ["", f"the last {len(self.trace.last)} events:", *(f"  {event}" for event in self.trace.last)]
        lines += ["", *self.summary, f"replay: {self.command()}"]
        return "\n".join(lines)

    def _offending(self, violation: Violation) -> str:
        if violation.at is None:
            return "none in particular: it shows at the end"
        found = [event for event in self.trace.last if event.number == violation.at]
        return str(found[0]) if found else f"#{violation.at}"


class Violated(AssertionError):
    """Raised with the whole report as its text, so that a failing test prints it."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"\n{report}")
        self.report = report
