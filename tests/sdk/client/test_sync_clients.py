"""The synchronous clients are generated from the asynchronous ones."""

import importlib.util
import inspect
from pathlib import Path

import pytest

from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client

ROOT = Path(__file__).resolve().parents[3]


def _tool():
    spec = importlib.util.spec_from_file_location("sync_clients", ROOT / "tools" / "sync_clients.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()


@pytest.mark.parametrize("source", TOOL.SOURCES, ids=lambda source: source.stem)
def test_the_synchronous_client_is_current(source):
    assert TOOL.target(source).read_text() == TOOL.generated(source), "run .venv/bin/python tools/sync_clients.py"


def test_every_asynchronous_client_has_a_synchronous_one():
    assert sorted(TOOL.FOLDER.rglob("async_*.py")) == sorted(TOOL.SOURCES)


def test_nothing_asynchronous_is_left():
    for source in TOOL.SOURCES:
        text = TOOL.target(source).read_text().removeprefix(TOOL.HEAD.format(source=source.stem))

        assert not [word for word in ("async", "await", "Async") if word in text], source.stem


def test_both_clients_have_the_same_methods_and_parameters():
    def methods(client):
        return {
            name: [str(parameter) for parameter in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(client, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


@pytest.mark.parametrize(
    ("written", "generated"),
    [
        ("return (await self._send(call)).run_id", "return self._send(call).run_id"),
        ("size = len(await self.list())", "size = len(self.list())"),
        ("pair = (await self.get(), 1)", "pair = (self.get(), 1)"),
        ("async with aclosing(runs) as changes:\n    pass", "with closing(runs) as changes:\n    pass"),
        ('word = "async await"  # await', 'word = "async await"  # await'),
        ("def watch() -> AsyncGenerator[wire.Run, None]: ...", "def watch() -> Generator[wire.Run, None, None]: ..."),
        ("now = asyncio.get_running_loop().time()", "now = time.monotonic()"),
    ],
)
def test_a_line_becomes_synchronous(written, generated):
    assert TOOL.synchronous(written) == generated
