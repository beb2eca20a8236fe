"""The checks find what they are for: each is shown something that is wrong. And the wire does what it says."""

import asyncio
import contextlib
import random
import time

import pytest

from chaos import checks
from chaos.checks import Start, check_beliefs, check_promises, check_recovery, check_starts, check_waits, check_weight
from chaos.faults import KINDS, Fault, plan
from chaos.verdicts import Verdict, table
from chaos.watch import Beliefs, Epochs, Starts
from chaos.wire import COMMIT, Wire
from tickwork.ports.store import RunRow
from tickwork.stores.run_blocks import blocks_of

S = 1_000_000_000
KEY = "default/r1/quick"


class Told:
    """A load that is over."""

    def __init__(self, **workflows: str) -> None:
        self.accepted = {run: (run, workflow) for run, workflow in workflows.items()}
        self.tasks = len(workflows)
        self.asked_again, self.wrong, self.failing, self.enqueued = 0, [], {}, 0

    def learn(self, ids: dict[str, str]) -> None:
        """Nothing of it was enqueued by SQL."""


def broken(verdicts: list[Verdict]) -> set[str]:
    return {one.name for one in verdicts if not one.kept}


def fault(**fields) -> Fault:
    return Fault(**{"kind": "kill_worker", "target": "w1", "began_ns": 10 * S, "ended_ns": 11 * S} | fields)


AGAIN = "a task starts again only where a fault touched it"


@pytest.mark.parametrize(
    ("starts", "faults", "wrong"),
    [
        ([Start(KEY, 1, 7, 8, S)], [], set()),
        ([], [], {"every task started"}),
        ([Start(KEY, 1, 7, 8, S), Start(KEY, 1, 7, 8, 2 * S)], [], {"an attempt starts once", AGAIN}),
        ([Start(KEY, 1, 7, 8, S), Start(KEY, 2, 9, 10, 20 * S)], [], {AGAIN}),  # no fault at all
        ([Start(KEY, 1, 7, 8, S), Start(KEY, 2, 9, 10, 20 * S)], [fault(workers=frozenset([7]))], set()),
        ([Start(KEY, 1, 7, 8, S), Start(KEY, 2, 9, 10, 20 * S)], [fault(workers=frozenset([5]))], {AGAIN}),  # another's
        ([Start(KEY, 1, 7, 8, S), Start(KEY, 2, 9, 10, 9 * S)], [fault(workers=frozenset([7]))], {AGAIN}),  # later
        ([Start(KEY, 1, 7, 8, 90 * S), Start(KEY, 2, 9, 10, 99 * S)], [fault(workers=frozenset([7]))], {AGAIN}),
    ],
)
def test_a_second_start_needs_a_fault_of_its_own(starts, faults, wrong):
    assert broken(check_starts(starts, faults, Told(r1="one"))) == wrong


def test_what_is_meant_to_fail_first_may_start_twice_and_no_more():
    key = "default/r1/flaky"
    twice = [Start(key, 1, 7, 8, S), Start(key, 2, 7, 8, 2 * S)]

    assert broken(check_starts(twice, [], Told(r1="again"))) == set()
    assert broken(check_starts([*twice, Start(key, 3, 7, 8, 3 * S)], [], Told(r1="again"))) == {AGAIN}


def test_a_wait_that_is_cut_short_is_found_by_the_clock_on_the_wall():
    def waited(ms: int) -> Verdict:
        first, second = Start("default/r1/quick", 1, 7, 8, S), Start("default/r1/brief", 1, 7, 8, S + ms * 1_000_000)
        return check_waits([first, second], Told(r1="later"), allowed_ms=200)

    assert waited(1_000).kept and waited(800).kept
    assert not waited(799).kept
    assert not check_waits([], Told(r1="later"), allowed_ms=200).kept  # nothing was seen


def test_too_little_is_no_verdict():
    load = Told(r1="one", r2="one")

    assert check_weight(load, [fault()], ["kill_worker"], tasks_min=2).kept
    assert not check_weight(load, [fault()], ["kill_worker"], tasks_min=3).kept
    assert not check_weight(load, [fault()], ["kill_worker", "kill_node"], tasks_min=2).kept


def test_a_rate_that_does_not_come_back_breaks_the_verdict():
    in_time, late = fault(within_s=30.0, recovered_s=3.0), fault(within_s=30.0)

    assert broken(check_recovery([in_time])) == set()
    assert broken(check_recovery([in_time, late])) == {"rate back after kill_worker"}
    assert "BROKEN" in table(check_recovery([late]))


class Database:
    """Answers as the stage's would."""

    def __init__(self, *answers: list) -> None:
        self.answers = list(answers)

    async def ask_database(self, sql: str, *args: object) -> list:
        if not self.answers:
            await asyncio.Event().wait()
        return self.answers.pop(0)


def run_row(id: str, *, key: str = "", state: int = checks.COMPLETED) -> RunRow:
    return RunRow(int(id[1:]), id, "t", "one", "d", state, "api", "me", 1, 2, 3, key, "", "", b"", b"", b"")


@pytest.mark.parametrize(
    ("rows", "live", "wrong"),
    [
        ([run_row("r1"), run_row("r2")], 0, set()),
        ([run_row("r1")], 0, {"nothing acknowledged is lost"}),
        ([run_row("r1"), run_row("r2", state=5)], 0, {"nothing acknowledged is lost"}),
        ([run_row("r1", key="k"), run_row("r2", key="k")], 0, {"one key, one run"}),
        ([run_row("r1"), run_row("r2"), run_row("r3")], 0, {"nothing from nowhere"}),
        ([run_row("r1"), run_row("r2")], 1, {"nothing is left over"}),
    ],
)
async def test_lost_doubled_and_unasked_runs_are_found(rows, live, wrong):
    assert broken(await found_of(rows, Told(r1="one", r2="one"), live=live)) == wrong


