"""The examples of docs/testing.md are tests of their own, and pass."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
pytest_plugins = ["pytester"]


def test_the_examples_of_the_documentation_pass(pytester, monkeypatch):
    text = (ROOT / "docs" / "testing.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("\n\n".join(examples))

    result = pytester.runpytest_subprocess("-p", "tickwork.testing.plugin", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=5)
