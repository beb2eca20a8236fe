"""The pytest plugin: the fixture `world`. Nothing else is loaded until a test requests it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tickwork.testing.world import World


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "tickwork(now): what time it is when the `world` of this test begins")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> "Iterator[World]":
    """A server and a worker for this test alone, in virtual time."""
    from tickwork.testing.world import World

    marker = request.node.get_closest_marker("tickwork")
    options = {} if marker is None else dict(zip(("now",), marker.args, strict=False)) | marker.kwargs
    with World(**options) as made:
        yield made
