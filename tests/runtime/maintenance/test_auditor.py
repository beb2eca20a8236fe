"""The auditor: a second opinion on every tick, and what it does when it has one."""

import msgspec
import pytest

from driver import Driver
from journals import journal, read, resealed, settings_of
from runtime.engine_fixture import Hand, House, task
from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.state.events import TaskDispatched
from tickwork.core.state.inputs import Submit
from tickwork.journal import reproduction
from tickwork.journal.record import GENESIS
from tickwork.journal.replay import Recorder
from tickwork.ports.store import Head
from tickwork.runtime.maintenance import auditor as module
from tickwork.runtime.maintenance.auditor import Auditor, at_the_beginning, at_the_watermark


class Tape:
    """A journal that a test has in hand."""

    def __init__(self, rows, epoch=1):
        self.rows, self.epoch, self.fails = list(rows), epoch, 0

    async def read_head(self, partition):
        if self.fails:
            self.fails -= 1
            raise Unavailable("away", retry_after_ms=1)
        last = self.rows[-1] if self.rows else None
        return Head(self.epoch, last.seq, last.tick, last.hash) if last else Head(self.epoch)

    async def journal(self, partition, *, after, limit):
        return self.rows[after : after + limit]


class Desk:
    """Where an auditor's deeds end up."""

    def __init__(self):
        self.held, self.kept, self.alarms = [], {}, []
        self.refusal = None

    async def hold(self, partition, reason):
        if self.refusal is not None:
            raise self.refusal
        self.held.append((partition, reason))

    async def keep(self, name, data):
        self.kept[name] = data

    def alarm(self, kind, text):
        self.alarms.append((kind, text))

    def wall_ms(self):
        return 2_000_000_000_000

    mono_ms = wall_ms

    def auditor(self, tape, settings):
        place = at_the_beginning(settings)
        return Auditor(tape, 0, place, zones=UTC_ONLY, clock=self, hold=self.hold, keep=self.keep, on_alarm=self.alarm)


def lied(rows, at, change):
    """The same journal with other events at one seq, and a chain that verifies."""
    plain = read(rows)
    plain[at - 1] = msgspec.structs.replace(plain[at - 1], events=change(list(plain[at - 1].events)))
    return resealed(plain)


def other_worker(events):
    place = next(i for i, event in enumerate(events) if isinstance(event, TaskDispatched))
    events[place] = msgspec.structs.replace(events[place], worker=events[place].worker + 1)
    return events


def first_dispatch(rows):
    return next(row.seq for row in read(rows) if any(isinstance(event, TaskDispatched) for event in row.events))


def forgotten(seq):
    """A journal that lacks the last event of the first row from this seq on that has some, and that row's seq."""
    at = next(row.seq for row in read(journal()) if row.seq >= seq and row.events)
    return lied(journal(), at, lambda events: events[:-1]), at


@pytest.mark.proves("I8", "I55")
@pytest.mark.parametrize("seed", range(4))
async def test_an_honest_journal_is_equal_at_every_tick(seed):
    rows, desk = journal(seed, 60), Desk()
    auditor = desk.auditor(Tape(rows), settings_of(seed, 60))

    assert await auditor.catch_up() is None
    assert (auditor.view().seq, auditor.view().hash) == (len(rows), rows[-1].hash.hex())
    assert (auditor.rows, auditor.lag_rows, desk.held, desk.alarms) == (len(rows), 0, [], [])


@pytest.mark.proves("I8", "I55", "S62")
async def test_a_lie_in_a_chain_that_verifies_is_found_at_its_seq():
    rows, desk = journal(), Desk()
    at = first_dispatch(rows)
    auditor = desk.auditor(Tape(lied(rows, at, other_worker)), settings_of())

    difference = await auditor.catch_up()

    assert difference is not None and (difference.seq, difference.held) == (at, True)
    assert auditor.seq == at - 1 and await auditor.step() == 0
    assert [kind for kind, _ in desk.alarms] == ["audit_difference"]
    [(partition, reason)] = desk.held
    assert partition == 0 and f"seq {at}" in reason and difference.reproduction in reason


