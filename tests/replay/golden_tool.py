"""`tools/golden.py` as a module. Its folder is not put on the path, where a tool would hide a folder of tests."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def load() -> ModuleType:
    if "golden" not in sys.modules:
        spec = spec_from_file_location("golden", Path(__file__).parents[2] / "tools" / "golden.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules["golden"] = module_from_spec(spec)  # msgspec looks its types up there
        spec.loader.exec_module(module)
    return sys.modules["golden"]


golden = load()
