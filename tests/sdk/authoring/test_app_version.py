"""The version of an application: the same code has the same one in every process, other code another."""

import subprocess
import sys

import pytest

from tickwork.sdk.authoring.app_loader import load_app

CODE = """
import tickwork as tw

@tw.task
def work() -> int:
    return {answer}

@tw.workflow
def daily() -> int:
    return work()
"""


@pytest.fixture(autouse=True)
def _nobody_says(monkeypatch):
    monkeypatch.delenv("TICKWORK_APP_VERSION", raising=False)


def version_of(folder, answer):
    file = folder / f"shop{answer}.py"
    file.write_text(CODE.format(answer=answer))
    try:
        return load_app(str(file)).version
    finally:
        sys.modules.pop(file.stem, None)  # the next one is loaded anew


def test_it_follows_the_code(tmp_path):
    first = version_of(tmp_path, 1)

    assert first == version_of(tmp_path, 1)
    assert first != version_of(tmp_path, 2)
    assert len(first) == 12


def test_it_is_the_same_in_another_process(tmp_path):
    here = version_of(tmp_path, 1)
    shop = str(tmp_path / "shop1.py")
    code = f"from tickwork.sdk.authoring.app_loader import load_app; print(load_app({shop!r}).version)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == here


def test_somebody_may_say_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TICKWORK_APP_VERSION", "2026.3")

    assert version_of(tmp_path, 1) == "2026.3"
