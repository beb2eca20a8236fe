"""Every example runs, and the README shows what they print."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def output_of(path: Path) -> str:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path):
    assert output_of(path)


def test_the_readme_shows_what_the_examples_print():
    readme = (ROOT / "README.md").read_text()
    printed = {line.rstrip() for path in EXAMPLES for line in output_of(path).splitlines()}
    shown = [
        line.rstrip() for line in readme.splitlines() if line.startswith(("          2", "          3", "fetch is"))
    ]

    assert len(shown) > 10
    assert [line for line in shown if line not in printed] == []


def test_the_readme_program_is_the_example():
    readme = (ROOT / "README.md").read_text()
    example = (ROOT / "examples" / "why_not.py").read_text()
    program = readme.split("```python\n")[1].split("```")[0]
    lines = [
        line.strip()
        for line in program.splitlines()
        if line.strip().startswith(("inputs.", "from ", "nodes =", "document ="))
    ]

    assert len(lines) >= 11
    assert [line for line in lines if line not in example] == []
