"""The application that the tests of executors load into child processes."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tickwork.sdk.authoring.tasks import task
from tickwork.sdk.context import Context, context


@task(name="noop")
def noop() -> None:
    pass


@task(name="add")
def add(a: int, b: int) -> int:
    return a + b


@task(name="whoami")
def whoami() -> dict:
    return {"pid": os.getpid(), "session": os.getsid(0), "env": dict(os.environ)}


@task(name="fail")
def fail() -> None:
    raise ValueError("the day has no data")


@task(name="stops_here")
def stops_here() -> None:
    breakpoint()


@task(name="note")
def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@task(name="turn")
def turn(path: str, text: str, seconds: float = 0.0, dies: bool = False) -> str:
    """Short, unless it is told otherwise: nobody can know before."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if seconds:
        time.sleep(seconds)
    return text


@task(name="sleep")
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@task(name="die")
def die(signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)
    time.sleep(10)


@task(name="leave")
def leave(code: int) -> None:
    os._exit(code)


@task(name="exit")
def exit_(code: int) -> None:
    sys.exit(code)


@task(name="stubborn")
def stubborn(path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


@task(name="double_fork")
def double_fork(path: str) -> None:
    """Leaves a daemon behind, in a session of its own, and goes on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(path).write_text(str(os.getpid()))
            time.sleep(60)
        os._exit(0)
    time.sleep(60)


@task(name="fork_back")
def fork_back() -> int:
    """Both processes return from here."""
    os.fork()
    return os.getpid()


@task(name="hog")
def hog(seconds: float) -> str:
    """Holds the interpreter in C: no other thread of this process gets a turn."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        re.match(r"(a+)+$", "a" * 25 + "b")
    return "done"


@task(name="says")
def says(word: str) -> None:
    print(word)
    print("to stderr", file=sys.stderr)
    logging.getLogger("mine").info("logged %s", word)
    print("no end of line", end="")


@task(name="calls_the_server")
def calls_the_server(url: str) -> int:
    """With everything that a task finds in its environment."""
    token = next((value for name, value in os.environ.items() if "TOKEN" in name), "")
    request = urllib.request.Request(f"{url}/v1/runs", headers={"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@task(name="saves_much")
def saves_much(kilobytes: int) -> None:
    context().checkpoint("x" * (kilobytes * 1024))


@task(name="returns_much")
def returns_much(kilobytes: int) -> str:
    return "x" * (kilobytes * 1024)


@task(name="writes_bytes")
def writes_bytes(word: str) -> None:
    sys.stdout.reconfigure(line_buffering=True)
    sys.stdout.buffer.write(word.encode())


@task(name="fails_twice")
def fails_twice() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise RuntimeError("second") from error


@task(name="fails_in_a_group")
def fails_in_a_group() -> None:
    raise ExceptionGroup("both", [ValueError("one"), TypeError("two")])


@task(name="half_a_pair")
def half_a_pair(how: str) -> str:
    name = os.fsdecode(b"gr\xfcn.txt")  # as a folder may have it that another system wrote
    if how == "printed":
        print(name)
    elif how == "raised":
        raise ValueError(name)
    elif how == "told":
        context().progress(1, 2, name)
    return how


@task(name="logs_badly")
def logs_badly() -> str:
    logging.getLogger("mine").info("%d files", "many")
    return "went on"


@task(name="exits_wildly")
def exits_wildly() -> None:
    sys.exit(2**100)


@task(name="last_words")
def last_words(word: str) -> None:
    """Of a program, right before the end, and the last of them without an end of line."""
    os.write(1, b"".join(b"%s %d\n" % (word.encode(), number) for number in range(2_000)))
    subprocess.run(["/usr/bin/printf", f"{word} at last"], check=True)


@task(name="says_in_c")
def says_in_c(word: str) -> None:
    os.write(1, f"{word} by the kernel\n".encode())
    subprocess.run(["/bin/echo", f"{word} by a program"], check=True)


@task(name="says_and_waits")
def says_and_waits(word: str) -> None:
    print(word)
    time.sleep(60)


@task(name="flood")
def flood(lines: int) -> None:
    for number in range(lines):
        print(f"line {number} " + "x" * 80)


@task(name="long_line")
def long_line(megabytes: int, raw: bool) -> None:
    piece = b"x" * (1024 * 1024)
    for _ in range(megabytes):
        if raw:
            view = memoryview(piece)
            while view:
                view = view[os.write(1, view) :]
        else:
            sys.stdout.write(piece.decode())
    if raw:
        os.write(1, b"\nafter\n")
        time.sleep(0.1)
    else:
        print("\nafter")


@task(name="large")
def large(items: int) -> list[int]:
    return list(range(items))


@task(name="length")
def length(values: list[int], extra: str = "") -> int:
    return len(values) + len(extra)


@task(name="unsendable")
def unsendable() -> object:
    return threading.Lock()


@task(name="steps")
def steps(ctx: Context, path: str) -> str:
    def once(name: str) -> str:
        with Path(path).open("a") as file:
            file.write(f"{name}\n")
        return name.upper()

    first = ctx.step("first", once, "a")
    if ctx.attempt == 1:
        os._exit(9)
    return first + ctx.step("second", once, "b")


@task(name="checkpoints")
def checkpoints(size: int) -> object:
    ctx = context()
    before = ctx.last_checkpoint
    ctx.checkpoint({"attempt": ctx.attempt, "pad": "x" * size})
    return None if before is None else before["attempt"]


@task(name="progress")
def progress(count: int) -> None:
    for done in range(count + 1):
        context().progress(done, count, "counting")


@task(name="keeps_in_touch")
def keeps_in_touch(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        context().progress(0, 1)
        time.sleep(0.05)
    return "done"


@task(name="memory")
def memory(megabytes: int) -> int:
    return len(bytearray(megabytes * 1024 * 1024))


@task(name="in_thread", executor="thread")
def in_thread(seconds: float) -> str:
    time.sleep(seconds)
    print("from a thread")
    return threading.current_thread().name


@task(name="checkpoint_in_thread", executor="thread")
def checkpoint_in_thread() -> int:
    context().checkpoint(1)
    return 1


@task(name="coroutine")
async def coroutine(seconds: float) -> str:
    await asyncio.sleep(seconds)
    print("from a coroutine")
    return "awaited"


@task(name="deaf_coroutine")
async def deaf_coroutine() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("not me")


@task(name="blocking_coroutine")
async def blocking_coroutine() -> None:
    time.sleep(60)


@task(name="checkpoint_in_coroutine")
async def checkpoint_in_coroutine() -> int:
    await context().checkpoint_async(1)
    context().checkpoint(2)
    return 2


@task(name="checkpoints_beside_each_other")
async def checkpoints_beside_each_other() -> list[int]:
    here = context()

    async def part(number: int) -> int:
        return number

    return await asyncio.gather(*[here.step_async(f"part {number}", part, number) for number in range(4)])


@task(name="checkpoints_in_both")
async def checkpoints_in_both() -> list[int]:
    here = context()

    async def part(number: int) -> int:
        return number

    steps = [here.step_async(f"part {number}", part, number) for number in range(3)]
    threads = [asyncio.to_thread(here.step, "in a thread", abs, -number) for number in range(3, 6)]
    return await asyncio.gather(*steps, *threads)


def positive(number: int) -> int:
    return abs(number)


@task(name="checkpoints_in_threads")
def checkpoints_in_threads() -> list[int]:
    here = context()
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda number: here.step("part", positive, number), [-1] * 8))


@task(name="in_folder")
def in_folder(ctx: Context) -> str:
    (ctx.workdir / "scratch").write_text("x")
    return str(ctx.workdir)


@task(name="cleans_up")
def cleans_up(ctx: Context, path: str) -> None:
    try:
        time.sleep(60)
    finally:
        Path(path).write_text(f"cancelled={ctx.cancelled}")


@task(name="looks")
def looks(ctx: Context, path: str) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)
    Path(path).write_text("looked")


@task(name="looks_in_thread", executor="thread")
def looks_in_thread(ctx: Context, path: str) -> None:
    while not ctx.cancelled:
        time.sleep(0.01)
    Path(path).write_text("looked")


@task(name="deaf_thread", executor="thread")
def deaf_thread(seconds: float) -> None:
    time.sleep(seconds)


@task(name="spins")
def spins(ctx: Context, path: str) -> None:
    try:
        while True:
            time.sleep(0.001)
    finally:
        Path(path).write_text(f"cancelled={ctx.cancelled}")


@task(name="cleans_up_slowly")
def cleans_up_slowly(path: str, seconds: float) -> None:
    try:
        while True:
            time.sleep(0.001)
    finally:
        Path(path).write_text("begins ")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.001)
        with open(path, "a") as file:
            file.write("ends")


