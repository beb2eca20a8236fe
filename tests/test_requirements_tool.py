"""The tool that says which requirements no test names yet."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load_tool():
    spec = importlib.util.spec_from_file_location("requirements_tool", ROOT / "tools" / "requirements.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    (root / "docs" / "contributing").mkdir(parents=True)
    (root / "tests" / "deep").mkdir(parents=True)
    (root / "docs" / "contributing" / "requirements-ids.txt").write_text(
        "S000-01 rule\nS000-02 rule\nS000-03 default\nS001-100 api\n"
    )
    return root


def write_test(root, *ids):
    marks = ", ".join(f'"{name}"' for name in ids)
    text = f"import pytest\n\n@pytest.mark.proves({marks})\ndef test_x():\n    pass\n"
    (root / "tests" / "deep" / "test_x.py").write_text(text)
    (root / "tests" / "deep" / "x_suite.py").write_text(text.replace("test_x", "test_y"))


def test_every_id_is_proved_decided_or_open(repository):
    write_test(repository, "S000-02", "B13")
    (repository / "docs" / "contributing" / "deviations.md").write_text(
        "| id | a | b |\n|---|---|---|\n| S000-03 | x | y |\n"
    )
    result = tool.report(repository)

    assert (result.proved, result.decided, result.open) == (("S000-02",), ("S000-03",), ("S000-01", "S001-100"))
    assert result.unknown == ()


def test_what_a_suite_proves_for_all_its_adapters_counts(repository):
    write_test(repository, "S000-02")
    (repository / "tests" / "deep" / "test_x.py").unlink()

    assert tool.report(repository).proved == ("S000-02",)


def test_a_range_decides_all_its_ids(repository):
    (repository / "docs" / "contributing" / "deviations.md").write_text(
        "| S000-01..S000-03 | x | y |\n| S001-100 | x | y |\n"
    )

    assert tool.report(repository).open == ()


def test_the_page_beside_the_repository_comes_first(repository):
    page = repository.parent / "shared" / "requirements.md"
    page.parent.mkdir()
    page.write_text("| id | source | kind | requirement |\n| S004-07 | 004:1-2 | model | words |\n")

    assert tool.report(repository).kinds == {"S004-07": "model"}


def test_a_proved_id_is_not_also_decided(repository):
    write_test(repository, "S000-01")
    (repository / "docs" / "contributing" / "deviations.md").write_text("| S000-01 | x | y |\n")
    result = tool.report(repository)

    assert (result.proved, result.decided) == (("S000-01",), ())


OPEN = "# a comment\nS000-01 the console\nS000-02 the console\nS000-03 the console\nS001-100 the console\n"


@pytest.mark.parametrize(("ids", "code"), [(["S000-01", "mT3"], 0), (["S000-99"], 1), (["B29"], 1), (["Q1"], 1)])
def test_an_id_that_does_not_exist_fails(repository, capsys, ids, code):
    (repository / "docs" / "open-requirements.txt").write_text(OPEN)
    write_test(repository, *ids)

    assert tool.main([], repository) == code
    assert ("unknown id" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(
    ("listed", "code", "text"),
    [
        (OPEN, 0, "S000-03 default: the console"),
        (OPEN.replace("S000-03 the console\n", ""), 1, "S000-03 default: NOT LISTED"),
        (OPEN.replace("S000-03 the console\n", "S000-03\n"), 1, "S000-03 default: NOT LISTED"),
        ("", 1, "NOT LISTED"),
        (OPEN + "S000-77 the console\n", 1, "unknown id: S000-77"),
    ],
)
def test_an_open_requirement_is_listed_with_what_it_waits_for(repository, capsys, listed, code, text):
    (repository / "docs" / "open-requirements.txt").write_text(listed)

    assert tool.main([], repository) == code
    assert text in capsys.readouterr().out


def test_a_listed_requirement_that_is_proved_is_named_and_does_not_fail(repository, capsys):
    (repository / "docs" / "open-requirements.txt").write_text(OPEN)
    write_test(repository, "S000-02")

    assert tool.main([], repository) == 0
    assert "listed, but no longer open: S000-02" in capsys.readouterr().out


def test_json_is_for_programs(repository, capsys):
    tool.main(["--json"], repository)

    assert json.loads(capsys.readouterr().out)["open"] == ["S000-01", "S000-02", "S000-03", "S001-100"]


@pytest.mark.parametrize(
    ("name", "valid"),
    [("I61", True), ("I62", False), ("S88", True), ("S089", False), ("S0", False), ("mT6", True),
     ("P20", True), ("", False)],
)  # fmt: skip
def test_the_ids_of_the_reliability_page_are_known(name, valid):
    assert tool.is_reliability_id(name) is valid


@pytest.mark.slow
def test_this_repository_names_only_ids_that_exist():
    result = tool.report(ROOT)

    assert result.unknown == ()
    assert tool.unlisted(result) == (), "docs/open-requirements.txt says what each open one waits for"
    assert len(result.kinds) == len(result.proved) + len(result.decided) + len(result.open) == 461
