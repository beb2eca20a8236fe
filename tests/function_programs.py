"""Random durable functions, tasks and graphs that call each other. What a program returns is known before it runs.

A program is a tree of plain values (`Do`). Each leaf has a weight, and each part returns the sum of its parts,
whichever branch was first and however often a part was tried. `make` gives the application that carries programs out;
`version` is that of its code: from version 2 on there are more steps, behind `ctx.version`.
"""

from random import Random
from types import SimpleNamespace
from typing import Any, Protocol

import tickwork as tw

LEAVES = (
    *("step", "step", "retried", "failing", "sleep", "sleep", "event", "task", "started", "undone"),
    *("changed", "changed", "signals", "starts"),
)
INNER = ("sequence", "gather", "race", "call", "graph")
MESSAGES = ("message", "other")
VERSION = 2
Do = dict[str, Any]


class Outside(Protocol):
    """What the code of steps and tasks meets."""

    async def work(self, name: str) -> None:
        """Take a while."""

    def fails(self) -> bool: ...


class TriedAgain(Exception):
    pass


def generate(random: Random, leaves: int, *, pause_ms: int) -> Do:
    """A program with so many leaves, whose sleeps are at most so long."""

    def pause() -> float:
        return random.randint(0, pause_ms) / 1_000

    if leaves <= 1:
        return {"do": random.choice(LEAVES), "weight": random.randint(1, 1_000), "pause": pause()}
    kind = random.choice(INNER)
    if kind in ("call", "graph"):
        return {"do": kind, "parts": [generate(random, leaves - 1, pause_ms=pause_ms)]}
    if kind == "race":
        return {"do": kind, "weight": random.randint(1, 1_000), "pauses": [pause(), pause()]}
    cut = random.randint(1, leaves - 1)
    return {"do": kind, "parts": [generate(random, size, pause_ms=pause_ms) for size in (cut, leaves - cut)]}


def total(do: Do) -> int:
    own: int = 0 if do["do"] in ("sleep", "changed") else do.get("weight", 0)
    return own + int(do["do"] == "graph") + sum(map(total, do.get("parts", ())))


def inputs(random: Random, *, leaves: int, messages: int, pause_ms: int) -> dict[str, Any]:
    """Of one run of `rounds`."""
    program = generate(random, leaves, pause_ms=pause_ms)
    return {"do": program, "rounds": random.randint(1, 3), "messages": messages}


def result(given: dict[str, Any]) -> int:
    """What that run returns: message n has the weight n."""
    rounds: int = given["rounds"]
    return total(given["do"]) * rounds + sum(range(given["messages"]))


