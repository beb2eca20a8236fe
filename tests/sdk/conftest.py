"""Applications written by tests: loaded from real files, and forgotten afterwards."""

import sys

import pytest

from tickwork.sdk.authoring.app_loader import load_app
from tickwork.sdk.authoring.declared import DECLARED, INSTANCES


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Writes files, loads the first, and forgets all of them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    declared, instances = len(DECLARED), dict(INSTANCES)

    def write(text, target="app.py", **others):
        (tmp_path / "app.py").write_text("import tickwork as tw\n" + text)
        for name, content in others.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.with_suffix(".py").write_text(content)
        return load_app(target)

    yield write
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
        if any(str(place).startswith(str(tmp_path)) for place in places):
            del sys.modules[name]
    del DECLARED[declared:]
    INSTANCES.clear()
    INSTANCES.update(instances)