@task(name="sleep_and_note")
def sleep_and_note(path: str, seconds: float) -> None:
    with open(path, "a") as file:
        file.write("begins\n")
    try:
        time.sleep(seconds)
    finally:
        with open(path, "a") as file:
            file.write("ends\n")


@task(name="thread_that_notes", executor="thread")
def thread_that_notes(path: str, seconds: float) -> None:
    with open(path, "a") as file:
        file.write("begins\n")
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write("ends\n")


@task(name="asks")
def asks(size: int, ctx: Context, *, value: int = 0) -> str:
    return _ask(size, ctx, value)


def _ask(size: int, ctx: Context, value: int) -> str:
    ctx.start("target", text="x" * size)
    ctx.signal("paid", size)
    return "y" * value


@task(name="asks_in_a_thread", executor="thread")
def asks_in_a_thread(size: int, ctx: Context, *, value: int = 0) -> str:
    return _ask(size, ctx, value)


@task(name="asks_async")
async def asks_async(size: int, ctx: Context, *, value: int = 0) -> str:
    return _ask(size, ctx, value)


@task(name="streams")
def streams(ctx: Context) -> None:
    _stream(ctx)


def _stream(ctx: Context) -> None:
    for text in ("a", "b", "\udcff"):
        ctx.stream(text)


@task(name="streams_in_a_thread", executor="thread")
def streams_in_a_thread(ctx: Context) -> None:
    _stream(ctx)


@task(name="streams_async")
async def streams_async(ctx: Context) -> None:
    _stream(ctx)
