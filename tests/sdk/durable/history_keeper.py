"""A server's side of one durable function, for tests of the driver: it records what a worker reports, settles awaits
and says what the next attempt gets. The rules are those of the core; the core has its own tests."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from tickwork.protocol.worker_messages import FunctionHistory, HistoryEntry
from tickwork.sdk.context import Context
from tickwork.sdk.durable.driver import Driver, LocalStep
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.pending import Operation

pack = msgspec.msgpack.encode
Call = tuple[int, str, str, str]  # position, kind, name, digest


@dataclass
class Keeper:
    entries: list[HistoryEntry] = field(default_factory=list)
    awaits: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    together: tuple[tuple[int, ...], ...] = ()
    given_back: list[int] = field(default_factory=list)  # events that came for awaits which were given up
    clock_ms: int = 1_000

    def history(self, *, until: int | None = None) -> FunctionHistory:
        entries = self.entries if until is None else self.entries[:until]
        awaits = self.awaits if until is None else {}
        return FunctionHistory(
            1_000, 0, tuple(entries), tuple((p, *known) for p, known in awaits.items()), dict(self.versions)
        )

    def record(self, kind: str, call: Operation, *, value: Any = None, error: str = "", tries: int = 1) -> HistoryEntry:
        self.clock_ms += 7
        entry = HistoryEntry(
            call.position, kind, call.name, call.digest, pack(value), error, error, self.clock_ms, tries
        )
        self.entries.append(entry)
        return entry

    def suspend(self, driver: Driver, retries: list[tuple[LocalStep, int]]) -> None:
        suspension = driver.suspension()
        self.versions |= driver.new_versions
        self.together = suspension.together
        for position in suspension.withdrawn:
            if position in self.awaits:
                _, name, digest = self.awaits.pop(position)
            else:
                (unseen,) = [entry for entry in self.entries if entry.position == position]
                assert unseen.kind == "event" and not unseen.error
                name, digest = unseen.name, unseen.digest
                self.given_back.append(position)
            self.clock_ms += 7
            self.entries.append(HistoryEntry(position, "withdrawn", name, digest, at_ms=self.clock_ms))
        for call in suspension.awaits:
            self.awaits.setdefault(call.position, (call.kind, call.name, call.digest))
        for step, tries in retries:
            call = step.operation
            self.awaits[call.position] = ("retry", call.name, call.digest)
            self.tries[call.position] = tries

    def settle(self, position: int, *, value: Any = None, error: str = "") -> None:
        kind, name, digest = self.awaits.pop(position)
        self.clock_ms += 7
        tries = self.tries.pop(position, 1)
        self.entries.append(HistoryEntry(position, kind, name, digest, pack(value), error, error, self.clock_ms, tries))


def attempt(function: Any, history: FunctionHistory | None, calls: list[Call] | None = None) -> Driver:
    """A driver that has begun, and notes each call."""
    driver = Driver(history, submitted_ms=1_000, seed="run")
    ctx = Durable(driver, Context(run_id="run"))
    if calls is not None:
        inner = driver.call

        def noted(kind: str, name: str, digest: str, detail: Any, location: Any) -> Operation:
            operation = inner(kind, name, digest, detail, location)
            calls.append((operation.position, kind, name, digest))
            return operation

        driver.call = noted  # type: ignore[method-assign]
    driver.begin(function(ctx))
    return driver


def drop(driver: Driver) -> None:
    driver.close()


def replayed(function: Any, history: FunctionHistory) -> Any:
    """The result of a function whose history is complete."""
    driver = attempt(function, history)
    assert driver.advance(), "it still waits"
    return driver.outcome()


def lived(function: Any, keeper: Keeper, *, outcomes: dict[str, Any] | None = None) -> Any:
    """Run until it ends: steps are called, other awaits get `outcomes` by name, in the order of their positions."""
    while True:
        driver = attempt(function, keeper.history())
        ended = driver.advance()
        retries: list[tuple[LocalStep, int]] = []
        while not ended and driver.start:
            step = driver.start.pop(0)
            call, detail = step.operation, step.operation.detail
            try:
                entry = keeper.record("step", call, value=detail.function(*detail.args, **detail.kwargs))
            except Exception as error:
                if detail.retry is not None and step.tries <= detail.retry[0]:
                    retries.append((step, step.tries))
                    continue
                entry = keeper.record("step", call, error=type(error).__name__, tries=step.tries)
            keeper.versions |= driver.new_versions
            driver.feed(entry)
            ended = driver.advance()
        if ended:
            return driver.outcome()
        keeper.suspend(driver, retries)
        driver.close()
        assert keeper.awaits, "it waits for nothing"
        position = min(keeper.awaits, key=lambda p: (keeper.awaits[p][1] not in (outcomes or {}), p))
        value = (outcomes or {}).get(keeper.awaits[position][1])
        error = value if isinstance(value, str) and value.startswith("!") else ""
        keeper.settle(position, value=None if error else value, error=error.removeprefix("!"))
