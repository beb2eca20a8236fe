"""Updates, plain messages and published values of durable functions, in the core."""

from typing import Any

import pytest

from core.decide.test_functions import Functions, assert_recovers, event, sleep, step
from driver import BY, T, task
from tickwork.core.base.values import pack, unpack
from tickwork.core.evolve.messages import OUTCOMES_KEPT_MAX
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.history import Await
from tickwork.core.state.messages import PublishedValue, UpdateOutcome, UpdateReply


def receive(position: int, *names: str, delay_ms: int = -1) -> Await:
    return Await(position, "receive", ", ".join(names), "d", delay_ms, names=names)


def reply(update: str, value: Any = None) -> UpdateReply:
    return UpdateReply(update, None if value is None else pack(value))


def published(name: str, value: Any) -> PublishedValue:
    return PublishedValue(name, f"digest of {value}", pack(value))


class Entity(Functions):
    """A run `e` of the function."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.e = self.submit("f", run_id="e")

    def update(self, key: str, name: str = "assign", payload: Any = None, **fields: Any) -> inp.SendUpdate:
        value = None if payload is None else pack(payload)
        return inp.SendUpdate(BY, T, fields.pop("run_id", "e"), name, key, f"{name} {payload}", value, **fields)

    def send_update(self, key: str, name: str = "assign", payload: Any = None) -> None:
        self.expect(self.update(key, name, payload))
        self.quiet()

    def received(self) -> list[tuple[str, Any]]:
        """What its history says that it received."""
        entries = [entry for entry in self.entries("e") if entry.kind == "receive"]
        return [(entry.message or entry.error, unpack(entry.value, what="it")) for entry in entries]

    def outcome(self, key: str) -> UpdateOutcome | None:
        live = self.run("e")
        assert live is not None
        return live.messages.outcome_of(key) if live.messages is not None else None

    def value(self, name: str) -> Any:
        live = self.run("e")
        assert live is not None and live.messages is not None
        return unpack(live.messages.published[name].value, what="it")


def test_an_update_wakes_the_function_and_gets_its_reply_with_the_next_suspension():
    driver = Entity()
    driver.suspend("e", receive(0, "assign", "shutdown"))
    ticks = len(driver.rows)
    driver.send_update("k1", payload={"count": 2})
    assert driver.is_running("e", "f")
    assert len(driver.rows) == ticks + 1
    assert driver.received() == [("assign k1", {"count": 2})]
    assert driver.outcome("k1") is None

    driver.suspend("e", receive(1, "assign"), replies=(reply("k1", ["node-1"]),))
    outcome = driver.outcome("k1")
    assert outcome is not None and unpack(outcome.value, what="it") == ["node-1"]
    assert_recovers(driver)


def test_updates_that_come_while_the_function_is_busy_wait_in_order_and_are_received_one_by_one():
    driver = Entity()
    for number in range(3):
        driver.send_update(f"k{number}", payload=number)
    driver.suspend("e", receive(0, "assign"))
    assert driver.received() == [("assign k0", 0)]
    driver.suspend("e", receive(1, "other"), replies=(reply("k0"),))
    assert driver.received() == [("assign k0", 0)]
    driver.send_update("x", "other")
    driver.suspend("e", receive(2, "assign"), replies=(reply("x"),))
    driver.suspend("e", receive(3, "assign"), replies=(reply("k1"),))
    assert [words for words, _ in driver.received()] == ["assign k0", "other x", "assign k1", "assign k2"]
    assert_recovers(driver)


def test_a_plain_event_for_the_run_is_received_too_and_only_by_name():
    driver = Entity()
    driver.suspend("e", receive(0, "ping"), event(1, "paid"))
    driver.signal("ping", 7, run_id="e", key="any")
    assert driver.received() == [("ping ", 7)]


def test_an_event_of_the_same_name_does_not_take_an_update():
    driver = Entity()
    driver.suspend("e", event(0, "assign"))
    driver.send_update("k")
    assert driver.state_of("e") == "WAITING"


def test_nothing_that_is_received_in_time_ends_with_a_time_out():
    driver = Entity()
    driver.suspend("e", receive(0, "assign", delay_ms=1_000))
    driver.advance(1_000)
    assert driver.received() == [("timeout", None)]
    driver.finish("e", "f")
    driver.assert_empty()


def test_a_repeated_key_is_the_same_update_in_the_inbox_received_and_replied_to():
    driver = Entity()
    driver.send_update("k", payload=1)
    driver.send_update("k", payload=1)
    live = driver.run("e")
    assert live is not None and live.signals is not None and len(live.signals) == 1
    driver.suspend("e", receive(0, "assign"))
    driver.send_update("k", payload=1)
    driver.suspend("e", receive(1, "assign"), replies=(reply("k", 5),))
    driver.send_update("k", payload=1)
    assert driver.received() == [("assign k", 1)]
    duplicates = [event for _, _, events in driver.rows for event in events if isinstance(event, ev.Duplicate)]
    assert len(duplicates) == 3
    assert driver.refusal(driver.update("k", payload=2)) == "key_reused"


def test_only_the_first_reply_counts():
    driver = Entity()
    driver.send_update("k")
    driver.suspend("e", receive(0, "assign"))
    refusal = UpdateReply("k", None, True, "too few nodes")
    driver.suspend("e", sleep(1, 10), replies=(refusal, reply("k", 1), reply("unknown", 2)))
    outcome = driver.outcome("k")
    assert outcome is not None and (outcome.refused, outcome.reason) == (True, "too few nodes")
    assert driver.outcome("unknown") is None


def test_the_latest_replies_are_kept():
    driver = Entity()
    for number in range(OUTCOMES_KEPT_MAX + 2):
        driver.send_update(f"k{number}")
        driver.suspend("e", receive(number, "assign"))
        driver.record("e", step(10_000 + number), replies=(reply(f"k{number}"),))
    live = driver.run("e")
    assert live is not None and live.messages is not None
    assert len(live.messages.outcomes) == OUTCOMES_KEPT_MAX
    assert (driver.outcome("k1"), driver.outcome("k2") is None) == (None, False)


def test_what_the_function_gave_up_meanwhile_is_received_by_a_later_call():
    driver = Entity()
    driver.suspend("e", receive(0, "assign"), sleep(1, 10))
    driver.send_update("k", payload=4)
    driver.send_update("later")
    driver.suspend("e", receive(2, "assign"), withdrawn=(0, 1))
    assert driver.received() == [("assign k", 4)] * 2
    assert [entry.kind for entry in driver.entries("e")] == ["receive", "withdrawn", "withdrawn", "receive"]
    driver.suspend("e", receive(3, "assign"), replies=(reply("k"),))
    assert driver.received()[2][0] == "assign later"
    assert_recovers(driver)


def test_the_inbox_and_published_values_survive_a_continuation_and_what_was_received_is_refused():
    driver = Entity()
    for key in ("k0", "k1"):
        driver.send_update(key)
    driver.suspend("e", receive(0, "assign"), published=(published("n", 3),))
    attempt = driver.attempt_of("e", "f")
    del driver.running[attempt.task]
    driver.expect(inp.Continued(attempt.task, attempt.attempt, pack({"n": 3})))
    driver.quiet()
    outcome = driver.outcome("k0")
    assert outcome is not None and outcome.refused
    assert driver.value("n") == 3
    driver.suspend("e", receive(1, "assign"))
    assert driver.received() == [("assign k1", {})]


def test_published_values_are_the_latest_of_each_name_and_stay_with_an_ended_run():
    driver = Entity()
    driver.record("e", step(0), published=(published("nodes", [1]), published("n", 0)))
    driver.suspend("e", sleep(1, 10), published=(published("nodes", [1, 2]),))
    assert (driver.value("nodes"), driver.value("n")) == ([1, 2], 0)
    assert_recovers(driver)
    driver.advance(10)
    driver.finish("e", "f")
    kept = driver.records["e"].messages
    assert kept is not None and sorted(kept.published) == ["n", "nodes"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "no name"}, "name_characters"),
        ({"key": ""}, "bad_key"),
        ({"key": "k" * 256}, "key_too_long"),
        ({"run_id": "graph"}, "no_receiver"),
        ({"run_id": "nobody"}, "unknown_run"),
    ],
)
def test_an_update_that_nobody_could_reply_to_is_refused(fields, code):
    driver = Entity()
    driver.define("graph", task("g"))
    driver.submit("graph", run_id="graph")
    assert driver.refusal(driver.update(**{"key": "k", **fields})) == code


def test_a_full_inbox_refuses():
    driver = Entity()
    for number in range(1_000):
        driver.expect(inp.SendUpdate(BY, T, "e", "assign", f"k{number}", ""))
    assert driver.refusal(driver.update("one-more")) == "too_many_events"


@pytest.mark.parametrize(
    "fields",
    [
        {"awaits": (Await(0, "receive", "", "d"),)},
        {"awaits": (receive(0, "no name"),)},
        {"published": (published("no name", 1),)},
        {"published": (published("large", "x" * 2_000),)},
        {"published": tuple(published(f"v{number}", 1) for number in range(101))},
        {"replies": (reply("k", "x" * 2_000),)},
    ],
)
def test_what_cannot_be_taken_fails_the_function(fields):
    driver = Entity()
    attempt = driver.attempt_of("e", "f")
    del driver.running[attempt.task]
    driver.send(inp.Suspended(attempt.task, attempt.attempt, (), **{"awaits": (sleep(0, 1),), **fields}))
    driver.quiet()
    assert driver.state_of("e") == "FAILED"


def test_a_failed_run_that_is_retried_knows_its_replies_and_values():
    driver = Entity()
    driver.send_update("k", payload=1)
    driver.suspend("e", receive(0, "assign"), sleep(1, 10))
    driver.suspend("e", sleep(2, 10), withdrawn=(1,), replies=(reply("k", 5),), published=(published("n", 3),))
    driver.advance(10)
    driver.fail("e", "f", permanent=True)
    assert driver.state_of("e") == "FAILED"
    driver.expect(inp.Resolve(BY, T, "e", "again", record=driver.records["e"]))
    driver.quiet()
    driver.send_update("k", payload=1)
    outcome = driver.outcome("k")
    assert outcome is not None and unpack(outcome.value, what="it") == 5
    assert driver.value("n") == 3
    assert driver.run("e").signals is None  # type: ignore[union-attr]
