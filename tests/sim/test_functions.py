"""Random programs of durable functions in the simulated cluster: nothing is lost or doubled, and a defect is seen."""

from typing import Any

import pytest

from campaign import seeds
from sim import function_scenario as scenario
from sim.report import Violated
from tickwork.core.decide import worker_reports
from tickwork.core.evolve import functions, messages
from tickwork.sdk.durable.function import Durable

CALM = {"nodes": "1", "partitions": "1", "workers": "2", "tasks": "2", "safety_s": "90", "liveness_s": "60"}
CHANGED = {"do": "changed", "weight": 0}
SLEEP = {"do": "sleep", "pause": 30}
LONG = {"do": "sequence", "parts": [CHANGED, SLEEP, SLEEP, SLEEP]}


@pytest.mark.parametrize("seed", seeds(0, few=4, many=300))
def test_programs_return_the_sum_of_their_parts(seed):
    report = scenario.run(seed, {})

    if not report.ok:
        raise Violated(report)


@pytest.mark.parametrize("seed", seeds(70_000, few=2, many=200))
def test_parts_in_other_partitions_count_once(seed):
    faults = "node_crashes=40,worker_crashes=40,drop=0.02,duplicate=0.1,store_answer_lost=0.03,reports_twice=0.1"
    report = scenario.run(seed, {"nodes": "3", "partitions": "4", "faults": faults})

    if not report.ok:
        raise Violated(report)


# ---- safeguards taken away


def violated(monkeypatch: pytest.MonkeyPatch, *, faults: str = "", **given: Any) -> str:
    """What runs with these inputs violate first."""
    monkeypatch.setattr("function_programs.inputs", lambda *_, **__: given)
    report = scenario.run(1, CALM | {"faults": faults})
    return str(report.violations[0]) if report.violations else ""


@pytest.mark.parametrize("taken_away", [False, True])
def test_a_report_that_is_recorded_each_time_it_comes_is_found(monkeypatch, taken_away):
    if taken_away:
        monkeypatch.setattr(worker_reports, "all", lambda _: False, raising=False)
    found = violated(monkeypatch, do=LONG, rounds=1, messages=0, faults="reports_twice=1.0")

    assert ("I60: task" in found) is taken_away


@pytest.mark.parametrize("taken_away", [False, True])
def test_events_that_are_not_given_back_are_missed(monkeypatch, taken_away):
    if taken_away:
        monkeypatch.setattr(functions, "give_back", lambda *_: None)

    assert bool(violated(monkeypatch, do={"do": "sequence"}, rounds=0, messages=8)) is taken_away


@pytest.mark.parametrize("taken_away", [False, True])
def test_a_reply_that_is_forgotten_is_missed_when_its_update_is_repeated(monkeypatch, taken_away):
    if taken_away:
        monkeypatch.setattr(messages, "OUTCOMES_KEPT_MAX", 1)
    report = scenario.run(1, CALM | {"tasks": "3", "safety_s": "70", "faults": ""})

    assert any("is answered with 409" in str(found) for found in report.violations) is taken_away


@pytest.mark.parametrize("taken_away", [False, True])
def test_new_code_without_its_guard_fails_the_runs_under_way(monkeypatch, taken_away):
    if taken_away:
        monkeypatch.setattr(Durable, "version", lambda _self, _name, number: number)
    found = violated(monkeypatch, do=LONG, rounds=1, messages=0)

    assert ("StepsChanged" in found) is taken_away
