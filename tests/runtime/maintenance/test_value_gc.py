"""Values go when nothing names them any more, and not before."""

import asyncio
import contextlib
import random
import re

import msgspec
import pytest

from runtime.engine_fixture import task
from runtime.maintenance.retention_fixture import KEEP, Keeping
from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref
from tickwork.ports.store_maintenance import RUNS
from tickwork.protocol import http_models as wire
from tickwork.runtime.maintenance.value_gc import DAY_MS, SLACK_DAYS, named_in, swept_before
from tickwork.runtime.storage.archive import unpacked

LARGE, HUGE = 3_000, 90_000  # a payload, an artifact
REF = re.compile(rb"\x95\x01\xd9\x40([0-9a-f]{64})")  # the beginning of one: five parts, of which the first is a tag
ITEMS = {"items": {"type": "array"}}
EACH = {"kind": "task", "handler": "child", "args": {"item": {"from": "item"}}}
MAP = {"kind": "map", "id": "m", "over": "inputs.items", "body": EACH}


def text(name, size):
    return (f"{name} " * size)[:size]


FUNCTIONS = {
    "large": lambda name="": text(f"large{name}", LARGE),
    "huge": lambda name="": text(f"huge{name}", HUGE),
    "child": lambda item: text(f"child {item}", LARGE),
    "fails": lambda: 1 / 0,
    "sees": lambda given: SEEN.append(given),
    "takes": lambda x: len(x),
}
SEEN: list[object] = []


@pytest.fixture
async def house():
    house = Keeping()
    await house.open()
    note = {"note": {"type": "string", "required": False}}
    await house.define("both", task("a", "large"), task("b", "huge", needs=["a"]), inputs=note, output="nodes.b")
    async with house.serving(**FUNCTIONS):
        yield house
    await house.engine.stop()


async def output_of(house, run):
    return msgspec.msgpack.decode(await house.engine.queries.value_bytes(run))


def kept(house):
    """Values, without what archives and logs have."""
    return set(house.disk.payloads) | (set(house.artifacts.kept) - set(house.disk.archives))


def dangling(house):
    """What something names and nobody has. By itself: it looks at every byte that there is."""
    disk = house.disk
    rows = [row for part in disk.partitions.values() for row in (part.header, *part.live_runs.values())]
    rows += [row for part in disk.partitions.values() for row in (*part.live_tasks.values(), *part.schedules.values())]
    rows += [part for row in disk.runs.values() for part in (row.record, row.output)]
    for archive in disk.archives.values():
        if archive.kind == RUNS:
            rows.append(msgspec.msgpack.encode(unpacked(house.artifacts.kept[archive.object])))
    named = {digest.decode() for row in rows for digest in REF.findall(row)}
    return named - kept(house) - set(house.artifacts.kept)


async def test_values_of_a_run_go_with_its_archive(house):
    run = await house.submit("both", inputs={"note": text("input", LARGE)})
    await house.until(run, "completed")
    before = kept(house)
    assert len(house.disk.payloads) == 2 and len(before) == 3
    for days in (5, 200, 155):
        await house.days(days)
        await house.days(1)
        assert await output_of(house, run) == text("huge", HUGE) and kept(house) == before

    for _ in range(4):
        await house.days(10)
    with pytest.raises(Refused, match="no run"):
        await house.engine.queries.run(run)
    assert kept(house) == set() and house.engine.maintenance.retention.renewal.swept == 3


@pytest.mark.slow
async def test_what_lives_keeps_its_values_for_years(house):
    wait = {"kind": "wait", "id": "w", "duration": "900d", "needs": ["m"]}
    await house.define("long", MAP, wait, task("z", "large", needs=["w"]), inputs=ITEMS, output="nodes.m")
    run = await house.submit("long", inputs={"items": [1, 2, 3]})
    await house.until(run, "waiting")
    before = kept(house)
    assert len(before) == 3  # what its children gave
    for _ in range(28):
        await house.days(30)
        assert kept(house) == before

    house.clock.pass_ms(70 * DAY_MS)
    house.engine.context.live.refresh()
    await house.until(run, "completed")
    assert await output_of(house, run) == [text(f"child {number}", LARGE) for number in (1, 2, 3)]


