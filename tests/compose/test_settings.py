"""Values that cannot be meant are refused at the start, by name and place."""

import pytest

from tickwork.compose.settings import BadSettings, load
from tickwork.compose.worker import profile_of


@pytest.mark.proves("B26")
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("port", "99999", "between 0 and 65,535"),  # the system would take it for 34463
        ("port", "-1", "between 0 and 65,535"),
        ("resolution_ms", "0", "between 1 and"),  # it would be in the new store for good
        ("processes", "-1", "between 0 and"),
        ("threads", "0", "between 1 and"),
        ("coroutines", "0", "between 1 and"),
        ("partitions", "0", "between 1 and"),
        ("memory_mb", "-5", "between 0 and"),
        ("grace_s", "-1", "between 0 and"),
        ("grace_s", "nan", "between 0 and"),
        ("url", "localhost:8440", "not a valid server address"),
        ("url", "ftp://here", "not a valid server address"),
        ("url", "http://here:99999", "not a valid server address"),
        ("url", "http://here:8440,there", "'there' is not a valid server address"),
        ("token", "secret ", "without surrounding spaces"),
        ("token", "line\nbreak", "without surrounding spaces"),
        ("token", "schlüssel", "ASCII"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(tmp_path, name, value, says):
    with pytest.raises(BadSettings, match=f"{name}: .*{says}.*, in the environment") as refused:
        load({}, env={f"TICKWORK_{name.upper()}": value}, here=tmp_path)

    assert refused.value.path == name


def test_what_stands_at_a_bound_is_taken(tmp_path):
    env = {"TICKWORK_PORT": "65535", "TICKWORK_GRACE_S": "0", "TICKWORK_URL": "https://a:1, http://[::1]:8440"}
    found = load({"processes": 0, "threads": 1}, env=env, here=tmp_path)

    assert (found.port, found.grace_s, found.processes, found.threads) == (65_535, 0, 0, 1)


@pytest.mark.proves("B26")
@pytest.mark.parametrize("name", [".env", "tickwork.toml", "pyproject.toml"])
def test_a_file_of_settings_that_is_no_text_is_refused_by_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe=1")

    with pytest.raises(BadSettings, match=f"{name}: it cannot be read"):
        load({}, env={}, here=tmp_path)


def test_a_queue_that_no_task_can_name_is_refused(tmp_path):
    with pytest.raises(BadSettings, match="queue name"):
        profile_of(load({"queues": "default,two words"}, env={}, here=tmp_path))


def test_a_worker_announces_the_resources_that_its_settings_name(tmp_path):
    found = profile_of(load({"resources": "cpu=1.5, memory=2GB,gpu=1"}, env={}, here=tmp_path))

    assert (found.cpu_milli, found.memory_mb, found.gpu) == (1_500, 2_048, 1)


def test_a_worker_announces_the_processors_and_the_memory_of_its_machine(tmp_path):
    found = profile_of(load({"resources": "gpu=2"}, env={}, here=tmp_path))
    none = profile_of(load({"resources": "cpu=0,memory=0"}, env={}, here=tmp_path))

    assert found.cpu_milli >= 1 and found.memory_mb > 100 and found.gpu == 2
    assert (none.cpu_milli, none.memory_mb, none.gpu) == (0, 0, 0)


@pytest.mark.parametrize(
    "text", ["disk=4", "cpu=nan", "cpu=much", "memory=-1", "memory=2 lots", f"gpu={'9' * 400}", "cpu"]
)
def test_resources_that_are_no_amounts_are_refused(tmp_path, text):
    with pytest.raises(BadSettings) as refused:
        profile_of(load({"resources": text}, env={}, here=tmp_path))

    assert refused.value.path == "resources"