@pytest.mark.parametrize(
    "change",
    [other_worker, lambda events: events[:-1], lambda events: [*events, events[-1]]],
    ids=["changed", "missing", "added"],
)
async def test_a_reproduction_reproduces(change):
    rows, desk = journal(), Desk()
    at = first_dispatch(rows)
    difference = await desk.auditor(Tape(lied(rows, at, change)), settings_of()).catch_up()

    made = reproduction.read(desk.kept[difference.reproduction])
    found = reproduction.run(made, UTC_ONLY)
    assert (found.seq, found.differs, found.still) == (at, True, True)
    assert f"seq {at}: {found.text}" == difference.text
    honest = msgspec.structs.replace(made, row=rows[at - 1], hash=rows[at - 2].hash if at > 1 else GENESIS)
    assert not reproduction.run(honest, UTC_ONLY).differs


async def test_a_reproduction_keeps_only_the_inputs_that_matter():
    driver = Driver(credit=3)
    driver.define("probe", task("a"))
    driver.send(*(Submit("me", "acme", f"probe-{place}", "probe") for place in range(12)))
    recorder = Recorder()
    rows = [recorder.row(tick, asked, events) for tick, asked, events in driver.rows]
    at = next(row.seq for row in read(rows) if len(row.inputs) == 12)

    def lie(events):
        """The fourth of them is said to be another."""
        place = next(i for i, event in enumerate(events) if getattr(event, "input", -1) == 3)
        events[place] = msgspec.structs.replace(events[place], input=7)
        return events

    desk = Desk()
    difference = await desk.auditor(Tape(lied(rows, at, lie)), driver.settings).catch_up()

    made = reproduction.read(desk.kept[difference.reproduction])
    assert difference.inputs == len(made.inputs) <= 5 and 3 in made.inputs
    assert len(reproduction.inputs_of(made)) == len(made.inputs)
    assert reproduction.run(made, UTC_ONLY).still


@pytest.mark.proves("P7", "F11")
@pytest.mark.parametrize(("rows_left", "epoch"), [(10, 3), (40, 2)])
async def test_a_journal_that_goes_back_is_a_difference(rows_left, epoch):
    rows, desk = journal(), Desk()
    tape = Tape(rows[:30], epoch=3)
    auditor = desk.auditor(tape, settings_of())
    assert await auditor.catch_up() is None
    tape.rows, tape.epoch = list(rows[:rows_left]), epoch

    difference = await auditor.catch_up()

    assert difference is not None and "lost committed rows" in difference.text
    assert desk.held and desk.kept == {}


class Holed(Tape):
    """Nothing is left behind seq 10; a store that looks for gaps says so."""

    told = True

    async def journal(self, partition, *, after, limit):
        if after == 10 and self.told:
            raise Corrupt("the journal has a gap after seq 10")
        return self.rows[after : min(after + limit, 10)]


@pytest.mark.proves("I13", "F14")
@pytest.mark.parametrize(("told", "words"), [(True, "a gap after seq 10"), (False, "no row after seq 10")])
async def test_rows_that_are_gone_are_a_difference_and_no_reason_to_fall_silent(told, words):
    desk, tape = Desk(), Holed(journal())
    tape.told = told
    auditor = desk.auditor(tape, settings_of())

    difference = await auditor.follow()

    assert (difference.seq, difference.held, difference.reproduction) == (11, True, "")
    assert words in desk.held[0][1] and desk.alarms[0][0] == "audit_difference"


@pytest.mark.proves("I13")
async def test_another_history_behind_the_same_seq_is_a_difference():
    desk, tape = Desk(), Tape(journal()[:20])
    auditor = desk.auditor(tape, settings_of())
    await auditor.catch_up()
    tape.rows = list(lied(journal(), 5, lambda events: events))
    tape.rows[9:] = resealed([*read(journal())[:9], *read(journal(6))[9:]])[9:]

    difference = await auditor.catch_up()

    assert difference is not None and difference.seq == 21
    assert reproduction.run(reproduction.read(desk.kept[difference.reproduction]), UTC_ONLY).differs


