"""Why: the story of a run, told from the journal alone."""

import pytest

from driver import BY, Driver, T, task
from histories import History
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.explain.run_history import HistoryEntry, RunHistory, why
from tickwork.core.explain.run_history_text import on_first_line, sentence
from tickwork.core.snapshot.snapshot import capture, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import QueueHeld, TaskDispatched, Visited
from tickwork.core.state.run_ids import occurrence_id
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.journal.record import GENESIS, Row, unseal
from tickwork.journal.replay import Recorder


def journal_of(driver: Driver) -> list[Row]:
    """Rows as they come back from their stored bytes."""
    recorder, head, rows = Recorder(), GENESIS, []
    for tick, asked, events in driver.rows:
        sealed = recorder.row(tick, asked, events)
        rows.append(unseal(sealed, head))
        head = sealed.hash
    return rows


def told(driver: Driver, run_id: str, tenant: str = T) -> RunHistory:
    story = why(journal_of(driver), tenant, run_id, settings=driver.settings)
    assert story is not None
    return story


def codes(story: RunHistory, node: str | None = None) -> list[str]:
    return [entry.what for entry in story.entries if node is None or entry.node == node]


def the(story: RunHistory, what: str, node: str | None = None) -> HistoryEntry:
    [entry] = [one for one in story.entries if one.what == what and (node is None or one.node == node)]
    return entry


# ---- where it came from, and why it started then


@pytest.mark.proves("S003-68", "S003-76", "S001-22")
def test_a_submitted_run_tells_by_whom_when_and_how_it_went():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.advance(250)
    driver.finish(run_id, "a")
    story = told(driver, run_id)

    assert (story.source.kind, story.source.by) == ("submit", BY)
    assert codes(story) == ["submitted", "started", "ready", "dispatched", "succeeded", "completed"]
    assert [entry.cause for entry in story.entries] == ["input", "visit", "visit", "admission", "input", "visit"]
    assert the(story, "started").tick == story.started == the(story, "submitted").tick
    assert the(story, "started").detail == "nothing held it back"
    assert the(story, "dispatched").detail == "to worker w1"
    assert the(story, "succeeded").by == "worker:w1"
    assert (story.state, story.queued_ms, story.held_ms_by_reason) == ("COMPLETED", 0, {})
    assert story.ran_ms == the(story, "succeeded").tick - the(story, "dispatched").tick >= 250


@pytest.mark.proves("S003-68", "S003-76")
def test_a_scheduled_run_tells_its_schedule_and_its_nominal_time():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(inp.PutSchedule("carol", T, "nightly", "flow", ScheduleSpec(every_ms=60_000)))
    driver.advance(70_000)
    [run] = driver.state.runs.values()
    story = told(driver, run.id)

    assert (story.source.kind, story.source.schedule, story.source.by) == ("schedule", "nightly", "carol")
    assert story.source.nominal_ms == run.scheduled_ms
    assert the(story, "scheduled").cause == "timer"
    assert the(story, "started").at_ms == story.source.nominal_ms


@pytest.mark.parametrize(("terms", "minute", "words"), [
    ({"catch_up": "all"}, 5, "; it begins 27m later, to catch up"),
    ({"catch_up": "all"}, 30, "; it begins 2m later, to catch up"),
    ({"catch_up": "all", "grace_ms": 5 * 60_000, "overlap": "allow"}, 30, ""),
    ({"catch_up": "spread", "catch_up_ms": 3_600_000}, 10, "; it is late, and starts at "),
    ({"catch_up": "all", "overlap": "buffer_all"}, 10, " later: another run of it had to end first"),
])  # fmt: skip
def test_a_run_that_begins_later_than_it_was_due_tells_why(terms, minute, words):
    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(cron="*/5 * * * *"), SchedulePolicy(**terms)))
    origin_ms = driver.now_ms // 300_000 * 300_000
    driver.send(at=driver.tick + origin_ms + 32 * 60_000 - driver.now_ms)
    driver.quiet()
    driver.advance(5 * 60_000)
    driver.finish_all()
    driver.quiet()
    story = told(driver, occurrence_id("s", origin_ms + minute * 60_000))

    assert words in the(story, "scheduled").detail and ("later" in the(story, "scheduled").detail) is ("later" in words)


