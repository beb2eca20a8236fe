"""The tool of the long load rows in a few seconds, so that it works on the day it is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tickwork
from servers import PLACE

ROOT = Path(__file__).parents[2]
SOURCES = Path(tickwork.__file__).parent.parent
PATIENCE_S = 200


def soak(tmp_path: Path, *words: str) -> tuple[dict, str]:
    found = tmp_path / "found.json"
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": PLACE}  # the database's user gets in
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "soak.py", "--json", found, *words],
        capture_output=True,
        text=True,
        env=env,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return json.loads(found.read_text()), ran.stdout


@pytest.mark.slow
@pytest.mark.proves("I25", "I29", "I30")
def test_without_faults_every_task_begins_once_and_has_one_result(tmp_path):
    found, said = soak(tmp_path, "--row", "L12", "--tasks", "2000", "--rate", "400", "--check")

    assert found["L12"]["tasks"] >= 2_000
    assert found["L12"]["never_begun"] == found["L12"]["begun_twice"] == found["L12"]["results_doubled"] == 0
    assert "never begun" in said


@pytest.mark.slow
def test_the_long_rows_can_be_measured(tmp_path):
    """In seconds nothing is proved of memory and bloat; that is for the long form."""
    found, said = soak(tmp_path, "--row", "L14,L15", "--minutes", "0.1", "--rate", "200")

    assert found["L14"]["first_commit_p95_ms"] > 0 and found["L14"]["last_commit_p95_ms"] > 0
    assert found["L14"]["kept_growth_bytes"] >= 0
    assert found["L15"]["server_mib"] > 20 and found["L15"]["worker_mib"] > 20
    assert 0 < found["L15"]["restart_s"] < 30
    assert "slope of the server's memory" in said