async def found_of(rows: list[RunRow], load: Told, *, live: int = 0) -> list[Verdict]:
    packed = [(block.data,) for block in blocks_of(rows)]
    return await checks.check_runs(Database(packed, [[live]]), load)


async def test_an_epoch_that_comes_back_or_has_two_owners_is_found():
    epochs = Epochs(Database([(0, 3, "n1")], [(0, 4, "n2")], [(0, 3, "n1")], [(0, 4, "n3")]))
    job = asyncio.create_task(epochs.run())
    while epochs.looks < 4:
        await asyncio.sleep(0.01)
    job.cancel()

    assert epochs.wrong == ["partition 0: epoch 3 after 4", "partition 0: epoch 4 of n3 and another"]


async def test_poison_that_does_not_fail_is_lost():
    load = Told(r1="one")
    load.failing = {"p2": "p2"}
    failed, completed = run_row("p2", state=checks.FAILED), run_row("p2")

    assert broken(await found_of([run_row("r1"), failed], load)) == set()
    assert broken(await found_of([run_row("r1"), completed], load)) == {"nothing acknowledged is lost"}


@pytest.mark.parametrize(
    ("looks", "faults", "kept"),
    [
        ([{"n1": [0, 1], "n2": [2]}], [], True),
        ([{"n1": [0, 1], "n2": [2]}, {"n1": [0], "n2": [0]}, {"n1": [], "n2": [0]}], [], True),
        ([{"n1": [0], "n2": [0]}] * 10, [], False),  # nine times five seconds
        ([{"n1": [0], "n2": [0]}, {"n1": [], "n2": [0]}] * 10, [], True),  # each time anew
        ([{"n1": [0], "n2": [0]}] * 2, [], False),
        ([{"n1": [0], "n2": [0]}] * 2, [fault(kind="pause_node")], True),  # one of them stood still
        ([], [], False),
    ],
)
def test_two_that_call_a_partition_theirs_for_too_long_are_found(looks, faults, kept):
    beliefs = Beliefs(type("Stage", (), {"nodes": ()}))
    for place, owned in enumerate(looks):
        beliefs.note(owned, 5.0 * place)

    assert check_beliefs(beliefs, faults).kept is kept


def test_what_a_kind_found_itself_breaks_its_promise():
    good, bad = fault(kind="burst"), fault(kind="burst", wrong=["not all were done"])

    assert broken(check_promises([good])) == set()
    assert broken(check_promises([good, bad])) == {"a burst is worked off"}
    assert [one.proves for one in check_promises([good])] == ["F26"]
    assert check_promises([fault()]) == []


def test_a_seed_is_one_plan_and_every_kind_is_in_it():
    first, again, other = (plan(random.Random(seed), 40, list(KINDS)) for seed in (1, 1, 2))

    assert first == again != other
    assert set(first[: len(KINDS)]) == set(KINDS)


async def test_a_rate_is_back_when_a_stretch_of_time_has_it(tmp_path):
    starts = Starts(type("Stage", (), {"ledger": tmp_path / "ledger"}))
    begin = time.monotonic() - 100
    for tenth in range(200):  # nothing for four seconds, then ten a second
        starts._times.append(begin + tenth / 10)
        starts._counts.append(max(0, tenth - 40))

    assert await starts.back(begin, 9.5, within_s=10) == pytest.approx(4.0, abs=0.2)
    assert await starts.back(begin, 9.5, within_s=3) is None


class Echo(asyncio.Protocol):
    heard: list[bytes]

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        type(self).heard.append(data)
        self.transport.write(b"done " + data)


async def test_a_wire_loses_the_answer_to_a_commit_and_not_the_commit():
    Echo.heard = []
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    async with server, Wire(server.sockets[0].getsockname()[1]) as wire:

        async def talk(*words: bytes) -> list[bytes]:
            reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
            found = []
            try:
                for word in words:
                    writer.write(word)
                    found.append(await reader.read(1000))
            finally:
                writer.transport.abort()
                await asyncio.sleep(0)
            return found

        wire.lose_answer()
        assert await talk(b"select", b"select") == [b"done select", b"done select"]  # it commits nothing
        assert await talk(COMMIT, b"one") == [b"done " + COMMIT, b""]
        assert Echo.heard[-1] == b"one" and wire.answers_lost == 1
        assert await talk(COMMIT, b"two") == [b"done " + COMMIT, b"done two"]

        wire.cut()
        with contextlib.suppress(OSError):
            assert await talk(b"three") == [b""]
        assert b"three" not in Echo.heard
        wire.mend()
        assert await talk(b"four") == [b"done four"]
        wire.silence()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk(b"five"), 0.1)
        assert b"five" not in Echo.heard


async def test_a_wire_that_works_one_way_and_one_that_is_slow():
    Echo.heard = []
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    async with server, Wire(server.sockets[0].getsockname()[1]) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        wire.slow(0.1)
        began = time.monotonic()
        writer.write(b"late")
        assert await reader.read(1000) == b"done late" and time.monotonic() - began >= 0.1
        writer.write(b"first")
        await asyncio.sleep(0.02)
        wire.mend()
        writer.write(b"second")
        assert await reader.readexactly(21) == b"done firstdone second"  # none overtakes another

        wire.deafen()
        writer.write(b"unheard")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1000), 0.1)
        assert Echo.heard[-1] == b"unheard"
        wire.mend()
        assert await reader.read(1000) == b""  # what was swallowed is gone, and the connection with it
        writer.transport.abort()
