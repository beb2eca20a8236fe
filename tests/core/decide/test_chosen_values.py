"""Values that stand where a definition may also have a constant: resolved when the node begins, or refused by name."""
# ruff: noqa: E501 - a node reads best on one line of its table

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.base.values import Ref
from tickwork.core.definition.document import accept
from tickwork.core.explain.why_not import why_not
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import ChildDispatched, QueueChosen, StepEnded, TaskDispatched

ANY = {name: {"type": "any", "required": False} for name in ("x", "items")}


def flow(*nodes, **inputs):
    driver = Driver()
    driver.define("flow", *nodes, inputs=ANY)
    return driver, driver.submit("flow", inputs=inputs)


def reason(driver, node="n"):
    index = driver.state.plans[next(iter(driver.records.values())).definition].index[node]
    return next(event.reason for event in driver.events(StepEnded) if event.step == index)


@pytest.mark.parametrize("kind", [{"kind": "event", "event": "e"}, {"kind": "approval"}])
@pytest.mark.parametrize(("value", "ms"), [("5m", 300_000), ("PT300S", 300_000), ("250ms", 250)])
def test_an_event_or_approval_takes_its_time_limit_from_a_value(kind, value, ms):
    driver, run = flow({"id": "n", **kind, "timeout_from": "inputs.x", "on_timeout": "continue"}, x=value)
    driver.advance(ms - 1)
    assert driver.state_of(run) == "WAITING"

    driver.advance(1)
    assert driver.state_of(run) == "COMPLETED"


def test_a_time_limit_may_be_part_of_a_result_and_none_is_no_limit():
    driver, run = flow(
        task("a"),
        {"kind": "event", "id": "n", "event": "e", "needs": ["a"], "timeout_from": "nodes.a.limit"},
    )
    driver.finish(run, "a", {"limit": None})
    driver.advance(10**12)

    assert driver.state_of(run) == "WAITING"


def test_the_length_of_a_wait_may_be_a_value():
    driver, run = flow({"kind": "wait", "id": "n", "duration_from": "inputs.x"}, x="1h")
    driver.advance(3_599_999)
    assert driver.state_of(run) == "WAITING"

    driver.advance(1)
    assert driver.state_of(run) == "COMPLETED"


@pytest.mark.parametrize(
    ("node", "value", "words"),
    [
        ({"kind": "event", "event": "e", "timeout_from": "inputs.x"}, 30, "n.timeout: inputs.x is 30, which has no unit"),
        ({"kind": "approval", "timeout_from": "inputs.x"}, "soon", "n.timeout: 'soon' is not a duration"),
        ({"kind": "wait", "duration_from": "inputs.x"}, {"a": 1}, 'n.duration: inputs.x is {"a":1}'),
        ({"kind": "event", "event": "e", "timeout_from": "inputs.x"}, "0s", "n.timeout: the duration is shorter"),
        ({**task("n"), "queue_from": "inputs.x"}, "nobody", "n.queue: no worker serves the queue 'nobody'"),
        ({**task("n"), "queue_from": "inputs.x"}, "a b", "n.queue: "),
        ({**task("n"), "queue_from": "inputs.x"}, [1], "n.queue: inputs.x is [1]; a name is text"),
        ({**task("n"), "labels_from": {"zone": "inputs.x"}}, "a b", "n.labels.zone: "),
        (
            {"kind": "map", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}, "max_parallel_from": "inputs.x"},
            0,
            "n.max_parallel: inputs.x is 0; it must be a whole number from 1",
        ),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_fails_the_node_and_names_it(node, value, words):
    driver, run = flow({**node, "id": "n"}, x=value, items=[1])

    assert driver.state_of(run) == "FAILED"
    assert words in reason(driver)
    driver.assert_empty()


@pytest.mark.parametrize("body", [{"kind": "task", "handler": "h"}, {"kind": "workflow", "workflow": "one"}])
@pytest.mark.parametrize(("value", "first"), [(2, 2), (None, 5)])
def test_a_value_says_how_many_items_of_a_map_run_at_once(body, value, first):
    driver = Driver()
    driver.define("one", task("a"))
    node = {"kind": "map", "id": "m", "over": "inputs.items", "max_parallel_from": "inputs.x", "body": body}
    driver.define("flow", node, inputs=ANY)
    run = driver.submit("flow", inputs={"items": [1, 2, 3, 4, 5], "x": value})

    assert len(driver.running) == first
    if value and body["kind"] == "task":
        assert "no more than 2 run at once" in str(why_not(driver.state, T, run))
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"


def with_workers(*nodes, **inputs):
    """Two more workers, each with a queue of its own; `left` has a label too."""
    driver = Driver()
    driver.send(inp.Offer("left", 5, ("left",), {"zone": "a"}), inp.Offer("right", 5, ("right",)))
    driver.define("flow", *nodes, inputs=ANY)
    return driver, driver.submit("flow", inputs=inputs)


def worker_of(driver, run, node, child=None):
    return driver.state.tasks[driver.attempt_of(run, node, child).task].worker.id


def test_a_task_goes_to_the_queue_that_a_result_names_and_stays_there_when_it_is_tried_again():
    driver, run = with_workers(task("a"), task("n", needs=["a"], queue_from="nodes.a.host", retry=2))
    driver.finish(run, "a", {"host": "right"})
    assert worker_of(driver, run, "n") == "right"

    driver.fail(run, "n")
    driver.advance(10_000)
    assert worker_of(driver, run, "n") == "right"
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    assert driver.events(QueueChosen) == [QueueChosen(driver.records[run].number, 1, "right")]


@pytest.mark.parametrize(
    ("node", "events"),
    [
        ({"kind": "map", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}}, ChildDispatched),
        (
            {
                "kind": "repeat",
                "until": "iteration == 3",
                "max_iterations": 3,
                "body": {"kind": "task", "handler": "h"},
            },
            TaskDispatched,
        ),
    ],
)
def test_all_children_go_to_the_queue_that_was_chosen_when_their_node_began(node, events):
    node = {**node, "id": "n", "body": {**node["body"], "queue_from": "inputs.x"}}
    driver, run = with_workers(node, x="left", items=[1, 2, 3])
    driver.finish_all()

    left = next(worker.number for worker in driver.state.workers.values() if worker.id == "left")
    assert driver.state_of(run) == "COMPLETED"
    assert [event.worker for event in driver.events(events)] == [left] * 3