def test_jitter_backfill_and_a_hand_are_told_as_such():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.expect(inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(cron="0 * * * *"), SchedulePolicy(jitter=True)))
    driver.expect(inp.Backfill("bob", T, "s", driver.now_ms - 3_600_000, driver.now_ms, forced=True))
    driver.expect(inp.Trigger("eve", T, "s"), inp.Trigger("eve", T, "s", test=True))
    driver.advance(3_700_000)
    stories = {story.source.kind: story for story in (told(driver, run.id) for run in driver.state.runs.values())}

    assert "by its jitter" in the(stories["schedule"], "scheduled").detail
    assert "backfill" in the(stories["backfill"], "scheduled").detail and "bob" in stories["backfill"].source.detail
    assert "by hand (trigger) by eve" in stories["trigger"].source.detail
    assert "by hand (test) by eve" in stories["test"].source.detail


@pytest.mark.proves("S003-68")
def test_a_child_run_names_its_parent_and_the_parent_its_child():
    driver = Driver()
    driver.define("inner", task("a"))
    driver.define("outer", {"kind": "workflow", "id": "c", "workflow": "inner"})
    parent = driver.submit("outer")
    child = driver.id_of_child(parent, "c")
    driver.finish(child, "a")

    source = told(driver, child).source
    assert (source.kind, source.of, source.node) == ("child", parent, "c")
    story = told(driver, parent)
    assert codes(story, "c") == ["waits", "child_run", "child_ended", "succeeded"]
    assert child in the(story, "child_run").detail
    assert the(story, "child_ended").detail == f"run {child} ended COMPLETED"


@pytest.mark.proves("S003-68")
def test_a_repeated_run_names_the_one_it_repeats():
    driver = Driver()
    driver.define("flow", task("a"))
    old = driver.submit("flow")
    driver.finish(old, "a")
    driver.expect(inp.Rerun("carol", T, "again", driver.records[old]))
    story = told(driver, "again")

    assert (story.source.kind, story.source.of, story.source.by) == ("rerun", old, "carol")
    assert codes(story)[0] == "rerun"


def test_a_resolved_run_keeps_its_source_and_tells_who_brought_it_back():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")
    driver.send(inp.Resolve("carol", T, run_id, "fixed", {}, {}, driver.records[run_id]))
    driver.quiet()
    driver.finish(run_id, "a")
    story = told(driver, run_id)

    assert (story.source.kind, story.source.by) == ("submit", BY)
    assert codes(story)[4:10] == ["failed_step", "failed", "brought_back", "reset", "resolved", "ready"]
    assert {entry.by for entry in story.entries if entry.what in ("brought_back", "reset", "resolved")} == {"carol"}
    assert story.state == "COMPLETED"


def test_a_redriven_run_goes_on_by_its_timer():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")
    driver.send(inp.Redrive("carol", T, "again", 1, [driver.records[run_id]]))
    driver.advance(2_000)
    story = told(driver, run_id)

    assert the(story, "redriven").by == "carol"
    assert the(story, "reset").cause == the(story, "resolved").cause == "timer"


@pytest.mark.proves("S003-76")
def test_a_delayed_run_starts_because_its_time_came():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow", delay_ms=700)
    driver.advance(1_000)
    story = told(driver, run_id)

    assert the(story, "due").cause == "timer"
    assert the(story, "started").detail == "its start time came"
    assert the(story, "started").tick == the(story, "submitted").tick + 700


def test_a_debounced_run_tells_of_every_further_submission():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow", delay_ms=700, debounce="quiet")
    driver.advance(300)
    driver.submit("flow", delay_ms=700, debounce="quiet")
    driver.advance(1_000)
    story = told(driver, run_id)

    assert codes(story)[:4] == ["submitted", "debounced", "due", "started"]


