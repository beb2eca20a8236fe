"""Crashed hosts leave things behind; they are collected here, before another test could be blamed for them."""

import pytest

from sim.cluster import silent_deaths


@pytest.fixture(autouse=True, scope="module")
def _buried_here():
    with silent_deaths():
        yield
