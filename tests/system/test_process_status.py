"""Whether a process has ended: certain, or not said."""

import os
import signal
import subprocess
import sys

import pytest

from tickwork.system.clock import SystemProcesses

SELF = (
    "import sys; from tickwork.system.clock import SystemProcesses; print(SystemProcesses().own(), flush=True); input()"
)


@pytest.fixture
def other():
    process = subprocess.Popen([sys.executable, "-c", SELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_process_has_ended_when_it_is_killed_and_not_before(other):
    name = other.stdout.readline().strip()
    found = SystemProcesses()

    assert name and not found.has_ended(name) and not found.has_ended(found.own())
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert found.has_ended(name), "it does nothing any more, although its parent has not looked yet"
    other.wait()
    assert found.has_ended(name)


def test_another_process_of_the_same_number_is_not_the_one_that_ended():
    found = SystemProcesses()
    domain, pid, start = found.own().split("/")

    assert found.has_ended(f"{domain}/{pid}/{int(start) - 1}")


@pytest.mark.parametrize("name", ["", "x", "///", "{other}/{pid}/{start}", "{domain}/nobody/1", "{domain}/{pid}"])
def test_nothing_is_said_of_processes_elsewhere(name):
    found = SystemProcesses()
    domain, _, start = found.own().split("/")
    boot, space, time = domain.split(".")
    for other in (f"{boot}.{int(space) + 1}.{time}", f"{boot}.{space}.1", f"0.{space}.{time}"):
        asked = name.format(other=other, domain=domain, pid=4_194_305, start=start)
        assert not found.has_ended(asked) or asked.startswith(domain)


def test_where_the_system_shows_other_processes_than_ours_there_is_no_proof(tmp_path):
    (tmp_path / "self").symlink_to("1")

    assert SystemProcesses(tmp_path).own() == ""
    assert not SystemProcesses(tmp_path).has_ended(SystemProcesses().own())
