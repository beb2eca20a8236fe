"""The plugin as users get it, also where the package is not installed with its entry points."""

import pytest

from tickwork.sdk.authoring.declared import INSTANCES
from tickwork.testing.plugin import world

__all__ = ["world"]


@pytest.fixture(autouse=True)
def forgets_instances():
    """Tests of other folders may run after these in one process, and load applications of their own."""
    known = dict(INSTANCES)
    yield
    INSTANCES.clear()
    INSTANCES.update(known)
