"""The worker process: agent, link and executors."""

import asyncio
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from tickwork.cluster.direct_link import HttpOwnerConnections, OwnerLink
from tickwork.compose.brokers import exchange_queues, receiver_of
from tickwork.compose.settings import BadSettings, Settings, names, pairs, passed, ports, variables
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.executors.concurrency import ConcurrentExecutor
from tickwork.executors.egress_client import EgressClient
from tickwork.executors.egress_policy import EgressPolicy
from tickwork.executors.http import http_executor
from tickwork.executors.limits import Limits
from tickwork.executors.process import ProcessExecutor
from tickwork.executors.secrets import Secrets
from tickwork.executors.shell import shell_executor
from tickwork.ports.executor import Executor
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.sdk.authoring.options import resource
from tickwork.system import local_token as localtoken
from tickwork.system.clock import SystemClock, SystemIds, SystemProcesses
from tickwork.system.host_resources import own_cpu_milli, own_memory_mb
from tickwork.version import VERSION
from tickwork.worker.agent import Agent
from tickwork.worker.broker_receiver import BrokerReceiver
from tickwork.worker.http_link import HttpLink
from tickwork.worker.process import serve

NUMBER = re.compile(r"\d{1,9}(\.\d{1,3})?")


def profile_of(settings: Settings) -> WorkerProfile:
    check_queues(settings)
    resources = resources_of(settings)
    return WorkerProfile(
        queues=exchange_queues(settings),
        labels=pairs(settings.labels, path="labels"),
        cpu_milli=resources["cpu"],
        memory_mb=resources["memory"],
        gpu=resources["gpu"],
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        process=SystemProcesses().own(),
    )


def resources_of(settings: Settings) -> dict[str, int]:
    """Return what tasks with `cpu`, `memory` or `gpu` may take of this worker, in the units of a profile.

    Processors and memory are those of the machine or container where the setting does not name them.
    """
    resources = {"cpu": own_cpu_milli(), "memory": own_memory_mb(), "gpu": 0}
    for name, text in pairs(settings.resources, path="resources").items():
        if name not in resources:
            raise BadSettings("bad_setting", f"{name!r} is not one of {', '.join(resources)}", path="resources")
        try:
            resources[name] = resource(name, float(text) if NUMBER.fullmatch(text) else text, "resources")
        except Refused as refused:
            raise BadSettings("bad_setting", refused.message, path="resources") from None
    return resources


def check_queues(settings: Settings) -> None:
    """A queue whose name no task can have would never bring any work."""
    for queue in names(settings.queues):
        try:
            check_name(queue, path="queues", kind="queue")
        except Refused as refused:
            raise BadSettings("bad_setting", refused.message, path="queues") from None


def executors_of(settings: Settings, app: str) -> list[Executor]:
    """Without an application, a worker only makes HTTP requests."""
    if not app:
        return [http_executor_of(settings)]
    limits = Limits(memory_mb=settings.memory_mb) if settings.memory_mb else None
    env = passed({**variables(Path.cwd()), **os.environ}, settings.pass_env, path="pass_env")
    functions = ProcessExecutor(
        app,
        processes=settings.processes,
        threads=settings.threads,
        coroutines=settings.coroutines,
        parked=settings.parked,
        limits=limits,
        env=env,
        stop_grace_s=settings.stop_grace_s,
    )
    return [functions, shell_executor(env=env), http_executor_of(settings)]


def http_executor_of(settings: Settings) -> ConcurrentExecutor:
    """Reaches public addresses, and what the settings allow beside them."""
    allowed, open_ports = names(settings.allow_networks), ports(settings.allow_ports, path="allow_ports")
    try:
        guard = EgressPolicy(networks=allowed, ports=open_ports, own=names(settings.address))
    except Refused as refused:
        raise BadSettings("bad_setting", str(refused), path="allow_networks") from None
    folder = Path(settings.secrets) if settings.secrets else None
    return http_executor(outbound=EgressClient(guard), secrets=Secrets(os.environ, folder=folder))


async def work(settings: Settings, app: str, *, ready: Callable[[Agent], None]) -> None:
    """Until SIGTERM or SIGINT; a second one ends it at once."""
    given = HttpLink(settings.address, token=settings.token, latest=settings.app_latest, find=localtoken.find)
    clock = SystemClock()
    secure = settings.address.startswith("https:")
    link = OwnerLink(given, HttpOwnerConnections(token=lambda: given.token, secure=secure), clock=clock)
    agent = Agent(
        link,
        executors_of(settings, app),
        clock=clock,
        ids=SystemIds(),
        name=settings.worker or f"{socket.gethostname()}-{os.getpid()}",
        profile=profile_of(settings),
        version=settings.app_version,
    )
    agent.on_missing = _tell
    loop = asyncio.get_running_loop()
    receiver = receiver_of(settings, agent)
    try:
        run = loop.create_task(_serve(agent, receiver, grace_s=settings.grace_s))
        reached = loop.create_task(agent.reached.wait())
        await asyncio.wait((run, reached), return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            ready(agent)
        reached.cancel()
        await run
    finally:
        await link.close()
        await given.close()


def _tell(text: str) -> None:
    print(f"tickwork: {text}", file=sys.stderr, flush=True)


async def _serve(agent: Agent, receiver: BrokerReceiver | None, *, grace_s: float) -> None:
    if receiver is None:
        await serve(agent, grace_s=grace_s)
        return
    loop = asyncio.get_running_loop()
    serving, receiving = jobs = (loop.create_task(serve(agent, grace_s=grace_s)), loop.create_task(receiver.run()))
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        if receiving.done() and receiving.exception() is None:  # it ends by itself where its agent drains
            await asyncio.wait([serving])
    finally:
        for job in jobs:
            job.cancel()
        ended = await asyncio.gather(*jobs, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error
