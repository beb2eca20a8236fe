"""Each checker finds the lie that is planted for it, and nothing in an honest run."""

from dataclasses import replace

import msgspec
import pytest

from driver import BY, Driver, T, task
from sim import checkers
from sim.executor import EffectLedger, Write
from sim.recorder import Commit, Grant, Journals, RowsWritten
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.journal.record import GENESIS, Row, seal, unseal
from tickwork.journal.replay import Recorder

WAIT = {"kind": "wait", "id": "rest", "duration": "1h"}


def story():
    """Two runs that end, one that waits."""
    driver = Driver()
    driver.define("w", task("a"), task("b", needs=["a"]))
    driver.define("sleepy", WAIT)
    for name in ("one", "two"):
        driver.submit("w", name)
        driver.finish(name, "a")
        driver.finish(name, "b")
    driver.submit("sleepy", "three")
    return driver


def sealed(driver):
    recorder = Recorder()
    return [recorder.row(*row) for row in driver.rows]


def resealed(rows, at, **changes):
    """The same journal with one row changed and the chain made whole again: a clever liar."""
    out, before, after = [], GENESIS, GENESIS
    for place, one in enumerate(rows):
        row = unseal(one, before)
        before = one.hash
        out.append(seal(msgspec.structs.replace(row, **changes) if place == at else row, after))
        after = out[-1].hash
    return out


@pytest.fixture(scope="module")
def driver():
    return story()


@pytest.fixture(scope="module")
def rows(driver):
    return sealed(driver)


def written(rows, epochs=None):
    """Two owners, one after the other, each with its grant."""
    journals, half = Journals(), len(rows) // 2
    journals.written.append(Grant(0, 1, "n1", 1))
    for place, row in enumerate(rows):
        if place == half:
            journals.written.append(Grant(0, 2, "n2", 100 + place))
        epoch = 1 if place < half else 2
        commit = Commit(0, epoch, f"n{epoch}", row, 200 + place)
        journals.written.append(commit)
        journals.acknowledged.append(commit)
    return journals


def ledger_of(rows):
    ledger = EffectLedger()
    for _, number, reported in checkers.lives_of(rows).results:
        if reported:
            ledger.write(Write(f"key {number}", number, 1, "w1", True, number))
    return ledger


ACCEPTED = [(T, "one"), (T, "two"), (T, "three")]


def test_an_honest_run_has_nothing_to_hide(driver, rows):
    journals = written(rows)

    assert list(checkers.one_journal(journals, {0: rows})) == []
    assert list(checkers.fenced(journals)) == []
    assert list(checkers.folds_to(driver.settings, rows, driver.state)) == []
    assert list(checkers.nothing_acknowledged_is_gone(journals, {0: rows})) == []
    assert list(checkers.nothing_is_lost(driver.settings, rows, ACCEPTED)) == []
    assert list(checkers.only_the_current_attempt_counts(rows)) == []
    assert list(checkers.one_result(rows, ledger_of(rows))) == []
    assert len(checkers.lives_of(rows).results) == 4


def swap(journals, place, **changes):
    commits = [n for n, item in enumerate(journals.written) if isinstance(item, Commit)]
    at = commits[place]
    journals.written[at] = replace(journals.written[at], **changes)
    return journals


def drop(journals, place):
    commits = [n for n, item in enumerate(journals.written) if isinstance(item, Commit)]
    del journals.written[commits[place]]
    return journals


@pytest.mark.proves("I1")
@pytest.mark.parametrize(("lie", "words"), [
    (lambda j: drop(j, 3), "follows seq"),
    (lambda j: swap(j, -1, epoch=1), "after epoch 2"),
    (lambda j: swap(j, -1, owner="n3"), "belongs to n2 and n3"),
    (lambda j: drop(j, -1), "nobody committed it"),
])  # fmt: skip
def test_i1_a_journal_with_two_stories_is_found(rows, lie, words):
    found = list(checkers.one_journal(lie(written(rows)), {0: rows}))

    assert any(words in violation.text and violation.invariant == "I1" for violation in found), found


@pytest.mark.proves("I1")
def test_i1_a_row_that_is_not_the_one_committed_is_found(rows):
    found = list(checkers.one_journal(written(rows), {0: resealed(rows, 4, rules="other")}))

    assert "seq 5 is not the row" in found[0].text and found[0].at == 204


@pytest.mark.proves("I2")
@pytest.mark.parametrize("lie", [
    lambda epoch: RowsWritten(0, epoch, "n1", 3, 999),
    lambda epoch: Commit(0, epoch, "n1", None, 999),
    lambda epoch: Grant(0, epoch, "n1", 999),
    lambda epoch: Grant(0, epoch + 1, "n1", 999),  # granted again
])  # fmt: skip
def test_i2_a_write_of_a_fenced_owner_is_found(rows, lie):
    journals = written(rows)
    journals.written.append(lie(1))
    found = list(checkers.fenced(journals))

    assert [(violation.invariant, violation.at) for violation in found] == [("I2", 999)]


@pytest.mark.proves("I7")
def test_i7_a_state_that_is_not_the_fold_is_found(rows):
    other = story()
    other.state.tenants[T].accepted += 1

    assert [v.invariant for v in checkers.folds_to(other.settings, rows, other.state)] == ["I7"]


@pytest.mark.proves("I7")
def test_i7_a_journal_that_cannot_be_folded_is_found(driver, rows):
    [found] = checkers.folds_to(driver.settings, [*rows[:3], *rows[4:]], driver.state)

    assert "cannot be folded" in found.text


