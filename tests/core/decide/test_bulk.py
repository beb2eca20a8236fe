"""Bulk operations in the core: each run once, in the order of the selection, and a report that adds up."""

import pytest

from driver import Driver
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RunState

BY, TENANT = "ann", "acme"
ACTIVE, FAILED = int(RunState.ACTIVE), int(RunState.FAILED)
DOCUMENT = b'{"name": "one", "format": 1, "nodes": [{"kind": "task", "id": "a", "handler": "h"}]}'


@pytest.fixture
def driver():
    driver = Driver(set_up=False)
    driver.send(inp.PutQueue(BY, "default"), inp.PutTenant(BY, TENANT), inp.PutDefinition(BY, TENANT, DOCUMENT))
    driver.send(*(inp.Submit(BY, TENANT, name, "one") for name in ("a", "b", "c")))
    driver.quiet()
    return driver


def start(count=3, **changes):
    fields = {"by": BY, "tenant": TENANT, "bulk": "job", "action": "cancel", "selection": "d", "count": count}
    return inp.StartBulk(**fields | {"criteria": "{}", "per_second": 10} | changes)


def cancel(run, place, was=ACTIVE):
    return inp.Cancel(BY, TENANT, run, "", bulk=inp.BulkPlace("job", place, was))


def report(driver):
    job = driver.state.tenants[TENANT].bulks["job"]
    return job.position, job.done, job.changed, job.refused, bool(job.ended)


def codes(outcome):
    return [effect.code for effect in outcome.effects if getattr(effect, "code", "")]


def test_a_job_acts_on_each_run_and_ends_with_the_last(driver):
    driver.send(start())
    driver.send(cancel("a", 0), cancel("b", 1))
    assert report(driver) == (2, 2, 0, {}, False)
    driver.send(cancel("c", 2))

    assert report(driver) == (3, 3, 0, {}, True)
    assert driver.state.tenants[TENANT].cancelled == 3


def test_a_request_that_comes_again_or_too_early_counts_for_nothing(driver):
    driver.send(start())
    driver.send(cancel("a", 0))
    driver.send(cancel("a", 0), cancel("c", 2))

    assert report(driver) == (1, 1, 0, {}, False)
    assert driver.state.tenants[TENANT].runs.get("c") is not None


def test_what_changed_meanwhile_and_what_is_refused_is_counted_apart(driver):
    driver.send(start())
    driver.send(inp.Cancel(BY, TENANT, "a"))
    driver.send(inp.Cancel(BY, TENANT, "a", left_as=int(RunState.CANCELLED), bulk=inp.BulkPlace("job", 0, ACTIVE)))
    driver.send(inp.SkipInBulk(TENANT, "b", "unknown_definition", "it is gone", inp.BulkPlace("job", 1, ACTIVE)))
    driver.send(cancel("c", 2, was=FAILED))  # live again: a rule that would take it says so by its own code

    job = driver.state.tenants[TENANT].bulks["job"]
    assert (job.done, job.changed, job.refused) == (1, 1, {"unknown_definition": 1})
    assert job.samples == [("b", "unknown_definition")]


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (start(count=0), "selection"),
        (start(action="delete"), "action"),
        (start(per_second=0), "per_second"),
        (start(bulk="no name"), "id"),
    ],
)
def test_a_job_without_runs_action_or_rate_is_refused(driver, request_, path):
    driver.send(request_)

    assert driver.state.tenants[TENANT].bulks == {}
    assert driver.state.refused == 1
    assert path


def test_the_same_job_twice_is_one_and_another_under_its_id_is_refused(driver):
    driver.send(start(), start())
    driver.send(start(selection="other"))

    assert list(driver.state.tenants[TENANT].bulks) == ["job"]
    assert driver.state.refused == 1


def test_a_cancelled_job_acts_no_more(driver):
    driver.send(start())
    driver.send(cancel("a", 0), inp.CancelBulk(BY, TENANT, "job", "wrong filter"))
    driver.send(cancel("b", 1), inp.CancelBulk(BY, TENANT, "job"))

    assert report(driver) == (1, 1, 0, {}, True)
    assert driver.state.tenants[TENANT].bulks["job"].cancelled == "ann: wrong filter"
    assert driver.state.tenants[TENANT].runs.get("b") is not None


def test_jobs_survive_a_snapshot_and_old_reports_go(driver):
    for number in range(60):
        driver.send(start(bulk=f"job-{number}"), inp.CancelBulk(BY, TENANT, f"job-{number}"))
    driver.send(start())
    driver.send(cancel("a", 0))
    assert len(driver.state.tenants[TENANT].bulks) == 50  # the latest reports, and the job that goes on

    again = restore(*capture(driver.state))
    assert digest(again) == digest(driver.state)
    assert again.tenants[TENANT].bulks["job"].done == 1
