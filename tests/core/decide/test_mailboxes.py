"""Mailboxes: events of a declared name are kept for their key, taken once and in order, and each has a fate."""

from typing import Any

import pytest

from core.decide.test_functions import Functions, assert_recovers, call, event, sleep
from driver import BY, T, document, task
from tickwork.core.base.values import Ref, pack
from tickwork.core.state import inputs as inp
from tickwork.core.state.mailboxes import FATES_KEPT_MAX, Mailbox

KEEP_MS = 60_000


class Mail(Functions):
    """A partition with the mailbox `reply` for up to three messages of a key, and a graph that waits for one."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        node = {"kind": "event", "id": "e", "event": "reply", "key": "inputs.key"}
        inputs = {"key": {"type": "string", "default": "k1"}}
        self.define("graph", node, task("t", needs=["e"]), inputs=inputs)
        self.put(**fields)

    def put(self, name: str = "reply", keep_ms: int = KEEP_MS, capacity: int = 3, fields: bytes = b"{}") -> None:
        self.expect(inp.PutMailbox(BY, T, name, keep_ms, capacity, fields))

    def mail(self, payload: Any = None, key: str = "k1", **fields: Any) -> str:
        """What the sender hears."""
        before = len(self.answers)
        self.send(inp.Ingest(BY, T, "reply", key, payload=None if payload is None else pack(payload), **fields))
        self.quiet()
        return self.answers[before].code or self.answers[before].message

    @property
    def mailbox(self) -> Mailbox:
        return self.state.tenants[T].mailboxes["reply"]

    def fates(self) -> list[tuple[str, str]]:
        messages = sorted(self.mailbox.messages(), key=lambda message: message.number)
        return [(message.fate, message.run) for message in messages]


def test_messages_are_kept_and_taken_in_order_each_by_one_function():
    driver = Mail()
    assert [driver.mail(number) for number in range(3)] == ["kept"] * 3
    run = driver.submit("f")
    driver.suspend(run, event(0, "reply", "k1"))
    assert driver.outcomes(run) == [(0, "event", 0, "")]
    driver.suspend(run, event(1, "reply", "k1"), event(2, "reply", "k1"), event(3, "reply", "k1"))
    assert driver.outcomes(run)[1:] == [(1, "event", 1, ""), (2, "event", 2, "")]
    assert driver.mail(3) == "1 waiting"
    assert driver.fates() == [("taken", run)] * 4
    assert_recovers(driver)


def test_a_message_has_one_taker_although_many_wait():
    driver = Mail()
    runs = [driver.submit("f") for _ in range(3)]
    for run in runs:
        driver.suspend(run, event(0, "reply", "k1"))
    assert driver.mail({"n": 1}) == "1 waiting"
    assert [driver.state_of(run) for run in runs] == ["ACTIVE", "WAITING", "WAITING"]
    assert driver.fates() == [("taken", runs[0])]


def test_an_event_node_takes_a_kept_message_when_it_begins_and_one_that_comes_later():
    driver = Mail()
    driver.mail({"n": 1})
    first = driver.submit("graph")
    assert driver.is_running(first, "t")
    second = driver.submit("graph")
    assert driver.state_of(second) == "WAITING"
    assert_recovers(driver)
    driver.mail({"n": 2})
    driver.finish_all()
    assert [driver.result(run, "e") for run in (first, second)] == [{"n": 1}, {"n": 2}]
    assert [run for _, run in driver.fates()] == [first, second]
    assert_recovers(driver)


def test_keys_have_queues_of_their_own():
    driver = Mail()
    driver.mail("other", key="k2")
    run = driver.submit("f")
    driver.suspend(run, event(0, "reply", "k1"))
    assert driver.state_of(run) == "WAITING"
    assert list(driver.mailbox.queues) == ["k2"]


def test_a_message_expires_after_its_time_and_nobody_gets_it():
    driver = Mail()
    driver.mail(1)
    driver.advance(KEEP_MS - 1)
    assert driver.fates() == [("kept", "")]
    assert_recovers(driver)
    driver.advance(1)
    assert driver.fates() == [("expired", "")]
    run = driver.submit("f")
    driver.suspend(run, event(0, "reply", "k1"))
    assert driver.state_of(run) == "WAITING"
    assert_recovers(driver)


def test_a_full_queue_refuses_and_says_so_in_the_list():
    driver = Mail(capacity=2)
    assert [driver.mail(number) for number in range(3)] == ["kept", "kept", "mailbox_full"]
    assert driver.mail(key="k2") == "kept"
    assert driver.fates() == [("kept", ""), ("kept", ""), ("refused", ""), ("kept", "")]
    assert_recovers(driver)


def test_a_full_queue_still_serves_those_who_wait():
    driver = Mail(capacity=1)
    run = driver.submit("f")
    driver.suspend(run, event(0, "reply", "k1"), sleep(1, 10))
    assert driver.mail(1) == "1 waiting"
    assert driver.mail(2) == "kept"
    assert driver.mail(3) == "mailbox_full"


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"message": "hello"}, "kept"),
        ({"message": "hello", "urgent": True}, "kept"),
        ({"message": 5}, "wrong_type"),
        ({}, "missing_field"),
        (None, "missing_field"),
        ({"message": "hello", "more": 1}, "unknown_field"),
        ("hello", "bad_payload"),
    ],
)
def test_a_payload_that_does_not_fit_the_declared_fields_is_refused(payload, code):
    driver = Mail(fields=b'{"message": {"type": "string"}, "urgent": {"type": "boolean", "required": false}}')
    assert driver.mail(payload) == code


def test_an_event_that_is_for_one_run_does_not_lie_in_the_mailbox():
    driver = Mail()
    run = driver.submit("f")
    driver.signal("reply", 1, run_id=run, key="k1")
    assert driver.fates() == []
    driver.suspend(run, event(0, "reply", "k1"))
    assert driver.outcomes(run) == [(0, "event", 1, "")]


def test_a_mailbox_that_is_declared_anew_keeps_what_it_has():
    driver = Mail()
    driver.mail(1)
    driver.put(keep_ms=5_000, capacity=1)
    assert driver.mail(2) == "mailbox_full"
    driver.advance(5_000)
    assert driver.fates()[0] == ("kept", "")


def test_a_mailbox_is_removed_when_it_keeps_nothing():
    driver = Mail(capacity=1)
    driver.mail(1)
    driver.mail(2)
    assert driver.refusal(inp.RemoveMailbox(BY, T, "reply")) == "mailbox_not_empty"
    driver.advance(KEEP_MS)
    driver.expect(inp.RemoveMailbox(BY, T, "reply"))
    assert driver.refusal(inp.RemoveMailbox(BY, T, "reply")) == "unknown_mailbox"
    assert not len(driver.state.messages)
    assert_recovers(driver)
    assert driver.mail(3) == "0 waiting"


def test_the_latest_fates_are_kept():
    driver = Mail(capacity=1)
    driver.mail()
    for number in range(FATES_KEPT_MAX + 5):
        driver.mail(number)
    assert len(driver.fates()) == FATES_KEPT_MAX + 1
    assert (driver.mailbox.kept, driver.mailbox.refused) == (1, FATES_KEPT_MAX + 5)
    assert_recovers(driver)


def test_a_large_payload_is_kept_as_its_reference():
    driver = Mail()
    large = Ref("ab", 5_000)
    driver.expect(inp.Ingest(BY, T, "reply", "k1", payload=large))
    message = driver.mailbox.first("k1")
    assert message is not None and message.payload == large


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "no name"}, "name_characters"),
        ({"keep_ms": 999}, "bad_keep"),
        ({"capacity": 0}, "bad_capacity"),
        ({"capacity": 10_001}, "bad_capacity"),
        ({"fields": b"no"}, "bad_fields"),
        ({"fields": b'{"n": {"type": "money"}}'}, "wrong_value"),
    ],
)
def test_a_declaration_with_problems_is_refused(fields, code):
    put = {"name": "reply", "keep_ms": KEEP_MS, "capacity": 3, "fields": b"{}", **fields}
    assert Mail().refusal(inp.PutMailbox(BY, T, **put)) == code


# ---- signals to runs and what is below them


def parent_and_child() -> tuple[Functions, str, str]:
    """A graph without events of its own, whose child waits for one after its first task."""
    driver = Functions()
    child = document("child", task("a"), {"kind": "event", "id": "e", "event": "paid", "needs": ["a"]})
    driver.expect(inp.PutDefinition(BY, T, child))
    driver.define("parent", {"kind": "workflow", "id": "c", "workflow": "child"})
    run = driver.submit("parent")
    below = next(other for other in driver.state.runs.values() if other.parent)
    return driver, run, below.id


def test_a_signal_to_a_run_reaches_a_child_that_waits():
    driver, run, child = parent_and_child()
    driver.finish(child, "a")
    driver.signal("paid", {"n": 1}, run_id=run)
    assert driver.state_of(run) == "COMPLETED"
    assert pack({"n": 1}) in [value for _, value in driver.records[child].results]


def test_a_signal_to_a_run_is_kept_by_the_child_that_may_still_wait_for_it():
    driver, run, child = parent_and_child()
    driver.signal("paid", {"n": 1}, run_id=run)
    driver.finish(child, "a")
    assert driver.state_of(run) == "COMPLETED"


def test_a_signal_that_neither_the_run_nor_its_children_could_take_is_refused():
    driver, run, _ = parent_and_child()
    assert driver.refusal(inp.Ingest(BY, T, "nonsense", "", run)) == "unknown_event"


def test_a_run_that_waits_itself_takes_the_signal_before_its_children():
    driver = Functions()
    run = driver.submit("f")
    driver.suspend(run, event(0, "paid"), call(1, "f"))
    child = next(other for other in driver.state.runs.values() if other.parent).id
    driver.suspend(child, event(0, "paid"))
    driver.signal("paid", 1, run_id=run)
    assert (driver.outcomes(run), driver.outcomes(child)) == ([(0, "event", 1, "")], [])
    driver.signal("paid", 2, run_id=run)
    assert driver.outcomes(child) == [(0, "event", 2, "")]
