"""Children that take jobs from one socket: the kernel is the queue, and whoever is free takes the next.

Every job handed to a pool ends exactly once: a child says how it ended, or the child is found dead with the
attempt in its mark, or nobody has it any more and it is handed back, or it is stopped or recalled. A job that no
child has read can be taken back from the socket at any time, so nothing is bound to a child before it starts.
"""

import asyncio
import logging
import signal
import socket
import time
from collections import deque
from typing import Protocol

from tickwork.executors.child import Child, Key, Settings
from tickwork.executors.leftovers import state_of
from tickwork.ports.exchange import Begun, Broke, Done, Progressed, Report, Returned, Saved, Spec
from tickwork.ports.host import Cancel, Folder, Kept, Lines, Ready, Saying, Spilled, Unfit, key_of

AHEAD = 128  # packets that wait in the socket beyond what runs: enough to keep children busy
GRACE_NS = 2_000_000_000  # between asking and killing
SETTLE_NS = 200_000_000  # a child needs microseconds from taking a job to marking it
BEGUN_NS = 1_000_000_000  # attempts that take longer are reported as begun
BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
UNFIT_MAX = 3  # children in a row that did not come up: the application is at fault
PRINT_BYTES, PRINT_S = 16 * 1024 * 1024, 0.05  # read of one child at most, before others have a turn
_TAKE_BYTES = 256 * 1024

log = logging.getLogger("tickwork.worker")


class Owner(Protocol):
    """The executor behind a pool."""

    def ended(self, report: Done | Broke | Returned) -> None: ...

    def told(self, report: Report) -> None:
        """Begun or Progressed; it goes on."""

    def saving(self, saved: Saved) -> None: ...

    def spilled(self, spilled: Spilled) -> None: ...

    def printed(self, key: Key, stream: str, text: str, at_ms: int) -> None: ...

    def folder(self, key: Key) -> None: ...

    def loaded(self, mode: str, ready: Ready) -> None: ...

    def unfit(self, mode: str, error: str, message: str) -> None: ...


class Ending:
    """An attempt that we end: error and message, or nothing is said of it."""

    __slots__ = ("asked", "reason")

    def __init__(self, reason: tuple[str, str] | None) -> None:
        self.reason, self.asked = reason, False


