"""What the documents show is true: their code runs, their tables are current, their links lead somewhere."""

import re
import runpy
import sys
from pathlib import Path

import msgspec
import pytest

from tickwork.cli.command_table import entries
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings
from tickwork.core.state.governor import SignalSource
from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.app_loader import load_app

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
CLIENT = "# client\n"


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def application(path: Path, folder: Path) -> Path:
    """All blocks of a page that are no clients, as one file."""
    app = folder / f"{path.stem}.py"
    app.write_text("\n\n".join(one for one in blocks(path) if not one.startswith(CLIENT)))
    return app


@pytest.fixture(autouse=True)
def forgets_modules(tmp_path):
    """Those of the pages only: whoever has a library already would have it twice, each with errors of its own."""
    places = list(sys.path)
    yield
    sys.path[:] = places
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("path", [one for one in DOCS if blocks(one)], ids=lambda path: path.name)
def test_the_code_of_a_page_is_an_application(path, tmp_path):
    app = load_app(str(application(path, tmp_path)))

    assert app.workflows
    assert app.catalog().documents


@pytest.mark.parametrize(("name", "count"), [("guide.md", 5), ("schedules.md", 1)])
def test_the_clients_of_a_page_do_what_they_say(tmp_path, monkeypatch, name, count):
    page = ROOT / "docs" / name
    app = application(page, tmp_path)
    clients = [one for one in blocks(page) if one.startswith(CLIENT)]
    monkeypatch.syspath_prepend(str(tmp_path))
    with EphemeralServer(Settings(data=str(tmp_path / "data"), grace_s=2.0), str(app)) as server:
        monkeypatch.setenv("TICKWORK_URL", server.address)
        monkeypatch.setenv("TICKWORK_TOKEN", server.token)
        for number, text in enumerate(clients):
            script = tmp_path / f"client{number}.py"
            script.write_text(text)
            runpy.run_path(str(script))

    assert len(clients) == count


def test_the_guide_has_every_option_of_tasks_and_workflows():
    text = (ROOT / "docs" / "guide.md").read_text()
    source = (ROOT / "src" / "tickwork" / "sdk").joinpath
    heads = [
        re.search(
            r"^def task\(\n    \*,\n(.*?)^\) ->", source("authoring", "tasks.py").read_text(), re.MULTILINE | re.DOTALL
        )
    ]
    heads.append(
        re.search(
            r"^def workflow\(\n    \*,\n(.*?)^\) ->", source("authoring", "workflows.py").read_text(), re.M | re.S
        )
    )
    options = {name for head in heads if head for name in re.findall(r"^    (\w+):", head[1], re.MULTILINE)}

    assert {"cache", "sla"} <= options
    assert sorted(name for name in options if not re.search(rf"`{name}`|\b{name}=", text)) == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    links = re.findall(r"\]\((?!http)([^)#\s]+)", path.read_text())

    assert [one for one in links if not (path.parent / one).exists()] == []


