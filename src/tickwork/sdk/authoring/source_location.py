"""Where in the user's own files something was written."""

import linecache
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tickwork.core.base.errors import Refused

T = TypeVar("T")

_OURS = str(Path(__file__).parents[2]) + os.sep
_PATHS = sysconfig.get_paths()
_INSTALLED = (_PATHS["purelib"], _PATHS["platlib"])
_STANDARD = (_PATHS["stdlib"], _PATHS["platstdlib"])


class SourceLocation(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}: {text}" if text else f"{self.file}:{self.line}"


def here() -> SourceLocation:
    """The nearest line that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno)


def raised_at(error: BaseException) -> SourceLocation | None:
    """The last line on the way to an error in the user's own files; where there is none, in a library's."""
    locations: dict[int, SourceLocation] = {}
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, "<frozen")):
            locations[_distance(file)] = SourceLocation(file, trace.tb_lineno)
        trace = trace.tb_next
    return locations[min(locations)] if locations else None


def about_environment(error: BaseException) -> str:
    """What to do where a variable is missing: code of users does not see those of the worker's shell."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, KeyError) or trace.tb_frame.f_globals.get("__name__") != "os":
        return ""
    return f"; tasks get a clean environment: let it through with --pass-env {error.args[0]}, or TICKWORK_PASS_ENV"


def _distance(file: str) -> int:
    """How far from the user's own files: an application may be installed, and the standard library never counts."""
    if file.startswith(_INSTALLED):
        return 1
    return 2 if file.startswith(_STANDARD) else 0


def placed(code: str, message: str, location: SourceLocation | None = None) -> Refused:
    """A refusal that shows the user's line."""
    return Refused(code, f"{message}\n    {location or here()}")


def at_place(check: Callable[..., T], *args: Any, location: SourceLocation | None = None, **kwargs: Any) -> T:
    """What `check` answers; its refusal gets the user's line."""
    try:
        return check(*args, **kwargs)
    except Refused as refused:
        if "\n    " in refused.message:
            raise
        refused.message = f"{refused.message}\n    {location or here()}"
        refused.args = (f"{refused.path}: {refused.message}" if refused.path else refused.message,)
        raise