@pytest.mark.proves("S003-76")
def test_a_run_behind_a_key_starts_because_another_one_left_it():
    driver = Driver()
    driver.define("flow", task("a"), concurrency={"limit": 1})
    first, second = driver.submit("flow"), driver.submit("flow")
    driver.advance(400)
    driver.finish(first, "a")
    story = told(driver, second)

    assert codes(story)[:3] == ["submitted", "in_line", "started"]
    assert the(story, "started").detail == f"run {first} ended and left it the concurrency key ''"


# ---- what held it


@pytest.mark.proves("S003-76")
def test_each_hold_tells_its_reason_and_how_long_it_was():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.advance(300)
    driver.expect(inp.PutQueue(BY, "default", limit=0))
    driver.expect(inp.Offer("w1", 1))
    driver.advance(500)
    driver.expect(inp.PutQueue(BY, "default"))
    story = told(driver, run_id)
    credit, limit = story.holds

    assert (credit.reason, credit.by, credit.over) == ("credit", "queue:default", True)
    assert (limit.reason, limit.by, limit.over) == ("limit", "queue:default", True)
    assert credit.until == limit.since
    assert story.held_ms_by_reason == {"credit": credit.ms, "limit": limit.ms}
    assert credit.ms >= 300 and limit.ms >= 500
    assert story.queued_ms == credit.ms + limit.ms == the(story, "dispatched").tick - the(story, "ready").tick
    assert [entry.detail for entry in story.entries if entry.what == "held"] == [
        f"no worker of queue:default has credit left, for {credit.ms} ms until {driver.state.at(credit.until)}",
        f"the limit of queue:default is reached, for {limit.ms} ms until {driver.state.at(limit.until)}",
    ]


def test_a_hold_that_is_not_over_is_counted_up_to_the_last_row():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.advance(300)
    [hold] = told(driver, run_id).holds

    assert not hold.over and hold.until == driver.tick
    assert hold.ms == driver.tick - hold.since


def test_whoever_comes_to_a_held_lane_is_held_from_then_on_only():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    driver.submit("flow")
    driver.advance(300)
    late = driver.submit("flow")
    driver.advance(100)
    story = told(driver, late)

    assert story.held_ms_by_reason["credit"] == story.queued_ms <= 110
    assert len(driver.events(QueueHeld)) == 1


def test_a_paused_run_leaves_its_line_and_that_time_is_no_hold_of_the_lane():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.advance(100)
    driver.expect(inp.Pause("carol", "run", T, run_id, "look first"))
    driver.advance(1_000)
    driver.expect(inp.Resume("carol", "run", T, run_id))
    driver.advance(100)
    story = told(driver, run_id)

    assert (the(story, "paused").detail, the(story, "paused").by) == ("look first", "carol")
    assert story.queued_ms < 300
    assert len(story.holds) == 2


# ---- decisions and attempts


def test_retries_tell_their_cause_their_delay_and_the_worker():
    driver = Driver()
    driver.define("flow", task("a", retry={"attempts": 2, "delay": "2s", "jitter_percent": 0}))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")
    driver.advance(2_500)
    driver.fail(run_id, "a")
    story = told(driver, run_id)

    retrying = the(story, "retrying")
    assert retrying.detail.startswith("ValueError: no good; again in 2000 ms at 2027-01-15T08:")
    assert (retrying.attempt, retrying.by) == (1, "worker:w1")
    assert [entry.attempt for entry in story.entries if entry.what == "dispatched"] == [1, 2]
    assert the(story, "failed_step").detail == "ValueError: no good, no attempt is left"
    assert the(story, "failed").detail == "failed: a"
    assert story.state == "FAILED"


def test_a_retry_held_by_the_budget_of_its_dependency_says_so():
    driver = Driver(retry_burst=1, retry_gap_ms=60_000)
    driver.define("flow", task("a", retry=5, dependency="bank"))
    first, second = driver.submit("flow"), driver.submit("flow")
    driver.fail(first, "a")
    driver.fail(second, "a")

    assert "the retries of its dependency are spent" not in the(told(driver, first), "retrying").detail
    assert "the retries of its dependency are spent" in the(told(driver, second), "retrying").detail


