"""The server in this process and a worker beside it that always runs the latest code that works.

When a file changes, a new worker is started; the old one is stopped only when the new one serves. So a
broken file changes nothing but what is said about it. At the end the worker drains first, while its results
can still be taken.
"""

import asyncio
import contextlib
import importlib.util
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from tickwork.compose.local_protection import announced, protected
from tickwork.compose.server import serving, until
from tickwork.compose.settings import Settings
from tickwork.compose.worker_process import WorkerProcess
from tickwork.core.base.errors import Refused, TickworkError
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine

DEBOUNCE_MS = 200  # an editor writes a file in several steps
FOLLOW_S = 0.1
FOLLOW_MAX = 100  # runs looked at in one round
TOLD_MAX = 20  # and printed; a person cannot read more
AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)
MARGIN_S = 10.0  # beyond its own grace, before a worker that does not end is ended


@dataclass(frozen=True, slots=True)
class Serving:
    address: str
    link: str = ""  # for a browser, once


@dataclass(frozen=True, slots=True)
class WorkerServes:
    seconds: float
    files: tuple[str, ...] = ()  # whose change made it new
    workflows: tuple[str, ...] = ()  # that the application has
    starts: tuple[str, ...] = ()  # one of them, and the inputs that it does not start without


@dataclass(frozen=True, slots=True)
class WorkerBroken:
    """`message` has the user's line. `old_goes_on`: the code before the change still runs."""

    message: str
    old_goes_on: bool


@dataclass(frozen=True, slots=True)
class WorkerDied:
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class RunChanged:
    run: wire.Run


@dataclass(frozen=True, slots=True)
class RunsSkipped:
    """More happened than a person can read."""

    count: int


@dataclass(frozen=True, slots=True)
class Draining:
    grace_s: float


Note = Serving | WorkerServes | WorkerBroken | WorkerDied | RunChanged | RunsSkipped | Draining


