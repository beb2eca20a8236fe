"""What a scheduled run is given."""

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack, unpack
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state import inputs as inp

EVERY_MINUTE = ScheduleSpec(every_ms=60_000, anchor_ms=1_800_000_000_000)


def test_a_workflow_that_asks_for_its_scheduled_time_gets_the_nominal_one():
    driver = Driver()
    fields = {"scheduled_time": {"type": "datetime"}, "n": {"type": "integer"}}
    driver.define("w", task("a"), inputs=fields)
    driver.expect(inp.PutSchedule(BY, T, "s", "w", EVERY_MINUTE, inputs=pack({"n": 3})))

    driver.advance(60_000)

    [run] = [run for run in driver.state.runs.values() if run.schedule == "s"]
    assert unpack(run.inputs, what="inputs") == {"n": 3, "scheduled_time": "2027-01-15T08:01:00Z"}


def test_a_workflow_that_does_not_ask_is_given_nothing_more():
    driver = Driver()
    driver.define("w", task("a"))
    driver.expect(inp.PutSchedule(BY, T, "s", "w", EVERY_MINUTE))

    driver.advance(60_000)

    assert [run.inputs for run in driver.state.runs.values()] == [None]
