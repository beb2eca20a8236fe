"""Resolving a run whose join has more parents than a byte can count."""

from driver import BY, Driver, T, task
from tickwork.core.state import inputs as inp


def test_a_join_behind_more_parents_than_a_byte_counts_can_be_resolved():
    driver = Driver(credit=1_000)
    parents = [f"p{number}" for number in range(300)]
    driver.define("wide", *(task(name) for name in parents), task("join", needs=parents))
    run_id = driver.submit("wide")
    for name in parents:
        driver.fail(run_id, name)
    driver.send(inp.Resolve(BY, T, run_id, "again", {}, {}, driver.records[run_id]))

    driver.finish_all()

    assert driver.records[run_id].state == 4
