"""Ids: no two alike, over threads and forks, and in the order of their making."""

import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from tickwork.system.uuids import SharedUuids, Uuids


def test_ids_are_version_7_and_in_order():
    ids = Uuids()
    found = [ids.new() for _ in range(10_000)]

    assert len(set(found)) == len(found) and found == sorted(found)
    assert {UUID(one).version for one in found} == {7}


def test_threads_get_different_ones():
    ids = SharedUuids()
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: [ids.new() for _ in range(5_000)], range(4)))
    assert len({one for part in parts for one in part}) == 20_000


def test_a_forked_process_gets_different_ones():
    ids = Uuids()
    ids._last_ms = 1 << 47  # far ahead: no new millisecond draws new chance by itself
    ids._begin(ids._last_ms)
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, ids.new().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(here, 100).decode() != ids.new()
    os.close(here)
    os.close(there)
