"""The ledger: second books about every expected occurrence, kept from what was announced and what was recorded.

It hears the events of each tick and knows nothing of why they were decided: neither cron nor policies nor the
Governor's rules. Of a schedule it keeps the one time that was announced as next. Whatever becomes of an occurrence
must begin exactly there, and announce what follows: so none has two fates, and none has no fate. Its own counts are
compared with those of the schedules that a tick touched. What does not fit is a difference: a defect of ours, never
of a user.

A forgotten occurrence makes no event. So each tick also looks at a few schedules in turn for
times that are long past.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tickwork.core.calendar.durations import instant_text
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Input
from tickwork.core.state.schedule import Fate
from tickwork.core.state.state import Schedule, State
from tickwork.core.state.tables import NumberTable
from tickwork.core.state.updates import UPDATE

LOOKS_PER_TICK = 4
OVERDUE_MAX = 50  # checked at a time
OVERDUE_MS = 60_000  # by which the next time of a schedule may be past before it is suspect …
HELD_MS = 2 * 86_400_000  # … and while it is paused: pauses are written down once a day
KEPT_MAX = 100
NO_FATES = (0, 0, 0, 0, 0)
RAN, CANCELLED = int(Fate.RAN), int(Fate.CANCELLED)
LAST_FATE = int(max(Fate))


class Balance(msgspec.Struct, eq=False):
    """Of one tenant. Expected is what fates and waiting occurrences add up to, counted on its own."""

    expected: int = 0
    fates: list[int] = msgspec.field(default_factory=lambda: [0] * LAST_FATE)
    buffered: int = 0
    backfilled: int = 0  # runs of backfills, which are not expected

    @property
    def even(self) -> bool:
        return self.expected == sum(self.fates) + self.buffered

    def words(self) -> dict[str, int]:
        """For people; what is 0 is left out."""
        named = {"expected": self.expected} | {fate.name.lower(): self.fates[fate - 1] for fate in Fate}
        named |= {"buffered": self.buffered, "backfilled": self.backfilled}
        return {name: count for name, count in named.items() if count}


class Account(msgspec.Struct, gc=False, eq=False):
    """Of one schedule. Small, because there may be a million."""

    balance: Balance
    next_ms: int
    fates: tuple[int, ...]


class Ledger:
    """Begin it with the state that is stored, then let it observe every tick, live or folded."""

    def __init__(self, state: State) -> None:
        self.balances: dict[str, Balance] = {}
        self.differences = 0
        self.late: dict[int, int] = {}  # schedules that catch up, with the last occurrence that is late
        self._differences: list[str] = []
        self._state = state
        self._accounts: NumberTable[Account] = NumberTable()
        self._waiting: dict[int, tuple[int, ...]] = {}  # what is buffered, where anything is
        self._updates: dict[int, int] = {}  # updates that have no fate yet, where a schedule listens to any
        self._governed: dict[int, None] = {}  # their next time is whatever the Governor said last
        self._touched: dict[int, Account | None] = {}  # of this tick; None: its schedule went
        self._even: Balance | None = None  # the one that was looked at last in this tick
        self._overdue: dict[int, tuple[int, int]] = {}  # the time that is past, and the tick that saw it
        self._round: Iterator[int] = iter(())
        for block in state.schedules.blocks.values():
            for schedule in block.values():
                self._open(schedule)

    def __len__(self) -> int:
        return len(self._accounts)

    def take_found(self) -> list[str]:
        """The differences since the last call, in words; `differences` counts all of them."""
        differences, self._differences = self._differences, []
        return differences

    def totals(self) -> Balance:
        """Of all tenants."""
        total = Balance()
        for balance in self.balances.values():
            total.expected += balance.expected
            total.fates = [mine + more for mine, more in zip(total.fates, balance.fates, strict=True)]
            total.buffered += balance.buffered
            total.backfilled += balance.backfilled
        return total

    # ---- every tick

    def observe(self, inputs: list[Input], events: list[ev.Event]) -> None:
        """What a tick decided, once the state has it."""
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, inputs)
        if self._touched:
            self._even = None
            for number, account in self._touched.items():
                self._compare(number, account)
            self._touched.clear()
        if self._accounts.blocks:
            self._look_around()

    def _open(self, schedule: Schedule) -> None:
        """What is stored is where the books begin."""
        balance = self._balance(schedule.tenant.id)
        open_updates = _open_updates(schedule)
        balance.expected += sum(schedule.fates) + len(schedule.buffer) + open_updates
        balance.buffered += len(schedule.buffer) + open_updates
        for index, count in enumerate(schedule.fates):
            balance.fates[index] += count
        number = schedule.number
        self._accounts.add(number, Account(balance, schedule.next_ms, schedule.fates))
        if schedule.buffer:
            self._waiting[number] = schedule.buffer
        if open_updates:
            self._updates[number] = open_updates
        if schedule.governing is not None:
            self._governed[number] = None
        if schedule.late is not None:
            self.late[number] = schedule.late.to_ms

    def _balance(self, tenant: str) -> Balance:
        return self.balances.setdefault(tenant, Balance())

    def _account(self, number: int) -> Account | None:
        account = self._touched[number] = self._accounts.get(number)
        if account is None:
            self._differ(number, "something happened to an unknown schedule")
        return account

    def _differ(self, number: int, words: str) -> None:
        self.differences += 1
        if len(self._differences) < KEPT_MAX:
            schedule = self._state.schedules.get(number)
            name = f"{schedule.tenant.id}/{schedule.name}" if schedule is not None else f"schedule {number}"
            self._differences.append(f"{name}: {words}")

    # ---- what was announced, and what came of it

    def _on_put(self, event: ev.SchedulePut, inputs: list[Input]) -> None:
        number, request = event.schedule, _put_of(inputs[event.input], event.item)
        account = self._accounts.get(number)
        if account is None:
            account = Account(self._balance(request.tenant), 0, NO_FATES)
            self._accounts.add(number, account)
        self._touched[number] = account
        self._announce_anew(number, account, event.next_ms, "edited")
        if request.governing is not None:
            self._governed[number] = None
        else:
            self._governed.pop(number, None)

    def _on_moved(self, event: ev.ScheduleMoved, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is not None:
            self._announce_anew(event.schedule, account, event.next_ms, "computed its times again")

    def _announce_anew(self, number: int, account: Account, next_ms: int, action: str) -> None:
        """A new time may only replace one that is not due yet; otherwise the old occurrence is lost."""
        now_ms = self._state.now_ms
        if number not in self._governed and 0 < account.next_ms <= now_ms:
            self._differ(number, f"it was {action} while {_at(account.next_ms)} was due, and that has no fate")
        if 0 < next_ms <= now_ms:
            self._differ(number, f"it was {action}, and {_at(next_ms)}, which is past, announced")
        account.next_ms = next_ms
        self.late.pop(number, None)

    def _on_decided(self, event: ev.ScheduleDecided, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is None:
            return
        if event.schedule not in self._governed:
            self._differ(event.schedule, "the Governor spoke about a schedule that has times of its own")
        account.next_ms = event.decision.next_ms or 0

    def _on_run(self, event: ev.RunScheduled, _: list[Input]) -> None:
        way = event.way
        if way == "trigger" or way == "test":
            return
        account = self._account(event.schedule)
        if account is None:
            return
        if way == "backfill":
            account.balance.backfilled += 1
            if event.due_ms > self._state.now_ms:
                self._differ(event.schedule, f"a backfill began {_at(event.due_ms)}, which is still to come")
            return
        if way == UPDATE:
            self._settle_updates(event.schedule, account, 1)
        elif way == "buffered":
            self._unbuffer(event.schedule, account, (event.due_ms,))
        else:
            self._pass_on(event.schedule, account, event.due_ms, event.due_ms, event.next_ms)
            account.balance.expected += 1
        self._count(account, RAN, 1)

    def _on_passed(self, event: ev.OccurrencesSettled, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is None:
            return
        if event.count < 1 or (event.count == 1) != (event.from_ms == event.to_ms) or event.from_ms > event.to_ms:
            self._differ(
                event.schedule, f"{event.count} occurrences from {_at(event.from_ms)} to {_at(event.to_ms)}: no range"
            )
        if not 1 <= event.fate <= LAST_FATE:
            self._differ(event.schedule, f"{event.fate} is no fate")
            return
        self._pass_on(event.schedule, account, event.from_ms, event.to_ms, event.next_ms)
        account.balance.expected += event.count
        self._count(account, event.fate, event.count)

    def _on_buffered(self, event: ev.OccurrenceBuffered, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is None:
            return
        waiting = self._waiting.get(event.schedule, ())
        if event.due_ms in waiting:
            self._differ(event.schedule, f"{_at(event.due_ms)} waits already")
        self._pass_on(event.schedule, account, event.due_ms, event.due_ms, event.next_ms)
        self._waiting[event.schedule] = (*waiting, event.due_ms)
        account.balance.expected += 1
        account.balance.buffered += 1

    def _on_cancelled(self, event: ev.OccurrencesCancelled, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is not None:
            self._unbuffer(event.schedule, account, event.dues_ms)
            self._count(account, CANCELLED, len(event.dues_ms))

    def _on_heard(self, event: ev.UpdateHeard | ev.RunEndHeard | ev.AssetUpdated, _: list[Input]) -> None:
        for number, _source in event.heard:
            account = self._account(number)
            if account is not None:
                self._updates[number] = self._updates.get(number, 0) + 1
                account.balance.expected += 1
                account.balance.buffered += 1

    def _on_updates_settled(self, event: ev.UpdatesSettled, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is not None:
            self._settle_updates(event.schedule, account, event.count)
            self._count(account, event.fate, event.count)

    def _settle_updates(self, number: int, account: Account, count: int) -> None:
        left = self._updates.get(number, 0) - count
        if left < 0:
            self._differ(number, f"{count} updates have a fate, and {left + count} were without one")
            count, left = left + count, 0
        account.balance.buffered -= count
        if left:
            self._updates[number] = left
        else:
            self._updates.pop(number, None)

    def _on_catch_up(self, event: ev.CatchUpDecided, _: list[Input]) -> None:
        account = self._account(event.schedule)
        if account is None:
            return
        if not account.next_ms <= event.to_ms <= self._state.now_ms:
            words = f"what is late ends at {_at(event.to_ms)}, while {_at(account.next_ms)} comes next"
            self._differ(event.schedule, words)
        self.late[event.schedule] = event.to_ms

    def _on_removed(self, event: ev.ScheduleRemoved, _: list[Input]) -> None:
        number = event.schedule
        account = self._account(number)
        if account is None:
            return
        if number not in self._governed and 0 < account.next_ms <= self._state.now_ms:
            self._differ(number, f"it was removed while {_at(account.next_ms)} was due, and that has no fate")
        if waiting := self._waiting.pop(number, ()):
            self._differ(number, f"it was removed while {len(waiting)} occurrences waited")
            account.balance.buffered -= len(waiting)
            account.balance.expected -= len(waiting)
        if left := self._updates.pop(number, 0):
            self._differ(number, f"it was removed while {left} updates had no fate")
            account.balance.buffered -= left
            account.balance.expected -= left
        self._accounts.remove(number)
        self._touched[number] = None
        self._governed.pop(number, None)
        self.late.pop(number, None)

    def _pass_on(self, number: int, account: Account, from_ms: int, to_ms: int, next_ms: int) -> None:
        """From the announced time to the next one that is announced."""
        announced_ms = account.next_ms
        if from_ms != announced_ms:
            before = "nothing" if not announced_ms else _at(announced_ms)
            what = "twice, or out of turn" if not announced_ms or from_ms < announced_ms else "with a gap before it"
            self._differ(number, f"{_at(from_ms)} has a fate while {before} was announced: {what}")
        if to_ms > self._state.now_ms:
            self._differ(number, f"{_at(to_ms)} has a fate before it came")
        if next_ms and next_ms <= to_ms:
            self._differ(number, f"{_at(next_ms)} was announced after {_at(to_ms)}")
        account.next_ms = next_ms
        if self.late and number in self.late and (not next_ms or next_ms > self.late[number]):
            del self.late[number]

    def _unbuffer(self, number: int, account: Account, dues_ms: tuple[int, ...]) -> None:
        waiting = self._waiting.get(number, ())
        for due_ms in dues_ms:
            if due_ms not in waiting:
                self._differ(number, f"{_at(due_ms)} did not wait for its turn")
        left = tuple(due_ms for due_ms in waiting if due_ms not in dues_ms)
        account.balance.buffered -= len(waiting) - len(left)
        if left:
            self._waiting[number] = left
        else:
            self._waiting.pop(number, None)

    def _count(self, account: Account, fate: int, count: int) -> None:
        account.balance.fates[fate - 1] += count
        fates = account.fates
        if fate == RAN:
            account.fates = (fates[0] + count, *fates[1:])
        else:
            account.fates = (*fates[: fate - 1], fates[fate - 1] + count, *fates[fate:])

    # ---- the two books side by side

    def _compare(self, number: int, account: Account | None) -> None:
        schedule = self._state.schedules.get(number)
        if account is None or schedule is None:
            if (account is None) is not (schedule is None):
                self._differ(number, "only one of the two books knows this schedule")
            return
        if account.balance is not self._even:
            self._weigh(number, schedule, account.balance)
        if account.fates != schedule.fates:
            self._differ(number, f"fates by events {account.fates}, by its row {schedule.fates}")
        account.fates = schedule.fates  # equal ones are one object in memory; a difference is reported once
        waiting = self._waiting.get(number, ()) if self._waiting else ()
        if waiting != schedule.buffer:
            self._differ(number, f"{len(waiting)} wait by events, {len(schedule.buffer)} by its row")
            account.balance.buffered += len(schedule.buffer) - len(waiting)
            account.balance.expected += len(schedule.buffer) - len(waiting)
            self._waiting[number] = schedule.buffer
        self._compare_updates(number, schedule, account)
        governed = number in self._governed
        if governed and (schedule.active or _is_held(schedule)):
            return  # meanwhile the Governor does not count: it decides again when that is over
        if account.next_ms != schedule.next_ms and (not governed or schedule.next_ms):
            words = f"next by events {_at(account.next_ms)}, by its row {_at(schedule.next_ms)}"
            self._differ(number, words)
            account.next_ms = schedule.next_ms

    def _compare_updates(self, number: int, schedule: Schedule, account: Account) -> None:
        by_row, by_events = _open_updates(schedule), self._updates.get(number, 0)
        if by_row != by_events:
            self._differ(number, f"{by_events} updates have no fate by events, {by_row} by its row")
            account.balance.buffered += by_row - by_events
            account.balance.expected += by_row - by_events
            self._updates[number] = by_row

    def _weigh(self, number: int, schedule: Schedule, balance: Balance) -> None:
        """Once in a tick for each tenant is enough: comparing its schedules moves both sides or none."""
        self._even = balance
        if not balance.even:
            self._differ(number, f"the balance of {schedule.tenant.id} is not even")
            balance.expected = sum(balance.fates) + balance.buffered

    # ---- forgotten occurrences

    def _look_around(self) -> None:
        for _ in range(LOOKS_PER_TICK):
            number = next(self._round, 0)
            if not number:
                self._round = self._numbers()
                break
            self._look_at(number)
        if self._overdue:
            self._ask_again()

    def _numbers(self) -> Iterator[int]:
        """Every schedule in turn, block by block, so that a round costs nothing in advance."""
        for block in list(self._accounts.blocks):
            yield from list(self._accounts.blocks.get(block, ()))

    def _look_at(self, number: int) -> None:
        account = self._accounts.get(number)
        if account is None:
            return
        if self._state.schedules.get(number) is None:
            self._differ(number, "it went without a word")
            self._accounts.remove(number)
        elif len(self._overdue) < OVERDUE_MAX and number not in self._overdue and self._is_overdue(number, account):
            self._overdue[number] = (account.next_ms, self._state.tick)

    def _is_overdue(self, number: int, account: Account) -> bool:
        now_ms = self._state.now_ms
        if not account.next_ms or account.next_ms + OVERDUE_MS >= now_ms or number in self._governed:
            return False
        schedule = self._state.schedules.get(number)
        if schedule is None:
            return False
        if _is_held(schedule):
            return not schedule.terms.automatic_backfill and account.next_ms + HELD_MS < now_ms
        return account.next_ms + schedule.wait_ms + OVERDUE_MS < now_ms

    def _ask_again(self) -> None:
        """After a stop everything is late for a moment. But if no due timer is left, the occurrence is forgotten."""
        due = self._state.wheel.next_due()
        if due is not None and due <= self._state.tick:
            return
        for number, (next_ms, seen) in list(self._overdue.items()):
            account = self._accounts.get(number)
            if account is None or account.next_ms != next_ms or not self._is_overdue(number, account):
                del self._overdue[number]
            elif seen and self._state.tick > seen + 1:
                self._differ(number, f"{_at(next_ms)} is long past and has no fate")
                self._overdue[number] = (next_ms, 0)  # reported once


def _is_held(schedule: Schedule) -> bool:
    group = schedule.tenant.groups.get(schedule.terms.group) if schedule.terms.group else None
    return schedule.paused or schedule.archived or (group is not None and group.paused)


def _open_updates(schedule: Schedule) -> int:
    return schedule.updates.open if schedule.updates is not None else 0


def _put_of(request: Any, item: int) -> Any:
    return request.puts[item] if item >= 0 else request


def _at(time_ms: int) -> str:
    return instant_text(time_ms) if time_ms else "never"


_HANDLERS: dict[type[Any], Callable[[Ledger, Any, list[Input]], None]] = {
    ev.SchedulePut: Ledger._on_put,
    ev.ScheduleMoved: Ledger._on_moved,
    ev.ScheduleDecided: Ledger._on_decided,
    ev.ScheduleRemoved: Ledger._on_removed,
    ev.CatchUpDecided: Ledger._on_catch_up,
    ev.OccurrencesSettled: Ledger._on_passed,
    ev.OccurrenceBuffered: Ledger._on_buffered,
    ev.OccurrencesCancelled: Ledger._on_cancelled,
    ev.RunScheduled: Ledger._on_run,
    ev.UpdateHeard: Ledger._on_heard,
    ev.RunEndHeard: Ledger._on_heard,
    ev.AssetUpdated: Ledger._on_heard,
    ev.UpdatesSettled: Ledger._on_updates_settled,
}