def anchors(path: Path) -> set[str]:
    """The ids that the headings of a page get on the web."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_link_to_a_heading_finds_it(path):
    links = re.findall(r"\]\((?!http)([^)#\s]*)#([^)\s]+)\)", path.read_text())

    assert [
        f"{name}#{title}" for name, title in links if title not in anchors(path.parent / name if name else path)
    ] == []


@pytest.mark.proves("S003-19")
def test_the_page_on_urls_tells_to_return_figures():
    text = (ROOT / "docs" / "endpoints.md").read_text()
    shown = [msgspec.json.decode(one) for one in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]

    assert "**Return figures.**" in text
    assert any({"queue_depth", "error_rate", "load"} <= set(one) for one in shown)


@pytest.mark.proves("S003-83")
def test_there_are_pages_on_architecture_configuration_and_adaptation():
    text = (ROOT / "docs" / "endpoints.md").read_text()
    titles = re.findall(r"^### (.+)$", text, re.MULTILINE)

    assert (ROOT / "docs" / "architecture.md").exists()
    assert {"Configuration and constraints", "Hints", "What to return, and what is kept", "Recovery"} <= set(titles)
    fields = {one.name for one in msgspec.structs.fields(wire.EndpointRequest)}
    assert sorted(name for name in fields if f"`{name}`" not in text) == []
    assert [str(one) for one in SignalSource if f"`{one}`" not in text] == []


USER_FILES = sorted(
    [
        *(ROOT / "docs").glob("*.md"),
        *(path for path in (ROOT / "examples").iterdir() if path.is_file()),
        *(path for path in (ROOT / "src" / "tickwork" / "cli" / "starter").iterdir() if path.is_file()),
        ROOT / "README.md",
    ]
)
REQUIREMENT_ID = re.compile(r"\bS\d{3}-\d+|\bseed \d{3}\b")


@pytest.mark.parametrize("path", USER_FILES, ids=lambda path: path.name)
def test_no_page_for_users_cites_a_requirement(path):
    assert REQUIREMENT_ID.findall(path.read_text()) == []


def named_files(text: str) -> list[str]:
    """Files and folders in backticks: everything with a slash that ends in `.py` or in a slash."""
    return re.findall(r"`([\w/]+/(?:\w+\.py)?)`", text)


def missing_files(text: str) -> list[str]:
    roots = (ROOT / "src" / "tickwork", ROOT)
    return [name for name in named_files(text) if not any((root / name).exists() for root in roots)]


def stops(text: str) -> list[tuple[int, str]]:
    """Number and file of each stop on the path of a run."""
    return [(int(number), name) for number, name in re.findall(r"^### (\d+)\. .*: `([\w/]+\.py)`$", text, re.MULTILINE)]


def test_the_path_of_a_run_has_at_most_twelve_stops():
    text = (ROOT / "docs" / "architecture.md").read_text()
    path = text.split("## The path of one run")[1].split("\n## ")[0]
    numbers = [number for number, _ in stops(path)]

    assert len(numbers) == path.count("\n### ")
    assert numbers == list(range(1, len(numbers) + 1))
    assert 6 <= len(numbers) <= 12


def test_every_file_that_the_architecture_names_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()

    assert len(named_files(text)) > 30
    assert missing_files(text) == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda path: path.name)
def test_every_file_that_a_decision_names_exists(path):
    assert missing_files(path.read_text()) == []


def test_a_file_that_does_not_exist_is_noticed():
    assert missing_files("see `core/machine.py`, `core/nowhere.py`, `tests/` and `nowhere/`") == [
        "core/nowhere.py",
        "nowhere/",
    ]


def settings_table() -> str:
    fields = msgspec.structs.fields(Settings)
    rows = [f"| `{one.name}` | `TICKWORK_{one.name.upper()}` | {shown(one.default)} |" for one in fields]
    return "\n".join(rows)


def shown(value: object) -> str:
    return f"`{value}`" if value not in ("", 0, None) else "-"


def test_the_table_of_settings_is_current():
    text = (ROOT / "docs" / "operations.md").read_text()
    found = re.findall(r"^(\| `\w+` \| `TICKWORK_\w+` \| \S+ \|)", text, re.MULTILINE)

    assert "\n".join(found) == settings_table()


def test_every_metric_is_explained():
    source = (ROOT / "src" / "tickwork" / "api" / "metrics.py").read_text()
    names = set(re.findall(r'"(tickwork_\w+)"', source))
    text = (ROOT / "docs" / "operations.md").read_text()

    assert names
    assert sorted(name for name in names if name not in text) == []


def names_of_tests() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_test_that_a_page_names_exists(path):
    named = set(re.findall(r"`(test_\w+)`", path.read_text()))

    assert named or path.name not in ("guarantees.md", "upgrade.md")
    assert sorted(named - names_of_tests()) == []


def promises(text: str) -> list[str]:
    """Paragraphs, list items and table rows below the first section title, without the heads of tables."""
    body = re.sub(r"\A.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    body = re.sub(r"^\|.*\n\|[-|]+\|\n", "\n", body, flags=re.MULTILINE)
    body = re.sub(r"^(?=- |\| )", "\n", body, flags=re.MULTILINE)
    parts = [part.strip() for part in re.split(r"\n\s*\n", body)]
    return [part for part in parts if part and not part.startswith("## ")]


def test_every_promise_names_the_test_that_holds_it():
    found = promises((ROOT / "docs" / "guarantees.md").read_text())
    free = [part for part in found if not part.startswith(("*Limit:*", "*Term:*")) and "`test_" not in part]

    assert len(found) > 80
    assert free == []


def unproved(part: str) -> str:
    """What stands behind the last test that a promise names."""
    return re.split(r"`test_\w+`", part)[-1].strip(" ),.|")


def test_no_sentence_stands_behind_the_tests_of_its_promise():
    found = promises((ROOT / "docs" / "guarantees.md").read_text())

    assert [part for part in found if not part.startswith(("*Limit:*", "*Term:*")) and unproved(part)] == []
    assert unproved("- One. (`test_one`) Two.") == "Two"


def test_a_promise_without_a_test_is_noticed():
    text = (
        "# Page\n\nIntroduction.\n\n## Part\n\n- One. (`test_one`)\n- Two.\n\n| what | test |\n|---|---|\n| row | - |\n"
    )

    assert promises(text) == ["- One. (`test_one`)", "- Two.", "| row | - |"]


def test_the_settings_of_a_cluster_are_told_with_their_defaults():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", (ROOT / "docs" / "cluster.md").read_text(), re.MULTILINE)
    fields = {one.name: one.default for one in msgspec.structs.fields(Settings)}

    assert fields["lease_retry"] == "1s"
    assert {"lease_ttl", "lease_retry", "partitions", "node_name"} <= dict(rows).keys() <= fields.keys()
    for name, default in rows:
        if default.startswith("`"):
            assert default == f"`{fields[name]}`"
        else:
            assert fields[name] == ""


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_every_command_that_a_page_shows_exists(path):
    known = {entry.name for entry in entries()}
    text = path.read_text()
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    shown = re.findall(r"`tickwork ([a-z][a-z-]*)", text)
    shown += re.findall(r"^(?:\$ )?tickwork ([a-z][a-z-]*)", fenced, re.MULTILINE)

    assert sorted(set(shown) - known) == []


@pytest.mark.proves("S001-39", "S001-178", "S001-179", "S001-180", "S001-181", "S001-182")
@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Nothing counts twice", ("at least once", "idempotency key", "make the task idempotent")),
        ("Timers: the wheel", ("hierarchical timing wheel", "bitmap", "ADR 2")),
        ("Storms", ("retry budget", "backfill", "shedding", "redrive")),
        ("One writer", ("epoch", "Leases", "25 s", "attempt")),
        ("Fairness", ("weights", "scarcest resource", "preemption")),
    ],
)
def test_the_page_of_guarantees_explains(title, words):
    text = (ROOT / "docs" / "guarantees.md").read_text()
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)

    assert section is not None
    assert [word for word in words if word not in section[1]] == []
    assert "`test_" in section[1]
