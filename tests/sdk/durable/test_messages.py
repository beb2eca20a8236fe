"""Messages and published values of a durable function, as its worker reports them."""

from typing import Any

import pytest

import tickwork as tw
from sdk.durable.history_keeper import attempt, pack
from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import FunctionHistory, HistoryEntry
from tickwork.sdk.durable.driver import Driver, Reply, value_digest


def digest_of(function: Any) -> str:
    """Of the first call of a function."""
    calls: list[tuple[int, str, str, str]] = []
    attempt(function, None, calls).advance()
    return calls[0][3]


def received(position: int, digest: str, *, name: str = "add", update: str = "u1", value: Any = None) -> HistoryEntry:
    return HistoryEntry(position, "receive", "add", digest, pack(value), message=f"{name} {update}", at_ms=2_000)


def begun(function: Any, *entries: HistoryEntry, **fields: Any) -> Driver:
    driver = attempt(function, FunctionHistory(1_000, 0, tuple(entries), **fields))
    driver.advance()
    if driver.failure is not None:
        raise driver.failure
    return driver


async def adds(ctx: tw.Durable) -> None:
    total = 0
    while True:
        ctx.publish("total", total)
        message = await ctx.receive("add")
        total += message["n"]
        message.reply(total)


def test_a_reply_and_the_latest_value_are_reported_once():
    digest = digest_of(adds)
    driver = begun(adds, received(0, digest, value={"n": 5}), open=("u1",))

    assert driver.take_replies() == [Reply("u1", pack(5))]
    assert driver.take_published() == {"total": pack(5)}
    assert not driver.has_more_to_say


def test_a_replay_repeats_nothing_that_the_server_has():
    digest = digest_of(adds)
    entries = [received(position, digest, update=f"u{position}", value={"n": 1}) for position in range(3)]
    driver = begun(adds, *entries, open=("u2",), published=(("total", value_digest(pack(2))),))

    assert [reply.update for reply in driver.take_replies()] == ["u2"]
    assert driver.take_published() == {"total": pack(3)}
    again = begun(adds, *entries, published=(("total", value_digest(pack(3))),))
    assert not again.has_more_to_say


def test_a_message_that_came_too_late_for_its_call_is_given_back():
    async def waits(ctx: tw.Durable) -> None:
        await ctx.first(ctx.sleep(1), ctx.receive("add"))
        await ctx.sleep(5)

    calls: list[tuple[int, str, str, str]] = []
    attempt(waits, None, calls).advance()
    (slept, receiving) = calls
    over = HistoryEntry(slept[0], "sleep", slept[2], slept[3], at_ms=2_000)
    late = received(receiving[0], receiving[3])
    driver = begun(waits, over, late, open=("u1",))

    assert driver.suspension().withdrawn == (receiving[0],)


def test_an_event_is_a_message_without_a_sender_who_waits():
    seen: list[tw.Message] = []

    async def takes(ctx: tw.Durable) -> None:
        message = await ctx.receive("add", timeout="1m")
        assert message is not None
        seen.append(message)
        message.reply(1)
        message.refuse("no")
        await ctx.sleep(1)

    driver = begun(takes, received(0, digest_of(takes), update="", value=None))

    assert (seen[0].name, seen[0].payload, seen[0].expects_reply) == ("add", {}, False)
    assert not driver.has_more_to_say


def test_a_second_reply_is_an_error_that_names_the_line():
    async def twice(ctx: tw.Durable) -> None:
        message = await ctx.receive("add")
        message.reply(1)
        message.reply(2)

    driver = attempt(twice, FunctionHistory(1_000, 0, (received(0, digest_of(twice)),), open=("u1",)))

    assert driver.advance()
    with pytest.raises(Refused, match=r"has its reply already\n.*test_messages.py:\d+"):
        driver.outcome()


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda ctx: ctx.receive(), "bad_receive"),
        (lambda ctx: ctx.receive(5), "bad_receive"),
        (lambda ctx: ctx.publish("no name", 1), "name_characters"),
    ],
)
def test_what_cannot_be_received_or_published_is_refused(call, code):
    async def wrong(ctx: tw.Durable) -> None:
        call(ctx)

    driver = attempt(wrong, None)
    driver.advance()
    with pytest.raises(Refused) as refused:
        driver.outcome()
    assert refused.value.code == code