def test_a_label_may_come_from_a_value_and_none_leaves_it_out():
    node = task("n", queue="left", labels_from={"zone": "inputs.x"})
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "left"))
    driver.send(inp.Offer("left", 5, ("left",), {"zone": "a"}))
    driver.define("flow", node, inputs=ANY)
    here, nowhere, anywhere = (driver.submit("flow", inputs={"x": value}) for value in ("a", "b", None))

    assert worker_of(driver, here, "n") == worker_of(driver, anywhere, "n") == "left"
    assert driver.phase(nowhere, "n") == "READY"


def test_no_value_for_a_queue_is_the_queue_of_the_definition():
    driver, run = with_workers(task("n", queue_from="inputs.x"), x=None)

    assert worker_of(driver, run, "n") == "w1"


def test_a_value_that_is_not_inline_is_read_before_the_node_begins():
    driver = Driver()
    driver.define(
        "flow",
        task("a"),
        {
            "kind": "event",
            "id": "n",
            "event": "e",
            "needs": ["a"],
            "timeout_from": "nodes.a.t",
            "on_timeout": "continue",
        },
    )
    run = driver.submit("flow")
    large = {"t": "2s", "pad": "x" * 5_000}
    attempt = driver.attempt_of(run, "a")
    driver.payloads["large"] = large
    del driver.running[attempt.task]
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, Ref("large", 5_100)))
    driver.quiet()
    assert driver.state_of(run) == "WAITING"

    driver.advance(2_000)
    assert driver.state_of(run) == "COMPLETED"


@pytest.mark.parametrize(
    ("node", "path", "code"),
    [
        ({"kind": "event", "event": "e", "timeout": "5m", "timeout_from": "inputs.x"}, "nodes[0].timeout_from", "given_twice"),
        ({"kind": "wait", "duration": "5m", "duration_from": "inputs.x"}, "nodes[0]", "wait_choice"),
        ({**task("n"), "queue": "a", "queue_from": "inputs.x"}, "nodes[0].queue_from", "given_twice"),
        ({**task("n"), "labels": {"a": "1"}, "labels_from": {"a": "inputs.x"}}, "nodes[0].labels_from.a", "given_twice"),
        ({**task("n"), "queue_from": "inputs.y"}, "nodes[0].queue_from", "unknown_reference"),
        ({**task("n"), "queue_from": "nodes.later"}, "nodes[0].queue_from", "unknown_reference"),
        (
            {"kind": "map", "over": "inputs.x", "body": {**task(""), "handler": "h", "queue_from": "item"}},
            "nodes[0].body.queue_from",
            "reference_scope",
        ),
    ],
)  # fmt: skip
def test_a_document_gives_a_constant_or_a_reference_that_exists(node, path, code):
    with pytest.raises(InvalidDefinition) as invalid:
        accept({"name": "flow", "nodes": [{**node, "id": "n"}], "inputs": ANY})

    assert [(problem.path, problem.code) for problem in invalid.value.problems] == [(path, code)]
