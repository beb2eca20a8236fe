"""Versions of an application: which one is the latest, whose schedules stand, who may have a pinned run."""

import pytest

from driver import BY, Driver, T, document, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.decide.commands.versions import stranded
from tickwork.core.definition.plan import plan_of
from tickwork.core.evolve.versions import DECLARED_KEPT, VERSIONS_KEPT, declared_puts, latest_of, pinned
from tickwork.core.explain.run_history import why
from tickwork.core.explain.run_history_text import entry_text
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, encode_header, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunScheduled, VersionAbsent, VersionPut
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.core.state.retry import HANDLER_MISSING
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.journal.record import Row

MINUTE = 60_000


def flow(step: str) -> bytes:
    return document("flow", task(step))


def registration(version, *schedules, step="a", latest=False):
    puts = [inp.PutSchedule(BY, T, name, "flow", ScheduleSpec(cron="* * * * *"), owner="shop") for name in schedules]
    workflows = {"flow": plan_of(flow(step)).hash}
    return [
        inp.PutDefinition(BY, T, flow(step), False),
        inp.RegisterVersion(BY, T, "shop", version, workflows, puts, latest, True),
    ]


def rollback(driver, version):
    known = driver.state.tenants[T].applications["shop"].get(version)
    declared = known.declared if known is not None and known.declared is not None else b"\x90"
    return inp.SetLatestVersion(BY, T, "shop", version, declared_puts(declared, BY))


def shop(driver):
    return driver.state.tenants[T].applications["shop"]


def schedules(driver):
    return [name for name, _ in driver.state.tenants[T].schedules.items()]


def latest(driver):
    return latest_of(shop(driver)).name


def plan_steps(driver):
    return [step.id for step in driver.state.tenants[T].plans["flow"].steps]


@pytest.mark.proves("S004-58", "S004-59")
def test_a_version_that_nobody_knew_is_the_latest_and_its_schedules_stand():
    driver = Driver()
    driver.expect(*registration("v1", "hourly", "daily"))
    driver.advance(MINUTE)
    driver.expect(*registration("v2", "daily", "weekly", step="b"))

    assert latest(driver) == "v2"
    assert schedules(driver) == ["daily", "weekly"]
    assert plan_steps(driver) == ["b"]
    first, second = shop(driver)["v1"], shop(driver)["v2"]
    assert first.number != second.number
    assert first.created_ms == first.timestamp_ms < second.created_ms == second.timestamp_ms


def test_an_older_version_that_starts_again_moves_nothing():
    driver = Driver()
    driver.expect(*registration("v1", "hourly"))
    driver.expect(*registration("v2", "daily", step="b"))
    rows = len(driver.events(VersionPut))
    driver.expect(registration("v1", "hourly")[1])

    assert (latest(driver), schedules(driver), plan_steps(driver)) == ("v2", ["daily"], ["b"])
    assert len(driver.events(VersionPut)) == rows
    assert driver.answers[-1].run_id == "v2", "whoever starts is told which one is the latest"


@pytest.mark.proves("S004-57", "S004-58", "S004-61")
def test_setting_an_older_version_latest_brings_back_what_it_declares():
    driver = Driver()
    driver.expect(*registration("v1", "hourly"))
    driver.expect(*registration("v2", "daily", step="b"))
    made_ms = shop(driver)["v1"].created_ms
    driver.advance(MINUTE)
    driver.expect(rollback(driver, "v1"))

    assert (latest(driver), schedules(driver), plan_steps(driver)) == ("v1", ["hourly"], ["a"])
    assert shop(driver)["v1"].created_ms == made_ms
    assert shop(driver)["v1"].timestamp_ms == driver.state.now_ms
    driver.expect(*registration("v2", "daily", step="b"))
    assert latest(driver) == "v1", "the worker of v2 that restarts now is the older one"


@pytest.mark.proves("S004-73")
def test_scheduled_runs_have_the_definition_of_the_latest_version():
    driver = Driver()
    driver.expect(*registration("v1", "often"))
    driver.expect(*registration("v2", "often", step="b"))
    driver.expect(registration("v1", "often")[1])
    driver.advance(MINUTE)
    driver.expect(rollback(driver, "v1"))
    driver.advance(MINUTE)

    runs = [driver.state.runs[event.run] for event in driver.events(RunScheduled)]
    assert [[step.id for step in run.plan.steps] for run in runs] == [["b"], ["a"]]


def test_the_same_set_again_leaves_the_schedules_as_they_are():
    driver = Driver()
    driver.expect(*registration("v1", "often"))
    driver.advance(90_000)
    before = driver.state.tenants[T].schedules.get("often")
    driver.expect(*registration("v2", "often", step="b"))

    assert driver.state.tenants[T].schedules.get("often") is before
    assert (before.version, before.fired) == (1, 1)


