"""The lives of a run, a task and an attempt: every legal move, in three tables.

A move that is not in its table is a mistake of the caller. `move_*` raise instead of guessing;
the machine asks `may_move` first and refuses the input by name. docs/lifecycle.md is drawn
from these tables by a test.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from tickwork.core.base.errors import Conflict


class RunState(IntEnum):
    PENDING = 0  # accepted, not started: delayed, debounced, or behind a concurrency key
    ACTIVE = 1  # something of it is ready, running or about to be tried again
    WAITING = 2  # everything unfinished waits for time, an event, a person or a child
    PAUSED = 3  # nothing new starts until it is resumed; what runs may finish
    COMPLETED = 4
    FAILED = 5  # halted until it is resolved
    CANCELLED = 6


class RunTrigger(IntEnum):
    START = 0
    WAIT = 1  # nothing ready or running is left, something waits
    WAKE = 2  # a wait is over
    PAUSE = 3  # by a person, or by a policy
    RESUME = 4
    COMPLETE = 5
    FAIL = 6  # a step failed for good and all independent branches have ended
    TIME_OUT = 7  # the whole run took too long
    CANCEL = 8
    RESOLVE = 9  # an operator's recorded decision about a failed run


TOOK_TOO_LONG = "the run took too long"  # the reason of every TIME_OUT

_R, _T = RunState, RunTrigger
RUN_MOVES: Mapping[tuple[int, int], RunState] = MappingProxyType(
    {
        (_R.PENDING, _T.START): _R.ACTIVE,
        (_R.PENDING, _T.CANCEL): _R.CANCELLED,
        (_R.ACTIVE, _T.WAIT): _R.WAITING,
        (_R.ACTIVE, _T.PAUSE): _R.PAUSED,
        (_R.ACTIVE, _T.COMPLETE): _R.COMPLETED,
        (_R.ACTIVE, _T.FAIL): _R.FAILED,
        (_R.ACTIVE, _T.TIME_OUT): _R.FAILED,
        (_R.ACTIVE, _T.CANCEL): _R.CANCELLED,
        (_R.WAITING, _T.WAKE): _R.ACTIVE,
        (_R.WAITING, _T.PAUSE): _R.PAUSED,
        (_R.WAITING, _T.TIME_OUT): _R.FAILED,  # a deadline holds while a run waits
        (_R.WAITING, _T.CANCEL): _R.CANCELLED,
        (_R.PAUSED, _T.RESUME): _R.ACTIVE,
        (_R.PAUSED, _T.TIME_OUT): _R.FAILED,  # and while it is paused: it is a promise to the outside
        (_R.PAUSED, _T.CANCEL): _R.CANCELLED,
        (_R.FAILED, _T.RESOLVE): _R.ACTIVE,
    }
)


# The same table flat, for the one look-up that every move makes; -1 is refused. Plain integers, here and in the
# constants of the modules that use them: comparing members of an enumeration takes three times as long.
RUN_NEXT = tuple(int(RUN_MOVES.get((state, trigger), -1)) for state in range(len(RunState)) for trigger in range(16))


class Phase(IntEnum):
    """The life of a task: one node of one run, or one child of a map or repeat."""

    PENDING = 0  # behind its parents
    READY = 1  # may start; admission says when
    RUNNING = 2  # held by exactly one worker
    BACKOFF = 3  # an attempt failed; due again later
    CHECKING = 4  # its cached result is being looked up
    WAITING = 5  # for time, an event, a person, or its children
    SUCCEEDED = 6
    FAILED = 7
    SKIPPED = 8  # by a named policy, recorded
    NOT_TAKEN = 9  # the other side of a branch, its own condition was false, or it said so
    BLOCKED = 10  # something it needs failed, so it never starts
    CANCELLED = 11


class Cause(IntEnum):
    READY = 0  # parents, condition and policy let it start
    CHECK = 1
    MISS = 2  # no cached result
    DISPATCH = 3
    SUCCEED = 4
    RETRY = 5  # an attempt failed, another one is due
    DUE = 6  # the backoff is over
    REQUEUE = 7  # its worker was lost or handed it back
    WAIT = 8
    FAIL = 9
    SKIP = 10
    NOT_TAKE = 11
    BLOCK = 12
    CANCEL = 13
    RESET = 14  # an operator's resolve: it is to be decided again


_P, _C = Phase, Cause
TASK_MOVES: Mapping[tuple[int, int], Phase] = MappingProxyType(
    {
        (_P.PENDING, _C.READY): _P.READY,
        (_P.PENDING, _C.CHECK): _P.CHECKING,
        (_P.PENDING, _C.WAIT): _P.WAITING,
        (_P.PENDING, _C.SUCCEED): _P.SUCCEEDED,  # a branch, an empty map
        (_P.PENDING, _C.FAIL): _P.FAILED,  # its condition or policy failed closed
        (_P.PENDING, _C.SKIP): _P.SKIPPED,
        (_P.PENDING, _C.NOT_TAKE): _P.NOT_TAKEN,
        (_P.PENDING, _C.BLOCK): _P.BLOCKED,
        (_P.PENDING, _C.CANCEL): _P.CANCELLED,
        (_P.CHECKING, _C.SUCCEED): _P.SUCCEEDED,
        (_P.CHECKING, _C.MISS): _P.READY,
        (_P.CHECKING, _C.CANCEL): _P.CANCELLED,
        (_P.READY, _C.DISPATCH): _P.RUNNING,
        (_P.READY, _C.FAIL): _P.FAILED,  # no worker took it in time
        (_P.READY, _C.CANCEL): _P.CANCELLED,
        (_P.RUNNING, _C.SUCCEED): _P.SUCCEEDED,
        (_P.RUNNING, _C.RETRY): _P.BACKOFF,
        (_P.RUNNING, _C.REQUEUE): _P.READY,
        (_P.RUNNING, _C.FAIL): _P.FAILED,
        (_P.RUNNING, _C.NOT_TAKE): _P.NOT_TAKEN,  # by its own word: there is nothing to do
        (_P.RUNNING, _C.CANCEL): _P.CANCELLED,
        (_P.RUNNING, _C.WAIT): _P.WAITING,  # a durable function suspends
        (_P.WAITING, _C.DUE): _P.READY,  # and goes on
        (_P.BACKOFF, _C.DUE): _P.READY,
        (_P.BACKOFF, _C.FAIL): _P.FAILED,
        (_P.BACKOFF, _C.CANCEL): _P.CANCELLED,
        (_P.WAITING, _C.SUCCEED): _P.SUCCEEDED,
        (_P.WAITING, _C.RETRY): _P.BACKOFF,  # a child run failed and is tried again
        (_P.WAITING, _C.FAIL): _P.FAILED,
        (_P.WAITING, _C.CANCEL): _P.CANCELLED,
        (_P.BACKOFF, _C.WAIT): _P.WAITING,  # the next child run
        (_P.FAILED, _C.RESET): _P.PENDING,
        (_P.FAILED, _C.SUCCEED): _P.SUCCEEDED,  # accepted by an operator, with a value
        (_P.FAILED, _C.SKIP): _P.SKIPPED,
        (_P.BLOCKED, _C.RESET): _P.PENDING,
        (_P.SUCCEEDED, _C.RESET): _P.PENDING,  # it comes after what is tried again: clean-up, alerts
        (_P.SKIPPED, _C.RESET): _P.PENDING,
        (_P.NOT_TAKEN, _C.RESET): _P.PENDING,
        (_P.CANCELLED, _C.RESET): _P.PENDING,  # cut short when the whole run timed out
    }
)

TASK_NEXT = tuple(int(TASK_MOVES.get((phase, cause), -1)) for phase in range(len(Phase)) for cause in range(16))

ENDED = frozenset({_P.SUCCEEDED, _P.FAILED, _P.SKIPPED, _P.NOT_TAKEN, _P.BLOCKED, _P.CANCELLED})
BUSY = frozenset({_P.READY, _P.RUNNING, _P.BACKOFF, _P.CHECKING})
IDLE = frozenset({RunState.WAITING, RunState.PAUSED})  # of runs: nothing of it stands in line


class AttemptState(IntEnum):
    ASSIGNED = 0  # the tick that names its worker is durable
    STARTED = 1  # the worker said so
    SUCCEEDED = 2
    FAILED = 3
    TIMED_OUT = 4
    LOST = 5  # its worker went silent
    HANDED_BACK = 6  # its worker shut down cleanly
    CANCELLED = 7
    SUSPENDED = 8  # a durable function waits and holds no worker


class AttemptCause(IntEnum):
    START = 0
    SUCCEED = 1
    FAIL = 2
    TIME_OUT = 3
    LOSE = 4
    HAND_BACK = 5
    CANCEL = 6
    SUSPEND = 7


_A, _AC = AttemptState, AttemptCause
_FIRST_WORD: dict[tuple[int, int], AttemptState] = {(_A.ASSIGNED, _AC.START): _A.STARTED}
ATTEMPT_MOVES: Mapping[tuple[int, int], AttemptState] = MappingProxyType(
    _FIRST_WORD
    | {
        (live, cause): end
        for live in (_A.ASSIGNED, _A.STARTED)
        for cause, end in (
            (_AC.SUCCEED, _A.SUCCEEDED),
            (_AC.FAIL, _A.FAILED),
            (_AC.TIME_OUT, _A.TIMED_OUT),
            (_AC.LOSE, _A.LOST),
            (_AC.HAND_BACK, _A.HANDED_BACK),
            (_AC.CANCEL, _A.CANCELLED),
            (_AC.SUSPEND, _A.SUSPENDED),
        )
    }
)


class IllegalMove(Conflict):
    code = "illegal_move"


def move_run(state: int, trigger: int) -> int:
    after = RUN_NEXT[state * 16 + trigger]
    if after < 0:
        raise IllegalMove(f"a {RunState(state).name} run cannot {RunTrigger(trigger).name.lower()}")
    return after


def move_task(phase: int, cause: int) -> int:
    after = TASK_NEXT[phase * 16 + cause]
    if after < 0:
        raise IllegalMove(f"a {Phase(phase).name} task cannot {Cause(cause).name.lower()}")
    return after


def may_move(state: int, trigger: RunTrigger) -> bool:
    return (state, trigger) in RUN_MOVES
