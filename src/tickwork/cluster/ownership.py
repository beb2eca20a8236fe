"""Which partitions this node owns: lease by lease, towards the placement that every node computes by itself.

Each round renews the leases (`lease_renewal`), takes what is free and this node's by placement, and hands over what is
another's. If renewal fails for nearly as long as a lease lasts, the node drops what it owned before another takes it.
On a hand-over the next owner reads ahead, then the partition is finished, released and taken up there at once, so that
the gap is short. Two owners at once cost time only: the store's epoch decides (`stores/fencing`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from tickwork.cluster.lease_renewal import MARGIN, TTL_MS, LeaseRenewal
from tickwork.cluster.placement import Node, place
from tickwork.core.base.errors import Newer, TickworkError, Unavailable
from tickwork.ports.leases import HeldLease, Leases, Member
from tickwork.ports.system import Clock
from tickwork.runtime.supervision import supervised

RETRY_MS = 1_000
PAUSE_S = 0.05  # between two rounds, at least
FAREWELL_S = 30.0
HAND_OVERS = 2  # partitions that are handed over at the same time: few, so that each is away for a short time
RELEASE_S = 1.0


class OwnershipCallbacks(msgspec.Struct):
    """What a change of ownership causes. `own` returns when the partition ticks, `finish` when all is durable."""

    own: Callable[[int], Awaitable[None]]
    announce: Callable[[int, str], Awaitable[bool]]  # the node at this address reads ahead; False: it does not
    finish: Callable[[int], Awaitable[None]]
    drop: Callable[[int, str], Awaitable[None]]
    give: Callable[[int, str], Awaitable[None]]  # the node at this address is to take it up now
    moved: Callable[[int], None]  # another node owns it, or is about to
    alarm: Callable[[str, str], None]


class Ownership:
    def __init__(
        self,
        *,
        leases: Leases,
        member: Member,
        partitions: int,
        clock: Clock,
        duties: OwnershipCallbacks,
        ttl_ms: int = TTL_MS,
        retry_ms: int = RETRY_MS,
    ) -> None:
        self.member = member
        self.members: list[Member] = [member]
        self.holdings: dict[int, HeldLease] = {}
        self.held: dict[int, None] = {}  # leases that are ours
        self._before: dict[int, HeldLease] = {}  # who held each partition when it was last held by another
        self._leases = leases
        self._partitions = partitions
        self._clock = clock
        self._duties = duties
        self._ttl_ms, self._retry_ms = ttl_ms, min(retry_ms, ttl_ms // 3)
        self.renewal = LeaseRenewal(leases, clock, ttl_ms=ttl_ms)
        self._moving: dict[int, asyncio.Task[None]] = {}  # being taken up or finished
        self._taking: set[int] = set()  # leases that were requested
        self._hand_overs = asyncio.Semaphore(HAND_OVERS)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._guard: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._leaving = False

    # ---- life

    async def start(self) -> None:
        """Return after the first round, when the partitions that it took are owned."""
        loop = asyncio.get_running_loop()
        self._guard = loop.create_task(self._kept_up(self._drop_in_time, "guard"))  # from the first lease on
        try:
            await self._round()
            self._task = loop.create_task(self._kept_up(self._run, "rounds"))  # taking up may last longer than a lease
            await asyncio.gather(*self._moving.values(), return_exceptions=True)
        except BaseException:
            for job in (self._guard, self._task):
                if job is not None:
                    job.cancel()
            raise

    async def _kept_up(self, job: Callable[[], Awaitable[None]], name: str) -> None:
        await supervised(job, name=f"ownership, {name}", on_alarm=self._duties.alarm)

    async def stop(self) -> None:
        """Hand everything over, then leave."""
        self._leaving = True
        self.member = msgspec.structs.replace(self.member, draining=True)
        self._wake.set()
        loop = asyncio.get_running_loop()
        until = loop.time() + FAREWELL_S
        while self._task is not None and self.held and loop.time() < until:
            await asyncio.sleep(0.01)
        if self._task is not None and self._guard is not None:
            self._task.cancel()
            self._guard.cancel()
            await asyncio.gather(self._task, self._guard, *self._moving.values(), return_exceptions=True)
        if self._refreshing is not None:
            self._refreshing.cancel()
        for partition in list(self.held):
            await self._let_go(partition, "the node ends")
        with contextlib.suppress(TickworkError, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._leases.leave(self.member.session)

    async def take_up(self, partition: int) -> None:
        """Take a partition that its owner has released for this node. Return when it ticks here, or does not."""
        if not self._leaving and self.member.engine:
            await self._take(partition)
            self._before.pop(partition, None)
        if partition not in self.held:
            self._wake.set()
        elif partition in self._moving:
            await asyncio.wait([self._moving[partition]])

    async def refresh(self) -> None:
        """Refresh members and holdings: a supposed owner did not answer.

        Concurrent callers share one refresh. Cancelling a caller does not cancel it, because renewals use the same
        connection and a broken-off call may break it."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._read_leases())
        refreshing = self._refreshing
        await asyncio.wait([refreshing])  # if `stop` cancels it, its callers are not cancelled
        if not refreshing.cancelled():
            refreshing.result()

    async def _read_leases(self) -> None:
        with contextlib.suppress(Unavailable):
            self._update(await self._leases.members(), await self._leases.holdings())

    def identify(self, secrets: tuple[str, ...]) -> None:
        """Announce these secrets with the next beat."""
        self.member = msgspec.structs.replace(self.member, secrets=secrets)
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            # Counted from when the last round began: a slow one must not make the next one late as well.
            alarm = loop.call_at(max(began + self._retry_ms / 1000, loop.time() + PAUSE_S), self._wake.set)
            await self._wake.wait()
            alarm.cancel()
            self._wake.clear()  # a wake-up during the round asks for another one
            began = loop.time()
            await self._round()

    async def _drop_in_time(self) -> None:
        """Drop what is no longer certain before its lease ends. This runs beside the rounds, one of which may hang."""
        while True:
            left_ms = self.renewal.certain_ms()
            if left_ms > 0:
                await asyncio.sleep(left_ms / 1000)
                continue
            await asyncio.gather(
                *(self._let_go(partition, "its lease could not be renewed in time") for partition in list(self.held))
            )
            await asyncio.sleep(self._retry_ms / 1000)

    # ---- one round

    async def _round(self) -> None:
        partitions = tuple(self.held)  # `held` may grow during the call
        try:
            renewed = await self.renewal.renew(self.member, partitions)
        except (TickworkError, TimeoutError) as error:
            self._duties.alarm("leases_unavailable", str(error) or "they did not respond in time")
            return
        for partition in [number for number in partitions if number in self.held and number not in renewed.kept]:
            await self._let_go(partition, "another node holds its lease")
        self._update(renewed.members, renewed.holdings)
        await self._move()

    def _update(self, members: Sequence[Member], holdings: Sequence[HeldLease]) -> None:
        before = {partition: holding.session for partition, holding in self.holdings.items()}
        self.members = list(members)
        self.holdings = {holding.partition: holding for holding in holdings}
        for partition, holding in self.holdings.items():
            if before.get(partition) != holding.session:
                self._duties.moved(partition)
            if holding.session != self.member.session:
                self._before[partition] = holding

    async def _move(self) -> None:
        able = {_rank(member): member for member in self.members if member.engine and not member.draining}
        targets = place(self._partitions, list(able), self._unable(list(able.values())))
        own = _rank(self.member)
        for partition in [number for number in self.held if number not in self._moving]:
            to = targets.get(partition)
            if to is not None and to != own:
                self._begin(partition, self._hand_over(partition, able[to]))
            elif self._leaving:
                self._begin(partition, self._hand_over(partition, None))
        if self._leaving or not self.member.engine:
            return
        for partition, node in targets.items():
            if node == own:
                holding = self.holdings.get(partition)
                free = holding is None or holding.session == self.member.session
                if free and not await self._take(partition):
                    break  # the leases do not answer: those that are held are renewed first
        self._report_take_overs()

    def _report_take_overs(self) -> None:
        """Raise an alarm for nodes whose partitions this node took because they are gone. A node that leaves hands its
        partitions over, and is not reported."""
        live = {member.session for member in self.members}
        taken: dict[str, list[int]] = {}
        for partition in self.held:
            holder = self._before.pop(partition, None)
            if holder is not None and holder.session not in live:
                taken.setdefault(holder.node, []).append(partition)
        for node, partitions in sorted(taken.items()):
            what = f"partition{'s' if partitions[1:] else ''} {', '.join(map(str, sorted(partitions)))}"
            self._duties.alarm("took_over", f"{what} of {node}, which does not respond any more")

    def _unable(self, members: Sequence[Member]) -> dict[Node, frozenset[int]]:
        """Return the partitions that each member cannot own because they use later rules than it knows: either the
        member reports this itself, or the present owner knows later rules."""
        rules = {member.session: member.machine for member in self.members}
        decided = {partition: rules.get(held.session, 0) for partition, held in self.holdings.items()}
        return {
            _rank(member): frozenset(
                (*member.unable, *(number for number in decided if decided[number] > member.machine))
            )
            for member in members
        }

    async def _take(self, partition: int) -> bool:
        """False: the leases did not answer. If the partition is ours all the same, the next round shows it."""
        if partition in self.held or partition in self._moving or partition in self._taking:
            return True
        self._taking.add(partition)
        try:
            async with asyncio.timeout(self._ttl_ms * MARGIN / 1000):
                taken = await self._leases.take(partition, self.member, ttl_ms=self._ttl_ms)
        except (Unavailable, TimeoutError):
            return False
        finally:
            self._taking.discard(partition)
        if taken:
            self.held[partition] = None
            self._now_with(partition, self.member)
            self._begin(partition, self._own(partition))
        return True

    def _now_with(self, partition: int, member: Member) -> None:
        self.holdings[partition] = HeldLease(partition, member.session, member.node, member.address)

    def _begin(self, partition: int, job: Coroutine[Any, Any, None]) -> None:
        task = self._moving[partition] = asyncio.get_running_loop().create_task(job)
        task.add_done_callback(lambda _: self._moving.pop(partition, None))

    async def _own(self, partition: int) -> None:
        try:
            await self._duties.own(partition)
        except Exception as error:  # whatever the error: an unused lease would keep other nodes away
            if isinstance(error, Newer):  # for good: the others hear it and place it elsewhere
                self.member = msgspec.structs.replace(self.member, unable=(*self.member.unable, partition))
                self._wake.set()
            why = str(error) if isinstance(error, TickworkError) else f"{type(error).__name__}: {error}"
            self._duties.alarm("cannot_own", f"partition {partition}: {why}")
            await self._let_go(partition, why)
            return
        if partition not in self.held:  # it took so long that the lease was given up meanwhile
            await self._duties.drop(partition, "its lease ended before it was taken up")

    async def _hand_over(self, partition: int, to: Member | None) -> None:
        async with self._hand_overs:
            accepted = to is not None and await self._duties.announce(partition, to.address)
            if not accepted and not self._leaving:
                return  # by its own placement it is not the next owner: one of the two is about to see a change
            await self._duties.finish(partition)
            self.held.pop(partition, None)
            with contextlib.suppress(Unavailable):  # the lease runs out by itself
                await self._leases.release(partition, self.member.session)
            if to is not None and accepted:
                self._now_with(partition, to)
                with contextlib.suppress(TickworkError):  # its next round comes soon
                    await self._duties.give(partition, to.address)
                self._duties.moved(partition)

    async def lost(self, partition: int, reason: str) -> None:
        """Drop a partition that another node owns by now, or that cannot go on here."""
        await self._let_go(partition, reason)

    async def _let_go(self, partition: int, reason: str) -> None:
        self.held.pop(partition, None)
        await self._duties.drop(partition, reason)
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._leases.release(partition, self.member.session)


def _rank(member: Member) -> Node:
    return (member.node, member.session)
