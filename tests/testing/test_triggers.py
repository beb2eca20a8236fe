"""Schedules that listen, as they stand in code, in a world in virtual time."""

from typing import Any

import pytest

import tickwork as tw
from tickwork.testing.plugin import world

__all__ = ["world"]


@tw.task
def total(orders: list[dict[str, Any]]) -> int:
    return sum(order["payload"]["total"] for order in orders if "payload" in order)


@tw.task
def pack(order: dict[str, Any]) -> str:
    return f"{order['number']} is packed"


@tw.workflow(schedule=tw.on(tw.incoming("order", where="event.total > 100")))
def ship(event: dict[str, Any]) -> str:
    return pack(event)


@tw.workflow(schedule=tw.on(tw.incoming("order") & tw.incoming("close"), name="books"))
def book(because: list[dict[str, Any]]) -> int:
    return total(because)


@tw.workflow(schedule=tw.on(tw.ended(ship), updates="coalesce") | tw.cron("0 6 * * *"))
def statistics(because: list[dict[str, Any]] = []) -> int:  # noqa: B006 - it only describes
    return total(because)


def outputs(world, workflow):
    return [run.output for run in world.runs(workflow)]


def test_events_start_runs_that_start_others_at_their_end(world):
    world.publish(ship, statistics)

    world.signal("order", payload={"number": "A-1", "total": 50})
    world.signal("order", payload={"number": "A-2", "total": 500}, id="order-2")
    world.signal("order", payload={"number": "A-2", "total": 500}, id="order-2")
    world.settle()

    assert outputs(world, ship) == ["A-2 is packed"]
    assert outputs(world, statistics) == [0]
    world.advance(days=1)
    assert outputs(world, statistics) == [0, 0]


def test_two_sources_together_start_one_run_with_all_that_came(world):
    world.publish(book)

    world.signal("order", payload={"total": 2})
    world.signal("order", payload={"total": 3})
    world.settle()
    assert world.runs(book) == []
    world.signal("close")
    world.settle()

    assert outputs(world, book) == [5]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tw.on(tw.incoming("a b")), "name"),
        (lambda: tw.on(tw.incoming("a", where="event.(")), "where"),
        (lambda: tw.on("order"), "tw.on takes"),
        (lambda: tw.ended("w", state="broken"), "state is one of"),
        (lambda: tw.cron("0 6 * * *") | tw.every("1m"), "joins updates with times"),
    ],
)
def test_what_cannot_work_is_refused_at_its_line(make, words):
    with pytest.raises(tw.Refused, match=words) as refused:
        make()

    assert "test_triggers.py:" in str(refused.value)


def test_a_workflow_that_needs_what_no_update_has_is_refused(world):
    @tw.workflow(schedule=tw.on(tw.incoming("a")))
    def lacking(region: str) -> str:
        return pack({"number": region})

    @tw.workflow(schedule=tw.on(tw.incoming("a")) | tw.cron("0 6 * * *"))
    def at_times_too(event: dict[str, Any]) -> str:
        return pack(event)

    with pytest.raises(tw.Refused, match="region"):
        world.publish(lacking)
    with pytest.raises(tw.Refused, match="event"):
        world.publish(at_times_too)
