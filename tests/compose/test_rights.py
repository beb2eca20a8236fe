"""Nobody but its owner may look into a data folder, whatever the umask of whoever started the server."""

import os
import stat

import pytest

from tickwork.cli.commands.doctor import _rights
from tickwork.compose.server import make_engine
from tickwork.compose.settings import Settings
from tickwork.system.private_files import private_file, private_folder


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def modes(folder):
    """Rights of everything in it, by what it is."""
    found = {folder, *folder.rglob("*")}
    return {
        kind: {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir() == (kind == "folder")}
        for kind in ("folder", "file")
    }


async def test_what_the_store_makes_is_for_its_owner_alone(umask, tmp_path):
    settings = Settings(data=str(tmp_path / "deep" / "data"))
    engine = make_engine(settings, own_process=False)
    await engine.start()
    await engine.context.artifacts.put(b"secret" * 100_000)
    while_open = modes(tmp_path / "deep")
    await engine.stop()

    assert while_open == modes(tmp_path / "deep") == {"folder": {0o700}, "file": {0o600}}
    assert _rights(settings).result == "ok"


async def test_a_folder_that_is_there_keeps_its_rights_and_the_doctor_tells(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    settings = Settings(data=str(data))
    engine = make_engine(settings, own_process=False)
    await engine.start()
    await engine.stop()

    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    assert stat.S_IMODE((data / "tickwork.db").stat().st_mode) == 0o600
    found = _rights(settings)
    assert found.result == "warn" and str(data) in found.detail and f"chmod -R go= {data}" == found.advice


def test_a_file_is_made_once_and_no_folder_out_of_a_file(tmp_path):
    os.close(private_file(tmp_path / "a"))
    with pytest.raises(FileExistsError):
        private_file(tmp_path / "a")
    with pytest.raises(NotADirectoryError):
        private_folder(tmp_path / "a" / "b")
