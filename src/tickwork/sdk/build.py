"""The workflow that is being built here, if any."""

from contextvars import ContextVar
from typing import Any

_active: ContextVar[Any] = ContextVar("tickwork_build", default=None)


def active() -> Any:
    return _active.get()
