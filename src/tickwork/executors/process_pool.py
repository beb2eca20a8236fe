"""Children that take packets from one socket: the kernel is the queue, and a free child takes the next packet.

Every attempt handed to a pool ends exactly once: a child says how it ended, or the child is found dead with the
attempt in its mark, or no child has it and it is handed back, or it is stopped or recalled. What shares a packet
with an attempt that turns out slow is taken from the child again, and so is what a dead child has not begun.
"""

import asyncio
import logging
from collections.abc import Iterable

from tickwork.executors.child_output import ChildOutput
from tickwork.executors.child_process import ChildProcess, ChildSettings, Key, end_of
from tickwork.executors.packet_queue import PacketQueue, QueuedAttempt
from tickwork.executors.pool_owner import PoolOwner
from tickwork.protocol.child_messages import (
    AppLoaded,
    Cancel,
    CheckpointDurable,
    ChildMessage,
    LoadFailed,
    OutputLines,
    PacketDone,
    Retire,
    Retired,
    SpilledResult,
    WorkDirCreated,
)
from tickwork.protocol.worker_messages import (
    Checkpointed,
    Continued,
    Failed,
    HandedBack,
    Progressed,
    Started,
    StepsRecorded,
    Succeeded,
    Suspended,
)

GRACE_NS = 2_000_000_000  # between asking and killing, where the worker ends
SETTLE_NS = 200_000_000  # a child needs microseconds from taking a packet to marking it
BEGUN_NS = 1_000_000_000  # attempts that take longer are reported as begun
WATCH_S = 0.01  # interval of the check that attempts which share packets are short
SLOW_NS = 5_000_000  # an attempt that takes longer holds up those behind it
SURE_NS = 1_000_000  # what one processor writes, all others see long before
CALLED_OFF = "Cancelled"  # how an attempt ends in which the host raised an error
BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
UNFIT_MAX = 3  # children in a row that did not come up: the application is at fault

log = logging.getLogger("tickwork.worker")


class PendingKill:
    """An attempt that we end: its error and message, or None: nothing is reported."""

    __slots__ = ("reason", "requested")

    def __init__(self, reason: tuple[str, str] | None) -> None:
        self.reason, self.requested = reason, False


