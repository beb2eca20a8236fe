"""Which partitions this node owns: lease by lease, towards the placement that every node computes by itself.

Beats and leases are renewed all the time; where that fails for nearly as long as a lease lasts, by this node's own
monotonic clock, it drops what it owned before anybody else may take it. On a clean stop and when a better place
appears, the next owner reads ahead, then the partition is finished, released and taken up there at once, so that there
is hardly a gap. Two owners at once cost nothing but time: the store's epoch decides.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from tickwork.cluster.placement import Node, place
from tickwork.core.base.errors import Newer, TickworkError, Unavailable
from tickwork.ports.leases import HeldLease, Leases, Member
from tickwork.ports.system import Clock
from tickwork.runtime.supervision import supervised

TTL_MS = 10_000
RETRY_MS = 1_000
MARGIN = 0.2  # of a lease: so long before its end nothing is done under it any more
PAUSE_S = 0.05  # between two looks, at least
FAREWELL_S = 30.0
HANDS = 2  # partitions that are handed over at a time: each is away for as short as can be
RELEASE_S = 1.0


class OwnershipCallbacks(msgspec.Struct):
    """What follows from owning. `own` returns when the partition ticks, `finish` when everything is durable."""

    own: Callable[[int], Awaitable[None]]
    announce: Callable[[int, str], Awaitable[bool]]  # the node at this address reads ahead; False: it does not want it
    finish: Callable[[int], Awaitable[None]]
    drop: Callable[[int, str], Awaitable[None]]
    give: Callable[[int, str], Awaitable[None]]  # the node at this address is to take it up now
    moved: Callable[[int], None]  # somebody else owns it, or is about to
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
        self._proved_ms = clock.mono_ms()
        self._moving: dict[int, asyncio.Task[None]] = {}  # being taken up or finished
        self._taking: set[int] = set()  # asked for
        self._hands = asyncio.Semaphore(HANDS)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._guard: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._leaving = False

    # ---- life

    async def start(self) -> None:
        """Returns when it has looked once, and taken what is free and its own by placement."""
        loop = asyncio.get_running_loop()
        self._guard = loop.create_task(self._kept_up(self._drop_in_time, "guard"))  # from the first lease on
        try:
            await self._look()
            self._task = loop.create_task(self._kept_up(self._run, "looks"))  # taking up may last longer than a lease
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
        if self._asking is not None:
            self._asking.cancel()
        for partition in list(self.held):
            await self._let_go(partition, "the node ends")
        with contextlib.suppress(TickworkError, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._leases.leave(self.member.session)

    async def take_up(self, partition: int) -> None:
        """Its owner has let go of it for this node. Returns when it ticks here, or does not."""
        if not self._leaving and self.member.engine:
            await self._take(partition)
            self._before.pop(partition, None)
        if partition not in self.held:
            self._wake.set()
        elif partition in self._moving:
            await asyncio.wait([self._moving[partition]])

    async def refresh(self) -> None:
        """Who owns what, as it is now: whoever was thought to own something did not answer.

        One look for all who ask, and to its end whoever gives up meanwhile: renewals go the same way, and a question
        that is broken off may break it."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        asking = self._asking
        await asyncio.wait([asking])  # where `stop` cancels it, those who wait for it are not cancelled
        if not asking.cancelled():
            asking.result()

    async def _ask(self) -> None:
        with contextlib.suppress(Unavailable):
            self._heard(await self._leases.members(), await self._leases.holdings())

    def identify(self, secrets: tuple[str, ...]) -> None:
        """The next beat says so."""
        self.member = msgspec.structs.replace(self.member, secrets=secrets)
        self._wake.set()

    @property
    def proved_ms(self) -> int:
        """When the last look began that was answered, by the monotonic clock."""
        return self._proved_ms

    @property
    def proved(self) -> bool:
        """Whether what is held is ours beyond doubt, by our own clock."""
        return self._proof_left_ms() > 0

    def _proof_left_ms(self) -> float:
        """So long a slow answer may take: whoever drops what it still owns makes a busy database busier."""
        return self._proved_ms + self._ttl_ms * (1 - MARGIN) - self._clock.mono_ms()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            # Counted from when the last look began: a slow one must not make the next one late as well.
            alarm = loop.call_at(max(looked + self._retry_ms / 1000, loop.time() + PAUSE_S), self._wake.set)
            await self._wake.wait()
            alarm.cancel()
            self._wake.clear()  # a wake-up during the look asks for another look
            looked = loop.time()
            await self._look()

    async def _drop_in_time(self) -> None:
        """Beside the looks, one of which may hang: what can no longer be proved is dropped before its lease ends."""
        while True:
            left_ms = self._proof_left_ms()
            if left_ms > 0:
                await asyncio.sleep(left_ms / 1000)
                continue
            await asyncio.gather(
                *(self._let_go(partition, "its lease could not be renewed in time") for partition in list(self.held))
            )
            await asyncio.sleep(self._retry_ms / 1000)

    # ---- one look

    async def _look(self) -> None:
        started_ms = self._clock.mono_ms()
        try:
            async with asyncio.timeout(max(self._ttl_ms * MARGIN, self._proof_left_ms()) / 1000):
                await self._leases.beat(self.member, ttl_ms=self._ttl_ms)
                partitions = tuple(self.held)  # `held` may grow during the call
                kept = await self._leases.renew(partitions, self.member.session, ttl_ms=self._ttl_ms)
                members, holdings = await self._leases.members(), await self._leases.holdings()
        except (TickworkError, TimeoutError) as error:
            self._duties.alarm("leases_unavailable", str(error) or "they did not respond in time")
            return
        self._proved_ms = started_ms
        for partition in [number for number in partitions if number in self.held and number not in kept]:
            await self._let_go(partition, "another node holds its lease")
        self._heard(members, holdings)
        await self._move()

    def _heard(self, members: Sequence[Member], holdings: Sequence[HeldLease]) -> None:
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
        self._tell_of_the_dead()

    def _tell_of_the_dead(self) -> None:
        """Whose partitions this node has taken because nobody was heard to own them. Who leaves gives them away."""
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
        """False: nobody answered. Where it is ours all the same, the next look says so."""
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
        except Exception as error:  # whatever it is: a lease that nobody acts under keeps others away
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
        async with self._hands:
            accepted = to is not None and await self._duties.announce(partition, to.address)
            if not accepted and not self._leaving:
                return  # by its own look it is not the next owner: one of the two is about to look again
            await self._duties.finish(partition)
            self.held.pop(partition, None)
            with contextlib.suppress(Unavailable):  # it runs out by itself
                await self._leases.release(partition, self.member.session)
            if to is not None and accepted:
                self._now_with(partition, to)
                with contextlib.suppress(TickworkError):  # it looks again soon
                    await self._duties.give(partition, to.address)
                self._duties.moved(partition)

    async def lost(self, partition: int, reason: str) -> None:
        """The store says that it is another's, or it cannot go on here."""
        await self._let_go(partition, reason)

    async def _let_go(self, partition: int, reason: str) -> None:
        self.held.pop(partition, None)
        await self._duties.drop(partition, reason)
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._leases.release(partition, self.member.session)


def _rank(member: Member) -> Node:
    return (member.node, member.session)