def test_whoever_says_so_is_the_latest_also_where_it_was_known():
    driver = Driver()
    driver.expect(*registration("v1", "hourly"))
    driver.expect(*registration("v2", "daily", step="b"))
    driver.expect(registration("v1", "hourly", latest=True)[1])

    assert (latest(driver), schedules(driver), plan_steps(driver)) == ("v1", ["hourly"], ["a"])


def test_versions_of_one_tick_have_an_order():
    driver = Driver()
    driver.expect(*registration("v1"), *registration("v2"), *registration("v3"))

    assert latest(driver) == "v3"
    assert len({one.timestamp_ms for one in shop(driver).values()}) == 3


def test_what_old_versions_declare_is_forgotten_and_later_they_are():
    driver = Driver()
    for number in range(VERSIONS_KEPT + 5):
        driver.expect(*registration(f"v{number}", f"s{number}"))
    known = shop(driver)

    assert len(known) == VERSIONS_KEPT and "v4" not in known
    assert sum(one.declared is not None for one in known.values()) == DECLARED_KEPT
    assert driver.refusal(rollback(driver, "v10")) == "version_too_old"
    driver.expect(registration("v10", "s10")[1])
    assert latest(driver) == f"v{VERSIONS_KEPT + 4}", "a worker of it that starts tells what it declares, no more"


def test_versions_that_declare_the_same_cost_the_header_once():
    driver = Driver()
    names = [f"schedule-{number}" for number in range(200)]
    driver.expect(*registration("v0", *names))
    before = len(encode_header(driver.state))
    for number in range(1, 10):
        driver.expect(*registration(f"v{number}", *names))

    assert len(encode_header(driver.state)) < before + 9 * 300


def test_what_was_registered_survives_a_restart():
    driver = Driver()
    driver.expect(*registration("v1", "hourly"))
    driver.expect(*registration("v2", "daily", step="b"))
    twin = Machine(restore(*capture(driver.state)))

    assert digest(twin.state) == digest(driver.state)
    driver.expect(rollback(driver, "v1"))
    tick, asked, events = driver.rows[-1]
    assert twin.apply(tick, asked).events == events
    assert digest(twin.state) == digest(driver.state)


