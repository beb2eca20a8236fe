"""The switchboard: workers speak to this node, and the node speaks for each of them to the owners of all partitions.

A worker's one call is taken apart by partition and its one reply put together from theirs. Its credit is dealt out so
that the parts never exceed it. Beats stay here: whether a worker is gone is decided where it was heard, and owners hear
of all that live in one message. A partition whose owner cannot be reached holds up nobody else: what could not be
delivered is asked for again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from tickwork.cluster.dealing import split_credit
from tickwork.cluster.owner_session import ExchangeRoute, OwnerSession, ReportBatch
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    NodeSpec,
    Reply,
    Report,
    WorkerProfile,
    of_other_store,
    protocol_mismatch,
)
from tickwork.runtime.supervision import supervised
from tickwork.runtime.workers.failure_detector import SILENT_MS, FailureDetector, HeartbeatAges
from tickwork.runtime.workers.sessions import GIVEN_UP, MOVED, RETRY_MS, WAIT_MS_MAX
from tickwork.worker.exchange import Key

DELIVER_S = 2.0  # after which a report that is not durable yet is asked for again
CHECK_S = 0.5
BEATS_MS = 8_000  # how often owners hear who lives, at most a third of what makes them doubt it
DEAL_S = 0.1  # how often credit is dealt anew because of what partitions want


class ProxiedWorker:
    """One worker, as this node knows it."""

    def __init__(self, board: "WorkerGateway", call: Call, heard_ms: int) -> None:
        self.worker, self.session = call.worker, call.session
        self.profile = call.profile or WorkerProfile()
        self.heard_ms, self.closed_ms, self.peer, self.process = heard_ms, 0, "", ""
        self.calls: dict[str, int] = {}
        self.seq = 0
        self.reply: asyncio.Future[Reply] | None = None
        self.credit = 0
        self.mail: list[tuple[AttemptJob, NodeSpec]] = []
        self.stops: list[Key] = []
        self.specs: dict[int, None] = {}
        self.woken: asyncio.Future[None] | None = None
        self.reporting = 0
        self.refused = ""
        self.gone = False
        self._board = board
        self._unmet = False  # something is promised that another partition has yet to give up
        self._dealing: asyncio.Handle | None = None
        session = f"{call.session}@{call.seq}.{board.session}"
        self.lines = [
            OwnerSession(
                self,
                partition,
                way=board.way,
                name=call.worker,
                session=session,
                profile=self.profile,
                via=board.via,
                store=board.store,
            )
            for partition in range(board.partitions)
        ]

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    # ---- what lines say

    def bring(self, work: AttemptJob, spec: NodeSpec) -> None:
        self.mail.append((work, spec))
        if not self.reporting:
            self.wake()

    def call_off(self, key: Key) -> None:
        before = len(self.mail)
        self.mail = [(work, spec) for work, spec in self.mail if (work.task, work.attempt) != key]
        if len(self.mail) == before:
            self.stops.append(key)
            self.wake()

    def line_heard(self, line: OwnerSession) -> None:
        """Dealt anew where it helps, and not too often: each change is a decision that the journal keeps."""
        starving = line.wanted > 0 and line.holds >= line.share
        if self._dealing is None and not self.gone and (starving or self._unmet):
            wait_s = 0.0 if self._unmet or not line.share else DEAL_S
            self._dealing = asyncio.get_running_loop().call_later(wait_s, self._deal_again)

    def line_ended(self, error: BaseException) -> None:
        self._board.refuse(self, str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}")

    def _deal_again(self) -> None:
        self._dealing = None
        if not self.gone:
            self.deal()

    def deal(self) -> None:
        """What is taken from one partition goes to another only when the first has heard it."""
        lines = self.lines
        target = split_credit(self.credit, [line.holds for line in lines], [line.wanted for line in lines])
        for line, share in zip(lines, target, strict=True):
            if share < line.share:
                line.set_share(share)
        free = self.credit - sum(max(line.share, line.told) for line in lines)
        for line, share in zip(lines, target, strict=True):
            more = min(share - line.share, free)
            if more > 0:
                free -= more
                line.set_share(line.share + more)
        self._unmet = any(share > line.share for line, share in zip(lines, target, strict=True))

    def stop_dealing(self) -> None:
        if self._dealing is not None:
            self._dealing.cancel()
            self._dealing = None


class WorkerGateway:
    """`way` brings a call to the owner of a partition, `beat` tells all owners who lives; `session` is this start of
    the node. `own`: there is no node, a worker speaks for itself."""

    def __init__(
        self,
        *,
        way: ExchangeRoute,
        beat: Callable[[Sequence[str]], Awaitable[None]],
        session: str,
        partitions: int,
        clock: Clock,
        on_alarm: Callable[[str, str], None],
        detector: FailureDetector,
        own: bool = False,
        store: str = "",
    ) -> None:
        self.way, self.session, self.partitions = way, session, partitions
        self.via = "" if own else session
        self.store = store  # identity of the store that the owners share
        self.guests: dict[str, ProxiedWorker] = {}
        self._beat = beat
        self._clock = clock
        self._on_alarm = on_alarm
        self._detector = detector
        self._jobs: set[asyncio.Task[None]] = set()
        self._closing = False

    def heartbeat_ages(self) -> HeartbeatAges:
        now_ms, guests = self._clock.mono_ms(), self.guests.values()
        silent = [guest for guest in guests if now_ms - guest.heard_ms > SILENT_MS]
        orphaned = sum(line.holds for guest in silent for line in guest.lines)
        return HeartbeatAges([(now_ms - guest.heard_ms) / 1000 for guest in guests], orphaned)

    def start(self) -> None:
        self._spawn(supervised(self._watch, name="losses of workers", on_alarm=self._on_alarm))
        self._spawn(supervised(self._beat_for_all, name="beats to owners", on_alarm=self._on_alarm))

    def owner_moved(self, partition: int) -> None:
        """Who could not reach its owner asks again at once."""
        for guest in self.guests.values():
            guest.lines[partition].again()

    def release(self) -> None:
        self._closing = True
        for guest in self.guests.values():
            guest.wake()

    async def close(self) -> None:
        self.release()
        for guest in list(self.guests.values()):  # one may be refused by its owner meanwhile
            guest.gone = True
            guest.stop_dealing()
            for line in guest.lines:
                await line.hang_up()
        self.guests.clear()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    # ---- calls

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        if (other := of_other_store(call, self.store)) is not None:
            return other
        guest = self._guest_for(call)
        if isinstance(guest, Reply):
            return guest
        guest.heard_ms, guest.closed_ms, guest.peer = self._clock.mono_ms(), 0, peer
        guest.calls[peer] = guest.calls.get(peer, 0) + 1
        try:
            return await self._reply_to(guest, call)
        finally:
            guest.calls[peer] -= 1
            if not guest.calls[peer]:
                del guest.calls[peer]

    def _guest_for(self, call: Call) -> ProxiedWorker | Reply:
        guest = self.guests.get(call.worker)
        if guest is not None and guest.session == call.session:
            return guest if not guest.refused else Reply(call.seq, refused=guest.refused)
        if call.profile is None or call.held is None:
            return Reply(call.seq, resync=True)
        if why := protocol_mismatch(call.profile.protocol):
            return Reply(call.seq, refused=why)
        if self._closing:
            raise Unavailable("the server is shutting down; ask again in a moment", retry_after_ms=1_000)
        if guest is not None and not guest.closed_ms and not guest.refused:
            idle_ms = self._clock.mono_ms() - guest.heard_ms
            return Reply(
                call.seq,
                refused=f"a worker named {call.worker!r} is here already, heard {idle_ms} ms ago; choose another name",
            )
        if guest is not None:
            self._forget(guest)
        guest = self.guests[call.worker] = ProxiedWorker(self, call, self._clock.mono_ms())
        guest.credit = call.credit
        guest.deal()
        held = _by_partition(call.held, guest.lines)
        for line in guest.lines:
            line.start(held[line.partition])
        return guest

    async def _reply_to(self, guest: ProxiedWorker, call: Call) -> Reply:
        if call.seq == guest.seq and guest.reply is not None and not _broken(guest.reply):
            return await asyncio.shield(guest.reply)
        if call.seq < guest.seq:
            fenced, later = await self._deliver(guest, call)
            return Reply(call.seq, fenced=fenced, later=later)
        if not call.reports or call.held is not None:
            guest.wake()
        fresh = guest.seq == 0
        guest.seq = call.seq
        told = guest.reply = asyncio.get_running_loop().create_future()
        try:
            reply = await self._answer(guest, call, fresh=fresh)
        except BaseException as error:
            guest.wake()
            if not told.done():
                given_up = isinstance(error, asyncio.CancelledError)  # whoever repeated the call has not given up
                told.set_exception(Unavailable(GIVEN_UP, retry_after_ms=RETRY_MS) if given_up else error)
                _broken(told)
            raise
        if not told.done():
            told.set_result(reply)
        return reply

    async def _answer(self, guest: ProxiedWorker, call: Call, *, fresh: bool) -> Reply:
        if call.profile is not None and not fresh:
            guest.profile = call.profile
            for line in guest.lines:
                line.introduce(call.profile)
        if call.held is not None:
            guest.specs.clear()
            if not fresh:
                self._hold_only(guest, call)
        if call.credit != guest.credit and not call.goodbye:
            guest.credit = call.credit
            guest.deal()
        guest.reporting += 1
        try:
            fenced, later = await self._deliver(guest, call)
        finally:
            guest.reporting -= 1
        if call.goodbye:
            await self._say_goodbye(guest)
            return Reply(call.seq, fenced=fenced, later=later)
        waits = not call.reports and call.held is None and not guest.mail and not guest.stops
        if waits and call.seq == guest.seq:
            await self._until_mail(guest, call)
        return self._reply(guest, call, fenced, later)

    def _hold_only(self, guest: ProxiedWorker, call: Call) -> None:
        on_its_way = [(work.task, work.attempt) for work, _ in guest.mail]
        held = _by_partition([*(call.held or ()), *on_its_way], guest.lines)
        for line in guest.lines:
            line.holds_only(held[line.partition])

    async def _deliver(self, guest: ProxiedWorker, call: Call) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        """Reports that came too late, and those that are not durable yet."""
        if not call.reports:
            return (), ()
        parts: dict[int, list[Report]] = {}
        fenced: list[Key] = []
        for report in call.reports:
            partition = report.task >> NUMBER_BITS
            if partition < self.partitions:
                parts.setdefault(partition, []).append(report)
            else:
                fenced.append((report.task, report.attempt))
        batches: list[ReportBatch] = []
        later: list[Key] = []
        for partition, reports in parts.items():
            if guest.lines[partition].away:  # nobody waits for those that are not there
                later += [(one.task, one.attempt) for one in reports]
            else:
                batches.append(guest.lines[partition].deliver(reports))
        try:
            async with asyncio.timeout(DELIVER_S):
                for batch in batches:
                    await batch.done.wait()
        except TimeoutError:
            later += [(one.task, one.attempt) for batch in batches for one in batch.waiting()]
        fenced += [key for batch in batches for key in batch.fenced]
        return tuple(fenced), tuple(later)

    async def _until_mail(self, guest: ProxiedWorker, call: Call) -> None:
        if not call.wait_ms:
            return
        self._must_be_open()
        loop = asyncio.get_running_loop()
        woken = guest.woken = loop.create_future()
        alarm = loop.call_at(loop.time() + min(call.wait_ms, WAIT_MS_MAX) / 1000, guest.wake)
        try:
            await woken
        finally:
            alarm.cancel()
            if guest.woken is woken:
                guest.woken = None
        self._must_be_open()

    def _must_be_open(self) -> None:
        if self._closing:
            raise Unavailable("the server is shutting down; ask again in a moment", retry_after_ms=1_000)

    def _reply(self, guest: ProxiedWorker, call: Call, fenced: tuple[Key, ...], later: tuple[Key, ...]) -> Reply:
        if guest.refused:
            return Reply(call.seq, refused=guest.refused)
        if call.seq != guest.seq and not call.reports:
            return Reply(call.seq, fenced=fenced, later=later)  # a later call takes the mail: this one may be lost
        mail, guest.mail = guest.mail, []
        stops, guest.stops = guest.stops, []
        fresh = {spec.id: spec for _, spec in mail if spec.id not in guest.specs}
        guest.specs.update(dict.fromkeys(fresh))
        work = tuple(one for one, _ in mail)
        store = self.store if call.profile is not None else ""
        return Reply(call.seq, work, tuple(fresh.values()), tuple(stops), fenced, later=later, store=store)

    # ---- ends

    async def _say_goodbye(self, guest: ProxiedWorker) -> None:
        self._drop(guest)
        await asyncio.gather(*(line.end(lost=False) for line in guest.lines))

    def refuse(self, guest: ProxiedWorker, message: str) -> None:
        """An owner does not serve it. Where it only moved to another node, that one serves it."""
        if guest.gone:
            return
        self._drop(guest)
        if MOVED not in message:
            guest.refused = message.removeprefix("the server does not serve this worker: ")
            self.guests.setdefault(guest.worker, guest)
        guest.wake()
        for line in guest.lines:
            self._spawn(line.hang_up())

    def connection_closed(self, peer: str) -> None:
        self._detector.connection_closed(self.guests.values(), peer, now_ms=self._clock.mono_ms())

    async def _watch(self) -> None:
        while not self._closing:
            await asyncio.sleep(CHECK_S)
            for guest, cause in self._detector.lost(self.guests.values(), now_ms=self._clock.mono_ms()):
                self._lose(guest, cause)

    async def _beat_for_all(self) -> None:
        """For those that are not lost here: that is for this node to say."""
        while not self._closing:
            await asyncio.sleep(min(BEATS_MS, self._detector.lost_after_ms / 3) / 1000)
            names = [guest.worker for guest in self.guests.values() if not guest.refused]
            if names:
                await self._beat(names)

    def _lose(self, guest: ProxiedWorker, cause: str) -> None:
        self._drop(guest)
        if guest.refused:
            return
        self._on_alarm("worker_lost", f"{guest.worker}: {cause}")
        for line in guest.lines:
            self._spawn(line.end(lost=True))

    def _forget(self, guest: ProxiedWorker) -> None:
        self._drop(guest)
        for line in guest.lines:
            self._spawn(line.hang_up())

    def _drop(self, guest: ProxiedWorker) -> None:
        guest.gone = True
        guest.stop_dealing()
        if self.guests.get(guest.worker) is guest:
            del self.guests[guest.worker]
        guest.wake()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)


def _by_partition(keys: "tuple[Key, ...] | list[Key]", lines: list[OwnerSession]) -> dict[int, list[Key]]:
    found: dict[int, list[Key]] = {line.partition: [] for line in lines}
    for key in keys:
        if key[0] >> NUMBER_BITS in found:
            found[key[0] >> NUMBER_BITS].append(key)
    return found


def _broken(reply: "asyncio.Future[Reply]") -> bool:
    return reply.done() and (reply.cancelled() or reply.exception() is not None)
