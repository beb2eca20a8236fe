"""The deployment files name only what exists: settings, commands, ports, values, directives. What no engine here can
start (containers, Kubernetes) is at least read as its reader would read it."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from tickwork.cli.main import make_app
from tickwork.cluster.ownership import FAREWELL_S, RETRY_MS, TTL_MS
from tickwork.compose.settings import OTHERS, PORT, PREFIX, BadSettings, Settings, load
from tickwork.core.calendar.durations import duration_ms
from tickwork.version import VERSION

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
CHART = DEPLOY / "helm" / "tickwork"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
NAMES = {field.name for field in msgspec.structs.fields(Settings)}
# Of systemd.unit, systemd.exec, systemd.kill and systemd.service: those that the units use.
DIRECTIVES = {
    "Unit": {"Description", "After", "Wants", "StartLimitIntervalSec"},
    "Install": {"WantedBy"},
    "Service": {
        *("Type", "EnvironmentFile", "Environment", "LoadCredential", "WorkingDirectory", "ExecStart", "Restart"),
        *("RestartSec", "RestartPreventExitStatus", "TimeoutStopSec", "KillMode", "LimitNOFILE", "DynamicUser"),
        *("StateDirectory", "StateDirectoryMode", "UMask", "NoNewPrivileges", "ProtectSystem", "ProtectHome"),
        *("PrivateTmp", "PrivateDevices", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectProc"),
        *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "CapabilityBoundingSet"),
        *("SystemCallArchitectures", "SystemCallFilter"),
    },
}


def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def values() -> dict:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def unit_of(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read(path)
    return found


# ---- everywhere


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_is_a_setting(path):
    found = {name.removeprefix(PREFIX).lower() for name in re.findall(r"TICKWORK_[A-Z_]*[A-Z]", path.read_text())}

    known = NAMES | {f"{name}_file" for name in NAMES} | OTHERS
    assert sorted(found - known) == []


def commands() -> list[list[str]]:
    found = [service["command"] for service in compose()["services"].values() if "command" in service]
    found += [unit_of(path)["Service"]["ExecStart"].split()[1:] for path in UNITS]
    found += [["server"], ["worker"]]  # of the image and the chart, which tests below compare
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_exists(command):
    called, _, _ = make_app(command[0]).parse_args(command, exit_on_error=False, print_error=False)

    assert called.__name__ == command[0]


def test_no_file_holds_a_secret_or_a_version_that_is_not_ours():
    for path in FILES:
        assert not re.search(r"(?i)password\s*[:=]\s*[\"']?\w", path.read_text()), path.name
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = {service["image"] for name, service in compose()["services"].items() if name != "database"}

    assert chart["appVersion"] == VERSION
    assert images == {f"tickwork:{VERSION}"}


# ---- compose


def test_compose_starts_equal_nodes_over_one_database_with_workers():
    services = compose()["services"]
    nodes = {name: one for name, one in services.items() if one.get("command") == ["server"]}
    common = [{k: v for k, v in one["environment"].items() if k not in OWN} for one in nodes.values()]

    assert len(nodes) == 3
    assert common[1:] == common[:-1]
    for name, one in nodes.items():
        assert one["environment"]["TICKWORK_NODE_NAME"] == name
        assert one["environment"]["TICKWORK_ADVERTISE"] == f"http://{name}:{PORT}"
        assert one["ports"][0].endswith(f":{PORT}") and one["ports"][0].startswith("127.0.0.1:")
        assert f":{PORT}/healthz" in one["healthcheck"]["test"][-1]
        assert duration_ms(one["stop_grace_period"], path="") > FAREWELL_S * 1000
        assert one["depends_on"]["database"]["condition"] == "service_healthy"
    worker = services["worker"]
    assert worker["environment"]["TICKWORK_URL"] == ",".join(f"http://{name}:{PORT}" for name in nodes)
    assert duration_ms(worker["stop_grace_period"], path="") > 1000 * float(worker["environment"]["TICKWORK_GRACE_S"])
    assert (DEPLOY / ".." / "examples" / Path(worker["command"][1]).name).exists()


OWN = ("TICKWORK_NODE_NAME", "TICKWORK_ADVERTISE")


def test_secrets_of_compose_are_files_that_stay_out_of_the_repository():
    found = compose()
    for service in found["services"].values():
        assert set(service["secrets"]) <= found["secrets"].keys()
        files = [value for key, value in service["environment"].items() if key.endswith("_FILE")]
        assert files
        assert {Path(one).name for one in files} <= set(service["secrets"])

    assert all(one["file"].startswith("secrets/") for one in found["secrets"].values())
    assert "secrets/" in (DEPLOY / ".gitignore").read_text().split()


@pytest.mark.parametrize("name", ["node1", "worker"])
def test_a_service_of_compose_has_settings_that_load(name, tmp_path):
    env = dict(compose()["services"][name]["environment"])
    for key in [key for key in env if key.endswith("_FILE")]:
        secret = tmp_path / Path(env[key]).name
        secret.write_text("postgresql://u@h/d")
        secret.chmod(0o600)
        env[key] = str(secret)

    found = load({}, env=env, here=tmp_path)

    assert found.token
    assert (found.store != "") == (name == "node1")


# ---- image


def test_the_image_is_small_and_runs_as_nobody_in_particular():
    text = (DEPLOY / "Dockerfile").read_text()
    last = text[text.rindex("FROM ") :]

    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert f"EXPOSE {PORT}" in last
    assert 'ENTRYPOINT ["tickwork"]' in last and 'CMD ["server"]' in last
    assert "pip install" not in last  # nothing that builds is in the image
    extras = re.search(r"\[([\w,]+)\]\"", text)
    declared = (DEPLOY.parent / "pyproject.toml").read_text()
    assert extras is not None
    assert [one for one in extras[1].split(",") if f"\n{one} = [" not in declared] == []


# ---- chart


def plain(text: str) -> str:
    """A template without its directives: lines that only steer or bring in more go, what stands in a line is a word."""
    lines = [line for line in text.splitlines() if not re.fullmatch(r"\s*\{\{.*\}\}\s*", line)]
    inside = [re.sub(r"\{\{ if .*?\{\{ end \}\}", "", line) for line in lines]
    return "\n".join(re.sub(r"\{\{.*?\}\}", "word", line) for line in inside)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_of_the_chart_is_balanced_and_yaml(path):
    text = path.read_text()
    words = re.findall(r"\{\{-?\s*(if|with|range|define|end)\b", text)
    depth = 0
    for word in words:
        depth += -1 if word == "end" else 1
        assert depth >= 0

    assert depth == 0
    assert text.count("{{") == text.count("}}")
    documents = [one for one in yaml.safe_load_all(plain(text)) if one is not None]
    assert documents and all({"apiVersion", "kind", "metadata"} <= one.keys() for one in documents)


def named_values(text: str) -> set[str]:
    return set(re.findall(r"\$?\.Values\.([\w.]+)", text))


def flat(found: dict, before: str = "") -> set[str]:
    names = set()
    for key, value in found.items():
        names.add(before + key)
        if isinstance(value, dict):
            names |= flat(value, f"{before}{key}.")
    return names


def test_templates_and_values_agree():
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    named = set().union(*map(named_values, texts))
    known = flat(values())
    leaves = {one for one in known if not any(other.startswith(f"{one}.") for other in known)}

    assert sorted(named - known) == []
    unused = [one for one in leaves if not any(one == name or one.startswith(f"{name}.") for name in named)]
    assert unused == []
    helpers = set(re.findall(r'define "([\w.]+)"', "".join(texts)))
    assert set(re.findall(r'include "([\w.]+)"', "".join(texts))) == helpers


def test_a_worker_of_the_chart_has_what_its_template_names():
    text = (CHART / "templates" / "workers.yaml").read_text()
    inside = set(re.findall(r"(?<![\w$])\.([a-z]\w+)", re.sub(r"\$\.\S+", "", text)))

    for worker in values()["workers"]:
        assert inside <= worker.keys()


def test_a_worker_of_the_chart_may_leave_out_whatever_has_a_default():
    """A value that is not given is rendered as nothing, and a variable without a value is refused at the start."""
    text = (CHART / "templates" / "workers.yaml").read_text()
    for name in ("queues", "labels", "graceSeconds"):
        for line in [one for one in text.splitlines() if f" .{name}" in one]:
            assert f".{name} | default" in line or f'kindIs "invalid" .{name} | ternary' in line, line
    assert f"ternary {Settings().grace_s:g} .graceSeconds" in text and f'default "{Settings().queues}"' in text


def test_the_commands_of_compose_stay_in_the_folder_in_which_they_begin():
    header = [line for line in (DEPLOY / "compose.yaml").read_text().splitlines() if line.startswith("#   ")]

    assert any("docker compose -f deploy/compose.yaml" in line for line in header)
    assert not any(re.search(r"(^|[ &;])cd ", line) for line in header)


def test_nodes_of_the_chart_end_after_they_handed_over_and_are_asked_where_they_answer():
    found = values()["nodes"]
    node = next(yaml.safe_load_all(plain((CHART / "templates" / "nodes.yaml").read_text())))
    container = node["spec"]["template"]["spec"]["containers"][0]

    assert found["terminationGracePeriodSeconds"] > found["preStopSeconds"] + FAREWELL_S
    assert found["port"] == values()["service"]["port"] == PORT
    assert (duration_ms(found["leaseTtl"], path=""), duration_ms(found["leaseRetry"], path="")) == (TTL_MS, RETRY_MS)
    assert found["partitions"] == Settings().partitions
    assert container["args"] == ["server"]
    assert container["livenessProbe"]["httpGet"]["path"] == container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["lifecycle"]["preStop"]["exec"]["command"][0] == "sleep"


@pytest.mark.parametrize("name", ["nodes.yaml", "workers.yaml"])
def test_no_variable_of_a_service_is_taken_for_a_setting(name):
    """A release named `tickwork` has a Service whose variables begin as ours do."""
    pod = next(one for one in yaml.safe_load_all(plain((CHART / "templates" / name).read_text())) if one)
    with pytest.raises(BadSettings, match="TICKWORK_TICKWORK_PORT"):
        load({}, env={"TICKWORK_TICKWORK_PORT": "tcp://10.0.0.1:8440"})

    assert pod["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_secrets_of_the_chart_are_references():
    text = (CHART / "templates" / "nodes.yaml").read_text()
    node = next(yaml.safe_load_all(plain(text)))
    pod = node["spec"]["template"]["spec"]
    mode = pod["volumes"][1]["projected"]["defaultMode"]

    assert not mode & 0o007, "a secret that everybody can read is refused"
    assert {one["name"] for one in pod["containers"][0]["env"] if one["name"].endswith("_FILE")} == {
        "TICKWORK_STORE_FILE",
        "TICKWORK_TOKEN_FILE",
    }
    assert "kind: Secret" not in "".join(path.read_text() for path in TEMPLATES)


# ---- systemd


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_no_unknown_directive_and_no_way_to_more_rights(path):
    unit = unit_of(path)

    for section in unit.sections():
        assert sorted(set(unit[section]) - DIRECTIVES[section]) == []
    service = unit["Service"]
    assert service["NoNewPrivileges"] == service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    assert "78" in service["RestartPreventExitStatus"].split()
    assert duration_ms(service["TimeoutStopSec"], path="") > FAREWELL_S * 1000


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here; the list above is")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_reads_a_unit_without_a_word(path, tmp_path):
    copy = tmp_path / path.name.replace("@.", "@shop.")
    copy.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", path.read_text(), flags=re.MULTILINE))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)

    about = [line for line in done.stderr.splitlines() if copy.name in line]
    assert about == []
