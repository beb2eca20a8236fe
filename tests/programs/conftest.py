"""A program of examples/programs, loaded as the module that its users run."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

from tickwork.testing.plugin import world

__all__ = ["world"]

EXAMPLES = Path(__file__).parents[2] / "examples"


class Load(Protocol):
    def __call__(self, name: str) -> ModuleType: ...


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "programs"))
    return importlib.import_module
