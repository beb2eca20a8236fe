"""What a worker has if nobody says so: the machine's processors and memory, or the share of its container."""

import os

import pytest

from tickwork.system.host_resources import own_cpu_milli, own_memory_mb

CPU_MILLI = len(os.sched_getaffinity(0)) * 1000


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "cpu_milli"),
    [
        ({}, CPU_MILLI),
        ({"cpu.max": "max 100000\n"}, CPU_MILLI),
        ({"cpu.max": "50000 100000\n"}, 500),
        ({"cpu.max": "900000000 100000\n"}, CPU_MILLI),
        ({"cpu.max": "what\n"}, CPU_MILLI),
        ({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 250),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, CPU_MILLI),
    ],
)
def test_processors_are_those_of_the_container_if_it_has_fewer(tmp_path, files, cpu_milli):
    write(tmp_path, files)

    assert own_cpu_milli(tmp_path) == cpu_milli


def test_memory_is_that_of_the_container_if_it_has_less(tmp_path):
    machine = own_memory_mb(tmp_path)
    assert machine > 0

    write(tmp_path, {"memory.max": "max\n"})
    assert own_memory_mb(tmp_path) == machine
    write(tmp_path, {"memory.max": f"{64 * 1024 * 1024}\n"})
    assert own_memory_mb(tmp_path) == 64
    write(tmp_path, {"memory/memory.limit_in_bytes": f"{32 * 1024 * 1024}\n"})
    assert own_memory_mb(tmp_path) == 32