class ProcessPool:
    def __init__(
        self, mode: str, owner: PoolOwner, settings: ChildSettings, *, processes: int, width: int, mark: str
    ) -> None:
        self.mode, self._owner, self._settings = mode, owner, settings
        self.processes, self.width, self._mark = processes, width, mark
        self._mono_ns, self._wall_ns = settings.mono_ns, settings.wall_ns
        self._output = ChildOutput(owner.printed, settings.wall_ns)
        self._box = self._outbox()
        self.children: list[ChildProcess] = []
        self._begun: dict[Key, None] = {}  # reported as begun
        self._heard: dict[Key, int] = {}  # monotonic ns of the last progress or checkpoint
        self._ending: dict[Key, PendingKill] = {}
        self._later: dict[
            Key, tuple[QueuedAttempt, int]
        ] = {}  # since when: another attempt of their task has not ended
        self._saving: dict[Key, ChildProcess] = {}  # children of attempts that have sent checkpoints or steps
        self._suspects: list[tuple[int, list[Key]]] = []
        self._born = 0
        self._failures = 0  # children in a row that did not come up
        self._restart: asyncio.TimerHandle | None = None
        self._topping: asyncio.Handle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._closing = False
        self._close_at_ns = 1 << 63

    def _outbox(self) -> PacketQueue:
        return PacketQueue(children=self.processes, width=self.width)

    # ---- jobs

    @property
    def idle(self) -> bool:
        return not self._box.errands and not self._later

    @property
    def busy(self) -> int:
        """Attempts that are here."""
        return len(self._box.errands) + len(self._later)

    @property
    def ending(self) -> bool:
        """Whether a child that is being stopped still runs."""
        return any(child.kill_at_ns or child.retired for child in self.children)

    def __contains__(self, key: Key) -> bool:
        return key in self._box.errands or key in self._later

    def submit(self, errand: QueuedAttempt) -> None:
        if self._ending and any(task == errand.key[0] for task, _ in self._ending):
            self._later[errand.key] = (errand, self._mono_ns())  # two attempts of a task never run at once
            return
        # What comes in the same turn of the loop may share a packet, unless a child is free for it now.
        if not self._box.put(errand) and self._topping is None:
            self._topping = asyncio.get_running_loop().call_soon(self._top_up)

    def _top_up(self) -> None:
        if self._topping is not None:
            self._topping.cancel()
            self._topping = None
        if not self._closing:
            self._box.top_up()
        if self._box.shared and self._watching is None:
            self._watching = asyncio.get_running_loop().call_later(WATCH_S, self._watch)

    def recall(self) -> list[Key]:
        """Everything that no child has taken."""
        self._box.take_back()
        keys = [errand.key for errand in self._box.queue]
        self._box.queue.clear()
        for key in keys:
            self._forget(key)
        keys += self._later
        self._later.clear()
        return keys

    def stop(self, key: Key) -> None:
        """End it, and report nothing."""
        if self._later.pop(key, None) is not None:
            return
        if key in self._box.out:
            self._box.take_back()
        if key not in self._box.out:
            self._box.drop(key)
            self._forget(key)
        else:
            self._end(key, None)
        self._top_up()

    def fail(self, key: Key, error: str, message: str) -> None:
        """End it, and say why."""
        if key in self._box.out:
            self._end(key, (error, message))

    def kept(self, key: Key) -> None:
        child = self._saving.get(key)  # it may wait for several
        if child is not None:
            child.order(CheckpointDurable(*key))

    def _forget(self, key: Key) -> None:
        self._box.forget(key)
        if self._heard or self._ending or self._saving or self._begun:
            self._heard.pop(key, None)
            self._ending.pop(key, None)
            self._saving.pop(key, None)
            self._begun.pop(key, None)
            if self._later:
                self._submit_later(key[0])

    def _submit_later(self, task: int) -> None:
        for errand, _ in [entry for key, entry in self._later.items() if key[0] == task]:
            del self._later[errand.key]
            self.submit(errand)

    def _give_up_waiting(self, now_ns: int) -> None:
        """The server counts the time limit of an attempt from its dispatch. What has waited for half of it goes back
        before it times out without having begun; perhaps another worker gets it."""
        for key, (errand, since_ns) in list(self._later.items()):
            limits_ms = [limit for limit in (errand.spec.running_ms, errand.spec.silent_ms) if limit]
            if limits_ms and 2 * (now_ns - since_ns) >= min(limits_ms) * 1_000_000:
                del self._later[key]
                self._owner.ended(HandedBack(*key))

    # ---- packets with several

    def _watch(self) -> None:
        """Looks for attempts that are not as short as was thought, for the sake of those behind them."""
        self._watching = None
        now_ns = self._mono_ns()
        for child in self.children:
            for key, start_ns in child.marked():
                if now_ns - start_ns > SLOW_NS:
                    self._free_others(child, key, start_ns, now_ns)
        self._top_up()

    def _free_others(self, child: ChildProcess, key: Key, start_ns: int, now_ns: int) -> None:
        """First nothing more of its packet may begin. Where the child is still in the same attempt at the next look,
        it sees that before it begins another, and those behind it are ours again."""
        box = self._box
        number = box.out.get(key, 0)
        if number not in box.packets or len(box.packets[number]) == 1:
            return
        if child.holds(number):
            if now_ns - child.held_ns > SURE_NS:
                self._again(box.behind(key))
            return
        child.hold(number)
        box.learn(box.errands[key].spec.id, (now_ns - start_ns) // 1_000)
        self._hear(child, child.unsaid())

    def _again(self, errands: list[QueuedAttempt]) -> None:
        """No child has begun or will begin these: they are the next."""
        for errand in errands:
            if errand.key in self._ending:
                self._report_ending(errand.key)
        self._box.put_back([errand for errand in errands if errand.key in self._box.errands])

    # ---- messages of children

    def _readable(self, child: ChildProcess) -> None:
        if child.noisy:
            self._output.read_all(child)
        self._hear(child, child.sayings())
        if self._box.queue:
            self._top_up()

    def _hear(self, child: ChildProcess, sayings: Iterable[ChildMessage]) -> None:
        out, errands = self._box.out, self._box.errands
        done: list[Succeeded] = []
        for saying in sayings:
            if type(saying) is Succeeded:
                key = child.last = (saying.task, saying.attempt)
                if child.noisy:
                    self._output.end_lines(child, key)
                if self._ending or self._heard or self._begun:
                    self._settle(child, key, saying)
                    continue
                number = out.pop(key, 0)
                if number > 0:
                    del errands[key]
                    done.append(saying)
                elif number < 0:
                    self._box.alone(number, key, took_ms=saying.ended_ms - saying.started_ms)
                    done.append(saying)
            elif type(saying) is PacketDone:
                left = self._box.through(saying.packet, ran=saying.ran, took_us=saying.took_us)
                if left:
                    self._again(left)
            else:
                self._on_message(child, saying)
        if len(done) == 1:
            self._owner.ended(done[0])
        elif done:
            self._owner.done(done)

    def _on_message(self, child: ChildProcess, message: ChildMessage) -> None:
        match message:
            case Failed():
                child.last = (message.task, message.attempt)
                self._output.end_lines(child, child.last)
                self._settle(child, child.last, message)
            case Progressed():
                self._heard[message.task, message.attempt] = self._mono_ns()
                self._owner.in_progress(message)
            case Checkpointed() | StepsRecorded():
                self._saving_of(child, (message.task, message.attempt))
                self._owner.saving(message)
            case SpilledResult(checkpoint=True):
                self._saving_of(child, (message.task, message.attempt))
                self._owner.spilled(message)
            case SpilledResult() | Suspended() | Continued():
                child.last = (message.task, message.attempt)
                self._output.end_lines(child, child.last)
                self._settle(child, child.last, message)
            case OutputLines():
                for line in message.lines:
                    self._owner.printed((line.task, line.attempt), line.stream, line.text, line.at_ms, line.number)
            case WorkDirCreated():
                self._owner.folder((message.task, message.attempt))
            case AppLoaded():
                child.ready, self._failures = True, 0
                self._owner.loaded(self.mode, message)
            case Retired():
                child.heard_retire = True
            case LoadFailed():
                child.unfit = (message.error, message.message)

    def _saving_of(self, child: ChildProcess, key: Key) -> None:
        self._heard[key] = self._mono_ns()
        self._saving[key] = child

    def _settle(
        self, child: ChildProcess, key: Key, result: Succeeded | Failed | SpilledResult | Suspended | Continued
    ) -> None:
        """Handle the end of an attempt that is unusual in some way."""
        if key not in self._box.out:
            return
        if key in self._ending:
            self._report_ending(key)
            if self.mode == "process":
                child.kill()  # it is being stopped; whatever it has left behind ends with it
            return
        if child.doomed and isinstance(result, Failed) and result.error == CALLED_OFF:
            self._hand_back(key, begun=True)  # the worker ends, and did not wait for it
            return
        self._box.learn(self._box.errands[key].spec.id, 1_000 * (result.ended_ms - result.started_ms))
        self._forget(key)
        if isinstance(result, SpilledResult):
            self._owner.spilled(result)
        else:
            self._owner.ended(result)

    def _report_ending(self, key: Key, exit_code: int | None = None) -> None:
        reason = self._ending[key].reason
        self._forget(key)
        if reason is not None:
            self._owner.ended(Failed(*key, reason[0], reason[1], exit_code=exit_code))

    # ---- children

    def start(self) -> None:
        while self._taking < self.processes and not self._closing and self._restart is None:
            self._spawn()

    @property
    def _taking(self) -> int:
        """Children that take packets, or will."""
        return sum(not child.retired for child in self.children)

    def grow(self, processes: int) -> None:
        self.processes = processes
        self._box.grow(processes)
        self.start()

    def _spawn(self) -> None:
        self._born += 1
        mark = f"{self._mark}-{self.mode}-{self._born}"
        child = self._made(mark)
        self.children.append(child)
        self._listen(child)

    def _made(self, mark: str) -> ChildProcess:
        return ChildProcess(self.mode, self.width, mark, queue=self._box.theirs, settings=self._settings)

    def _listen(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(child.sock.fileno(), self._readable, child)
        self._output.listen(child)
        if child.pidfd is not None:
            loop.add_reader(child.pidfd, self._on_exit, child)

    def _on_exit(self, child: ChildProcess) -> None:
        if child not in self.children:
            return
        self._hear_out(child)
        marked, packets = child.marked(), child.marks.packets()
        code = child.bury()
        self.children.remove(child)
        for key, _ in marked:
            if key in self._box.out:
                self._lost(child, key, code)
        for number in packets:
            self._again(self._box.through(number))
        self._suspect()
        self._replace(child, code)
        self._top_up()

    def _listen_no_more(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.sock.fileno())
        if child.pidfd is not None:
            loop.remove_reader(child.pidfd)
        self._output.stop(child)

    def _hear_out(self, child: ChildProcess) -> None:
        """Handle all messages that it sent before it died."""
        self._listen_no_more(child)
        before = -1
        while before != (before := self._heard_bytes(child)):
            pass
        self._hear(child, child.unsaid())

    def _heard_bytes(self, child: ChildProcess) -> int:
        self._readable(child)
        return child.frames.fed

    def _lost(self, child: ChildProcess, key: Key, code: int) -> None:
        if key in self._ending:
            self._report_ending(key, code)
        elif child.doomed:
            self._hand_back(key, begun=True)  # it was not meant, but in the same process
        else:
            self._forget(key)
            self._owner.ended(Failed(*key, "ProcessDied", end_of(code), exit_code=code))

    def _suspect(self) -> None:
        """A packet may have died between being taken and being marked: which one shows by elimination."""
        self._box.take_back()
        suspects = self._astray(list(self._box.out))
        if suspects:
            self._suspects.append((self._mono_ns() + SETTLE_NS, suspects))

    def _astray(self, keys: list[Key]) -> list[Key]:
        """Those that are out and that no child has."""
        taken = frozenset(number for child in self.children for number in child.marks.packets())
        return [key for key in keys if self._box.out.get(key, 0) not in taken and key in self._box.out]

    def _marked(self) -> dict[Key, ChildProcess]:
        return {key: child for child in self.children for key, _ in child.marked()}

    def _eliminate(self, now_ns: int) -> None:
        due_ns, suspects = self._suspects[0]
        if now_ns < due_ns:
            return
        del self._suspects[0]
        if any(child.ready and not child.marked() and not child.at_rest() for child in self.children):
            self._suspects.append((now_ns + SETTLE_NS, suspects))  # stopped, or just about to say so
            return
        self._box.take_back()  # what was sent again since is not lost
        for key in self._astray(suspects):
            self._hand_back(key)
        self._top_up()

    def _hand_back(self, key: Key, *, begun: bool = False) -> None:
        if key in self._ending:
            self._report_ending(key)
        else:
            self._forget(key)
            self._owner.ended(HandedBack(*key, begun))

    def _replace(self, child: ChildProcess, code: int) -> None:
        if self._closing:
            return
        if not child.ready and not child.doomed:
            self._failures += 1
            error, message = child.unfit or ("ProcessDied", f"before the application was loaded; {end_of(code)}")
            if self._failures in (1, UNFIT_MAX):
                log.error("a child process did not start: %s: %s", error, message)
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
                log.error("no child process can be started now; trying again: %s", error)
            self._failures += 1
            self._restart_later()

    def _refuse_queue(self, error: str, message: str) -> None:
        """Fail the queued attempts: no child takes them while the application does not load."""
        if any(child.ready for child in self.children):
            return
        for key in self.recall():
            self._owner.ended(Failed(*key, error, message))

    # ---- time

    def sweep(self, now_ns: int) -> None:
        """Every tenth of a second while there is something here."""
        if self._suspects:
            self._eliminate(now_ns)
        if self._later:
            self._give_up_waiting(now_ns)
        for child in list(self.children):
            # `kill_at_ns` moves on, so that something that forks faster than we kill is met again.
            child.insist(now_ns)
            if child.retired and all(key in self._ending for key, _ in child.marked()):
                child.ask_to_end(grace_ns=GRACE_NS)  # no other attempt is in it any more
            if child.kill_at_ns and now_ns > child.kill_at_ns:
                child.kill_at_ns = now_ns + GRACE_NS
                child.kill()
            if child.pidfd is None and child.exited():
                self._on_exit(child)
                continue
            for key, start_ns in child.marked():
                if now_ns - start_ns > 10_000_000 and key in self._box.out:
                    self._look_at(child, key, start_ns, now_ns)

    def _look_at(self, child: ChildProcess, key: Key, start_ns: int, now_ns: int) -> None:
        if key in self._ending:
            self._end_in(child, key)
            return
        spec = self._box.errands[key].spec
        ran_ms = (now_ns - start_ns) // 1_000_000
        if spec.running_ms and ran_ms >= spec.running_ms:
            self._end(key, ("TimeoutError", f"ran longer than {spec.running_ms} ms"))
            return
        silent_ms = (now_ns - max(start_ns, self._heard.get(key, 0))) // 1_000_000
        if spec.silent_ms and silent_ms >= spec.silent_ms:
            self._end(key, ("TimeoutError", f"no progress and no checkpoint for {spec.silent_ms} ms"))
        elif key not in self._begun and now_ns - start_ns >= BEGUN_NS:
            self._begun[key] = None
            self._owner.in_progress(Started(*key, self._wall_ns() // 1_000_000 - ran_ms))

    def _end(self, key: Key, reason: tuple[str, str] | None) -> None:
        ending = self._ending.setdefault(key, PendingKill(reason))
        if reason is None:
            ending.reason = None
        self._hold(self._box.out[key])
        child = self._marked().get(key)
        if child is not None:  # else it is not begun, or being taken this moment, and the sweep sees it
            self._end_in(child, key)

    def _hold(self, number: int) -> None:
        """Nothing more of this packet is to begin; what has not comes back as soon as the child can say so."""
        if self.width == 1:
            for child in self.children:
                if number in child.marks.packets() and not child.holds(number):
                    child.hold(number)

    def _end_in(self, child: ChildProcess, key: Key) -> None:
        ending = self._ending[key]
        if ending.requested:
            return
        ending.requested = True
        grace_ns = self._settings.stop_grace_ns
        if self.mode != "process" and child.order(Cancel(*key)):
            asyncio.get_running_loop().call_later(grace_ns / 1e9, self._insist, child, key)
        else:
            child.ask_to_end(grace_ns=grace_ns)

    def _insist(self, child: ChildProcess, key: Key) -> None:
        """A thread or a coroutine cannot be ended without those beside it: they go on, another process takes what
        comes, and this one ends when nothing else is left in it."""
        if key not in self._ending or child not in self.children or child.retired:
            return
        if child.order(Retire()):
            child.retired = True
            self.start()
            if self.mode == "async":
                asyncio.get_running_loop().call_later(GRACE_NS / 1e9, self._end_blocked, child)
        else:
            child.ask_to_end(grace_ns=GRACE_NS)

    def _end_blocked(self, child: ChildProcess) -> None:
        """End the whole process of a coroutine that blocks its event loop: no other attempt in it can go on."""
        if child in self.children and not child.heard_retire:
            child.ask_to_end(grace_ns=GRACE_NS)

    # ---- the end

    async def close(self, *, grace_s: float) -> None:
        """What runs may end within the time given; what does not is ended and handed back."""
        self._close_at_ns = min(self._close_at_ns, self._mono_ns() + round(grace_s * 1e9))
        if self._closing:
            return  # the first one to ask goes on, if need be sooner
        self._closing = True
        if self._restart is not None:
            self._restart.cancel()
        self._box.take_back()
        for key in list(self._later):
            del self._later[key]
            self._owner.ended(HandedBack(*key))
        while self._box.out and self._mono_ns() < self._close_at_ns and self.children:
            await asyncio.sleep(0.01)
            self.sweep(self._mono_ns())
        self._box.shut()
        await self._end_children()
        for handle in (self._topping, self._watching):
            if handle is not None:
                handle.cancel()
        for key in list(self._box.errands):
            self._hand_back(key)
        self._box.close()

    async def _end_children(self) -> None:
        for child in self.children:
            if self._box.out or not child.ready:
                child.ask_to_end(grace_ns=GRACE_NS)
        requested_ns = self._mono_ns()
        while self.children:
            for child in list(self.children):
                if child.exited():
                    self._on_exit(child)
                elif self._mono_ns() - requested_ns > GRACE_NS:
                    child.kill()
                else:
                    child.insist(self._mono_ns())
            if self.children:
                await asyncio.sleep(0.01)