def make(version: int, outside: Outside) -> SimpleNamespace:
    """The application."""

    async def weigh(weight: int) -> int:
        await outside.work("weigh")
        return weight

    async def broken(weight: int) -> int:
        await outside.work("broken")
        raise ValueError(weight)

    async def flaky(weight: int) -> int:
        await outside.work("flaky")
        if outside.fails():
            raise TriedAgain
        return weight

    again: dict[str, Any] = {"retries": 100, "retry_delay": "100ms", "retry_max": "2s", "timeout": "60s"}

    @tw.task(name="weigh_apart", **again)
    async def weigh_apart(weight: int) -> int:
        return await flaky(weight)

    @tw.task(name="tell", **again)
    async def tell(ctx: tw.Context, key: str, weight: int) -> None:
        await outside.work("tell")
        ctx.signal("told", weight, key=key)

    @tw.workflow(name="telling")
    def telling(about: str, weight: int) -> object:
        return tell(about, weight)

    @tw.task(name="start_telling", **again)
    async def start_telling(ctx: tw.Context, key: str, weight: int) -> None:
        await outside.work("start")
        ctx.start("telling", about=key, weight=weight, key=key)

    async def told(ctx: tw.Durable, teller: Any, weight: int) -> int:
        """Awaited before anybody can tell."""
        key = str(ctx.uuid())
        got, _ = await ctx.gather(ctx.event("told", key), ctx.call(teller, key, weight))
        return int(got)

    async def later(ctx: tw.Durable, pause: float, key: str, do: Do) -> None:
        """Once the event is awaited, as the suspension that waits for this pause awaits it too."""
        await ctx.sleep(pause)
        if do["do"] == "signals":
            await ctx.signal("told", do["weight"], key=key)
        else:
            await ctx.start(telling, about=key, weight=do["weight"])

    async def raced(ctx: tw.Durable, pause: float, weight: int) -> int:
        await ctx.sleep(pause)
        return await ctx.step(weigh, weight)

    async def part(ctx: tw.Durable, do: Do) -> int:
        weight: int = do.get("weight", 0)
        match do["do"]:
            case "step":
                return await ctx.step(weigh, weight)
            case "retried":
                return await ctx.step(flaky, weight, retries=100, retry_delay=0.1, retry_max=1)
            case "failing":
                try:
                    return await ctx.step(broken, weight)
                except tw.StepFailed:
                    return weight
            case "sleep":
                await ctx.sleep(do["pause"])
                return 0
            case "event":
                return await told(ctx, tell, weight)
            case "started":
                return await told(ctx, start_telling, weight)
            case "signals" | "starts":
                key = str(ctx.uuid())
                got, _ = await ctx.gather(ctx.event("told", key), later(ctx, do["pause"], key, do))
                return int(got)
            case "task":
                return await ctx.call(weigh_apart, weight)
            case "undone":
                try:
                    async with ctx.undo() as undo:
                        taken = await ctx.step(weigh, weight)
                        undo(weigh, -weight)
                        await ctx.step(broken, 0)
                except tw.StepFailed:
                    return taken
            case "changed":
                if version >= VERSION and ctx.version("more", VERSION) >= VERSION:
                    await ctx.gather(ctx.step("more", weigh, 0), ctx.sleep(0.1))
                return await ctx.step("less", weigh, 0)
            case "race":
                branches = [raced(ctx, pause, weight) for pause in do["pauses"]]
                first = await ctx.first(*branches, ctx.event("never"))
                return int(first.value)
            case "gather":
                return sum(await ctx.gather(*[part(ctx, inner) for inner in do["parts"]]))
            case "call":
                return await ctx.call(program, do["parts"][0])
            case "graph":
                return await ctx.call(graph, do["parts"][0])
        return sum([await part(ctx, inner) for inner in do.get("parts", ())])

    limits: dict[str, Any] = {"retries": 100, "retry_delay": "100ms", "task_timeout": "60s"}

    @tw.durable(name="program", **limits)
    async def program(ctx: tw.Durable, do: dict[str, Any]) -> int:
        return await part(ctx, do)

    @tw.workflow(name="graph")
    def graph(do: dict[str, Any]) -> Any:
        return add_one(program(do))

    @tw.task(name="add_one", **again)
    async def add_one(value: int) -> int:
        await outside.work("add")
        return value + 1

    @tw.durable(name="rounds", **limits)
    async def rounds(
        ctx: tw.Durable,
        do: dict[str, Any],
        rounds: int,
        messages: int,
        sum_before: int = 0,
        taken: list[int] | None = None,
    ) -> int:
        """`do` as often as `rounds` says, then every message once: each turn waits for two kinds and some time."""
        if rounds:
            sum_now = sum_before + await part(ctx, do)
            ctx.continue_as_new(do=do, rounds=rounds - 1, messages=messages, sum_before=sum_now)
        numbers = list(taken or ())
        turns = 0
        while len(numbers) < messages:
            if turns == 4:
                ctx.continue_as_new(do=do, rounds=0, messages=messages, sum_before=sum_before, taken=numbers)
            turns += 1
            first = await ctx.first(*[ctx.event(name) for name in MESSAGES], ctx.sleep(0.5))
            if first.value is not None and first.value not in numbers:
                numbers.append(await ctx.step(weigh, first.value))
        return sum_before + sum(numbers)

    @tw.durable(name="counter", **limits)
    async def counter(ctx: tw.Durable, updates: int, total: int = 0, served: int = 0) -> int:
        """Adds what so many updates say. Each gets the total so far as its reply; every fifth number is refused."""
        turns = 0
        while served < updates:
            if turns == 3:
                ctx.continue_as_new(updates=updates, total=total, served=served)
            turns += 1
            message = await ctx.receive("add", timeout="20s")
            if message is None:
                continue
            served += 1
            if message["n"] % 5 == 0:
                message.refuse(f"{message['n']} is not taken")
                continue
            total += await ctx.step(weigh, message["n"])
            ctx.publish("total", total)
            message.reply(total)
        return total

    return SimpleNamespace(rounds=rounds, program=program, graph=graph, telling=telling, counter=counter)
