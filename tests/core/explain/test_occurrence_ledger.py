"""The ledger: second books that find every occurrence with two fates, with none, or with another than was recorded."""

import ast
import re
import sys
from pathlib import Path

import msgspec
import pytest

from campaign import seeds
from driver import BY, Driver, T, task
from histories import History, ScheduleHistory
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.trigger_spec import TriggerSpec, UpdateSource
from tickwork.core.decide.schedules import schedule_firing as occurrences
from tickwork.core.explain import occurrence_ledger as module
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, restore
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.schedule import Fate, GovernorLimits, SchedulePolicy

MINUTE = 60_000
change = msgspec.structs.replace


def put(name="s", every_ms=5 * MINUTE, governing=None, **terms):
    return inp.PutSchedule(
        BY, T, name, "flow", ScheduleSpec(every_ms=every_ms), SchedulePolicy(**terms), governing=governing
    )


def listen(driver):
    """Two schedules hear an event and the end of a run; of one, two updates are joined."""
    driver.define("other", task("a"))
    order, end = UpdateSource(event="order"), UpdateSource(ended="other")
    both = TriggerSpec(sources=(order, end), groups=((0, 1),))
    driver.expect(
        inp.PutSchedule(BY, T, "both", "flow", ScheduleSpec(on=both)),
        inp.PutSchedule(BY, T, "end", "flow", ScheduleSpec(on=TriggerSpec(sources=(end,), groups=((0,),)))),
    )
    driver.expect(inp.Ingest(BY, T, "order"), inp.UpdateAsset(BY, T, "data"))
    driver.finish(driver.submit("other"), "a")


def story():
    """Runs, a stop that is caught up with, a buffer, a pause, an edit, a removal: each kind of event is in it."""
    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(put(), put("b", overlap="buffer_all"), put("g", governing=GovernorLimits()), put("gone"))
    driver.advance(6 * MINUTE)
    driver.finish_all()
    driver.send(at=driver.tick + 33 * MINUTE)
    driver.quiet()
    driver.advance(6 * MINUTE)
    driver.finish_all()
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(12 * MINUTE)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.quiet()
    driver.advance(11 * MINUTE)
    listen(driver)
    driver.expect(put("b", overlap="allow"), put(every_ms=7 * MINUTE), inp.RemoveSchedule(BY, T, "gone"))
    driver.advance(20 * MINUTE)
    return driver


def audit(driver, lie=lambda events: events):
    """Fold the journal with the ledger beside it, which hears what `lie` makes of each tick."""
    machine = Machine(settings=driver.settings)
    ledger, found = Ledger(machine.state), []
    for tick, asked, events in driver.rows:
        machine.fold(tick, asked, events)
        ledger.observe(asked, lie(list(events)))
        found += ledger.take_found()
    return ledger, found


@pytest.fixture(scope="module")
def told():
    return story()


def test_the_truth_balances(told):
    ledger, found = audit(told)
    balance = ledger.balances[T]

    assert found == [] and ledger.differences == 0
    assert balance.even and balance.expected > 30
    assert balance.fates[Fate.RAN - 1] and balance.fates[Fate.SKIPPED - 1] and balance.fates[Fate.CANCELLED - 1]
    assert set(balance.words()) >= {"expected", "ran", "skipped", "cancelled"}
    kinds = {type(event) for _, _, events in told.rows for event in events}
    assert kinds >= set(module._HANDLERS) - {ev.ScheduleMoved}


def once(kind, deed, nth=1, when=bool):
    """Do this to the nth event of a kind."""
    count = 0

    def lie(events):
        nonlocal count
        found = []
        for event in events:
            if isinstance(event, kind) and when(event):
                count += 1
                if count == nth:
                    found += deed(event)
                    continue
            found.append(event)
        return found

    return lie


def nothing(_):
    return []


def is_due(event):
    return event.way == "due"