def test_a_lost_worker_is_the_cause_of_the_next_attempt_and_its_late_result_is_counted():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    old = driver.attempt_of(run_id, "a")
    driver.send(inp.Offer("w2", 5))
    driver.send(inp.WorkerLost("w1"))
    driver.send(inp.Succeeded(old.task, old.attempt))
    story = told(driver, run_id)

    assert (the(story, "lost").by, the(story, "lost").cause, the(story, "lost").input) == ("worker:w1", "input", 0)
    assert [entry.detail for entry in story.entries if entry.what == "dispatched"] == ["to worker w1", "to worker w2"]
    assert (story.stale, the(story, "stale").node, the(story, "stale").attempt) == (1, "a", 1)


def test_timers_are_told_as_such():
    driver = Driver()
    driver.define("flow", task("a", timeout={"running_ms": 500}, retry=2), timeout="3s")
    run_id = driver.submit("flow")
    driver.advance(4_000)
    story = told(driver, run_id)

    assert [entry.cause for entry in story.entries if entry.what in ("retrying", "failed_step")] == ["timer"] * 2


def test_branches_and_policies_tell_their_decision():
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "never", "false", "closed", "skip_with_log"))
    driver.define(
        "flow",
        {"kind": "branch", "id": "x", "cases": [{"when": "inputs.big", "to": ["l"]}], "default": ["r"]},
        task("l", needs=["x"]),
        task("r", needs=["x"], policy=["never"]),
        inputs={"big": {"type": "boolean"}},
    )
    story = told(driver, driver.submit("flow", inputs={"big": False}))

    assert the(story, "succeeded", "x").detail == "default"
    assert the(story, "not_taken", "l").detail == "x took default"
    assert the(story, "policy", "r").detail == "policy never denied (skip_with_log): closed"
    assert codes(story, "r") == ["policy", "skipped"]


def test_waits_events_and_approvals_tell_what_came():
    driver = Driver()
    driver.define(
        "flow",
        {"kind": "wait", "id": "w", "duration": "1s"},
        {"kind": "event", "id": "e", "event": "paid"},
        {"kind": "approval", "id": "p"},
    )
    run_id = driver.submit("flow")
    driver.advance(1_500)
    driver.expect(inp.Ingest("shop", T, "paid"), inp.Decide("bob", T, run_id, "p", True))
    story = told(driver, run_id)

    assert codes(story, "w") == ["waits", "elapsed"]
    assert (the(story, "answered", "e").detail, the(story, "answered", "e").by) == ("event paid came", "shop")
    assert the(story, "answered", "p").detail == "approved by bob"


def test_children_of_a_map_are_told_one_by_one():
    driver = Driver()
    driver.define(
        "flow",
        {"kind": "map", "id": "m", "over": "inputs.n", "body": {"kind": "task", "handler": "h"}},
        inputs={"n": {"type": "array"}},
    )
    run_id = driver.submit("flow", inputs={"n": [1, 2, 3]})
    driver.finish_all()
    story = told(driver, run_id)

    assert [entry.child for entry in story.entries if entry.what == "dispatched"] == [0, 1, 2]
    assert [entry.child for entry in story.entries if entry.what == "succeeded"] == [0, 1, 2, -1]


@pytest.mark.proves("S001-22", "S001-68")
def test_a_cancel_tells_by_whom_and_one_that_was_refused_too():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.send(inp.Resume("mallory", "run", T, run_id))
    driver.send(inp.Cancel("carol", T, run_id, "enough"))
    story = told(driver, run_id)

    assert (the(story, "refused").by, the(story, "cancelled").by) == ("mallory", "carol")
    assert the(story, "cancelled").detail == "enough"
    assert story.ended == driver.tick and story.state == "CANCELLED"


def test_a_run_that_the_journal_does_not_know_has_no_story():
    driver = Driver()

    assert why(journal_of(driver), T, "nobody", settings=driver.settings) is None
    assert why(journal_of(driver), "nobody", "nobody", settings=driver.settings) is None


# ---- whatever happened