@pytest.mark.proves("I12")
@pytest.mark.parametrize("how", ["repeats", "called", "mapped"])
async def test_what_children_of_another_run_gave_outlives_that_run(house, how):
    """A run waits while another, of whose map its values are made, leaves for the archive and goes for good."""
    wait = {"kind": "wait", "id": "w", "duration": "500d", "needs": ["a"]}
    see = task("z", "sees", needs=["w"], args={"given": {"from": "nodes.a"}})
    await house.define("inner", MAP | {"id": "a"}, inputs=ITEMS, output="nodes.a")
    first = {
        "repeats": MAP | {"id": "a"},
        "called": {"kind": "workflow", "id": "a", "workflow": "inner", "args": {"items": {"from": "inputs.items"}}},
        "mapped": {"kind": "map", "id": "a", "over": "inputs.items", "body": {
            "kind": "workflow", "workflow": "inner", "args": {"items": {"from": "inputs.items"}}}},
    }[how]  # fmt: skip
    await house.define("outer", first, wait, see, inputs=ITEMS, output="nodes.a")
    run = await house.submit("outer", inputs={"items": [1, 2, 3]})
    await house.until(run, "waiting")
    if how == "repeats":
        await house.engine.runs.cancel(run, by="test")
        run = await house.engine.runs.rerun(run, wire.RerunRequest(from_node="w"), by="test")
        await house.until(run, "waiting")
    for days in (4, 1, 100, 300, 90):
        await house.days(days)
    house.clock.pass_ms(10 * DAY_MS)
    house.engine.context.live.refresh()
    await house.until(run, "completed")

    inner = [text(f"child {number}", LARGE) for number in (1, 2, 3)]
    wanted = [inner] * 3 if how == "mapped" else inner
    assert SEEN.pop() == wanted
    for days in (1, 4, 300, 50):
        await house.days(days)
        assert await output_of(house, run) == wanted


@pytest.mark.slow
async def test_an_archived_run_is_whole_when_the_archive_of_what_it_called_is_gone(house):
    call = {"kind": "workflow", "id": "a", "workflow": "inner", "args": {"items": {"from": "inputs.items"}}}
    wait = {"kind": "wait", "id": "w", "duration": "2d", "needs": ["a"]}
    await house.define("inner", MAP, inputs=ITEMS, output="nodes.m")
    await house.define("outer", call, wait, inputs=ITEMS, output="nodes.a")
    run = await house.submit("outer", inputs={"items": [1, 2, 3]})
    async with asyncio.timeout(5):
        while not (live := house.engine.context.state.tenants["default"].runs.get(run)) or not live.results:
            await asyncio.sleep(0.01)
    house.clock.pass_ms(2 * DAY_MS + 1_000)
    house.engine.context.live.refresh()
    await house.until(run, "completed")
    for days in (2, 2):
        await house.days(days)
    assert [one.rows for one in house.disk.archives.values() if one.kind == RUNS] == [1, 1]

    for _ in range(36):
        await house.days(10)
    assert [one.rows for one in house.disk.archives.values() if one.kind == RUNS] == [1]
    assert await output_of(house, run) == [text(f"child {number}", LARGE) for number in (1, 2, 3)]


async def test_inputs_of_an_archived_child_are_read_after_its_parent_is_archived_too(house):
    large = {"kind": "task", "id": "a", "handler": "large"}
    await house.define("inner", task("b", "takes", args={"x": {"from": "inputs.x"}}), inputs={"x": {"type": "string"}})
    call = {"kind": "workflow", "id": "c", "workflow": "inner", "args": {"x": {"from": "nodes.a"}}, "needs": ["a"]}
    await house.define("outer", large, call)
    run = await house.submit("outer")
    await house.until(run, "completed")
    await house.written()
    [child] = [row.id for row in house.disk.runs.values() if row.id != run]
    before = (await house.engine.queries.run(child)).inputs
    for days in (4, 1, 300):
        await house.days(days)
    assert house.disk.runs == {}

    assert (await house.engine.queries.run(child)).inputs == before == {"x": text("large", LARGE)}


async def test_a_run_that_repeats_an_archived_one_keeps_its_values(house):
    await house.define("again", MAP, task("z", "fails", needs=["m"]), inputs=ITEMS, output="nodes.m")
    first = await house.submit("again", inputs={"items": [1, 2, 3]})
    await house.until(first, "failed")
    await house.days(4)
    await house.days(360)
    second = await house.engine.runs.rerun(first, wire.RerunRequest(from_node="z"), by="test")
    await house.until(second, "failed")
    for days in (1, 4, 100, 200, 50):
        await house.days(days)
        assert dangling(house) == set()
    assert msgspec.msgpack.decode(await house.engine.queries.value_bytes(second, "m")) == [
        text(f"child {number}", LARGE) for number in (1, 2, 3)
    ]
    for _ in range(4):
        await house.days(20)
    assert kept(house) == set()


