"""One server of several processes: what each of them hears."""

import sys

import msgspec
import pytest

from tickwork.compose.cluster import NodeProcesses, child_environment
from tickwork.compose.settings import Settings, load


def test_each_process_has_all_settings_and_none_as_an_argument(tmp_path):
    given = Settings(
        store="postgresql://ann:secret@db/x", token="t", retention_runs="1d", lease_ttl="7s", server_processes=4, port=0
    )
    env = child_environment(given, {"PATH": "/bin", "TICKWORK_TOKEN": "old", "TICKWORK_DEBUG": "1"})
    read = load({}, env=env, here=tmp_path)

    assert read == msgspec.structs.replace(given, server_processes=1)
    assert env["PATH"] == "/bin" and env["TICKWORK_DEBUG"] == "1"


def test_what_a_file_says_otherwise_does_not_reach_a_process(tmp_path):
    (tmp_path / "tickwork.toml").write_text('role = "api"\nport = 9000\naudit = true\nleases = "redis://r"\n')
    given = load({"role": "all", "port": 8440, "audit": False, "leases": ""}, env={}, here=tmp_path)

    read = load({}, env=child_environment(given, {}), here=tmp_path)

    assert (read.role, read.port, read.audit, read.leases) == ("all", 8440, False, "")


@pytest.mark.parametrize("code", [0, 78])
def test_processes_that_cannot_start_as_set_are_told_by_the_exit_code(monkeypatch, code):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    said = []
    program = f"import sys, time; time.sleep({0 if code else 0.3}); sys.exit({code})"
    found = NodeProcesses([sys.executable, "-c", program], 2, env={}, tell=said.append)
    if not code:
        said.clear()
        found._end()

    assert found.run() == code
    assert bool(said) == bool(code)
