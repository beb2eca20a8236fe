"""Temporary folders: gone after a clean stop, and after a kill as soon as the next process comes by."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from terminal import ROOT, Terminal
from tickwork.system import private_files as places
from tickwork.system.private_files import SCRATCH, ScratchDirectory, _remove_left


def made_by_another(folder: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """A scratch folder with something in it, and the process that lives there."""
    code = (
        "import sys, time; from pathlib import Path; from tickwork.system.private_files import ScratchDirectory; "
        "s = ScratchDirectory(); "
        "Path(s.path, 'value').write_text('x'); print(s.path, flush=True); time.sleep(600)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return Path(process.stdout.readline().decode().strip()), process


def test_a_folder_is_left_alone_while_its_process_lives_and_removed_when_it_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "MOVING_IN_S", 0)
    place, process = made_by_another(tmp_path)
    with process:
        try:
            time.sleep(0.01)  # its time of change is in the past
            _remove_left(tmp_path)
            assert (place / "value").exists()
        finally:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
    _remove_left(tmp_path)

    assert not place.exists()


def test_a_young_folder_and_those_of_other_programs_are_left_alone(tmp_path):
    (tmp_path / f"{SCRATCH}young").mkdir()
    other = tmp_path / "tickwork-other"
    other.mkdir()
    os.utime(other, (0, 0))
    _remove_left(tmp_path)

    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    link = tmp_path / f"{SCRATCH}link"
    link.symlink_to(target)
    os.utime(link, (0, 0), follow_symlinks=False)
    _remove_left(tmp_path)

    assert (target / "kept").exists()


def test_removing_twice_is_once():
    scratch = ScratchDirectory()
    scratch.remove()
    scratch.remove()

    assert not Path(scratch.path).exists()


@pytest.mark.slow
@pytest.mark.parametrize("args", [("dev", "app.py"), ("run", "app.py:greet"), ("worker", "missing.py")])
def test_programs_leave_nothing_in_the_temporary_folder(tmp_path, args):
    (tmp_path / "home").mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    terminal = Terminal(tmp_path / "home")
    try:
        program = terminal.start(*args, TMPDIR=str(temporary))
        if args[0] == "dev":
            program.until("worker ready")
            assert len(list(temporary.iterdir())) >= 1
            program.signal(signal.SIGINT)
        program.ended()
    finally:
        terminal.close()

    assert list(temporary.iterdir()) == []
