"""Runs a durable function from its history.

The coroutines of the function are resumed here and nowhere else; no event loop, clock or thread takes part. The driver
lets everything run until each branch waits (quiescence), gives it one recorded outcome, and repeats. So the calls that
the function makes depend on the order of the recorded outcomes alone, and a replay makes the same calls again: at each
position it compares kind, name and digest with the history.

The owner of a driver runs `advance` until it returns an end, carries out `start` meanwhile, and gives each outcome of a
local step back with `feed` after it was recorded. When nothing runs any more, `suspension` says what to wait for.
"""

import inspect
import os
import sysconfig
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import FunctionHistory, HistoryEntry
from tickwork.sdk.context import StepsChanged
from tickwork.sdk.durable.outcomes import Cancelled
from tickwork.sdk.durable.pending import Join, Location, Operation, Pending

CANCELLATION = "cancel"
OURS = str(Path(__file__).parents[2]) + os.sep
_PATHS = sysconfig.get_paths()
_FOREIGN = (_PATHS["stdlib"], _PATHS["platstdlib"], _PATHS["purelib"], _PATHS["platlib"])


class Branch(Pending[Any]):
    """A coroutine that the driver resumes. Its outcome is that of the coroutine.

    Like a task of asyncio, it has context variables of its own, which begin as those of the code that made it. They
    stay with it: a function that is kept in memory goes on in another task.
    """

    __slots__ = ("coroutine", "interrupted", "started", "variables", "waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.coroutine = coroutine
        self.variables = copy_context()
        self.waits_for: Pending[Any] | None = None
        self.started = False
        self.interrupted = False  # it gets `Cancelled` when it is resumed


@dataclass(frozen=True, slots=True)
class LocalStep:
    """A step that is to be carried out in this process."""

    operation: Operation
    tries: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """What the function waits for; nothing of it runs here."""

    awaits: list[Operation] = field(default_factory=list)  # that the history does not have yet
    withdrawn: tuple[int, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the function says to an update."""

    update: str
    value: bytes = b""
    refusal: str | None = None


class Seeded(Protocol):
    @property
    def tenant(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def task(self) -> int: ...


def seed_of(work: Seeded) -> str:
    """What the random values of a function are made of."""
    return f"{work.tenant}/{work.run_id}/{work.task}"


class Driver:
    """One attempt of one function. `start` has local steps to begin, `abandoned` positions of steps whose outcome
    is not needed any more."""

    def __init__(self, history: FunctionHistory | None, *, submitted_ms: int = 0, seed: str = "") -> None:
        history = history or FunctionHistory(submitted_ms)
        self.base = self._next = history.base
        self.now_ms = self._started_ms = history.started_ms
        self.versions = dict(history.versions)
        self.new_versions: dict[str, int] = {}
        self.start: list[LocalStep] = []
        self.abandoned: list[int] = []
        self.closed = False
        self.failure: BaseException | None = None  # ends the function, whatever its own code makes of it
        self._seed, self._draws = seed, 0
        self._operations: dict[int, Operation] = {}
        self._latest: Operation | None = None
        self._joins: dict[int, Join] = {}  # by identity; those that are not over
        self._ready: deque[Branch] = deque()
        self._main: Branch | None = None
        self._unfed: deque[HistoryEntry] = deque()
        self._left: dict[int, int] = {}  # entries that are not fed yet, by position
        self._known: dict[int, tuple[str, str, str]] = {}  # kind, name, digest of what was recorded at a position
        self._last = self._next - 1  # the highest recorded position
        self._awaits: frozenset[int] = frozenset()  # positions without an outcome, known to the server
        self._tries: dict[int, int] = {}  # of a local step whose turn has come
        self._withdrawn: list[int] = []
        self._unseen: list[int] = []  # events and messages that came for awaits which the function had given up
        self.cancelled = False
        self._fed: list[tuple[int, int]] = []  # position and time of the entries that the function has got
        self._open_updates: dict[str, None] = {}  # received, and without a reply
        self._replies: list[Reply] = []  # that are not reported yet
        self._values: dict[str, str] = {}  # digests of published values, as the server has them
        self._published: dict[str, bytes] = {}  # values that it does not have
        self.extend(history)

    # ---- history

    def extend(self, history: FunctionHistory) -> None:
        """Take over what was recorded since."""
        for entry in history.entries[len(self._fed) + len(self._unfed) :]:
            self._unfed.append(entry)
            if entry.position >= 0:
                self._left[entry.position] = self._left.get(entry.position, 0) + 1
                self._learn(entry.position, entry.kind, entry.name, entry.digest)
        for position, kind, name, digest in history.awaits:
            self._learn(position, kind, name, digest)
        self._awaits = frozenset(position for position, *_ in history.awaits)
        for name, number in history.versions.items():
            self.versions.setdefault(name, number)
            self.new_versions.pop(name, None)
        self._withdrawn = [position for position in self._withdrawn if position in self._awaits]
        self._unseen = [position for position in self._unseen if not self._left.get(position)]
        self._open_updates = dict.fromkeys(history.open)
        self._values = dict(history.published)

    def is_extended_by(self, history: FunctionHistory) -> bool:
        """Whether this history only adds to what the function has got. The times tell it from that of a store which was
        restored, or emptied, and in which the same run took the same turns again."""
        if self._unfed or (history.base, history.started_ms) != (self.base, self._started_ms):
            return False
        return [(entry.position, entry.at_ms) for entry in history.entries[: len(self._fed)]] == self._fed

    def _learn(self, position: int, kind: str, name: str, digest: str) -> None:
        self._last = max(self._last, position)
        known = self._known.get(position)
        if known is None or known[0] == "withdrawn":
            self._known[position] = ("step" if kind == "retry" else kind, name, digest)

    @property
    def replaying(self) -> bool:
        """Whether the function repeats what it did before."""
        return bool(self._unfed)

    @property
    def fed(self) -> int:
        """How many entries of the history the function has got."""
        return len(self._fed)

    # ---- what the function calls

    def call(self, kind: str, name: str, digest: str, detail: Any, location: Location) -> Operation:
        """The operation at the next position."""
        self.check_open()
        position, self._next = self._next, self._next + 1
        operation = Operation(position, kind, name, digest, detail, location)
        self._compare(operation)
        self._latest = operation
        self._operations[position] = operation
        if kind == "step":
            operation.variables = copy_context()
            if not self._left.get(position) and position not in self._awaits:
                self._tries[position] = 1
        return operation

    def join(
        self, members: list[Any], *, chosen: Callable[[int, Any], Any] | None = None, keep_errors: bool = False
    ) -> Join:
        """Of calls and coroutines. `chosen`: only the first outcome counts, and this makes the result of it."""
        self.check_open()
        pending = [self._member(member) for member in members]
        join = Join(pending, chosen=chosen, keep_errors=keep_errors, cancel=self.withdraw)
        self._joins[id(join)] = join
        join.listeners.append(partial(self._forget, join))
        join.watch()
        return join

    def _forget(self, join: Join) -> None:
        del self._joins[id(join)]

    def version(self, name: str, number: int) -> int:
        self.check_open()
        known = self.versions.get(name)
        if known is None:
            known = 0 if self._last >= self._next else number
            self.versions[name] = self.new_versions[name] = known
        return known

    def reply(self, reply: Reply) -> None:
        """A replay repeats replies; the server has those already."""
        self.check_open()
        if reply.update in self._open_updates:
            del self._open_updates[reply.update]
            self._replies.append(reply)

    def publish(self, name: str, value: bytes) -> None:
        self.check_open()
        if self._values.get(name) == value_digest(value):
            self._published.pop(name, None)  # a replay comes by values that were published earlier
        else:
            self._published[name] = value

    def take_replies(self) -> list[Reply]:
        """Those that are to be reported."""
        replies, self._replies = self._replies, []
        return replies

    def take_published(self) -> dict[str, bytes]:
        """The values that are to be reported."""
        published, self._published = self._published, {}
        self._values |= {name: value_digest(value) for name, value in published.items()}
        return published

    @property
    def has_more_to_say(self) -> bool:
        return bool(self._replies or self._published)

    def draw(self) -> bytes:
        """32 bytes, the same in every replay."""
        self.check_open()
        self._draws += 1
        return sha256(f"{self._seed}/{self.base}/{self._draws}".encode()).digest()

    def check_open(self) -> None:
        """A function that is dropped runs its `finally` blocks: they may call nothing any more."""
        if self.closed:
            raise GeneratorExit

    def _member(self, member: Any) -> Pending[Any]:
        if isinstance(member, Pending):
            return member
        assert inspect.iscoroutine(member), "others are refused before"
        branch = Branch(member)
        self._ready.append(branch)
        return branch

    def _compare(self, operation: Operation) -> None:
        known = self._known.get(operation.position)
        if known is None:
            return
        kind, name, digest = known
        if (kind not in (operation.kind, "withdrawn", "")) or name != operation.name:
            self._refuse(f"the history has {kind} {name!r} where the code now has {operation}")
        if digest != operation.digest:
            self._refuse(f"the history has other arguments than the code now gives to {operation}")

    def _refuse(self, difference: str) -> None:
        error = StepsChanged(
            f"{difference}; a replay must make the same calls in the same order: undo the change, put it behind "
            "ctx.version(...), or start a new run"
        )
        self.failure = self.failure or error
        raise error

    # ---- running

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._main = Branch(coroutine)
        self._ready.append(self._main)

    def advance(self) -> bool:
        """Run until the function waits for what is not recorded. Whether it has ended; `outcome` says how."""
        while True:
            while self._ready and self.failure is None:
                self._resume(self._ready.popleft())
            if self.failure is not None or self._main_over():
                self._check_end()
                return True
            if not self._unfed:
                break
            self._feed_next()
        self._check_known()
        self._collect_local()
        return self._failed()

    def _failed(self) -> bool:
        return self.failure is not None

    def outcome(self) -> Any:
        """Of a function that has ended: its result, or it raises."""
        if self.failure is not None:
            raise self.failure
        assert self._main is not None
        return self._main.result()

    @property
    def error(self) -> BaseException | None:
        """What ended the function."""
        return self.failure or (self._main.error if self._main is not None else None)

    def feed(self, entry: HistoryEntry) -> None:
        """An outcome that was recorded just now, in this attempt."""
        self._fed.append((entry.position, entry.at_ms))
        self._take(entry)

    def close(self) -> None:
        """Drop the function. Nothing that its clean-up does has an effect."""
        self.closed = True
        for branch in self._branches():
            try:
                branch.variables.run(branch.coroutine.close)
            except (Exception, GeneratorExit):  # noqa: S112 - it is dropped, and what it says no longer counts
                continue

    def in_all_branches(self, do: Callable[[], object]) -> None:
        """Set context variables for whatever runs from here on."""
        for branch in self._branches():
            branch.variables.run(do)
        for operation in self._operations.values():
            if operation.variables is not None:
                operation.variables.run(do)

    def _branches(self) -> list[Branch]:
        """Those that have not ended."""
        branches = [self._main, *(m for j in list(self._joins.values()) for m in j.members if isinstance(m, Branch))]
        return [branch for branch in branches if branch is not None and not branch.done]

    def _main_over(self) -> bool:
        return self._main is not None and self._main.done

    def _resume(self, branch: Branch) -> None:
        if branch.done:
            return
        branch.waits_for, branch.started = None, True
        interrupted, branch.interrupted = branch.interrupted, False
        try:
            if interrupted:
                awaited = branch.variables.run(branch.coroutine.throw, Cancelled())
            else:
                awaited = branch.variables.run(branch.coroutine.send, None)
        except StopIteration as end:
            branch.settle(end.value)
        except BaseException as error:
            branch.settle(error=error)
        else:
            if isinstance(awaited, Pending):
                self._wait(branch, awaited)
            else:
                self.failure = self.failure or _foreign(branch)

    def _wait(self, branch: Branch, awaited: Pending[Any]) -> None:
        branch.waits_for = awaited
        if awaited.done:
            self._ready.append(branch)
        else:
            awaited.listeners.append(lambda: self._wake(branch, awaited))

    def _wake(self, branch: Branch, awaited: Pending[Any]) -> None:
        if branch.waits_for is awaited:
            self._ready.append(branch)

    def withdraw(self, pending: Pending[Any]) -> None:
        """Abandon this operation."""
        if pending.done:
            return
        if isinstance(pending, Operation):
            self._withdraw_operation(pending)
        elif isinstance(pending, Join):
            pending.withdraw(Cancelled())
        elif isinstance(pending, Branch):
            self.interrupt(pending)

    def interrupt(self, branch: Branch) -> None:
        """Raise `Cancelled` where the branch waits, after that which it waits for was withdrawn."""
        if not branch.started:
            branch.variables.run(branch.coroutine.close)
            branch.settle(error=Cancelled())
            return
        awaited = branch.waits_for
        if awaited is None or awaited.done:
            branch.interrupted = True
            return
        self.withdraw(awaited)  # ends with `Cancelled`, which the branch then gets

    def _withdraw_operation(self, operation: Operation) -> None:
        position = operation.position
        self._operations.pop(position, None)
        if position in self._awaits:
            self._withdrawn.append(position)
        elif operation.kind == "step" and self._tries.pop(position, None) is None and not self._left.get(position):
            self.abandoned.append(position)
        operation.settle(error=Cancelled())

    # ---- outcomes

    def _feed_next(self) -> None:
        entry = self._unfed[0]
        if entry.position >= self._next:
            assert self._main is not None
            waiting = f"which the code never reaches; it waits at {_waiting_at(self._main.coroutine)}"
            self._note_difference(f"the history has {entry.kind} {entry.name!r} next, {waiting}")
            return
        self._unfed.popleft()
        self._fed.append((entry.position, entry.at_ms))
        if entry.position >= 0:
            self._left[entry.position] -= 1
        self._take(entry)

    def _note_difference(self, difference: str) -> None:
        try:
            self._refuse(difference)
        except StepsChanged:
            return

    def _take(self, entry: HistoryEntry) -> None:
        self.now_ms = max(self.now_ms, entry.at_ms)
        if entry.kind == CANCELLATION:
            self._cancel()
            return
        operation = self._operations.get(entry.position)
        if operation is None:
            if self._is_given_up(entry):
                self._unseen.append(entry.position)
        elif entry.kind == "retry":
            if not self._left.get(entry.position) and entry.position not in self._awaits:
                self._tries[entry.position] = entry.tries + 1
        elif entry.kind == "withdrawn":
            if self.cancelled:  # a step that was to be run again, and that was not awaited
                self._withdraw_operation(operation)
        else:
            del self._operations[entry.position]
            try:
                value = operation.detail.outcome(entry)
            except BaseException as error:
                operation.settle(error=error)
            else:
                operation.settle(value)

    def _cancel(self) -> None:
        """The server has given up all awaits; whatever the function calls from here on is carried out."""
        assert self._main is not None
        self.cancelled = True
        pending = [operation for operation in self._operations.values() if operation.kind != "step"]
        self.interrupt(self._main)
        for operation in pending:
            self.withdraw(operation)

    def _collect_local(self) -> None:
        for position, tries in sorted(self._tries.items()):
            self.start.append(LocalStep(self._operations[position], tries))
        self._tries.clear()

    def _check_known(self) -> None:
        """Everything that was recorded must have been reached by now."""
        if self._last >= self._next:
            assert self._main is not None
            waiting = f"the code waits before it at {_waiting_at(self._main.coroutine)}"
            self._note_difference(f"the history goes on with {self._next_known()}, and {waiting}")
        for operation in self._operations.values():
            if self._known.get(operation.position, ("",))[0] == "withdrawn":
                self._note_difference(f"the code before gave up {operation}, and the code now waits for it")

    def _check_end(self) -> None:
        if self.failure is None and self._last >= self._next:
            ended = f"the function ends before it{f', after {self._latest}' if self._latest is not None else ''}"
            self._note_difference(f"the history goes on with {self._next_known()}, and {ended}")
        if self.failure is None and self.error is None:
            self._check_awaited()

    def _check_awaited(self) -> None:
        """A step or a call that is not awaited would be abandoned silently."""
        for operation in self._operations.values():
            if operation.kind in ("step", "call") and not operation.listeners:
                message = f"the function ends and has not awaited {operation}; write `await` before the call"
                self.failure = Refused("not_awaited", message)
                return

    def _next_known(self) -> str:
        kind, name, _ = self._known[min(position for position in self._known if position >= self._next)]
        return f"{kind} {name!r}"

    # ---- suspension

    def suspension(self) -> Suspension:
        """What the function waits for. The owner has no local step that runs or is to be started. Of a function that
        has continued as new, `withdrawn` has all events that it did not get."""
        new = [
            operation
            for position, operation in self._operations.items()
            if operation.kind != "step" and position not in self._awaits
        ]
        unfed = [entry.position for entry in self._unfed if self._is_given_up(entry)]
        withdrawn = tuple(dict.fromkeys((*self._withdrawn, *self._unseen, *unfed)))
        return Suspension(new, withdrawn, tuple(self._groups()))

    def _is_given_up(self, entry: HistoryEntry) -> bool:
        """Whether this event was not given back yet. It is not fed, or was fed and not awaited."""
        again = self._left.get(entry.position, 0) - (entry in self._unfed)
        return entry.kind in ("event", "receive") and not entry.error and not again

    def _groups(self) -> list[tuple[int, ...]]:
        """Positions that only matter together: direct members of one gathering that are not awaited otherwise."""
        groups = []
        for join in self._joins.values():
            if join.chosen is not None or join.ending is not None:
                continue
            positions = [
                member.position
                for member in join.members
                if isinstance(member, Operation)
                and member.kind != "step"
                and not member.done
                and len(member.listeners) == 1
            ]
            if len(positions) > 1:
                groups.append(tuple(sorted(set(positions))))
        return groups


def value_digest(value: bytes) -> str:
    return sha256(value).hexdigest()[:16]


def _foreign(branch: Branch) -> Refused:
    location = _waiting_at(branch.coroutine)
    return Refused(
        "foreign_await",
        "this waits for something that no history records, so a replay could not repeat it; put it into a step: "
        f"await ctx.step(...), or use ctx.sleep, ctx.gather, ctx.first\n    {_with_text(location)}",
    )


def _waiting_at(coroutine: Any) -> Location:
    """The innermost line of the user's own code on which a coroutine waits."""
    location = Location("?", 0)
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith((OURS, *_FOREIGN)):
            location = Location(frame.f_code.co_filename, frame.f_lineno)
        coroutine = getattr(coroutine, "cr_await", None)
    return location


def _with_text(location: Location) -> str:
    import linecache  # here, because only an error needs it

    text = linecache.getline(location.file, location.line).strip()
    return f"{location}: {text}" if text else str(location)
