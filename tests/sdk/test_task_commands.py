"""What the code of a task asks of the engine, up to the report that brings it."""

import msgspec
import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused
from tickwork.core.base.values import TASK_COMMANDS_MAX
from tickwork.protocol.task_commands import COMMANDS_BYTES_MAX, GiveEvent, StartRun, decode_commands, started_run_id
from tickwork.sdk.context import Context, commands_of


@tw.task
def double(number: int) -> int:
    return 2 * number


@tw.workflow
def target(number: int, name: str = "x") -> int:
    return double(number)


def here(attempt=1, child=-1):
    return Context(run_id="r", node="n", attempt=attempt, child=child)


def asked(context):
    data = commands_of(context)
    return () if data is None else decode_commands(data)


def test_commands_are_collected_in_their_order():
    context = here()
    first = context.start(target, 7, name="a", key="k", delay="5s", priority=8)
    context.signal("paid", {"sum": 5}, key="o-1")
    second = context.start("target", number=8)

    start, event, named = asked(context)
    assert isinstance(start, StartRun) and isinstance(event, GiveEvent) and isinstance(named, StartRun)
    given = start.submission
    assert (given.workflow, given.inputs, given.id, given.key) == ("target", {"number": 7, "name": "a"}, first, "k")
    assert (given.delay_ms, given.priority) == (5_000, 8)
    assert (event.signal.event, event.signal.key, event.signal.payload) == ("paid", "o-1", {"sum": 5})
    assert (named.submission.inputs, named.submission.id) == ({"number": 8}, second)


def test_a_task_that_asks_for_nothing_reports_nothing():
    assert commands_of(here()) is None


def test_ids_follow_from_task_attempt_and_position():
    one, again, later, other = here(), here(), here(attempt=2), here(child=3)
    ids = [one.start(target, 1), one.start(target, 1)]

    assert ids == [again.start(target, 1), again.start(target, 1)]
    assert len({*ids, later.start(target, 1), other.start(target, 1)}) == 4
    assert ids[0] == started_run_id("r", "n", -1, 1, "0")
    assert ids[0][14] == ids[0][19] == "8"


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda context: context.start(target), "bad_arguments"),
        (lambda context: context.start(target, 1, 2, 3), "bad_arguments"),
        (lambda context: context.start(target, "text"), "bad_arguments"),
        (lambda context: context.start("target", 1), "bad_start"),
        (lambda context: context.start(target, 1, delay="soon"), "duration"),
        (lambda context: context.signal("paid", object()), "unsendable"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_asked(ask, code):
    context = here()
    with pytest.raises(Refused) as refused:
        ask(context)

    assert refused.value.code.startswith(code), refused.value.code
    assert commands_of(context) is None


def test_there_is_a_limit_on_their_number_and_on_their_size():
    context = here()
    for _ in range(TASK_COMMANDS_MAX):
        context.signal("paid")
    with pytest.raises(Refused, match="at most 1000 times"):
        context.signal("paid")
    with pytest.raises(Refused, match="at most 1000 times"):
        context.start(target, 1)
    assert len(asked(context)) == TASK_COMMANDS_MAX

    large = here()
    for _ in range(2):
        large.signal("paid", "x" * (COMMANDS_BYTES_MAX // 2))
    with pytest.raises(Refused, match="16 MiB"):
        commands_of(large)


def test_commands_that_cannot_be_read_are_refused():
    with pytest.raises(Refused, match="cannot be read"):
        decode_commands(msgspec.msgpack.encode([[9, "x"]]))
