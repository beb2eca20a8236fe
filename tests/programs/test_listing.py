"""The public examples of other schedulers whose behaviour our programs have, and which of them have it in full.

direct   the program says it without a work-around
gap      a part of the behaviour is missing; docs/choosing.md names it
not yet  it needs a feature that does not exist
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "A1": ("programs/sensors.py", "direct"),
    "A2": ("programs/data_aware.py", "direct"),
    "A3": ("programs/nested_setup.py", "direct"),
    "A4": ("programs/typed_inputs.py", "direct"),
    "A5": ("programs/short_circuit.py", "direct"),
    "A6": ("programs/editors.py", "direct"),
    "T1": ("programs/cluster_manager.py", "direct"),
    "T2": ("batch_sliding_window.py", "direct"),
    "T3": ("programs/sleep_for_days.py", "direct"),
    "T4": ("programs/same_host.py", "direct"),
    "T5": ("programs/cancellation.py", "direct"),
    "T6": ("programs/polling.py", "direct"),
    "P1": ("programs/gpu_models.py", "direct"),
    "P2": ("programs/database_cleanup.py", "direct"),
    "P3": ("programs/social_dashboard.py", "direct"),
    "P4": ("programs/new_releases.py", "direct"),
    "N1": ("programs/checkout.py", "direct"),
    "N2": ("programs/trip_saga.py", "direct"),
    "N3": ("programs/tenant_queues.py", "direct"),
    "N4": ("programs/support_ticket.py", "direct"),
    "C1": ("programs/result_graph.py", "direct"),
    "C2": ("web_crawler.py", "direct"),
    "M1": ("programs/flash_sale.py", "direct"),
    "M2": ("programs/dead_mans_switch.py", "direct"),
}
ROW = re.compile(r"^\| ([A-Z]\d) \|.*\|(.*)\| (direct|gap|not yet)\b.*\|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """The table of docs/choosing.md: the file that each row links to, and its verdict."""
    found = ROW.findall((ROOT / "docs" / "choosing.md").read_text())
    links = {row: re.findall(r"\]\(\.\./examples/([^)]+)\)", cells) for row, cells, _ in found}
    return {row: ((links[row] or [""])[0], verdict) for row, _, verdict in found}


def test_the_documented_table_is_this_one():
    assert rows() == PROGRAMS


def test_enough_of_the_programs_are_said_directly():
    verdicts = [verdict for _, verdict in PROGRAMS.values()]

    assert len(verdicts) == 24
    assert verdicts.count("direct") >= 24


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples" / "programs").glob("*.py")))
def test_a_program_has_a_row_and_tests(name):
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))

    assert f"programs/{name}.py" in {path for path, _ in PROGRAMS.values()}
    assert f'program("{name}")' in tests


@pytest.mark.parametrize("path", [path for path, _ in PROGRAMS.values() if path])
def test_a_program_is_short(path):
    assert len((ROOT / "examples" / path).read_text().splitlines()) <= 110
