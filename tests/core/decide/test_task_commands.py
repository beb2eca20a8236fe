"""What tasks ask of the engine with their results: runs to begin, events to give."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import TASK_COMMANDS_MAX as COMMANDS_MAX
from tickwork.core.base.values import Ref, pack, unpack
from tickwork.core.decide.commands.task_commands import OUTBOX_MAX
from tickwork.core.explain.run_history import why
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import SendCommand
from tickwork.journal.record import Row
from tickwork.journal.replay import Recorder, replay

HERE, OTHER = 0, 3


def flow(**settings):
    driver = Driver(**settings)
    driver.define("parent", task("a", retry={"attempts": 2, "delay": "1s"}), task("b", needs=["a"]))
    driver.define("target", task("t"), inputs={"x": {"type": "integer"}})
    driver.define("waiter", {"kind": "event", "id": "e", "event": "paid", "key": "inputs.k"},
                  inputs={"k": {"type": "string"}})  # fmt: skip
    return driver


def start(run_id="new", *, x=1, workflow="target", key="", body="", to=(), **terms):
    options = inp.SubmitOptions(key=key, body=body, **terms) if key or terms else None
    inputs = None if x is None else x if isinstance(x, Ref) else pack({"x": x})
    return inp.TaskCommand(inp.Submit(BY, T, run_id, workflow, inputs, options), to)


def signal(event="paid", key="o-1", payload=None, to=()):
    return inp.TaskCommand(inp.Ingest(BY, T, event, key, "", None if payload is None else pack(payload)), to)


def report(driver, run, *commands, node="a", value=None):
    attempt = driver.attempt_of(run, node)
    return inp.Succeeded(
        attempt.task, attempt.attempt, None if value is None else pack(value), commands=tuple(commands)
    )


def finish(driver, run, *commands, node="a"):
    """The outcome of the tick that decides."""
    asked = report(driver, run, *commands, node=node)
    del driver.running[asked.task]
    outcome = driver.send(asked)
    driver.quiet()
    return outcome


def sent(outcome):
    return [effect for effect in outcome.effects if isinstance(effect, SendCommand)]


def started(driver):
    return [driver.rows[row][1][event.input].commands[event.command].request.run_id
            for row, event in enumerated(driver, ev.RunSubmitted) if event.command >= 0]  # fmt: skip


def enumerated(driver, kind):
    return [(row, event) for row, (_, _, events) in enumerate(driver.rows) for event in events if type(event) is kind]


def history(driver, run):
    rows = [Row(seq, tick, "", asked, events) for seq, (tick, asked, events) in enumerate(driver.rows, 1)]
    return why(rows, T, run, settings=driver.settings)


def test_a_result_that_is_accepted_begins_its_runs_and_gives_its_events_in_its_tick():
    driver = flow()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    run = driver.submit("parent")
    outcome = finish(driver, run, start("new", x=7), signal(payload={"sum": 5}))

    assert [type(event) for event in outcome.events][:3] == [ev.RunSubmitted, ev.TaskAnswered, ev.TaskSucceeded]
    assert driver.is_running("new", "t") and driver.is_running(run, "b")
    assert unpack(driver.state.tenants[T].runs.get("new").inputs, what="inputs") == {"x": 7}
    assert driver.result(waiter, "e") == {"sum": 5}
    driver.finish_all()
    driver.assert_empty()


def test_a_report_that_is_stale_begins_nothing():
    driver = flow()
    run = driver.submit("parent")
    stale = report(driver, run, start("new"), signal())
    driver.fail(run, "a")
    driver.advance(1_000)
    driver.send(stale, inp.Succeeded(stale.task, stale.attempt + 1, sender="somebody", commands=stale.commands))

    assert len(enumerated(driver, ev.StaleReport)) == 2
    assert started(driver) == []


def test_a_report_that_is_repeated_begins_nothing_more():
    driver = flow()
    run = driver.submit("parent")
    asked = report(driver, run, start("new"))
    del driver.running[asked.task]
    driver.send(asked, asked)
    driver.send(asked)

    assert started(driver) == ["new"]
    assert len(enumerated(driver, ev.StaleReport)) == 2


@pytest.mark.parametrize(
    ("wrong", "code", "place"),
    [
        (start("n2", workflow="nobody"), "unknown_workflow", "commands[2].workflow"),
        (start("n2", x=None), "missing_input", "commands[2].inputs"),
        (start("n2", x="text"), "wrong_type", "commands[2].inputs"),
        (start("not an id"), "bad_run_id", "commands[2].run_id"),
        (start("n2", key="k" * 256), "key_too_long", "commands[2].key"),
        (start("n2", priority=77), "bad_priority", "commands[2].priority"),
        (start("n2", key="taken", body="other"), "key_reused", "commands[2].key"),
        (signal("no name"), "name_characters", "commands[2].event"),
        (signal(key="k" * 256), "key_too_long", "commands[2].key"),
        (signal(payload="x" * 2_000), "value_too_large", "commands[2].payload"),
    ],
)
def test_where_one_command_is_refused_none_is_done_and_the_task_fails_with_the_reason(wrong, code, place):
    driver = flow()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    driver.submit("target", "held", inputs={"x": 1}, key="taken", body="mine")
    run = driver.submit("parent")
    finish(driver, run, start("new"), signal(), wrong, start("later"))

    [failure] = [event for _, event in enumerated(driver, ev.TaskFailed)]
    assert (failure.code, failure.dead) == (code, True)
    assert failure.message.startswith(place)
    assert started(driver) == []
    assert driver.state_of(waiter) == "WAITING"
    assert driver.state_of(run) == "FAILED"
    assert [alert.kind for alert in driver.alerts] == ["dead_letter", "run_failed"]


def test_a_refusal_that_passes_by_itself_is_tried_again_with_the_retries_of_the_task():
    driver = flow(max_live_runs=3)
    run = driver.submit("parent")
    finish(driver, run, start("n1"), start("n2"), start("n3"))
    assert started(driver) == []
    [retrying] = [event for _, event in enumerated(driver, ev.TaskRetrying)]
    assert retrying.cause == "overloaded"

    driver.advance(2_000)
    finish(driver, run, start("n1"), start("n2"))
    assert started(driver) == ["n1", "n2"]


def test_there_is_a_limit_on_the_commands_of_one_task():
    driver = flow()
    run = driver.submit("parent")
    finish(driver, run, *[start(f"n{number}") for number in range(COMMANDS_MAX + 1)])

    [failure] = [event for _, event in enumerated(driver, ev.TaskFailed)]
    assert failure.code == "too_many_commands" and str(COMMANDS_MAX) in failure.message
    other = driver.submit("parent")
    finish(driver, other, *[start(f"n{number}") for number in range(COMMANDS_MAX)])
    assert len(started(driver)) == COMMANDS_MAX


def test_a_key_begins_one_run_also_within_one_list():
    driver = flow()
    first, second = driver.submit("parent"), driver.submit("parent")
    finish(driver, first, start("n1", key="k", body="same"), start("n2", key="k", body="same"))
    finish(driver, second, start("n3", key="k", body="same"))

    assert started(driver) == ["n1"]
    assert [event.run_id for _, event in enumerated(driver, ev.Duplicate)] == ["n1", "n1"]
    assert driver.is_running(first, "b") and driver.is_running(second, "b")


def test_two_bodies_under_one_key_of_a_list_are_refused_before_anything_begins():
    driver = flow()
    run = driver.submit("parent")
    finish(driver, run, start("n1", key="k", body="one"), start("n2", key="k", body="two"))

    assert started(driver) == []
    assert [event.code for _, event in enumerated(driver, ev.TaskFailed)] == ["key_reused"]


def test_a_key_whose_run_has_left_memory_is_known_by_the_fact_beside_it():
    driver = flow()
    run = driver.submit("parent")
    known = inp.KnownRun("old", "same", driver.tick)
    finish(driver, run, start("n1", key="k", body="same", known=known))

    assert started(driver) == []
    assert [event.run_id for _, event in enumerated(driver, ev.Duplicate)] == ["old"]


def test_a_start_may_be_later_and_have_a_priority():
    driver = flow()
    run = driver.submit("parent")
    finish(driver, run, start("n1", delay_ms=5_000, priority=9))
    assert driver.state_of("n1") == "PENDING"
    driver.advance(5_000)

    assert driver.is_running("n1", "t")
    assert driver.state.tenants[T].runs.get("n1").priority == 9


def test_the_result_of_a_task_with_commands_is_not_kept_for_others():
    driver = flow()
    driver.define("cached", task("a", cache={"ttl": "1h"}, handler_version="1"))
    finish(driver, driver.submit("cached"), start("n1"))
    second = driver.submit("cached")
    assert driver.is_running(second, "a")
    finish(driver, second)

    third = driver.submit("cached")
    assert driver.state_of(third) == "COMPLETED"


def test_a_child_of_a_map_starts_runs_too():
    driver = flow()
    body = {"kind": "task", "handler": "h"}
    driver.define("wide", {"kind": "map", "id": "m", "over": "inputs.items", "body": body},
                  inputs={"items": {"type": "array"}})  # fmt: skip
    run = driver.submit("wide", inputs={"items": [1, 2]})
    for child in range(2):
        attempt = driver.attempt_of(run, "m", child)
        del driver.running[attempt.task]
        driver.send(inp.Succeeded(attempt.task, attempt.attempt, commands=(start(f"n{child}"),)))
    driver.quiet()

    assert [driver.state.tenants[T].runs.get(f"n{child}").source for child in range(2)] == [
        f"task m[0] of {run}", f"task m[1] of {run}",
    ]  # fmt: skip


def test_histories_say_what_a_result_brought_about_and_where_a_run_came_from():
    driver = flow()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    run = driver.submit("parent")
    finish(driver, run, start("new"), start("keyed", key="k"), signal(), start("keyed-2", key="k"))
    driver.finish_all()

    source = history(driver, "new").source
    assert (source.kind, source.node, source.of) == ("task", "a", run)
    assert source.detail == f"started by task a of {run}"
    assert history(driver, "new").entries[0].detail == f"started by task a of {run}"
    told = [entry.detail for entry in history(driver, run).entries if entry.node == "a"]
    assert told[-1] == (
        "result accepted; run new of target begins; run keyed of target begins, unless key 'k' has one; "
        "event paid is given to key 'o-1'; run keyed-2 of target begins, unless key 'k' has one"
    )
    assert "it starts no other: run keyed has begun under this key before" in told
    assert "event paid came with the result of a task" in [entry.detail for entry in history(driver, waiter).entries]


# ---- to another partition


def acknowledge(driver, *commands, code=""):
    driver.send(*(inp.Acknowledged(effect.partition, effect.command.number, code, "no") for effect in commands))


def test_what_is_for_another_partition_is_sent_there_and_not_done_here():
    driver = flow()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    run = driver.submit("parent")
    effects = sent(finish(driver, run, start("new", key="k", to=(OTHER,)), signal(to=(HERE, OTHER, 5))))

    assert [(effect.partition, effect.command.number) for effect in effects] == [(OTHER, 1), (OTHER, 2), (5, 1)]
    assert [effect.command.origin for effect in effects] == [f"task a of {run}"] * 3
    assert started(driver) == []
    assert driver.state_of(waiter) == "COMPLETED"
    assert [len(waiting) for waiting in driver.state.outbox.values()] == [2, 1]
    assert violations(driver.state) == []

    acknowledge(driver, *effects)
    assert driver.state.outbox == {}
    assert driver.state.sent == {OTHER: 2, 5: 1}


def test_what_waits_survives_a_restart_and_goes_on_with_the_next_number():
    driver = flow()
    run = driver.submit("parent")
    finish(driver, run, start("new", key="k", x=Ref("ab" * 32, 5_000), to=(OTHER,)), signal(payload=[1], to=(OTHER,)))
    restored = restore(*capture(driver.state))

    assert restored.outbox == driver.state.outbox and restored.sent == driver.state.sent
    assert digest(restored) == digest(driver.state)
    driver.machine = Machine(restored)
    driver.state = restored
    second = sent(finish(driver, run, signal(to=(OTHER,)), node="b"))
    assert [effect.command.number for effect in second] == [3]


def test_an_acknowledgement_counts_once_and_in_order():
    driver = flow()
    run = driver.submit("parent")
    one, two = sent(finish(driver, run, signal(to=(OTHER,)), signal(to=(OTHER,))))
    assert driver.refusal(inp.Acknowledged(OTHER, 2)) == "out_of_order"
    acknowledge(driver, one)
    acknowledge(driver, one)
    assert [command.number for command in driver.state.outbox[OTHER]] == [2]
    acknowledge(driver, two)
    acknowledge(driver, one, two)

    assert driver.state.outbox == {}
    assert len(enumerated(driver, ev.CommandAcknowledged)) == 2


def test_a_refusal_of_the_other_partition_raises_an_alarm():
    driver = flow()
    run = driver.submit("parent")
    [effect] = sent(finish(driver, run, start("new", key="k", to=(OTHER,))))
    acknowledge(driver, effect, code="key_reused")

    [alert] = [alert for alert in driver.alerts if alert.kind == "command_refused"]
    assert (alert.subject, alert.detail) == (
        "new", f"partition {OTHER} refused what task a of {run} asked for: key_reused: no",
    )  # fmt: skip


def test_commands_do_not_pile_up_for_a_partition_that_does_not_answer():
    driver = flow()
    runs = [driver.submit("parent") for _ in range(OUTBOX_MAX // COMMANDS_MAX + 1)]
    for run in runs:
        finish(driver, run, *[signal(to=(OTHER,))] * COMMANDS_MAX)

    assert len(driver.state.outbox[OTHER]) == OUTBOX_MAX
    [retrying] = [event for _, event in enumerated(driver, ev.TaskRetrying)]
    assert retrying.cause == "outbox_full"


def delivered(number, command, sender=OTHER):
    return inp.Delivered(sender, number, command.request, "task a of elsewhere")


def test_a_command_of_another_partition_is_decided_once():
    driver = flow()
    driver.expect(delivered(1, start("new", key="k")), delivered(2, signal()))
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    driver.expect(delivered(1, start("new", key="k")), delivered(2, signal()))
    driver.quiet()

    assert driver.state_of(waiter) == "WAITING"
    assert len(enumerated(driver, ev.RunSubmitted)) == 2
    assert driver.state.received == {OTHER: 2}
    source = history(driver, "new").source
    assert (source.kind, source.of, source.detail) == ("task", "elsewhere", "started by task a of elsewhere")
    driver.expect(delivered(3, signal()))
    driver.quiet()
    assert driver.state_of(waiter) == "COMPLETED"


def test_a_command_of_another_partition_that_is_refused_is_decided_too():
    driver = flow()
    assert driver.refusal(delivered(1, start("new", workflow="nobody"))) == "unknown_workflow"
    assert driver.refusal(delivered(1, start("new", workflow="nobody"))) == ""

    assert driver.state.received == {OTHER: 1}
    assert [event.code for _, event in enumerated(driver, ev.CommandReceived)] == ["unknown_workflow"]


def test_a_command_for_which_there_is_no_room_is_not_decided_yet():
    driver = flow(max_live_runs=1)
    driver.submit("parent")
    assert driver.refusal(delivered(1, start("new", key="k"))) == "overloaded"
    assert driver.state.received == {}
    driver.finish_all()

    assert driver.refusal(delivered(1, start("new", key="k"))) == ""
    assert driver.state.received == {OTHER: 1}


def test_a_gap_in_the_commands_of_a_partition_is_refused():
    driver = flow()
    assert driver.refusal(delivered(2, signal())) == "out_of_order"
    assert driver.refusal(delivered(1, signal(), sender=HERE)) == "out_of_order"
    assert driver.state.received == {}


def test_a_journal_with_commands_is_decided_again_to_the_same_events():
    driver = flow()
    run = driver.submit("parent")
    effects = sent(finish(driver, run, start("new", key="k"), signal(to=(HERE, OTHER))))
    acknowledge(driver, *effects)
    driver.send(delivered(1, start("other", key="k2")), delivered(2, signal()))
    driver.finish_all()
    recorder = Recorder(rules=driver.machine.rules)
    rows = [recorder.row(tick, asked, events) for tick, asked, events in driver.rows]
    again, folded = Machine(settings=driver.settings), Machine(settings=driver.settings)
    replay(rows, again)
    for tick, asked, events in driver.rows:
        folded.fold(tick, asked, events)

    assert digest(again.state) == digest(folded.state) == digest(driver.state)
