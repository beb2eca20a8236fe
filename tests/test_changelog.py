"""The changelog: fragments are well-formed, and the tool moves each of them into the right section once."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tickwork.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
PAGE = "# Changelog\n\nIntroduction.\n"
OLD = "## 0.0.1 (2026-01-01)\n\n### Fixed\n\n- An old fault.\n"


def load_tool():
    spec = importlib.util.spec_from_file_location("changelog_tool", ROOT / "tools" / "changelog.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("# Changelog fragments\n")
    (tmp_path / "CHANGELOG.md").write_text(f"{PAGE}\n{OLD}")
    return tmp_path


def add(root, name, text):
    (root / "changelog.d" / name).write_text(text)


def names(root):
    return sorted(path.name for path in (root / "changelog.d").iterdir())


def parts(root):
    """The page's introduction, the section of this version, and the older one."""
    text = (root / "CHANGELOG.md").read_text()
    first, second = text.index("## "), text.index("## 0.0.1")
    return text[:first], text[first:second], text[second:]


def test_fragments_become_a_section_above_the_older_ones(repository):
    add(repository, "b.md", "### Fixed\n\n- A fault.\n  It had two lines.\n\n### Added\n- A command.\n")
    add(repository, "a.md", "- Another default.\n")

    assert tool.main([], repository) == 0
    head, section, old = parts(repository)
    assert head == f"{PAGE}\n"
    assert section.split("\n", 1)[1] == (
        "\n### Added\n\n- A command.\n\n### Changed\n\n- Another default.\n\n"
        "### Fixed\n\n- A fault.\n  It had two lines.\n\n"
    )
    assert section.startswith(f"## {VERSION} (2")
    assert old == OLD


def test_a_collected_fragment_is_deleted_and_the_guide_stays(repository):
    add(repository, "a.md", "- One.\n")
    tool.main([], repository)

    assert names(repository) == ["README.md"]


def test_later_fragments_join_the_section_of_their_version(repository):
    add(repository, "a.md", "### Fixed\n- First.\n")
    tool.main([], repository)
    add(repository, "b.md", "### Added\n- Second.\n### Fixed\n- Third.\n")
    tool.main([], repository)
    _, section, old = parts(repository)

    assert section.split("\n", 1)[1] == "\n### Added\n\n- Second.\n\n### Fixed\n\n- First.\n- Third.\n\n"
    assert old == OLD


def test_without_fragments_nothing_changes(repository):
    before = (repository / "CHANGELOG.md").read_text()

    assert tool.main([], repository) == 0
    assert (repository / "CHANGELOG.md").read_text() == before


def test_the_introduction_of_a_section_and_kinds_of_its_own_stay(repository):
    page = (
        f"{PAGE}\n## {VERSION} (2026-02-02)\n\nThe first one.\n\n### Fixed\n\n- A.\n\n### Known faults\n\n- B.\n\n{OLD}"
    )
    (repository / "CHANGELOG.md").write_text(page)
    add(repository, "c.md", "### Fixed\n- C.\n")
    tool.main([], repository)

    assert (repository / "CHANGELOG.md").read_text() == page.replace("- A.\n", "- A.\n- C.\n")


def test_the_first_section_of_a_page_follows_its_introduction():
    page = tool.collect(PAGE, [tool.Entry("Added", "- A.")], version="1.2.0", date="2026-02-02")

    assert page == f"{PAGE}\n## 1.2.0 (2026-02-02)\n\n### Added\n\n- A.\n"


def test_a_version_is_not_taken_for_one_that_begins_with_it():
    page = f"{PAGE}\n## 1.2.0.dev1 (2026-01-01)\n\n### Added\n\n- Old.\n"
    entries = [tool.Entry("Added", "- New.")]

    assert "## 1.2.0 (2026-02-02)\n\n### Added\n\n- New.\n\n## 1.2.0.dev1" in tool.collect(
        page, entries, version="1.2.0", date="2026-02-02"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a.md: the fragment has no entry"),
        ("### Fixed\n", "a.md: the fragment has no entry"),
        ("A sentence.\n", "a.md:1: write a list"),
        ("- One.\nTwo.\n", "a.md:2: write a list"),
        ("### Fixed\n  continued\n", "a.md:2: write a list"),
        ("- One.\n### Fixed\n  continued\n", "a.md:3: write a list"),
        ("### Fixes\n- One.\n", "a.md:1: write one of `### Added`"),
        ("# Title\n- One.\n", "a.md:1: write one of `### Added`"),
    ],
)
@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_malformed_fragment_is_named_and_nothing_is_written(repository, capsys, text, complaint, arguments):
    add(repository, "a.md", text)
    before = (repository / "CHANGELOG.md").read_text()

    assert tool.main(arguments, repository) == 1
    assert capsys.readouterr().err.startswith(complaint)
    assert (repository / "CHANGELOG.md").read_text() == before
    assert names(repository) == ["README.md", "a.md"]


def test_a_check_changes_nothing(repository):
    add(repository, "a.md", "- One.\n")

    assert tool.main(["--check"], repository) == 0
    assert names(repository) == ["README.md", "a.md"]


def test_the_fragments_of_this_repository_are_well_formed():
    assert tool.main(["--check"]) == 0