@pytest.mark.slow
async def test_a_cached_value_is_kept_while_it_is_used_and_then_is_a_miss(house):
    calls = []
    house_value = text("cached", LARGE)
    async with house.serving(counted=lambda: calls.append(1) or house_value):
        await house.define("cached", task("a", "counted", cache={}), output="nodes.a")
        for _ in range(12):
            run = await house.submit("cached")
            await house.until(run, "completed")
            assert await output_of(house, run) == house_value
            await house.days(100)
            assert dangling(house) == set()
        assert len(calls) == 1
        for _ in range(5):
            await house.days(100)
        assert house.disk.payloads == {}
        run = await house.submit("cached")
        await house.until(run, "completed")
        assert await output_of(house, run) == house_value
        assert len(calls) == 2


async def test_a_partition_that_has_not_come_by_all_it_names_stops_the_sweep(house):
    await house.store.claim(1, owner="n2", settings=b"")
    run = await house.submit("both", inputs={})
    await house.until(run, "completed")
    before = kept(house)
    for _ in range(9):
        await house.days(100)
    assert kept(house) == before

    await house.store.note_renewal(1, epoch=1)
    await house.days(1)
    assert kept(house) == set()


@pytest.mark.parametrize("keep", [{"runs_ms": 0}, {"archive_ms": 0}])
async def test_where_something_is_kept_for_ever_so_are_values(keep):
    house = Keeping()
    house.keep = msgspec.structs.replace(KEEP, **keep)
    await house.open()
    await house.define("both", task("a", "large"), task("b", "huge", needs=["a"]))
    async with house.serving(**FUNCTIONS):
        await house.until(await house.submit("both", inputs={}), "completed")
        before = kept(house)
        for _ in range(9):
            await house.days(100)
    assert kept(house) == before != set()
    await house.engine.stop()


@pytest.mark.proves("I12")
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 8])
async def test_nothing_that_is_named_ever_goes(house, seed):
    """Runs come, wait, fail, are repeated, resolved and archived while days pass, some of them many at once."""
    chance = random.Random(seed)
    await house.define("fails", task("a", "large"), task("b", "fails", needs=["a"]), output="nodes.a")
    await house.define("waits", task("a", "huge"), {"kind": "wait", "id": "w", "duration": "500d", "needs": ["a"]})
    await house.define("cached", task("a", "large", cache={}, args={"name": {"from": "inputs.name"}}),
                       inputs={"name": {"type": "string"}}, output="nodes.a")  # fmt: skip
    await house.define("wide", MAP, inputs=ITEMS, output="nodes.m")
    known = []
    for _ in range(60):
        match chance.randrange(7):
            case 0 | 1:
                known.append(await house.submit("both", inputs={"note": text(f"n{chance.randrange(4)}", LARGE)}))
            case 2:
                known.append(await house.submit(chance.choice(["fails", "waits"])))
            case 3:
                known.append(await house.submit("cached", inputs={"name": f"c{chance.randrange(3)}"}))
            case 4:
                known.append(await house.submit("wide", inputs={"items": [chance.randrange(5) for _ in range(3)]}))
            case 5 if known:
                with contextlib.suppress(Refused):  # it still goes on, or is gone
                    known.append(await house.engine.runs.rerun(chance.choice(known), wire.RerunRequest(), by="test"))
            case _ if known:
                with contextlib.suppress(Refused):
                    await house.engine.runs.resolve(chance.choice(known), by="test")
        await asyncio.sleep(0.03)
        await house.days(chance.choice([0, 0, 1, 1, 2, 5, 30, 100, 400]))

        assert dangling(house) == set()
    live = {run.id for run in house.engine.context.state.runs.values()}
    for run in live:
        await house.engine.runs.cancel(run, by="test")
    for _ in range(6):
        await house.days(100)
    assert kept(house) == set(), "what nothing names is not kept"


@pytest.mark.parametrize(("renewals", "keep", "before"), [
    ({0: 1_000}, (3, 365), 1_000 - 365 - 6 - SLACK_DAYS),
    ({0: 1_000, 1: 900}, (3, 365), 900 - 365 - 6 - SLACK_DAYS),  # the partition that is behind
    ({0: 1_000, 1: 0}, (3, 365), 0),  # one that never came by
    ({0: 1_000}, (0, 365), 0),  # runs stay for ever, and never leave for an archive
    ({0: 1_000}, (3, 0), 0),
    ({0: 100}, (3, 365), 0),
    ({}, (3, 365), 0),
])  # fmt: skip
def test_what_was_needed_last_before_then_is_named_by_nothing(renewals, keep, before):
    runs, archive = keep

    assert swept_before(renewals, runs_ms=runs * 86_400_000, archive_ms=archive * 86_400_000) == before


def test_digests_are_found_wherever_they_are():
    one, other = Ref("a" * 64, 3_000), Ref("b" * 64, 90_000, 3, "artifact")
    row = msgspec.msgpack.encode((one, [b"x", {"deep": other}], msgspec.msgpack.encode(Ref("c" * 64, 1))))

    assert named_in([row]) == {"a" * 64, "b" * 64, "c" * 64}
