"""Processes that stay: the server and the worker.

Standard output has one line when it is ready; everything else is on standard error.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import ClusterOptions, File, ServerOptions, WorkerOptions, settings

if TYPE_CHECKING:
    from tickwork.cluster.node import Node
    from tickwork.compose.settings import Settings
    from tickwork.runtime.engine import Engine
    from tickwork.worker.agent import Agent

PROCESSES_MAX = 1_024
PLACE = ServerOptions()
CROWD = ClusterOptions()
HANDS = WorkerOptions()


def server(*, options: ServerOptions = PLACE, crowd: ClusterOptions = CROWD) -> int:
    """Run the engine and its API until SIGTERM or Ctrl-C.

    With a shared store, the server is a node of a cluster: it owns part of the work, answers all requests, and hands
    over when it stops. Settings come from flags, TICKWORK_* variables, .env, tickwork.toml and [tool.tickwork], in this
    order.
    """
    from tickwork.compose.server import serve, serve_node
    from tickwork.compose.worker_process import end_with_parent

    def ready(_engine: "Engine", address: str) -> None:
        _say(f"tickwork server: {address} (data in {chosen.folder})")

    def joined(node: "Node", address: str) -> None:
        owned = f"{len(node.engines)} of {node.partitions} partitions"
        _say(f"tickwork server: {address} (node {node.member.node}, {owned} so far)")

    chosen = settings(options.flags(), crowd.flags())
    if not 1 <= chosen.server_processes <= PROCESSES_MAX:
        raise CommandExit(Exit.SETTINGS, f"--processes: 1 to {PROCESSES_MAX:,}")
    if not chosen.store:
        if chosen.server_processes > 1:
            raise CommandExit(Exit.SETTINGS, "--processes needs a store that processes share: --store postgresql://…")
        if chosen.role != "all":
            raise CommandExit(Exit.SETTINGS, "--role needs a store that nodes share: --store postgresql://…")
        run_loop(serve(chosen, ready=ready))
        return 0
    if chosen.server_processes > 1:
        return _several(chosen)
    end_with_parent()
    run_loop(serve_node(chosen, ready=joined))
    return 0


def _several(chosen: "Settings") -> int:
    from tickwork.api.server import listen
    from tickwork.cli.exit_codes import tell
    from tickwork.compose.cluster import NodeProcesses, child_environment, command_of
    from tickwork.compose.local_protection import announced, protected

    if not chosen.port:
        raise CommandExit(Exit.SETTINGS, "--processes needs a port that all of them share: --port 8440")
    # The processes share the port, also with another server, so it is checked before that it is free.
    listen(chosen.host, chosen.port).close()
    own = protected(chosen)
    with announced(chosen, own, (chosen.host, chosen.port), tell=tell):
        return NodeProcesses(
            command_of(), own.server_processes, env=child_environment(own, os.environ), tell=tell
        ).run()


def worker(
    app: File = "",
    /,
    *,
    name: str | None = None,
    url: Annotated[str | None, Parameter(name="--url")] = None,
    hands: WorkerOptions = HANDS,
) -> int:
    """Run a worker for an application until SIGTERM or Ctrl-C; a second signal stops it at once.

    Parameters
    ----------
    app
        The application: a file (app.py) or a module (package.module). Without one, the worker only calls URLs
        (endpoints and http nodes) and runs no code.
    name
        Name of the worker (TICKWORK_WORKER; made from host and process). Names must be unique.
    url
        The server (TICKWORK_URL; http://127.0.0.1:8440).
    """
    from tickwork.compose.worker import work
    from tickwork.compose.worker_process import end_with_parent

    end_with_parent()

    def ready(agent: "Agent") -> None:
        _say(f"tickwork worker {agent.name}: serves {app or 'requests'} for {chosen.address}")
        if agent.version and agent.latest and agent.version != agent.latest:
            _say(
                f"warning: this is version {agent.version} of {agent.application}, the latest is {agent.latest}: "
                f"schedules and new runs follow that one. To change it: tickwork versions set-latest {agent.version}"
            )

    chosen = settings({"worker": name, "url": url}, hands.flags())
    run_loop(work(chosen, str(app), ready=ready))
    return 0


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # not made for this system
        asyncio.run(main)
    else:
        uvloop.run(main)


def _say(text: str) -> None:
    print(text, flush=True)
    sys.stderr.flush()
