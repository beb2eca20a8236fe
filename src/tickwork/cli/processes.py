"""Processes that stay: the server and the worker.

Standard output has one line when it is ready; everything else is on standard error.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.shared import Hands, Place, settings

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine
    from tickwork.worker.agent import Agent

PLACE = Place()
HANDS = Hands()


def server(*, place: Place = PLACE) -> int:
    """The engine and its API, until SIGTERM or Ctrl-C.

    Settings come from flags, TICKWORK_* variables, .env, tickwork.toml and [tool.tickwork], in this order.
    """
    from tickwork.compose.server import serve

    def ready(_engine: "Engine", address: str) -> None:
        _say(f"tickwork server: {address} (data in {found.folder})")

    found = settings(place.flags())
    run_loop(serve(found, ready=ready))
    return 0


def worker(
    app: str = "",
    /,
    *,
    name: str | None = None,
    url: Annotated[str | None, Parameter(name="--url")] = None,
    hands: Hands = HANDS,
) -> int:
    """A worker for an application, until SIGTERM or Ctrl-C; a second one ends it at once.

    Parameters
    ----------
    app
        The application: a file (app.py) or a module (package.module). Without one it serves endpoints and other nodes
        that call a URL, and no code runs.
    name
        Its name (TICKWORK_WORKER; made from host and process). No two workers have the same.
    url
        The server (TICKWORK_URL; http://127.0.0.1:8440).
    """
    from tickwork.compose.children import end_with_parent
    from tickwork.compose.worker import work

    end_with_parent()

    def ready(agent: "Agent") -> None:
        _say(f"tickwork worker {agent.name}: serves {app or 'requests'} for {found.address}")
        if agent.version and agent.latest and agent.version != agent.latest:
            _say(
                f"warning: this is version {agent.version} of {agent.application}, the latest is {agent.latest}: "
                f"schedules and new runs follow that one. To change it: tickwork versions set-latest {agent.version}"
            )

    found = settings({"worker": name, "url": url}, hands.flags())
    run_loop(work(found, app, ready=ready))
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