async def test_rows_of_other_rules_are_folded():
    rows = resealed([msgspec.structs.replace(row, rules="machine 0; others") for row in read(journal())])
    auditor = Desk().auditor(Tape(rows), settings_of())

    assert await auditor.catch_up() is None
    assert (auditor.rows, auditor.folded) == (0, len(rows))


async def test_it_waits_for_a_source_that_is_away_and_says_how_far_behind_it_is():
    rows, at = forgotten(20)
    desk, tape = Desk(), Tape(rows)
    tape.fails = 2
    auditor = desk.auditor(tape, settings_of())

    difference = await auditor.follow()

    assert difference.seq == at and auditor.view().lag_rows == len(rows) - at + 1 and auditor.view().lag_ms > 0


async def test_a_hold_that_is_refused_is_said():
    desk, tape = Desk(), Tape(forgotten(9)[0])
    desk.refusal = Refused("not_entitled", "no")
    difference = await desk.auditor(tape, settings_of()).catch_up()

    assert [kind for kind, _ in desk.alarms] == ["audit_difference", "audit_not_held"] and not difference.held
    assert difference.reproduction in desk.kept


async def test_states_are_kept_so_that_a_reproduction_need_not_begin_at_the_beginning(monkeypatch):
    monkeypatch.setattr(module, "SNAPSHOT_ROWS", 8)
    monkeypatch.setattr(module, "ROWS_PER_STEP", 3)
    (rows, at), desk = forgotten(30), Desk()
    auditor = desk.auditor(Tape(rows), settings_of())
    difference = await auditor.catch_up()

    assert at - 12 < auditor._kept[0] < at
    assert reproduction.run(reproduction.read(desk.kept[difference.reproduction]), UTC_ONLY).still


def test_a_damaged_reproduction_is_refused():
    for data in (b"TWR1", b"TWJ1abc", b"TWR1" + bytes(8) + b"x"):
        with pytest.raises(Corrupt):
            reproduction.read(data)


@pytest.mark.proves("I8")
async def test_dispatch_of_a_house_stops_says_why_and_goes_on_when_it_is_released():
    house, desk = House(), Desk()
    engine = await house.open()

    async def hold(partition, reason):
        await engine.admin.pause("partition", str(partition), by="auditor", reason=reason)

    await house.define("flow", task("a"))
    place = await at_the_watermark(house.store, 0)
    tape = Tape([])
    tape.read_head, rows = house.store.read_head, house.store.journal

    async def lying(partition, *, after, limit):
        found = await rows(partition, after=after, limit=limit)
        if len(found) < 2 or not found[-1].seq >= place.seq + 2:
            return found
        return [found[0], msgspec.structs.replace(found[1], hash=bytes(32)), *found[2:]]

    tape.journal = lying
    auditor = Auditor(
        tape, 0, place, zones=UTC_ONLY, clock=house.clock, hold=hold, keep=desk.keep, on_alarm=engine.context.alarms.add
    )
    await house.submit("flow", id="before")
    await house.submit("flow", id="then")
    difference = await auditor.catch_up()
    await house.submit("flow", id="after")
    hand = Hand(house)
    hand.functions["a"] = lambda: 1
    await hand.sit_down()
    await hand.call(wait_ms=20)

    assert difference is not None and difference.held and hand.held == {}
    status = await engine.overview.status()
    assert "audit_difference at seq" in status.dispatch_held
    assert {"audit_difference", "dispatch_held"} <= {alarm.partition(":")[0] for alarm in status.alarms}
    held = engine.queries.why_not("after").nodes[0].obstacles[0]
    assert (held.held, held.by) == ("paused", "partition:0") and "audit_difference" in held.text

    await engine.admin.resume("partition", "0", by="me")
    assert len(await hand.take(3)) == 3
    assert (await engine.overview.status()).dispatch_held == ""
    await engine.stop()