async def develop(settings: Settings, app: str, *, say: Callable[[Note], None], reload: bool = True) -> None:
    """Until SIGTERM or SIGINT; a second one ends everything at once."""
    folder = folder_of(app)
    stop, at_once = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (at_once if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    own_settings = protected(settings)
    async with serving(own_settings) as (engine, server), contextlib.AsyncExitStack() as stack:
        stack.enter_context(announced(settings, own_settings, server.bound, tell=_tell))
        say(Serving(server.address, server.link()))
        name = name_of(app)
        bench = DevWorker(own_settings, app, url=server.address, say=say, workflows=lambda: offered(engine, name))
        jobs = [bench.run(), Follower(engine, say).run(), until(stop, engine)]
        if reload:
            jobs.append(_watch(folder, settings.folder, bench, stop))
        try:
            await _race(stop, [loop.create_task(job) for job in jobs])
        finally:
            say(Draining(settings.grace_s))
            await bench.close(at_once)


def offered(engine: Engine, application: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its workflows; then one to begin with, and the inputs that it needs: none, where there is such a one."""
    needs: dict[str, tuple[str, ...]] = {}
    for name in engine.workflows.workflows_of(application):
        inputs = engine.queries.workflow(name).document.get("inputs", {})
        needs[name] = tuple(
            field for field, about in inputs.items() if about.get("required", True) and "default" not in about
        )
    first = min(needs, key=lambda name: len(needs[name]), default=None)
    return tuple(needs), (first, *needs[first]) if first is not None else ()


class DevWorker:
    """Where the worker stands: at most one that serves, and one that is to replace it."""

    def __init__(
        self,
        settings: Settings,
        app: str,
        *,
        url: str,
        say: Callable[[Note], None],
        workflows: Callable[[], tuple[tuple[str, ...], tuple[str, ...]]],
    ) -> None:
        self._settings, self._app, self._url, self._say = settings, app, url, say
        self._workflows = workflows
        self._current: WorkerProcess | None = None
        self._started: list[WorkerProcess] = []  # those that may still live
        self._leaving: set[asyncio.Task[None]] = set()
        self._requested = asyncio.Event()
        self._files: tuple[str, ...] = ()
        self._failures = 0

    def renew(self, files: tuple[str, ...]) -> None:
        self._files = files
        self._failures = 0
        self._requested.set()

    async def run(self) -> None:
        self._requested.set()
        while True:
            await self._requested.wait()
            self._requested.clear()
            start = asyncio.ensure_future(self._replace())
            change = asyncio.ensure_future(self._requested.wait())
            try:
                await asyncio.wait((start, change), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
                start.cancel()  # newer code than that which is starting: it is not waited for
                await asyncio.wait((start,))
            if not start.cancelled():
                start.result()

    async def _replace(self) -> None:
        loop = asyncio.get_running_loop()
        began, files = loop.time(), self._files
        fresh = WorkerProcess(self._settings, self._app, url=self._url)
        self._started = [*(process for process in self._started if process.alive), fresh]
        start = asyncio.ensure_future(fresh.start())
        try:
            await asyncio.shield(start)  # a start that is cut off would leave an unknown process
            serves = await fresh.until_ready()
        except asyncio.CancelledError:
            self._keep(_abandon(fresh, start))
            raise
        if not serves:
            await fresh.wait()
            self._say(WorkerBroken(fresh.last_words, self._current is not None))
            return
        old, self._current = self._current, fresh
        self._say(WorkerServes(loop.time() - began, files, *self._workflows()))
        if old is not None:
            self._leave(old)
        self._keep(self._mind(fresh))

    async def _mind(self, worker: WorkerProcess) -> None:
        """A worker that ends by itself is started again, ever more slowly."""
        code = await worker.wait()
        if self._current is not worker:
            return
        self._current = None
        self._say(WorkerDied(code, worker.last_words))
        pause_s = AGAIN_S[min(self._failures, len(AGAIN_S) - 1)]
        self._failures += 1
        await asyncio.sleep(pause_s)
        self._requested.set()

    def _leave(self, worker: WorkerProcess) -> None:
        self._keep(worker.stop(grace_s=self._settings.grace_s + MARGIN_S))

    def _keep(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self, at_once: asyncio.Event) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._leave(current)
        ended = asyncio.ensure_future(asyncio.gather(*self._leaving, return_exceptions=True))
        hurry = asyncio.ensure_future(at_once.wait())
        await asyncio.wait((ended, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not ended.done():
            await asyncio.gather(*(process.kill() for process in self._started if process.alive))
        await ended


async def _abandon(worker: WorkerProcess, start: "asyncio.Future[None]") -> None:
    """A worker that was replaced before it served."""
    await start
    await worker.stop(grace_s=1.0)


class Follower:
    """Prints every run as it appears and whenever its state changes; runs that exist at the start are not printed."""

    def __init__(self, engine: Engine, say: Callable[[Note], None]) -> None:
        self._engine, self._say = engine, say
        self._live: dict[str, str] = {}  # id -> state
        self._ended: dict[str, None] = {}  # the latest of them, oldest first

    async def run(self) -> None:
        await self._changed()
        seen = self._seq
        while True:
            await asyncio.sleep(FOLLOW_S)
            if self._seq != seen:
                seen = self._seq
                self._tell(await self._changed())

    @property
    def _seq(self) -> int:
        assert self._engine.context.partition is not None
        return self._engine.context.partition.durable_seq

    def _tell(self, runs: list[wire.Run]) -> None:
        for run in runs[:TOLD_MAX]:
            self._say(RunChanged(run))
        if len(runs) > TOLD_MAX:
            self._say(RunsSkipped(len(runs) - TOLD_MAX))

    async def _changed(self) -> list[wire.Run]:
        page, _ = await self._engine.queries.runs(self._engine.queries.filter(limit=FOLLOW_MAX))
        runs: dict[str, wire.Run] = {run.id: run for run in reversed(page)}
        for run_id in [known for known in self._live if known not in runs][:FOLLOW_MAX]:
            with contextlib.suppress(TickworkError):
                runs[run_id] = await self._engine.queries.run(run_id)
        return [run for run in runs.values() if self._is_news(run)]

    def _is_news(self, run: wire.Run) -> bool:
        if run.ended_at is None:
            self._ended.pop(run.id, None)
            before, self._live[run.id] = self._live.get(run.id), run.state
            return before != run.state
        news = run.id not in self._ended
        self._live.pop(run.id, None)
        self._ended[run.id] = None
        if len(self._ended) > 10 * FOLLOW_MAX:
            del self._ended[next(iter(self._ended))]
        return news


def _tell(line: str) -> None:
    print(f"tickwork: {line}", file=sys.stderr, flush=True)


def name_of(app: str) -> str:
    """As `App.name` has it: the module, or the file without its ending."""
    where = app.rpartition(":")[0] if ":" in app and not app.endswith(".py") else app
    return Path(where).stem if where.endswith(".py") or "/" in where else where


def folder_of(app: str) -> Path:
    """What is watched: the folder of the file, or of the module's package. Raises `Refused` where there is none."""
    where = app.rpartition(":")[0] if ":" in app and not app.endswith(".py") else app
    if where.endswith(".py") or "/" in where:
        path = Path(where)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise Refused("unknown_app", f"{where} {what}; name a Python file (app.py) or a module")
        return path.resolve().parent
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(where.partition(".")[0])
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).resolve().parent
    raise Refused("unknown_app", f"there is no module {where}; name a Python file (app.py) or a module")


async def _watch(folder: Path, data: Path, bench: DevWorker, stop: asyncio.Event) -> None:
    from watchfiles import PythonFilter, awatch

    python_files = PythonFilter(ignore_paths=[str(data.resolve())])
    async for changes in awatch(folder, watch_filter=python_files, debounce=DEBOUNCE_MS, step=50, stop_event=stop):
        paths = sorted({Path(path) for _, path in changes})
        bench.renew(tuple(str(path.relative_to(folder)) for path in paths))


async def _race(stop: asyncio.Event, jobs: list[asyncio.Task[None]]) -> None:
    """Run until stopped, or until one of the jobs fails: its error is raised."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait((stopped, *jobs), return_when=asyncio.FIRST_COMPLETED)
        for job in done:
            job.result()
    finally:
        for task in (stopped, *jobs):
            task.cancel()
        await asyncio.gather(stopped, *jobs, return_exceptions=True)