@pytest.mark.proves("I20")
@pytest.mark.parametrize("lie", [
    pytest.param(once(ev.RunScheduled, nothing, 3, is_due), id="a run is not told"),
    pytest.param(once(ev.RunScheduled, lambda e: [e, e], 3, is_due), id="a run is told twice"),
    pytest.param(once(ev.RunScheduled, lambda e: [change(e, due_ms=e.due_ms + 1)], 3, is_due), id="another time ran"),
    pytest.param(once(ev.RunScheduled, lambda e: [change(e, next_ms=e.next_ms + 1)], 3, is_due), id="another next"),
    pytest.param(once(ev.RunScheduled, lambda e: [change(e, next_ms=e.due_ms)], 3, is_due), id="the same again"),
    pytest.param(once(ev.RunScheduled, lambda e: [change(e, way="buffered")], 3, is_due), id="it never waited"),
    pytest.param(once(ev.RunScheduled, nothing, 1, lambda e: e.way == "buffered"), id="a turn is not told"),
    pytest.param(once(ev.OccurrencesSettled, nothing), id="a range is not told"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [e, e]), id="a range is told twice"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, from_ms=e.from_ms + MINUTE)]), id="it begins late"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, from_ms=e.from_ms - MINUTE)]), id="it begins early"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, count=e.count + 1)]), id="one more"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, count=0)]), id="none at all"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, fate=Fate.MISSED)]), id="another fate"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, fate=9)]), id="no fate"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, to_ms=e.to_ms + 10**9)]), id="into the future"),
    pytest.param(once(ev.OccurrencesSettled, lambda e: [change(e, next_ms=0)]), id="nothing more is expected"),
    pytest.param(once(ev.OccurrenceBuffered, nothing), id="a wait is not told"),
    pytest.param(once(ev.OccurrenceBuffered, lambda e: [e, e]), id="a wait is told twice"),
    pytest.param(once(ev.OccurrencesCancelled, nothing), id="the end of waiting is not told"),
    pytest.param(once(ev.OccurrencesCancelled, lambda e: [e, e]), id="the end of waiting is told twice"),
    pytest.param(once(ev.CatchUpDecided, lambda e: [change(e, to_ms=e.to_ms + 10**9)]), id="late and still to come"),
    pytest.param(once(ev.SchedulePut, nothing, 1), id="a schedule is not told"),
    pytest.param(once(ev.SchedulePut, lambda e: [change(e, next_ms=e.next_ms + MINUTE)], 5), id="an edit, another"),
    pytest.param(once(ev.ScheduleRemoved, nothing), id="a removal is not told"),
    pytest.param(once(ev.ScheduleDecided, nothing, 2), id="the Governor is not heard"),
    pytest.param(
        once(ev.RunScheduled, lambda e: [ev.ScheduleMoved(e.schedule, e.next_ms), e], 3, is_due), id="moved while due"
    ),
])  # fmt: skip
def test_every_lie_about_an_occurrence_is_found(told, lie):
    ledger, found = audit(told, lie)

    assert found and ledger.differences >= 1


@pytest.mark.parametrize("harm", [
    lambda one: setattr(one, "fates", (one.fates[0] + 1, *one.fates[1:])),
    lambda one: setattr(one, "next_ms", one.next_ms + MINUTE),
    lambda one: setattr(one, "buffer", (5,)),
])  # fmt: skip
def test_rows_that_say_something_else_than_the_events_are_found(harm):
    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(put())
    ledger = Ledger(driver.state)
    schedule = driver.state.tenants[T].schedules.get("s")
    harm(schedule)
    event = ev.SchedulePaused(schedule.number, -1, "x")
    ledger.observe([], [event])

    assert ledger.differences == 0  # nothing happened to its occurrences, so nobody compares

    ledger.observe([], [ev.ScheduleMoved(schedule.number, driver.now_ms + 5 * MINUTE)])
    assert ledger.differences >= 1 and "s:" in ledger.take_found()[0]


@pytest.mark.proves("I17", "I20")
def test_an_occurrence_that_nobody_comes_for_is_found_without_any_event():
    from tickwork.core.evolve.indexes import clear_timer
    from tickwork.core.state.state import Timer

    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(put(), put("paused"), inp.Pause(BY, "schedule", T, "paused"))
    ledger = Ledger(driver.state)
    schedule = driver.state.tenants[T].schedules.get("s")
    clear_timer(driver.state, Timer.SCHEDULE, schedule.number, schedule.due)
    schedule.due = 0
    for _ in range(6):
        driver.tick += 2 * MINUTE
        outcome = driver.send()
        ledger.observe([], outcome.events)

    assert ledger.differences == 1  # told once, and nothing about the one that is paused
    assert "long past" in ledger.take_found()[0]


