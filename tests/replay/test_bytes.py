"""Stored and transmitted bytes, and the names that users see, are those of the samples.

`PYTHONPATH=tests python -m replay.byte_samples` writes samples that are missing; `--again` writes all of them, which is
right only where a format was changed on purpose and old data can still be read.
"""

from typing import get_args

import pytest

from replay import byte_samples
from tickwork.protocol import child_messages, worker_messages

SAMPLES = byte_samples.samples()
CHANGED = """
Other versions, stored data or users see this. Keep it as it is. Where it is changed on purpose and compatibly (a field
at the end, a new route), run `PYTHONPATH=tests python -m replay.byte_samples --again` and commit the difference."""


@pytest.mark.parametrize("name", SAMPLES)
def test_today_writes_the_bytes_of_the_sample(name):
    sample = SAMPLES[name]

    assert sample.plain(sample.data).hex() == sample.plain(byte_samples.stored(name)).hex(), CHANGED


@pytest.mark.parametrize("name", SAMPLES)
def test_today_reads_the_bytes_of_the_sample(name):
    sample = SAMPLES[name]

    assert sample.decode(byte_samples.stored(name)) == sample.value, CHANGED


@pytest.mark.parametrize("name", byte_samples.names())
def test_names_that_users_see_stay(name):
    assert byte_samples.names()[name] == byte_samples.stored_names(name), CHANGED


def test_every_kind_of_message_is_in_a_sample():
    assert {type(report) for report in byte_samples.REPORTS} == set(get_args(worker_messages.Report))
    assert {type(order) for order in byte_samples.ORDERS} == set(get_args(child_messages.ControlMessage))
    assert {type(saying) for saying in byte_samples.SAYINGS} == set(get_args(child_messages.ChildMessage))


def test_no_sample_is_left_over():
    files = {path.name for path in byte_samples.FOLDER.iterdir()}

    assert files == {f"{name}.b64" for name in SAMPLES} | {f"{name}.txt" for name in byte_samples.names()}
