"""While a simulation runs, nothing reaches the real world: such calls raise `NotSimulated` and name themselves.

The functions are replaced in their own modules and, because `from time import monotonic` keeps the function itself,
in every module of the code under test. A module that is imported meanwhile may keep a stand-in, so stand-ins
stay harmless: without a guard they do what the original does. Files may be read; importing works.
"""

import builtins
import datetime
import io
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date as _real_date
from datetime import datetime as _real_datetime
from types import ModuleType, TracebackType
from typing import Any, Self

from tickwork.testing.virtual_loop import NotSimulated

CODE_UNDER_TEST = ("sim", "tickwork")
# Tools that stamp or read for people, never for a decision.
_TRUSTED = ("logging", "importlib", "linecache", "tokenize", "traceback", "warnings", "_pytest", "pytest", "gc")

_FUNCTIONS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (
        time,
        (
            "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "localtime",
            "gmtime",
        ),
    ),
    (
        random,
        (
            "random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices",
            "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss",
            "betavariate", "paretovariate", "weibullvariate", "getrandbits", "randbytes", "seed", "_urandom",
        ),
    ),
    (uuid, ("uuid1", "uuid4", "uuid6", "uuid7")),
    (os, ("urandom", "getrandom")),
    (secrets, ("token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits")),
)  # fmt: skip

_active: "Guard | None" = None


class Guard:
    """A context manager. What was asked for is in `calls`, also where the caller swallowed the error; then leaving
    raises. Counts for the thread that entered it."""

    def __init__(self, modules: Sequence[str] = CODE_UNDER_TEST) -> None:
        self.modules = tuple(modules)
        self.calls: list[str] = []
        self._undo: list[tuple[Any, str, Any]] = []
        self._thread = 0

    def __enter__(self) -> Self:
        global _active
        assert _active is None, "one simulation at a time"
        self._thread = threading.get_ident()
        for holder, name, original, stand_in in _replacements():
            self._replace(holder, name, original, stand_in)
        known = {id(original): stand_in for _, _, original, stand_in in _replacements()}
        for module in self._code_under_test():
            for name, value in list(vars(module).items()):
                if (found := known.get(id(value))) is not None:
                    self._replace(module, name, value, found)
        _active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        _active = None
        for holder, name, original in reversed(self._undo):
            setattr(holder, name, original)
        self._undo.clear()
        if self.calls and error is None:
            raise NotSimulated(f"the run reached past its ports: {', '.join(self.calls)}")

    def _replace(self, holder: Any, name: str, original: Any, stand_in: Any) -> None:
        self._undo.append((holder, name, original))
        setattr(holder, name, stand_in)

    def _code_under_test(self) -> Iterator[ModuleType]:
        own = __name__
        for name, module in sorted(sys.modules.items()):
            if name != own and name.split(".")[0] in self.modules and isinstance(module, ModuleType):
                yield module

    def refuses(self, caller: str) -> bool:
        return threading.get_ident() == self._thread and caller.split(".")[0] not in _TRUSTED


def _refuse(name: str, *, depth: int = 2) -> None:
    """Raises where a guard stands in the way of whoever called the stand-in."""
    guard = _active
    if guard is not None and guard.refuses(str(sys._getframe(depth).f_globals.get("__name__", ""))):
        guard.calls.append(name)
        raise NotSimulated(f"{name} is not simulated: go through a port")


def _stand_in(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def stand_in(*args: Any, **fields: Any) -> Any:
        _refuse(name)
        return original(*args, **fields)

    stand_in.__name__ = stand_in.__qualname__ = name
    return stand_in


def _opening(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def stand_in(file: Any, mode: str = "r", *args: Any, **fields: Any) -> Any:
        if any(letter in mode for letter in "wax+"):
            _refuse(name + " for writing")
        return original(file, mode, *args, **fields)

    return stand_in


class _LikeDatetime(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, _real_datetime)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _real_datetime)


class _LikeDate(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, _real_date)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _real_date)


class _Datetime(_real_datetime, metaclass=_LikeDatetime):
    """Makes real ones; only asking for now is refused."""

    def __new__(cls, *args: Any, **fields: Any) -> Any:
        return _real_datetime(*args, **fields)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        _refuse("datetime.now")
        return _real_datetime.now(tz)

    @classmethod
    def utcnow(cls) -> Any:
        _refuse("datetime.utcnow")
        return _real_datetime.now(datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        _refuse("datetime.today")
        return _real_datetime.today()


class _Date(_real_date, metaclass=_LikeDate):
    def __new__(cls, *args: Any, **fields: Any) -> Any:
        return _real_date(*args, **fields)

    @classmethod
    def today(cls) -> Any:
        _refuse("date.today")
        return _real_date.today()


_made: list[tuple[Any, str, Any, Any]] = []


def _replacements() -> list[tuple[Any, str, Any, Any]]:
    """(where, name, original, stand-in), made once."""
    if not _made:
        for module, names in _FUNCTIONS:
            found = [(name, original) for name in names if (original := getattr(module, name, None)) is not None]
            _made.extend(
                (module, name, original, _stand_in(original, f"{module.__name__}.{name}")) for name, original in found
            )
        for holder, name, label in (
            (socket.socket, "__init__", "socket.socket"),
            (threading.Thread, "start", "threading.Thread.start"),
        ):
            original = getattr(holder, name)
            _made.append((holder, name, original, _stand_in(original, label)))
        opening = _opening(io.open, "open")
        _made.extend([(builtins, "open", io.open, opening), (io, "open", io.open, opening)])
        _made.append((datetime, "datetime", _real_datetime, _Datetime))
        _made.append((datetime, "date", _real_date, _Date))
    return _made
