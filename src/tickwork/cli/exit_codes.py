"""How a command ends: the exit codes, and the one line that says why.

Errors are sorted by what the caller does next, so the codes are too. Programs may rely on them.
"""

import enum
import os
import sys
import traceback

MEANINGS = {
    0: "done; with --wait: the run completed",
    1: "the run failed or was cancelled; a check or a replay found a problem",
    2: "wrong usage",
    3: "not found",
    4: "refused, or in conflict with the current state",
    65: "stored data is damaged",
    69: "no server can be reached",
    75: "not possible now; try again",
    78: "a setting is wrong, or the server cannot run with it",
    130: "interrupted",
}


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    DAMAGED = 65
    UNREACHABLE = 69
    TRY_AGAIN = 75
    SETTINGS = 78
    INTERRUPTED = 130


class CommandExit(Exception):
    """A command is over with this code; `text`, where there is one, goes to standard error."""

    def __init__(self, code: Exit, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def code_of(error: BaseException) -> Exit:
    from tickwork.core.base.errors import Conflict, Corrupt, Refused, TickworkError, Unavailable

    name = getattr(error, "code", "")
    if isinstance(error, Unavailable):
        return Exit.UNREACHABLE if name in ("unreachable", "unavailable") else Exit.TRY_AGAIN
    if isinstance(error, Corrupt):
        return Exit.FAILED if name == "replay_differs" else Exit.DAMAGED
    if name in ("cannot_serve", "store_unusable", "sync_failed") or _is_settings(error):
        return Exit.SETTINGS
    if isinstance(error, Refused):
        return Exit.NOT_FOUND if _is_missing(name) else Exit.REFUSED
    if isinstance(error, Conflict) or name == "store_in_use":
        return Exit.REFUSED
    return Exit.FAILED if isinstance(error, TickworkError) else Exit.TRY_AGAIN


# Codes that begin like those of things that are not there, but are about a field of the request.
FIELDS = frozenset(("unknown_field", "unknown_input", "unknown_parameter", "unknown_reference", "unknown_setting"))


def _is_missing(code: str) -> bool:
    return code == "no_app" or (code.startswith("unknown_") and code not in FIELDS)


def _is_settings(error: BaseException) -> bool:
    from tickwork.compose.settings import BadSettings

    return isinstance(error, BadSettings) or getattr(error, "code", "") == "bad_url"


def tell(text: str) -> None:
    """One message on standard error; nothing that a name may hold can move the cursor or change colours."""
    shown = "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in text)
    print(f"tickwork: {shown}", file=sys.stderr)


def report(error: BaseException) -> Exit:
    """Print what happened; with TICKWORK_DEBUG, also a traceback."""
    if os.environ.get("TICKWORK_DEBUG") == "1":
        traceback.print_exception(error)
    from tickwork.core.base.errors import TickworkError

    text = str(error) or type(error).__name__
    if not isinstance(error, TickworkError | OSError):
        text = f"{type(error).__name__}: {text}\nthis is a defect of tickwork; TICKWORK_DEBUG=1 shows where"
    tell(text)
    return code_of(error)