def test_a_stop_is_no_difference():
    """After it everything is late for a moment, more than fits into a tick."""
    driver = Driver(max_changes_per_tick=40)
    driver.define("flow", task("a"))
    for place in range(60):
        driver.expect(put(f"s{place}"))
    ledger = Ledger(driver.state)
    outcome = driver.send(at=driver.tick + 3_000 * MINUTE)
    ledger.observe([], outcome.events)
    while driver.machine.next_tick() == driver.tick + 1:
        outcome = driver.send()
        ledger.observe([], outcome.events)
    assert ledger.take_found() == []
    assert not ledger.late


@pytest.mark.proves("I9")
def test_the_books_begin_again_from_what_is_stored(told):
    half = len(told.rows) // 2
    machine = Machine(settings=told.settings)
    for tick, asked, events in told.rows[:half]:
        machine.fold(tick, asked, events)
    restored = Machine(restore(*capture(machine.state)))
    ledger = Ledger(restored.state)
    for tick, asked, events in told.rows[half:]:
        restored.fold(tick, asked, events)
        ledger.observe(asked, events)

    assert ledger.take_found() == []
    assert ledger.balances[T].even


@pytest.mark.proves("I20", "I23", "I24")
@pytest.mark.parametrize("seed", seeds(0, few=25, many=60))
def test_histories_of_schedules_have_no_differences(seed):
    history = ScheduleHistory(seed).run(60)  # asked after every tick, beside the invariants

    assert history.ledger.differences == 0
    assert all(balance.even for balance in history.ledger.balances.values())


def test_a_history_with_a_planted_gap_is_noticed():
    """At the first seed whose dropped occurrence is followed by another one: without that, nobody can notice."""
    assert any(_is_noticed(seed) for seed in range(10))


def _is_noticed(seed):
    history = History(seed)
    true, dropped = history.ledger.observe, []

    def forgetful(asked, events):
        kept = [event for event in events if dropped or not isinstance(event, ev.RunScheduled | ev.OccurrencesSettled)]
        dropped.extend(event for event in events if event not in kept)
        true(asked, kept)

    history.ledger.observe = forgetful
    try:
        history.run(150)
    except AssertionError as error:
        return bool(dropped) and re.search(r"[sb][01]:|schedule", str(error)) is not None
    return False


@pytest.mark.slow
@pytest.mark.proves("I24")
def test_a_run_that_begins_beside_another_is_noticed(monkeypatch):
    true = occurrences._obstacle
    monkeypatch.setattr(
        occurrences, "_obstacle", lambda *asked: (0, "") if "overlap" in (said := true(*asked))[1] else said
    )

    found = []
    for seed in range(12):
        history = ScheduleHistory(seed)
        history.check = False
        true_observe = history.overlaps.observe
        history.overlaps.observe = lambda *told, observe=true_observe: found.extend(observe(*told)) or []
        history.run(60)

    assert any("began beside" in words for words in found)


def test_it_knows_neither_cron_nor_the_governor():
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    rules = ("calendar", "cron", "cronfields", "when", "zoned", "zones", "rrule", "governor", "governing",
             "occurrences", "schedules", "evolve")  # fmt: skip

    assert not imported & {f"tickwork.core.{name}" for name in rules}
    assert not [name for name in imported if name.startswith("tickwork.core.evolve")]


def test_an_account_is_small():
    """A million of them must fit beside their schedules; what is equal to the schedule's own is not held twice."""
    driver = Driver()
    driver.define("flow", task("a"))
    for block in range(8):
        driver.expect(*(put(f"s{block}-{place}", every_ms=86_400_000) for place in range(1_000)))
    ledger = Ledger(driver.state)
    blocks = ledger._accounts.blocks.values()
    tables = sum(sys.getsizeof(block) for block in blocks)
    accounts = sum(sys.getsizeof(account) for block in blocks for account in block.values())

    assert len(ledger) == 8_000
    assert (tables + accounts) / len(ledger) <= 110
    for block in blocks:
        for number, account in block.items():
            assert account.next_ms is driver.state.schedules[number].next_ms
