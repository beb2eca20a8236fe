"""What PostgreSQL's errors mean to us, by their SQLSTATE.

Three questions decide: was anything sent, was it refused for certain, and may the same be tried again. Whatever may
have happened is `OutcomeUnknown`: the head tells. An error of the disk is never taken for success or for a clean
refusal, because what the server reports once it may not report twice.
"""

from tickwork.core.base.errors import Corrupt, TickworkError, Unavailable
from tickwork.ports.store import OutcomeUnknown, StoreFull, StoreUnusable

RETRY_MS = 200
DISK_FULL = "53100"
UNIQUE = "23505"
RAISED = "P0001"  # by a migration of ours, in words for people
UNDEFINED = frozenset(["3F000", "42P01", "42703", "42883"])  # schema, table, column, function
# Nothing was done: serialization, deadlock, lock or statement timed out, no memory, no connection left, read-only.
REFUSED = frozenset(["40001", "40P01", "55P03", "57014", "53000", "53200", "53300", "53400", "25006", "57P03"])
ENTRY = ("28", "3D", "42501")  # no such user, database or right: a person must act


def sqlstate(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def is_ours(error: BaseException) -> bool:
    """An argument that cannot be encoded, or a mistake in how the client is used: a defect, not an outage."""
    return isinstance(error, TypeError | ValueError) and not isinstance(error, OSError)


def is_bad_data(error: BaseException) -> bool:
    """PostgreSQL cannot take a value of the request, such as a text with NUL. It never will, so it is not retried."""
    return sqlstate(error).startswith("22")


def unreachable(error: BaseException, where: str) -> TickworkError:
    """It could not even be connected to."""
    text = f"PostgreSQL at {where} cannot be reached ({_words(error)})"
    if sqlstate(error).startswith(ENTRY):
        return StoreUnusable(f"{text}: mend the address, the user or its rights")
    return Unavailable(f"{text}: try again", retry_after_ms=RETRY_MS)


def explained(error: BaseException, what: str, *, changes: bool) -> TickworkError:
    """Something was sent. `changes`: it was to change something."""
    state = sqlstate(error)
    if state == DISK_FULL:
        return StoreFull("no space is left on the disk of PostgreSQL: free some", retry_after_ms=1_000)
    if state in REFUSED:
        return Unavailable(f"{what}: PostgreSQL refused it ({_words(error)}): try again", retry_after_ms=RETRY_MS)
    if state == RAISED:
        return StoreUnusable(f"{what}: {_text(error)}")
    if state in UNDEFINED:
        return StoreUnusable(f"{what}: the schema is not ours, or gone ({_words(error)}): run `tickwork db upgrade`")
    if state.startswith("23"):
        return Corrupt(f"{what}: the database holds something else already ({_words(error)}): two histories are mixed")
    if state in ("XX001", "XX002"):
        return Corrupt(f"{what}: the database is damaged ({_words(error)}): stop, and restore a backup")
    if changes:
        return OutcomeUnknown(
            f"{what}: no answer that can be trusted ({_words(error)}): read the head", retry_after_ms=0
        )
    return Unavailable(f"{what}: no answer ({_words(error)}): try again", retry_after_ms=RETRY_MS)


def _words(error: BaseException) -> str:
    state, text = sqlstate(error), _text(error)
    return f"{state} {text}" if state else text


def _text(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
