"""The checkers find nothing in random histories, and every one of them can find something.

A plant is one lie told to a good journal: an event or input changed, dropped, repeated or added.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from campaign import seeds
from checkers import CHECKERS, _group, all_found, starts
from histories import History
from ledger import Row, walk
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import Phase, RunTrigger
from tickwork.core.state.retry import jitter_ms, jitter_ms_max
from tickwork.core.state.state import Settings

change = msgspec.structs.replace


def lived(seed: int, steps: int = 150) -> History:
    more = {"max_live_runs": 12} if seed % 5 == 0 else {}
    history = History(seed, **more)
    history.check = False
    return history.run(steps)


@pytest.mark.proves("I15", "I16", "I19", "I22", "I27", "I29", "I31", "I32", "I33", "I36", "I37", "I39", "I40", "I41")
@pytest.mark.proves("I5", "I42", "I43", "I44", "I46", "I47", "I59", "I60")
@pytest.mark.parametrize("seed", seeds(0, few=31, many=61))
def test_nothing_is_wrong_with_a_random_journal(seed):
    driver = lived(seed).driver

    assert all_found(driver.settings, driver.rows) == []


@pytest.mark.proves("I58")
@pytest.mark.parametrize("sleep_ms", [0, 1, 9, 10, 1_000, 60_000, 100_000, 3_600_000])
def test_jitter_stays_within_its_bounds_and_before_the_next_time(sleep_ms):
    drawn = [jitter_ms(f"s{name}", 1_800_000_000_000 + name * 977, sleep_ms) for name in range(300)]
    tight = [jitter_ms(f"s{name}", 1_000, sleep_ms, next_due_ms=1_000 + 7) for name in range(300)]

    assert all(0 <= jitter <= jitter_ms_max(sleep_ms) <= min(sleep_ms // 10, 10_000) for jitter in drawn)
    assert all(0 <= jitter < 7 for jitter in tight)
    assert len(set(drawn)) > min(20, jitter_ms_max(sleep_ms))


# ---- lies

Plant = Callable[[list[Row]], bool]


def events_of(rows: list[Row], kind: type, holds: Callable[[Any], bool] = lambda _: True):
    """(row, place, event) of every event of this kind, the latest first: the journal has come to life by then."""
    return [
        (row, place, event)
        for row in reversed(rows)
        for place, event in reversed(list(enumerate(row[2])))
        if type(event) is kind and holds(event)
    ]


def altered(kind: type, holds: Callable[[Any], bool] = lambda _: True, **fields: Any) -> Plant:
    """One event says something else. A function is given the event and answers with the value."""

    def plant(rows: list[Row]) -> bool:
        for row, place, event in events_of(rows, kind, holds)[:1]:
            new = {name: value(event) if callable(value) else value for name, value in fields.items()}
            row[2][place] = change(event, **new)
            return True
        return False

    return plant


def replaced(kind: type, holds: Callable[[Any], bool], make: Callable[[Any], Any]) -> Plant:
    def plant(rows: list[Row]) -> bool:
        for row, place, event in events_of(rows, kind, holds)[:1]:
            row[2][place : place + 1] = make(event)
            return True
        return False

    return plant


def repeated(kind: type, holds: Callable[[Any], bool] = lambda _: True, *, times: int = 1) -> Plant:
    return replaced(kind, holds, lambda event: [event] * (times + 1))


def dropped(kind: type, holds: Callable[[Any], bool] = lambda _: True) -> Plant:
    return replaced(kind, holds, lambda _: [])


def all_inputs(kind: type[Any], holds: Callable[[Any], bool] = lambda _: True, **fields: Any) -> Plant:
    """Every input of this kind said something else than what was decided upon."""

    def plant(rows: list[Row]) -> bool:
        count = 0
        for _, asked, _ in rows:
            for place, item in enumerate(asked):
                if type(item) is kind and holds(item):
                    asked[place] = change(item, **fields)
                    count += 1
        return count > 0

    return plant


def input_of(kind: type, holds: Callable[[Any, Any], bool], make: Callable[[Any], Any]) -> Plant:
    """The input that one event points to is another."""

    def plant(rows: list[Row]) -> bool:
        for row, _, event in events_of(rows, kind, lambda event: event.input >= 0):
            asked = row[1][event.input]
            if holds(event, asked):
                row[1][event.input] = make(asked)
                return True
        return False

    return plant


def tick_stands_still(rows: list[Row]) -> bool:
    rows[10] = (rows[9][0], *rows[10][1:])
    return True


def retry_set_later(rows: list[Row]) -> bool:
    """What was due then is now early."""
    fired = {event.task for _, _, event in events_of(rows, ev.TaskDue)}
    return altered(ev.TaskRetrying, lambda event: event.task in fired, due=10**9)(rows)


def timers_swapped(rows: list[Row]) -> bool:
    for _, _, events in rows:
        for place in range(len(events) - 1):
            one, two = events[place : place + 2]
            if isinstance(one, ev.WaitElapsed | ev.TaskDue) and isinstance(two, ev.WaitElapsed | ev.TaskDue):
                events[place : place + 2] = [two, one]
                return True
    return False


def ready_at_once(rows: list[Row]) -> bool:
    """A node behind others is made ready when its run starts."""
    late = {event.run: event for _, _, event in events_of(rows, ev.TaskReady, lambda event: event.step > 0)}
    for row, place, event in events_of(rows, ev.RunMoved, lambda event: event.trigger == RunTrigger.START):
        if event.run in late:
            row[2].insert(place + 1, late[event.run])
            return True
    return False


def stale_taken_for_a_result(rows: list[Row]) -> bool:
    for row, place, event in events_of(rows, ev.StaleReport):
        if isinstance(row[1][event.input], inp.Succeeded):
            row[2][place] = ev.TaskSucceeded(row[1][event.input].task, event.input)
            return True
    return False


def submitted_from_another_input(rows: list[Row]) -> bool:
    for row, place, event in events_of(rows, ev.RunSubmitted):
        for other, item in enumerate(row[1]):
            if not isinstance(item, inp.Submit):
                row[2][place] = change(event, input=other)
                return True
    return False


def denied_and_begun(rows: list[Row]) -> bool:
    for row, place, event in events_of(rows, ev.PolicyDecided, lambda event: event.allowed):
        after = row[2][place + 1] if place + 1 < len(row[2]) else None
        if isinstance(after, ev.TaskReady) and (after.run, after.step) == (event.run, event.step):
            row[2][place] = change(event, allowed=False)
            return True
    return False


def less_important_first(rows: list[Row]) -> bool:
    """Of two that stand in line, the one behind is started."""
    for ledger, (tick, _, event) in walk(SETTINGS, rows):
        task = starts(ledger, event) if isinstance(event, ev.TaskDispatched) else None
        for other in ledger.tasks.values() if task is not None else ():
            if other.queued and other.phase == Phase.READY and other is not task:
                (group, own), (their_group, theirs) = _group(ledger, task), _group(ledger, other)
                if group == their_group and theirs > own:
                    events = next(events for at, _, events in rows if at == tick)
                    events[events.index(event)] = change(event, task=other.number)
                    return True
    return False


def is_map_over_inputs(event: ev.TaskWaiting) -> bool:
    return event.total in (2, 3) and event.step == 0


SETTINGS = lived(1).driver.settings
OTHER_RUN = 10**6
PLANTS: dict[str, list[Plant]] = {
    "I5": [
        input_of(ev.RunRestored, lambda _, asked: isinstance(asked, inp.Resolve),
                 lambda asked: change(asked, record=change(asked.record, tried=0))),
    ],
    "I15": [tick_stands_still],
    "I16": [
        retry_set_later,
        altered(ev.RunScheduled, lambda event: event.run, due_ms=lambda event: event.due_ms + 10**7),
        altered(ev.RunScheduled, lambda event: event.run, due_ms=lambda event: event.due_ms - 1),
        altered(ev.TaskWaiting, lambda event: event.until, until=1),
        altered(ev.RunSubmitted, lambda event: event.start_at, start_at=1),
        dropped(ev.RunDue),
        altered(ev.IterationDelayed, due=1),
    ],
    "I19": [
        altered(ev.Visited, lambda event: len(event.runs) > 1, runs=lambda event: event.runs[::-1]),
        altered(ev.Visited, lambda event: len(event.runs) > 1, runs=lambda event: event.runs[1:]),
        timers_swapped,
    ],
    "I22": [
        replaced(
            ev.RunScheduled, lambda event: event.run, lambda event: [event, change(event, run=OTHER_RUN)]
        ),
        altered(ev.RunScheduled, lambda event: event.run, schedule=OTHER_RUN),
    ],
    "I27": [
        replaced(ev.Duplicate, lambda _: True, lambda event: [ev.RunSubmitted(OTHER_RUN, event.input)]),
        altered(ev.Duplicate, run_id="somebody"),
        input_of(
            ev.Duplicate,
            lambda _, asked: isinstance(asked, inp.Submit) and asked.terms is not None,
            lambda asked: change(asked, terms=change(asked.terms, body="another")),
        ),
        replaced(ev.Duplicate, lambda _: True, lambda event: [ev.InputRefused(event.input, "key_reused", "")]),
    ],
    "I29": [
        stale_taken_for_a_result,
        repeated(ev.TaskSucceeded),
        input_of(
            ev.TaskSucceeded,
            lambda _, asked: isinstance(asked, inp.Succeeded),
            lambda asked: change(asked, attempt=asked.attempt + 1),
        ),
        input_of(
            ev.TaskRetrying,
            lambda _, asked: isinstance(asked, inp.Failed),
            lambda asked: change(asked, task=asked.task + 1),
        ),
    ],
    "I29 (functions)": [
        altered(ev.AwaitMet, position=lambda event: event.position + 1_000),
        repeated(ev.AwaitMet),
        altered(ev.AwaitMet, lambda event: event.input >= 0, input=-1, error=""),
        repeated(ev.FunctionWoken),
    ],
    "I31": [repeated(ev.TaskDispatched, times=10), repeated(ev.TaskRequeued, lambda e: e.cause == "lost", times=6)],
    "I32": [
        altered(ev.TaskRetrying, lambda event: not event.held, due=10**9),
        altered(ev.TaskRetrying, due=1),
    ],
    "I33": [
        altered(ev.RunSubmitted, input=999),
        submitted_from_another_input,
        altered(ev.TaskDispatched, task=10**9),
        altered(ev.TaskDispatched, worker=77),
        altered(ev.RunSpawned, task=10**9),
        altered(ev.FollowUpStarted, of=10**9),
        altered(ev.FollowUpStarted, of=lambda event: event.run - 1),
        altered(ev.ChildDispatched, parent=10**9),
        altered(ev.RunRestored, run=10**9),
        altered(ev.RunScheduled, lambda event: event.run, schedule=10**9),
        repeated(ev.RunSubmitted),
    ],
    "I35": [
        repeated(ev.TaskTaken),
        altered(ev.TaskTaken, worker=77),
        input_of(ev.TaskTaken, lambda *_: True, lambda asked: change(asked, attempt=asked.attempt + 1)),
        input_of(ev.TaskTaken, lambda *_: True, lambda asked: change(asked, worker="mallory")),
    ],
    "I36": [
        ready_at_once,
        replaced(
            ev.StepEnded, lambda e: e.phase == Phase.BLOCKED, lambda event: [ev.TaskReady(event.run, event.step)]
        ),
    ],
    "I37": [
        altered(ev.RunMoved, lambda event: event.trigger == RunTrigger.START, trigger=RunTrigger.RESOLVE),
        repeated(ev.RunMoved, lambda event: event.trigger == RunTrigger.COMPLETE),
        repeated(ev.TaskDispatched),
        repeated(ev.TaskReady),
        altered(ev.StepEnded, lambda event: event.phase == Phase.BLOCKED, step=0),
    ],
    "I39": [
        replaced(
            ev.RunMoved,
            lambda event: event.trigger == RunTrigger.CANCEL and event.input >= 0,
            lambda event: [event, ev.TaskDispatched(event.run, 0)],
        )
    ],
    "I40": [
        replaced(
            ev.StepEnded, lambda e: e.phase == Phase.BLOCKED, lambda event: [ev.TaskReady(event.run, event.step)]
        ),
        denied_and_begun,
        dropped(ev.PolicyDecided, lambda event: event.allowed),
        altered(ev.RunMoved, lambda e: e.trigger == RunTrigger.FAIL, trigger=RunTrigger.COMPLETE, reason=""),
    ],
    "I41": [
        altered(ev.DefinitionPut, hash="another"),
        altered(ev.RunSpawned, definition="another"),
        input_of(
            ev.RunRestored,
            lambda _, asked: isinstance(asked, inp.Resolve),
            lambda asked: change(asked, record=change(asked.record, by="mallory")),
        ),
        altered(ev.TaskReady, step=99),
    ],
    "I42": [
        input_of(
            ev.TaskAnswered,
            lambda _, asked: isinstance(asked, inp.Decide),
            lambda asked: change(asked, by="alice"),
        ),
        input_of(
            ev.TaskAnswered,
            lambda _, asked: isinstance(asked, inp.Decide),
            lambda asked: change(asked, approve=False),
        ),
        replaced(
            ev.TaskFailed,
            lambda event: event.code == "timeout" and event.input < 0,
            lambda event: [ev.WaitElapsed(event.task)],
        ),
    ],
    "I43": [
        all_inputs(inp.PutTenant, limit=0),
        all_inputs(inp.PutQueue, limit=1),
        all_inputs(inp.PutLabelLimit, limit=0),
        all_inputs(inp.Offer, lambda offer: offer.credit > 0, credit=0),
        all_inputs(inp.Offer, lambda offer: offer.slots > 0, slots=1),
        dropped(ev.ScopeResumed),
        replaced(ev.RunGated, lambda _: True, lambda event: [ev.GateTaken(event.run, event.key)]),
    ],
    "I44": [all_inputs(inp.PutQueue, lambda put: put.queue == "gpu", rate_starts=1, rate_ms=86_400_000, burst=1)],
    "I46": [all_inputs(inp.Offer, labels={}), all_inputs(inp.Offer, queues=("gpu",))],
    "I47": [
        dropped(ev.RunSubmitted),
        repeated(ev.RunSubmitted),
        replaced(
            ev.InputRefused,
            lambda event: event.code == "overloaded",
            lambda event: [ev.RunSubmitted(OTHER_RUN, event.input)],
        ),
    ],
    "I59": [less_important_first, altered(ev.TaskDispatched, task=lambda event: event.task - 1)],
    "I60": [
        altered(ev.TaskWaiting, is_map_over_inputs, total=lambda event: event.total + 1),
        dropped(ev.ChildDispatched),
        replaced(
            ev.ChildDispatched, lambda _: True, lambda e: [e, *(change(e, task=10**6 + i) for i in range(9))]
        ),
        altered(ev.RunSpawned, child=lambda event: event.child + 1),
        replaced(ev.TaskWaiting, lambda e: e.total > 1, lambda e: [e, ev.FanOutEnded(e.run + e.step)]),
    ],
    "commands": [
        dropped(ev.RunSubmitted, lambda event: event.command >= 0),
        repeated(ev.RunSubmitted, lambda event: event.command >= 0),
        altered(ev.RunSubmitted, lambda event: event.command >= 0, command=99),
        dropped(ev.Duplicate, lambda event: event.command >= 0),
        dropped(ev.CommandQueued),
        repeated(ev.CommandQueued),
        altered(ev.CommandQueued, number=lambda event: event.number + 1),
        dropped(ev.CommandReceived),
        repeated(ev.CommandReceived),
        input_of(
            ev.TaskSucceeded, lambda _, asked: bool(getattr(asked, "commands", ())),
            lambda asked: change(asked, commands=()),
        ),
    ],
}  # fmt: skip


@lru_cache(maxsize=32)
def good(seed: int) -> tuple[Settings, list[Row]]:
    driver = lived(seed).driver
    return driver.settings, driver.rows


def copied(rows: list[Row]) -> list[Row]:
    return [(tick, list(asked), list(events)) for tick, asked, events in rows]


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        pytest.param(name, plant, id=f"{name}-{place}")
        for name, plants in PLANTS.items()
        for place, plant in enumerate(plants)
    ],
)
def test_a_checker_finds_what_is_planted(name, plant):
    """In at least one journal; a lie may also be without consequence in one of them."""
    planted = 0
    for seed in range(45):
        settings, rows = good(seed)
        rows = copied(rows)
        if not plant(rows):
            continue
        planted += 1
        if list(CHECKERS[name](settings, rows)):
            return

    pytest.fail(f"{name} was blind in {planted} journals")


def test_every_checker_has_a_plant():
    assert list(PLANTS) == list(CHECKERS)