@pytest.mark.proves("I12")
def test_i12_an_acknowledged_record_that_is_gone_is_found(rows):
    journals = written(rows)
    found = list(checkers.nothing_acknowledged_is_gone(journals, {0: rows[:-1]}))

    assert [(v.invariant, v.at) for v in found] == [("I12", 200 + len(rows) - 1)]


@pytest.mark.proves("I12")
def test_i12_damage_is_found_even_where_nobody_was_told(rows):
    damaged = [*rows[:-1], msgspec.structs.replace(rows[-1], hash=bytes(32))]
    journals = Journals()

    assert "does not follow" in next(checkers.nothing_acknowledged_is_gone(journals, {0: damaged})).text


@pytest.mark.proves("I25")
def test_i25_an_accepted_run_that_nobody_knows_is_found(driver, rows):
    found = list(checkers.nothing_is_lost(driver.settings, rows, [*ACCEPTED, (T, "ghost")]))

    assert [str(v) for v in found] == ["I25: acme/ghost was accepted, and the journal does not know it"]


@pytest.mark.proves("I25")
def test_i25_a_run_that_could_go_on_and_does_not_is_found():
    driver = Driver(credit=1)
    driver.define("w", task("a"))
    driver.submit("w", "held")
    driver.submit("w", "next")
    found = list(checkers.nothing_is_lost(driver.settings, sealed(driver), []))

    assert {v.text.split(" ")[0] for v in found} == {"acme/held", "acme/next"}  # one runs, one has no worker
    assert {v.invariant for v in found} == {"I25"}


@pytest.mark.proves("I25")
def test_i25_where_nobody_is_left_to_work_waiting_for_a_worker_is_a_reason():
    driver = Driver()
    driver.define("w", task("a"))
    driver.send(inp.WorkerLost("w1"))
    driver.submit("w", "held")

    assert list(checkers.nothing_is_lost(driver.settings, sealed(driver), [], workers=False)) == []
    assert list(checkers.nothing_is_lost(driver.settings, sealed(driver), [], workers=True))


@pytest.mark.proves("I25")
def test_i25_waiting_for_children_people_and_pauses_is_a_reason():
    driver = Driver()
    driver.define("child", WAIT)
    driver.define("parent", {"kind": "workflow", "id": "c", "workflow": "child"})
    driver.define("asks", {"kind": "approval", "id": "ok", "approvers": ["bob"]})
    driver.define("w", task("a"))
    driver.submit("parent", "p")
    driver.submit("asks", "q")
    driver.send(inp.Pause(BY, "workflow", T, "w"))
    driver.submit("w", "paused")

    assert list(checkers.nothing_is_lost(driver.settings, sealed(driver), [(T, "p"), (T, "q"), (T, "paused")])) == []


@pytest.mark.proves("I5")
def test_i5_a_report_of_a_replaced_attempt_that_counted_is_found(rows):
    place, row = next(
        (n, row) for n, row in enumerate(_open(rows)) if any(isinstance(e, ev.TaskSucceeded) for e in row.events)
    )
    assert list(checkers.only_the_current_attempt_counts(rows)) == []
    lied = [replace_attempt(one, 7) if isinstance(one, inp.Succeeded) else one for one in row.inputs]
    [found] = checkers.only_the_current_attempt_counts(resealed(rows, place, inputs=lied))

    assert found.invariant == "I5" and "a report of attempt 7" in found.text and "1 was current" in found.text


def replace_attempt(report, attempt):
    return msgspec.structs.replace(report, attempt=attempt)


@pytest.mark.proves("I29")
def test_i29_a_second_result_is_found(rows):
    places = [n for n, row in enumerate(_open(rows)) if any(isinstance(e, ev.TaskSucceeded) for e in row.events)]
    row = _open(rows)[places[0]]
    [event] = [e for e in row.events if isinstance(e, ev.TaskSucceeded)]
    lied = resealed(rows, places[0], events=[*row.events, event])
    found = list(checkers.one_result(lied, ledger_of(rows)))

    assert any("another result" in v.text and v.invariant == "I29" for v in found)


@pytest.mark.proves("I29")
@pytest.mark.parametrize("reset", [False, True])
def test_i29_a_result_of_what_had_failed_is_found_unless_somebody_resolved_it(rows, reset):
    place, row = next(
        (n, row) for n, row in enumerate(_open(rows)) if any(isinstance(e, ev.TaskSucceeded) for e in row.events)
    )
    [event] = [e for e in row.events if isinstance(e, ev.TaskSucceeded)]
    before = [ev.TaskFailed(event.task, "worker_lost"), *([ev.StepReset(event.task, 0)] if reset else [])]
    lied = resealed(rows, place, events=[*before, *row.events])

    assert [v.text for v in checkers.one_result(lied, ledger_of(rows))] == (
        [] if reset else [f"task {event.task} failed at seq {row.seq}, and has another result at seq {row.seq}"]
    )


@pytest.mark.proves("I29")
def test_i29_a_success_without_an_effect_or_with_two_is_found(rows):
    ledger = ledger_of(rows)
    gone = ledger.writes.pop(0)
    assert [v.text for v in checkers.one_result(rows, ledger)] == [f"task {gone.task} succeeded with 0 effects"]

    ledger = ledger_of(rows)
    ledger.writes.append(replace(ledger.writes[0], attempt=2))
    found = [v.text for v in checkers.one_result(rows, ledger)]
    assert any("with 2 effects" in text for text in found) and any("two effects" in text for text in found)


def test_the_ledger_keeps_one_effect_per_key():
    ledger = EffectLedger()

    assert [ledger.write(Write("k", 1, attempt, "w", True, 0)) for attempt in (1, 2)] == [True, False]
    assert [write.applied for write in ledger.writes] == [True, False]


def _open(rows) -> list[Row]:
    return list(checkers.rows_of(rows))
