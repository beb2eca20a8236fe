"""The plugin in somebody else's project."""

import subprocess
import sys
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
pytest_plugins = ["pytester"]

PROJECT = """
    import tickwork as tw
    import pytest

    @tw.task
    def hello(name: str) -> str:
        return f"hello {name}"

    @tw.workflow
    def greet(name: str):
        return hello(name)

    def test_greets(world):
        assert world.run(greet, name="Ada").output == "hello Ada"

    @pytest.mark.tickwork(now="2030-01-01T00:00:00Z")
    def test_begins_when_it_is_told(world):
        assert world.now.year == 2030

    @pytest.mark.tickwork("2031-01-01T00:00:00Z")
    def test_begins_when_it_is_told_in_short(world):
        assert world.now.year == 2031

    def test_fails_with_a_story(world):
        world.fail(hello, error=TimeoutError("slow"))
        world.run(greet, name="Ada").assert_completed()
"""


def test_a_project_gets_the_fixture_and_readable_failures(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it may be installed, or not
    pytester.makepyfile(PROJECT)

    result = pytester.runpytest_subprocess(
        "-p", "tickwork.testing.plugin", "-p", "no:cacheprovider", "--strict-markers"
    )

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*of greet, failed: hello: TimeoutError: slow* should be completed*"])


def test_a_project_that_does_not_use_it_does_not_load_it():
    code = "import tickwork.testing.plugin, sys; print([n for n in sys.modules if n.startswith('tickwork.')])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": SOURCE}
    ).stdout

    assert loaded.strip() == "['tickwork.testing', 'tickwork.testing.plugin']"