@pytest.mark.parametrize(("asked", "code"), [
    (inp.RegisterVersion(BY, T, "shop", "", {}, []), "name_empty"),
    (inp.RegisterVersion(BY, T, "shop", "a b", {}, []), "name_characters"),
    (inp.RegisterVersion(BY, T, "", "v1", {}, []), "name_empty"),
    (inp.RegisterVersion(BY, T, "shop", "v1", {"flow": "none"}, []), "unknown_definition"),
    (inp.RegisterVersion(BY, T, "shop", "v9", {}, [inp.PutSchedule(BY, T, "s", "flow",
    ScheduleSpec(cron="0 0 * * *"))]),
     "bad_schedule"),
    (inp.SetLatestVersion(BY, T, "shop", "v7", []), "unknown_version"),
    (inp.SetLatestVersion(BY, T, "none", "v1", []), "unknown_application"),
    (inp.SetLatestVersion(BY, T, "shop", "v1", []), "version_changed"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(asked, code):
    driver = Driver()
    driver.expect(*registration("v1", "hourly"))
    before = (latest(driver), schedules(driver))

    assert driver.refusal(asked) == code
    assert (latest(driver), schedules(driver)) == before


# ---- runs that are pinned


def pinned_driver():
    driver = Driver(credit=0)
    driver.expect(*registration("v1"), *registration("v2", step="b"))
    pin, definition = pinned(driver.state.tenants[T], "flow", "v1")
    return driver, inp.SubmitOptions(definition=definition, version=pin)


@pytest.mark.proves("S004-61")
def test_a_pinned_run_goes_only_to_workers_of_its_version():
    driver, terms = pinned_driver()
    driver.expect(inp.Offer("new", 10, labels={PIN_LABEL: "shop@v2"}))
    driver.expect(inp.Submit(BY, T, "old-run", "flow", None, terms), inp.Submit(BY, T, "new-run", "flow"))

    run = driver.state.tenants[T].runs.get("old-run")
    assert [driver.state.workers[effect.worker].id for effect in driver.started] == ["new"]
    assert stranded(driver.state) == [(T, "shop@v1", 1)]
    twin = restore(*capture(driver.state))
    assert twin.tenants[T].runs.get("old-run").pin == run.pin == "shop@v1"
    driver.expect(inp.Offer("old", 10, labels={PIN_LABEL: "shop@v1"}))

    assert [driver.state.workers[effect.worker].id for effect in driver.started] == ["new", "old"]
    assert stranded(driver.state) == []


def test_a_pin_that_names_no_version_is_refused():
    driver, terms = pinned_driver()

    assert driver.refusal(inp.Submit(BY, T, "r", "flow", None, inp.SubmitOptions(version="v9"))) == "unknown_version"
    assert driver.refusal(inp.Submit(BY, T, "r", "flow", None, inp.SubmitOptions(version="v1"))) == "version_changed"
    other = [inp.RegisterVersion(BY, T, "mart", "v1", {"flow": terms.definition}, [])]
    driver.expect(*other)
    assert driver.refusal(inp.Submit(BY, T, "r", "flow", None, inp.SubmitOptions(version="v1"))) == "which_version"


# ---- runs that a schedule starts


def given_to(driver):
    return [driver.state.workers[effect.worker].id for effect in driver.started]


def offer(name, version, credit=10):
    return inp.Offer(name, credit, labels={PIN_LABEL: f"shop@{version}"})


def two_versions(*offers):
    """The workers of two versions, of which v2 is the latest; the schedule fires every minute."""
    driver = Driver(credit=0)
    driver.expect(*registration("v1", "often"), *registration("v2", "often", step="b"), *offers)
    return driver


@pytest.mark.proves("S004-77")
def test_a_scheduled_run_goes_to_workers_of_the_latest_version_while_one_is_there():
    driver = two_versions(offer("old", "v1"), offer("new", "v2", credit=1))
    driver.advance(MINUTE)
    driver.advance(MINUTE)

    assert [event.version for event in driver.events(RunScheduled)] == ["shop@v2", "shop@v2"]
    assert given_to(driver) == ["new"], "the second waits for it, although the other worker is free"
    assert driver.events(VersionAbsent) == []
    driver.finish_all()
    assert given_to(driver) == ["new", "new"]


@pytest.mark.proves("S004-77")
def test_without_a_worker_of_its_version_a_scheduled_run_goes_to_others_and_the_reason_is_recorded():
    driver = two_versions(offer("new", "v2", credit=0), offer("old", "v1"))
    driver.advance(MINUTE)
    assert given_to(driver) == []
    driver.expect(inp.WorkerLost("new"))

    assert given_to(driver) == ["old"]
    assert [event.task for event in driver.events(VersionAbsent)] == [driver.started[0].task]
    [run] = driver.state.runs.values()
    rows = [Row(seq, tick, "", asked, events) for seq, (tick, asked, events) in enumerate(driver.rows, 1)]
    text = "\n".join(entry_text(entry) for entry in why(rows, T, run.id, settings=driver.settings).entries)
    assert "with version shop@v2" in text
    assert "no worker of shop@v2 was there, so it went to a worker of another version" in text
    driver.expect(offer("new", "v2"))
    driver.advance(MINUTE)
    assert given_to(driver) == ["old", "new"], "as soon as one is there again, they are its"


def test_a_function_that_the_latest_version_lacks_goes_to_workers_that_have_it():
    driver = two_versions(offer("new", "v2"), offer("old", "v1"))
    driver.advance(MINUTE)
    [dispatch] = driver.started
    driver.expect(inp.Failed(dispatch.task, 1, HANDLER_MISSING, "it is not here", permanent=True))
    driver.advance(1_000)

    assert given_to(driver) == ["new", "old"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_restored_state_gives_scheduled_runs_to_the_same_workers(gone):
    driver = two_versions(offer("new", "v2", credit=0), offer("old", "v1", credit=0))
    driver.advance(MINUTE)
    if gone:
        driver.expect(inp.WorkerLost("new"))
    twin = Machine(restore(*capture(driver.state)))
    asked = [offer("old", "v1"), offer("other", "v3")]

    assert digest(twin.state) == digest(driver.state)
    assert twin.apply(driver.tick + 1, asked).events == driver.send(*asked).events
    assert len(given_to(driver)) == gone


@pytest.mark.proves("S004-77")
def test_a_schedule_may_be_pinned_to_a_version():
    driver = two_versions(offer("new", "v2"))
    when, terms = ScheduleSpec(cron="* * * * *"), SchedulePolicy(version="shop@v1")
    driver.expect(inp.PutSchedule(BY, T, "pinned", "flow", when, terms), inp.RemoveSchedule(BY, T, "often"))
    driver.advance(MINUTE)

    [run] = driver.state.runs.values()
    assert ([step.id for step in run.plan.steps], run.pin, given_to(driver)) == (["a"], "shop@v1", [])
    driver.expect(offer("old", "v1"))
    assert given_to(driver) == ["old"]
    bad = SchedulePolicy(version="shop@v9")
    assert driver.refusal(inp.PutSchedule(BY, T, "bad", "flow", when, bad)) == "unknown_version"


def test_a_workflow_that_was_put_anew_is_of_no_version():
    driver = two_versions(offer("new", "v2"), offer("old", "v1"))
    driver.expect(inp.PutDefinition(BY, T, flow("c")))
    driver.advance(MINUTE)

    assert [event.version for event in driver.events(RunScheduled)] == [""]