@pytest.mark.proves("S003-68")
@pytest.mark.parametrize("seed", range(6))
def test_the_stories_of_a_random_history_add_up(seed):
    history = History(seed)
    history.check = False
    driver = history.run(60).driver
    rows = journal_of(driver)
    names = {(run.tenant.id, run.id) for run in driver.state.runs.values()}
    names |= {(t, r) for t, r in history.known_runs if r in driver.records}
    stories = [why(rows, *name, settings=driver.settings) for name in sorted(names)]
    stories = [story for story in stories if story is not None]

    assert len(stories) >= len(driver.state.runs) > 0
    for story in stories:
        assert story.entries[0].what in ("submitted", "scheduled", "triggered", "spawned", "rerun", "follows")
        assert story.entries[0].tick == story.source.tick
        assert [entry.tick for entry in story.entries] == sorted(entry.tick for entry in story.entries)
        assert all(hold.ms >= 0 for hold in story.holds)
        assert sum(story.held_ms_by_reason.values()) <= story.queued_ms
        assert all(0 <= entry.input < len(rows[entry.seq - 1].inputs) for entry in story.entries if entry.input >= 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_story_from_a_snapshot_ends_like_the_one_from_the_beginning(seed):
    history = History(seed)
    history.check = False
    history.run(40)
    driver = history.driver
    snapshot, half = capture(driver.state), len(driver.rows)
    live = [(run.tenant.id, run.id) for run in driver.state.runs.values()]
    history.run(40)
    rows = journal_of(driver)
    for name in live[:10]:
        whole = why(rows, *name, settings=driver.settings)
        later = why(rows[half:], *name, state=restore(*snapshot))

        assert later.source == whole.source
        assert (later.state, later.ended) == (whole.state, whole.ended)
        assert after(later, half) == after(whole, half)


def after(story: RunHistory, seq: int) -> list[HistoryEntry]:
    """What does not depend on how far back the rows go: a hold may be older than they are, and so may a delay, or the
    attempt that a stale report is about."""
    return [entry for entry in story.entries if entry.seq > seq and entry.what not in ("held", "started", "stale")]


def test_a_story_that_begins_at_a_snapshot_does_not_claim_to_know_what_was_before():
    driver = Driver(max_runs_per_tick=1)
    driver.define("flow", task("a"))
    driver.send(*(inp.Submit(BY, T, f"r{number}", "flow") for number in range(2)))
    snapshot, half = capture(driver.state), len(driver.rows)
    driver.quiet()
    story = why(journal_of(driver)[half:], T, "r1", state=restore(*snapshot))

    assert the(story, "started").detail == "nothing has held it back since the first of these rows"


@pytest.mark.proves("S000-07")
def test_the_visits_of_all_runs_are_those_that_the_ticks_recorded():
    driver = Driver()
    driver.define("flow", task("a"), task("b", needs=["a"]))
    runs = [driver.submit("flow") for _ in range(3)]
    numbers = {driver.number_of(run_id): run_id for run_id in runs}
    driver.finish_all()
    visits = {run_id: told(driver, run_id).visits for run_id in runs}

    recorded = [
        (tick, [numbers[number] for number in event.runs])
        for tick, _, events in driver.rows
        for event in events
        if isinstance(event, Visited)
    ]
    assert recorded == [
        (tick, [run_id for run_id in runs if tick in visits[run_id]])
        for tick in sorted({tick for ticks in visits.values() for tick in ticks})
    ]
    assert len(driver.events(TaskDispatched)) == 6


@pytest.mark.parametrize(
    ("what", "detail", "told"),
    [
        ("submitted", "submitted by api", "submitted by api"),
        ("failed", "failed: boom", "failed: boom"),
        ("failed_step", "ValueError: no", "failed: ValueError: no"),
        ("handed_back", "its worker handed it back", "handed back: its worker handed it back"),
        ("resumed", "", "resumed"),
    ],
)
def test_a_sentence_has_no_codes_in_it_and_says_nothing_twice(what, detail, told):
    assert sentence(what, detail) == told


def test_what_becomes_of_an_error_is_said_before_its_lines_of_code():
    assert on_first_line("ValueError: no\n  File app.py", ", no attempt is left") == (
        "ValueError: no, no attempt is left\n  File app.py"
    )
    assert on_first_line("ValueError: no", "; again") == "ValueError: no; again"
