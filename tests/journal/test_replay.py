"""Deciding again reaches the recorded events, or names the first that differs."""

import msgspec
import pytest

from driver import BY, Driver, T, task
from journals import journal, lived, read, resealed, settings_of
from tickwork.core.base.errors import Corrupt, ReplayDiffers
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.journal.record import GENESIS
from tickwork.journal.replay import Recorder, fold, replay

change = msgspec.structs.replace


def fresh() -> Machine:
    return Machine(settings=settings_of())


def place_of(kind: type) -> tuple[int, int]:
    """Seq and place of the last event of this kind."""
    return max(
        (row.seq, place) for row in read(journal()) for place, event in enumerate(row.events) if type(event) is kind
    )


def with_events(seq: int, deed) -> list:
    """The journal with the events of one row changed, and every hash made to fit."""
    rows = read(journal())
    events = list(rows[seq - 1].events)
    deed(events)
    rows[seq - 1] = change(rows[seq - 1], events=events)
    return resealed(rows)


@pytest.mark.proves("I8", "I13")
@pytest.mark.parametrize("kind", [ev.TaskDispatched, ev.RunMoved, ev.TaskReady, ev.WorkerOffered])
def test_a_changed_event_is_named(kind):
    seq, place = place_of(kind)
    field = kind.__struct_fields__[1]

    def spoil(events):
        value = getattr(events[place], field)
        events[place] = change(events[place], **{field: value + 1 if isinstance(value, int) else "other"})

    with pytest.raises(ReplayDiffers, match=rf"seq {seq}: event {place} was {kind.__name__}\(") as found:
        replay(with_events(seq, spoil), fresh())
    assert found.value.seq == seq


def test_a_missing_and_an_added_event_are_named():
    seq, _ = place_of(ev.TaskDispatched)
    last = len(read(journal())[seq - 1].events)

    with pytest.raises(ReplayDiffers, match=rf"seq {seq}: event {last - 1} is newly decided: "):
        replay(with_events(seq, lambda events: events.pop()), fresh())
    with pytest.raises(ReplayDiffers, match=rf"seq {seq}: event {last} is no longer decided: LoadShed"):
        replay(with_events(seq, lambda events: events.append(ev.LoadShed(True, 1))), fresh())


def test_inputs_that_no_longer_fit_into_the_tick_are_named():
    few = Machine(settings=change(settings_of(), max_changes_per_tick=3))

    with pytest.raises(ReplayDiffers, match=r"seq 1: 1 of \d+ inputs were taken"):
        replay(journal(), few)


@pytest.mark.proves("I9", "I41")
def test_rows_of_other_rules_are_folded_not_decided():
    rows = [change(row, rules="machine 0") for row in read(journal())]
    spoiled = [change(row, events=[*row.events, ev.LoadShed(True, 77)]) if row is rows[-1] else row for row in rows]
    machine = fresh()
    replay(resealed(spoiled), machine)

    assert (machine.state.shed.on, machine.state.shed.lag_ms) == (True, 77)


@pytest.mark.proves("I1", "I13")
def test_a_missing_seq_is_named():
    rows = journal()

    with pytest.raises(Corrupt, match="seq 6 follows 4: rows are missing"):
        replay([*rows[:4], *rows[5:]], fresh())
    with pytest.raises(Corrupt, match="seq 2 follows 0"):
        fold(rows[1:], fresh())


@pytest.mark.proves("I13")
@pytest.mark.parametrize("way", [replay, fold])
def test_a_wrong_head_is_refused_before_anything_is_decided(way):
    machine = fresh()
    with pytest.raises(Corrupt, match="seq 1: the row does not follow"):
        way(journal(), machine, head=b"x" * 32)

    assert machine.state.tick == 0


@pytest.mark.proves("I15")
@pytest.mark.parametrize("way", [replay, fold])
def test_a_tick_that_does_not_rise_is_refused(way):
    rows = read(journal())
    rows[7] = change(rows[7], tick=rows[6].tick)

    with pytest.raises(Corrupt, match=f"seq 8: tick {rows[6].tick} does not come after {rows[6].tick}"):
        way(resealed(rows), fresh())


@pytest.mark.proves("I9")
@pytest.mark.parametrize("way", [replay, fold])
def test_a_replay_may_begin_at_a_snapshot(way):
    rows = journal()
    half = len(rows) // 2
    machine = fresh()
    head = replay(rows[:half], machine)
    later = Machine(restore(*capture(machine.state)))

    assert way(rows[half:], later, head=head, seq=half) == rows[-1].hash
    assert digest(later.state) == digest(lived().driver.state)


def test_a_recorder_goes_on_where_another_stopped():
    rows = journal()
    machine = fresh()
    head = replay(rows[:9], machine)
    recorder = Recorder(seq=9, head=head)
    again = [recorder.row(row.tick, row.inputs, row.events) for row in read(rows)[9:]]

    assert tuple(again) == rows[9:]
    assert replay([], machine, head=GENESIS) == GENESIS


@pytest.mark.proves("I8")
def test_the_order_of_a_map_in_an_input_decides_nothing():
    """The journal keeps maps sorted, so a refusal must name the same entry whatever order it came in."""
    d = Driver()
    d.define("two", task("a"), task("b"))
    run_id = d.submit("two")
    d.fail(run_id, "a")
    d.fail(run_id, "b")
    record = d.records[run_id]
    d.send(inp.Resolve(BY, T, run_id, "why", {"b": "no", "a": "nope"}, {}, record))
    d.send(inp.Resolve(BY, T, run_id, "why", {}, {"b": b"\xc0", "a": b"\xc0"}, record))
    recorder, machine = Recorder(), Machine(settings=d.settings)
    rows = [recorder.row(tick, asked, events) for tick, asked, events in d.rows]

    assert replay(rows, machine) == rows[-1].hash
