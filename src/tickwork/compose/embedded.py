"""The engine inside the user's own process: a script, a notebook, the lifespan of an ASGI application.

Everything that a server has is there, with the same API behind a port of its own on loopback; tasks run in threads
of this process. Leaving the block waits for what runs, commits, and lets the data folder go. Several processes of one
application share a store: see `embedded_owner`.
"""

import asyncio
import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tickwork.compose.embedded_owner import SwitchedLink, access_to, shared_token
from tickwork.compose.settings import FOLDER, Settings
from tickwork.compose.worker import http_executor_of, resources_of
from tickwork.executors.egress_policy import LOOPBACK
from tickwork.executors.shell import shell_executor
from tickwork.ports.executor import Executor
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.sdk.authoring.app_loader import app_of, app_with
from tickwork.sdk.authoring.declared import DECLARED
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client
from tickwork.sdk.runner.inline_executor import InlineExecutor
from tickwork.system.clock import SystemClock, SystemIds, SystemProcesses
from tickwork.worker.agent import Agent
from tickwork.worker.credit import AHEAD_LOCAL_MS

GRACE_S = 10.0
START_S = 60.0
LEASE_TTL = "5s"  # of a node inside an application: the others are mostly on the same machine


class Embedded:
    """Run an engine for the duration of a block. `with` gives a `Client`, `async with` an `AsyncClient`.

        with tw.embedded() as client:
            run = client.submit(daily)
            print(client.result(run))

    Every task and workflow that is declared by then is served, or only `workflows` with what they call. `data` is the
    folder that survives; the page of this engine is at `address`, its token in `token`. Requests of `tw.http` reach
    public addresses and `allow_networks`. `resources` are those of a worker: "gpu=1".

    Several processes may use one folder, as those of `uvicorn --workers 4`: one owns it, the others reach it through
    that one, and when it ends another one takes over. With `store="postgresql://..."` they share a database instead,
    also on several machines, where `host` is the address at which the others reach this one.
    """

    def __init__(
        self,
        *,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        data: str | Path = FOLDER,
        store: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        threads: int = 8,
        queues: tuple[str, ...] = ("default",),
        labels: dict[str, str] | None = None,
        resources: str = "",
        grace_s: float = GRACE_S,
        allow_networks: Sequence[str] = LOOPBACK,
    ) -> None:
        self.token = os.environ.get("TICKWORK_TOKEN", "")  # else that of the store, once the block is entered
        self.address = ""
        self._settings = Settings(
            data=str(data), store=store, host=host, port=port, lease_ttl=LEASE_TTL,
            allow_networks=",".join(allow_networks), resources=resources,
        )  # fmt: skip
        self._workflows = workflows
        self._threads = threads
        has = resources_of(self._settings)
        self._profile = WorkerProfile(
            queues=queues, labels=labels or {}, cpu_milli=has["cpu"], memory_mb=has["memory"], gpu=has["gpu"],
            host="embedded", pid=os.getpid(),
        )  # fmt: skip
        self._grace_s = grace_s
        self._stack: contextlib.AsyncExitStack | None = None
        self._thread: _Thread | None = None
        self._client: Client | AsyncClient | None = None

    # ---- on the user's loop

    async def __aenter__(self) -> AsyncClient:
        await self._begin()
        client = self._client = AsyncClient(self.address, token=self.token)
        assert self._stack is not None
        await self._stack.enter_async_context(client)
        return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _begin(self) -> None:
        self.token = self.token or await asyncio.to_thread(shared_token, self._settings)
        access = access_to(msgspec.structs.replace(self._settings, token=self.token), moved=self._go_on_at)
        async with contextlib.AsyncExitStack() as stack:
            await access.start()
            stack.push_async_callback(access.stop)
            agent = self._agent(access.link)
            running = asyncio.get_running_loop().create_task(agent.run())
            stack.push_async_callback(self._drain, agent, running)
            await _first(running, agent.reached.wait())
            self._stack = stack.pop_all()

    def _go_on_at(self, address: str) -> None:
        """The engine answers here from now on: this process may own the store, or another one."""
        self.address = address
        if self._client is not None:
            self._client.address = dataclasses.replace(self._client.address, urls=(address,))

    def _agent(self, link: SwitchedLink) -> Agent:
        chosen = self._workflows
        main = sys.modules["__main__"]
        app = app_of(main, list(DECLARED)) if chosen is None else app_with(*chosen, module=main)
        http = http_executor_of(msgspec.structs.replace(self._settings, url=self.address))
        executors: list[Executor] = [InlineExecutor(app, threads=self._threads), shell_executor(), http]
        name = f"embedded-{os.getpid()}-{SystemIds().new()[-8:]}"
        profile = msgspec.structs.replace(self._profile, process=SystemProcesses().own())
        return Agent(
            link, executors, clock=SystemClock(), ids=SystemIds(), name=name, profile=profile, ahead_ms=AHEAD_LOCAL_MS
        )

    async def _drain(self, agent: Agent, running: "asyncio.Task[None]") -> None:
        if running.done():
            return
        await agent.drain(grace_s=self._grace_s)
        await running

    async def _end(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    # ---- beside a script

    def __enter__(self) -> Client:
        self._thread = _Thread(self)
        self._thread.begin()
        client = self._client = Client(self.address, token=self.token)
        return client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            assert isinstance(self._client, Client)
            self._client.close()
            thread.end()


class _Thread:
    """An event loop in a thread, for synchronous scripts."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._begun = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="tickwork", daemon=True)

    def begin(self) -> Self:
        self._thread.start()
        self._begun.wait(START_S)
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        await self._embedded._begin()
        self._begun.set()
        try:
            await self._over.wait()
        finally:
            await self._embedded._end()

    def end(self) -> None:
        if self._loop is not None and self._over is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        if self._error is not None:
            raise self._error


async def _first(running: "asyncio.Task[None]", reached: Coroutine[Any, Any, bool]) -> None:
    """Until the agent is served, or has ended with an error."""
    waiting = asyncio.get_running_loop().create_task(reached)
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()


embedded = Embedded
