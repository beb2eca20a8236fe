"""Random functions, outcomes and times: every replay, of every part of the history, makes the same calls."""

from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from campaign import examples
from sdk.durable.history_keeper import Call, Keeper, attempt
from tickwork.protocol.worker_messages import HistoryEntry
from tickwork.sdk.durable.driver import Driver, LocalStep
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.outcomes import Cancelled, StepFailed


@dataclass(frozen=True)
class Do:
    kind: str
    inside: tuple["Do", ...] = ()
    number: int = 0


LEAVES = st.builds(
    Do,
    st.sampled_from(["step", "failing", "retried", "sleep", "event", "call", "now", "random", "version"]),
    number=st.integers(0, 3),
)
PROGRAMS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        Do,
        st.sampled_from(["sequence", "gather", "first", "undo", "gather_calls", "both"]),
        st.lists(inner, min_size=1, max_size=4).map(tuple),
        st.integers(0, 3),
    ),
    max_leaves=16,
)


def work(number: int) -> int:
    return number


def fails(number: int) -> int:
    raise ValueError(number)


async def run(ctx: Durable, do: Do) -> Any:
    """What the function makes of its parts depends on every outcome, so that a wrong one shows."""
    match do.kind:
        case "step":
            return await ctx.step(work, do.number)
        case "failing":
            try:
                return await ctx.step(fails, do.number)
            except StepFailed as failed:
                return str(failed)
        case "retried":
            try:
                return await ctx.step(fails, do.number, retries=2)
            except StepFailed as failed:
                return str(failed)
        case "sleep":
            return await ctx.sleep(do.number)
        case "event":
            return await ctx.event(f"event{do.number}", timeout=5)
        case "call":
            return await ctx.call("other", number=do.number)
        case "now":
            return ctx.now().isoformat()
        case "random":
            return ctx.random()
        case "version":
            return ctx.version(f"version{do.number}", 3)
        case "gather":
            return await ctx.gather(*[run(ctx, part) for part in do.inside])
        case "gather_calls":
            return await ctx.gather(*[ctx.call("part", number=n) for n in range(len(do.inside))])
        case "first":
            winner = await ctx.first(ctx.event("never"), *[run(ctx, part) for part in do.inside], ctx.sleep(9))
            return [winner.index, winner.value]
        case "both":  # issued, and awaited later
            pending = ctx.step(work, 100 + do.number)
            seen = [await run(ctx, part) for part in do.inside]
            return [await pending, *seen]
        case "undo":
            try:
                async with ctx.undo() as undo:
                    undo(work, do.number)
                    seen = [await run(ctx, part) for part in do.inside]
                    if seen[-1] is None:
                        await ctx.step(fails, 7)
                    return seen
            except StepFailed as failed:
                return str(failed)
    return [await run(ctx, part) for part in do.inside]


class Life:
    """One run of a program with a server whose timing is random: crashes, late and early outcomes, cancellation."""

    def __init__(self, program: Do, seed: int) -> None:
        self.program, self.random = program, Random(seed)
        self.keeper = Keeper()
        self.calls: dict[int, Call] = {}
        self.cancelled = False
        self.driver: Driver | None = None

    async def function(self, ctx: Durable) -> Any:
        return await run(ctx, self.program)

    def begin(self) -> Driver:
        noted: list[Call] = []
        driver = attempt(self.function, self.keeper.history(), noted)
        self.noted = noted
        return driver

    def check(self) -> None:
        """The same call at each position, in whichever attempt."""
        for call in self.noted:
            assert self.calls.setdefault(call[0], call) == call

    def live(self) -> Any:
        while True:
            keep = self.driver is not None and self.random.random() < 0.5
            if keep and self.driver is not None and self.driver.is_extended_by(self.keeper.history()):
                driver = self.driver
                driver.extend(self.keeper.history())
            else:
                driver = self.driver = self.begin()
            ended, retries, crashed = self._attempt(driver)
            self.check()
            if ended:
                return driver
            if crashed:
                driver.close()
                self.driver = None
                continue
            self.keeper.suspend(driver, retries)
            if self.driver is not None and self.random.random() < 0.5:
                driver.close()
                self.driver = None
            self._settle_some()

    def _attempt(self, driver: Driver) -> tuple[bool, list[tuple[LocalStep, int]], bool]:
        retries: list[tuple[LocalStep, int]] = []
        running: list[LocalStep] = []
        ended = driver.advance()
        arrived: list[HistoryEntry] = []
        while not ended:
            running += driver.start
            driver.start.clear()
            abandoned = set(driver.abandoned)
            driver.abandoned.clear()
            running = [step for step in running if step.operation.position not in abandoned]
            retries = [entry for entry in retries if entry[0].operation.position not in abandoned]
            if not running:
                break
            if self.random.random() < 0.1:
                return False, [], True
            step = running.pop(self.random.randrange(len(running)))
            call, detail = step.operation, step.operation.detail
            try:
                outcome: dict[str, Any] = {"value": detail.function(*detail.args)}
            except ValueError as error:
                if detail.retry is not None and step.tries <= detail.retry[0]:
                    retries.append((step, step.tries))
                    continue
                outcome = {"error": type(error).__name__}
            entry = self.keeper.record("step", call, tries=step.tries, **outcome)
            self.keeper.versions |= driver.new_versions
            driver.feed(entry)
            ended = driver.advance()
        self.keeper.entries += arrived
        return ended, retries, False

    def _settle_some(self) -> None:
        awaits = list(self.keeper.awaits)
        assert awaits, "it waits for nothing"
        if not self.cancelled and self.random.random() < 0.05:
            self.cancelled = True
            self.keeper.clock_ms += 7
            self.keeper.entries.append(HistoryEntry(-1, "cancel", "", "", at_ms=self.keeper.clock_ms))
            for position, (_, name, digest) in self.keeper.awaits.items():
                self.keeper.entries.append(HistoryEntry(position, "withdrawn", name, digest))
            self.keeper.awaits.clear()
            return
        for position in self.random.sample(awaits, self.random.randint(1, len(awaits))):
            kind, name, _ = self.keeper.awaits[position]
            if name != "never":
                late = kind == "event" and self.random.random() < 0.3
                self.keeper.settle(position, value=self.random.randrange(100), error="timeout" if late else "")


def result_of(driver: Driver) -> Any:
    try:
        return driver.outcome()
    except Cancelled:
        return "cancelled"


@given(PROGRAMS, st.integers(0, 2**32))
@settings(max_examples=examples(few=150, many=20_000))
def test_every_replay_makes_the_same_calls(program, seed):
    life = Life(program, seed)
    driver = life.live()
    result, keeper = result_of(driver), life.keeper

    for length in range(len(keeper.entries) + 1):
        calls: list[Call] = []
        replay = attempt(life.function, keeper.history(until=length), calls)
        ended = replay.advance()
        assert replay.failure is None
        for call in calls:
            assert life.calls.get(call[0], call) == call
        if length == len(keeper.entries):
            assert ended
            assert result_of(replay) == result
            assert sorted(calls) == sorted(life.calls.values())
        replay.close()


@given(PROGRAMS, st.integers(0, 2**32))
@settings(max_examples=examples(few=50, many=5_000))
def test_a_suspended_function_waits_for_something(program, seed):
    """`_settle_some` asserts it; and what runs here and what the server holds never overlap."""
    life = Life(program, seed)
    life.live()

    keeper = life.keeper
    positions = [entry.position for entry in keeper.entries if entry.kind not in ("retry", "cancel")]
    assert len(positions) == len(set(positions)) + len(set(keeper.given_back))
