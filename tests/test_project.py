"""What the project ships and states about itself: the wheel, the version, the licence, the files at its front door."""

import email.parser
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from tickwork.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
APACHE_2 = (
    "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"  # of the text that the foundation publishes
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, unpacked, as `pip install` puts it into an environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def metadata(wheel):
    (folder,) = wheel.glob("*.dist-info")
    return email.parser.Parser().parsestr((folder / "METADATA").read_text()), folder


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_licence_is_the_apache_licence_to_the_letter():
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_the_wheel_carries_the_licence(wheel):
    about, folder = metadata(wheel)

    assert (about["License-Expression"], about["License-File"]) == ("Apache-2.0", "LICENSE")
    assert (folder / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_wheel_and_its_command_have_the_version_of_the_source(wheel):
    about, _ = metadata(wheel)
    script = (
        "import sys, tickwork.cli.main as cli; print(cli.__file__); sys.argv = ['tickwork', '--version']; cli.main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=False
    )

    assert about["Version"] == VERSION
    assert run.stdout.splitlines() == [str(wheel / "tickwork" / "cli" / "main.py"), f"tickwork {VERSION}"], run.stderr


def test_only_one_file_holds_the_version():
    assert "version" not in project()["project"]
    assert project()["project"]["dynamic"] == ["version"]
    assert project()["tool"]["hatch"]["version"]["path"] == "src/tickwork/version.py"
    assigned = [path for path in (ROOT / "src").rglob("*.py") if f'"{VERSION}"' in path.read_text()]
    assert [path.name for path in assigned] == ["version.py"]


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    _, folder = metadata(wheel)

    assert sorted(path.name for path in wheel.iterdir()) == ["tickwork", folder.name]
    assert (wheel / "tickwork" / "py.typed").exists()
    source = ROOT / "src" / "tickwork"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in (".sql", ".html", ".toml")}
    assert sorted(name for name in files if not (wheel / "tickwork" / name).exists()) == []


def test_the_metadata_are_complete(wheel):
    about, _ = metadata(wheel)

    assert about["Author"] == "The tickwork developers"
    assert about["Requires-Python"] == ">=3.11"
    assert about["Summary"] and about["Keywords"]
    assert {line.split(", ")[0] for line in about.get_all("Project-URL")} >= {"Repository", "Changelog", "Issues"}
    assert "Typing :: Typed" in about.get_all("Classifier")
    needs = [line for line in about.get_all("Requires-Dist") if line.startswith("tzdata")]
    assert needs == ["tzdata>=2025.1"]


FRONT = ["CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"]


@pytest.mark.parametrize("name", [*FRONT, "LICENSE"])
def test_the_readme_links_to(name):
    assert f"]({name})" in (ROOT / "README.md").read_text()
    assert (ROOT / name).exists()


@pytest.mark.parametrize("name", [*FRONT, "changelog.d/README.md"])
def test_every_link_of_the_front_door_leads_somewhere(name):
    page = ROOT / name
    links = re.findall(r"\]\((?!http)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_guide_for_contributors_names_files_and_targets_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    roots = (ROOT, ROOT / "src" / "tickwork", ROOT / "tests" / "conformance")
    paths = [path for path in re.findall(r"`([\w.]+/[\w./]*|\w+\.(?:py|toml|md|lock))`", text) if "_suite" not in path]
    paths += re.findall(r"`(\w+_suite\.py)`", text)

    assert sorted(set(re.findall(r"`make (?:PYTHON=\S+ )?([a-z]+)`", text)) - targets) == []
    assert len(paths) > 20
    made = {".venv/", ".tools/"}
    assert (
        sorted(path for path in paths if path not in made and not any((root / path).exists() for root in roots)) == []
    )


def workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


def test_the_hosted_checks_run_what_ours_run():
    steps = [step["run"] for step in workflow()["jobs"]["test"]["steps"] if "run" in step]

    assert ".ci/run" in steps
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_hosted_checks_have_every_version_of_python_that_we_claim():
    strategy = workflow()["jobs"]["test"]["strategy"]["matrix"]
    required = set(strategy["python"])
    known = required | {row["python"] for row in strategy["include"]}
    claimed = {line.rpartition(" ")[2] for line in project()["project"]["classifiers"] if ":: Python :: 3." in line}

    assert claimed == required
    assert known == {"3.11", "3.12", "3.13", "3.14"}


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_a_form_for_issues_can_be_read(path):
    document = yaml.safe_load(path.read_text())

    if path.parent.name == "ISSUE_TEMPLATE" and path.name != "config.yml":
        assert document["name"] and document["description"]
        names = [part["id"] for part in document["body"]]
        assert len(names) == len(set(names)) and all(part["attributes"]["label"] for part in document["body"])