class Pool:
    def __init__(self, mode: str, owner: Owner, settings: Settings, *, processes: int, width: int, mark: str) -> None:
        self.mode, self._owner, self._settings = mode, owner, settings
        self.processes, self.width, self._mark = processes, width, mark
        self._ours, self._theirs = socket.socketpair(
            socket.AF_UNIX, getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
        )
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        self._ours.setblocking(False)
        self.children: list[Child] = []
        self._queue: deque[tuple[Key, bytes]] = deque()
        self._specs: dict[Key, Spec] = {}  # everything here, in the queue or out
        self._out: dict[Key, bool] = {}  # in the socket or with a child; true once reported as begun
        self._heard: dict[Key, int] = {}  # monotonic ns of the last progress or checkpoint
        self._ending: dict[Key, Ending] = {}
        self._saving: dict[Key, Child] = {}  # children that wait until their checkpoint is durable
        self._suspects: list[tuple[int, list[Key]]] = []
        self._born = 0
        self._failures = 0  # children in a row that did not come up
        self._restart: asyncio.TimerHandle | None = None
        self._closing = False
        self._close_at = float("inf")
        self._most = processes * width + AHEAD

    # ---- jobs

    @property
    def idle(self) -> bool:
        return not self._specs

    @property
    def busy(self) -> int:
        """Attempts that are here."""
        return len(self._specs)

    @property
    def ending(self) -> bool:
        """Whether a child was asked to end and has not yet."""
        return any(child.kill_at_ns for child in self.children)

    def __contains__(self, key: Key) -> bool:
        return key in self._specs

    def submit(self, key: Key, packet: bytes, spec: Spec) -> None:
        self._specs[key] = spec
        if not self._queue and len(self._out) < self._most and not self._closing:
            try:
                self._ours.send(packet)
            except BlockingIOError:
                pass
            else:
                self._out[key] = False
                return
        self._queue.append((key, packet))

    def _top_up(self) -> None:
        queue, out = self._queue, self._out
        while queue and len(out) < self._most and not self._closing:
            key, packet = queue[0]
            try:
                self._ours.send(packet)
            except BlockingIOError:
                return
            queue.popleft()
            out[key] = False

    def recall(self) -> list[Key]:
        """Everything that no child has taken."""
        self._take_back()
        keys = [key for key, _ in self._queue]
        self._queue.clear()
        for key in keys:
            self._forget(key)
        return keys

    def stop(self, key: Key) -> None:
        """End it; nothing is said of it."""
        if key in self._out:
            self._take_back()
        if key not in self._out:
            self._queue = deque(one for one in self._queue if one[0] != key)
            self._forget(key)
            self._top_up()
        else:
            self._end(key, None)

    def kept(self, key: Key) -> None:
        child = self._saving.pop(key, None)
        if child is not None:
            child.order(Kept(*key))

    def _take_back(self) -> None:
        """What lies in the socket goes to the front of the queue, in its order."""
        taken: list[tuple[Key, bytes]] = []
        while True:
            try:
                packet = self._theirs.recv(_TAKE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not packet:
                break  # our end is closed
            taken.append((key_of(packet), packet))
        for key, packet in reversed(taken):
            if self._out.pop(key, None) is not None:
                self._queue.appendleft((key, packet))

    def _forget(self, key: Key) -> None:
        self._specs.pop(key, None)
        self._out.pop(key, None)
        if self._heard or self._ending or self._saving:
            self._heard.pop(key, None)
            self._ending.pop(key, None)
            self._saving.pop(key, None)

    # ---- what children say

    def _readable(self, child: Child) -> None:
        if child.noisy:
            for fd in list(child.prints):
                self._on_print(child, fd)
        out, specs, ending, ended = self._out, self._specs, self._ending, self._owner.ended
        for said in child.sayings():
            if type(said) is Done:
                key = (said.task, said.attempt)
                child.last = key
                if ending or self._heard:
                    self._settle(child, key, said)
                elif out.pop(key, None) is not None:
                    del specs[key]
                    ended(said)
            else:
                self._said(child, said)
        if self._queue:
            self._top_up()

    def _said(self, child: Child, said: Saying) -> None:
        match said:
            case Broke():
                child.last = (said.task, said.attempt)
                self._settle(child, child.last, said)
            case Progressed():
                self._heard[said.task, said.attempt] = time.monotonic_ns()
                self._owner.told(said)
            case Saved():
                self._saving_of(child, (said.task, said.attempt))
                self._owner.saving(said)
            case Spilled(checkpoint=True):
                self._saving_of(child, (said.task, said.attempt))
                self._owner.spilled(said)
            case Spilled():
                child.last = (said.task, said.attempt)
                self._settle(child, child.last, said)
            case Lines():
                for line in said.lines:
                    self._owner.printed((line.task, line.attempt), line.stream, line.text, line.at_ms)
            case Folder():
                self._owner.folder((said.task, said.attempt))
            case Ready():
                child.ready, self._failures = True, 0
                self._owner.loaded(self.mode, said)
            case Unfit():
                child.unfit = (said.error, said.message)

    def _saving_of(self, child: Child, key: Key) -> None:
        self._heard[key] = time.monotonic_ns()
        self._saving[key] = child

    def _settle(self, child: Child, key: Key, said: Done | Broke | Spilled) -> None:
        """The end of an attempt where something about it is unusual."""
        if key not in self._out:
            return
        if key in self._ending:
            self._report_ending(key)
            if self.mode == "process":
                child.kill()  # it was asked to end; whatever it has left behind ends with it
            return
        self._forget(key)
        if isinstance(said, Spilled):
            self._owner.spilled(said)
        else:
            self._owner.ended(said)

    def _report_ending(self, key: Key, exit_code: int | None = None) -> None:
        reason = self._ending[key].reason
        self._forget(key)
        if reason is not None:
            self._owner.ended(Broke(*key, reason[0], reason[1], exit_code=exit_code))

    def _on_print(self, child: Child, fd: int) -> None:
        data = child.printed(fd)
        if data is None:
            return
        cutter = child.prints[fd]
        self._hold_flood(child, fd, len(data))
        child.noisy = True
        marked = child.marked()
        key = marked[0][0] if len(marked) == 1 else child.last if not marked else None
        at_ms = time.time_ns() // 1_000_000
        for text in cutter.feed(data) if data else cutter.rest():
            if key is None:
                log.info("%s of child %d: %s", cutter.stream, child.pid, text)
            else:
                self._owner.printed(key, cutter.stream, text, at_ms)

    def _hold_flood(self, child: Child, fd: int, size: int) -> None:
        """A child that prints faster than we care to read waits: its own code does, and nobody else's."""
        loop = asyncio.get_running_loop()
        child.printed_bytes += size
        if not size:
            loop.remove_reader(fd)
        elif child.printed_bytes > PRINT_BYTES:
            loop.remove_reader(fd)
            loop.call_later(PRINT_S, self._listen_again, child, fd)

    def _listen_again(self, child: Child, fd: int) -> None:
        if child in self.children and fd in child.prints:
            child.printed_bytes = 0
            asyncio.get_running_loop().add_reader(fd, self._on_print, child, fd)

    # ---- children

    def start(self) -> None:
        while len(self.children) < self.processes and not self._closing and self._restart is None:
            self._spawn()

    def grow(self, processes: int) -> None:
        self.processes = processes
        self._most = processes * self.width + AHEAD
        self.start()

    def _spawn(self) -> None:
        self._born += 1
        mark = f"{self._mark}-{self.mode}-{self._born}"
        child = Child(self.mode, self.width, mark, queue=self._theirs, settings=self._settings)
        self.children.append(child)
        loop = asyncio.get_running_loop()
        loop.add_reader(child.sock.fileno(), self._readable, child)
        for fd in child.prints:
            loop.add_reader(fd, self._on_print, child, fd)
        if child.pidfd is not None:
            loop.add_reader(child.pidfd, self._on_exit, child)

    def _on_exit(self, child: Child) -> None:
        if child not in self.children:
            return
        self._hear_out(child)
        marked = child.marked()
        code = child.bury()
        self.children.remove(child)
        for key, _ in marked:
            if key in self._out:
                self._lost(child, key, code)
        self._suspect()
        self._replace(child, code)
        self._top_up()

    def _hear_out(self, child: Child) -> None:
        """Everything it said before it died, then nothing more."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.sock.fileno())
        if child.pidfd is not None:
            loop.remove_reader(child.pidfd)
        for fd in child.prints:
            self._on_print(child, fd)
            loop.remove_reader(fd)
        before = -1
        while before != (before := self._heard_bytes(child)):
            pass

    def _heard_bytes(self, child: Child) -> int:
        self._readable(child)
        return child.frames.fed

    def _lost(self, child: Child, key: Key, code: int) -> None:
        if key in self._ending:
            self._report_ending(key, code)
        elif child.doomed:
            self._hand_back(key)  # it was not meant, but in the same process
        else:
            self._forget(key)
            self._owner.ended(Broke(*key, "ProcessDied", _obituary(code), exit_code=code))

    def _suspect(self) -> None:
        """A job may have died between being taken and being marked: who it is shows by elimination."""
        self._take_back()
        marked = self._marked()
        suspects = [key for key in self._out if key not in marked]
        if suspects:
            self._suspects.append((time.monotonic_ns() + SETTLE_NS, suspects))

    def _marked(self) -> dict[Key, tuple[Child, int]]:
        return {key: (child, start_ns) for child in self.children for key, start_ns in child.marked()}

    def _eliminate(self, now_ns: int) -> None:
        due_ns, suspects = self._suspects[0]
        if now_ns < due_ns:
            return
        del self._suspects[0]
        if any(child.ready and not child.marked() and state_of(child.pid) not in "S" for child in self.children):
            self._suspects.append((now_ns + SETTLE_NS, suspects))  # stopped, or just about to say so
            return
        marked = self._marked()
        self._take_back()  # what was sent anew since is not lost
        for key in suspects:
            if key in self._out and key not in marked:
                self._hand_back(key)
        self._top_up()

    def _hand_back(self, key: Key) -> None:
        if key in self._ending:
            self._report_ending(key)
        else:
            self._forget(key)
            self._owner.ended(Returned(*key))

    def _replace(self, child: Child, code: int) -> None:
        if self._closing:
            return
        if not child.ready and not child.doomed:
            self._failures += 1
            error, message = child.unfit or ("ProcessDied", f"before the application was loaded; {_obituary(code)}")
            if self._failures in (1, UNFIT_MAX):
                log.error("a child did not come up: %s: %s", error, message)
            if self._failures >= UNFIT_MAX or child.unfit:
                self._refuse_queue(error, message)
            self._owner.unfit(self.mode, error, message)
        self._restart_later()

    def _restart_later(self) -> None:
        if self._restart is None:
            delay = BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
            self._restart = asyncio.get_running_loop().call_later(delay, self._restarted)

    def _restarted(self) -> None:
        """Where the system gives no process or descriptor now, it may later: what waits here goes on waiting."""
        self._restart = None
        try:
            self.start()
        except OSError as error:
            if not self._failures:
                log.error("no child can be started now, another try follows: %s", error)
            self._failures += 1
            self._restart_later()

    def _refuse_queue(self, error: str, message: str) -> None:
        """Nobody will take these, as long as the application does not load."""
        if any(child.ready for child in self.children):
            return
        for key in self.recall():
            self._owner.ended(Broke(*key, error, message))

    # ---- time

    def sweep(self, now_ns: int) -> None:
        """Every tenth of a second while there is something here."""
        if self._suspects:
            self._eliminate(now_ns)
        for child in list(self.children):
            # `kill_at_ns` moves on, so that something that forks faster than we kill is met again.
            if child.kill_at_ns and now_ns > child.kill_at_ns:
                child.kill_at_ns = now_ns + GRACE_NS
                child.kill()
            if child.pidfd is None and child.exited():
                self._on_exit(child)
                continue
            for key, start_ns in child.marked():
                if now_ns - start_ns > 10_000_000 and key in self._out:
                    self._look_at(child, key, start_ns, now_ns)

    def _look_at(self, child: Child, key: Key, start_ns: int, now_ns: int) -> None:
        if key in self._ending:
            self._end_in(child, key)
            return
        spec = self._specs[key]
        ran_ms = (now_ns - start_ns) // 1_000_000
        if spec.running_ms and ran_ms >= spec.running_ms:
            self._end(key, ("TimeoutError", f"ran longer than {spec.running_ms} ms"))
            return
        silent_ms = (now_ns - max(start_ns, self._heard.get(key, 0))) // 1_000_000
        if spec.silent_ms and silent_ms >= spec.silent_ms:
            self._end(key, ("TimeoutError", f"neither progress nor checkpoint for {spec.silent_ms} ms"))
        elif not self._out[key] and now_ns - start_ns >= BEGUN_NS:
            self._out[key] = True
            self._owner.told(Begun(*key, time.time_ns() // 1_000_000 - ran_ms))

    def _end(self, key: Key, reason: tuple[str, str] | None) -> None:
        ending = self._ending.setdefault(key, Ending(reason))
        if reason is None:
            ending.reason = None
        found = self._marked().get(key)
        if found is not None:  # else it is being taken this moment, and the sweep sees it
            self._end_in(found[0], key)

    def _end_in(self, child: Child, key: Key) -> None:
        ending = self._ending[key]
        if ending.asked:
            return
        ending.asked = True
        if self.mode == "async" and child.order(Cancel(*key)):
            asyncio.get_running_loop().call_later(GRACE_NS / 1e9, self._insist, child, key)
        else:
            child.ask_to_end(grace_ns=GRACE_NS)

    def _insist(self, child: Child, key: Key) -> None:
        if key in self._ending and child in self.children:
            child.ask_to_end(grace_ns=GRACE_NS)

    # ---- the end

    async def close(self, *, grace_s: float) -> None:
        """What runs may end within the time given; what does not is ended and handed back."""
        self._close_at = min(self._close_at, time.monotonic() + grace_s)
        if self._closing:
            return  # the first one to ask goes on, if need be sooner
        self._closing = True
        if self._restart is not None:
            self._restart.cancel()
        self._take_back()
        while self._out and time.monotonic() < self._close_at and self.children:
            await asyncio.sleep(0.01)
            self.sweep(time.monotonic_ns())
        self._ours.close()  # children that wait for work end
        await self._end_children()
        for key in list(self._specs):
            self._hand_back(key)
        self._theirs.close()

    async def _end_children(self) -> None:
        for child in self.children:
            if self._out or not child.ready:
                child.ask_to_end(grace_ns=GRACE_NS)
        asked = time.monotonic()
        while self.children:
            for child in list(self.children):
                if child.exited():
                    self._on_exit(child)
                elif time.monotonic() - asked > GRACE_NS / 1e9:
                    child.kill()
            if self.children:
                await asyncio.sleep(0.01)


def _obituary(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the process was killed (signal SIGKILL); often that is the system, out of memory"
    if code < 0:
        return f"the process was ended by signal {_signal_name(-code)}"
    return f"the process ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
