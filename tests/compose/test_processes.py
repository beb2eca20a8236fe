"""One server of several processes: what each of them hears."""

import msgspec

from tickwork.compose.cluster import child_environment
from tickwork.compose.settings import Settings, load


def test_each_process_has_all_settings_and_none_as_an_argument(tmp_path):
    given = Settings(
        store="postgresql://ann:secret@db/x", token="t", retention_runs="1d", lease_ttl="7s", server_processes=4, port=0
    )
    env = child_environment(given, {"PATH": "/bin", "TICKWORK_TOKEN": "old", "TICKWORK_DEBUG": "1"})
    read = load({}, env=env, here=tmp_path)

    assert read == msgspec.structs.replace(given, server_processes=1)
    assert env["PATH"] == "/bin" and env["TICKWORK_DEBUG"] == "1"
