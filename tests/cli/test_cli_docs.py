"""docs/cli.md is what the commands say of themselves."""

import importlib.util
import re
import sys
from pathlib import Path

from tickwork.cli.command_table import commands, entries
from tickwork.cli.main import make_app

ROOT = Path(__file__).resolve().parents[2]
# Words for which the glossary has another one.
STRANGERS = re.compile(
    r"\b(job|jobs|flow|flows|dag|execution|executions|pipeline|daemon|agent|agents)\b", re.IGNORECASE
)


def _tool():
    spec = importlib.util.spec_from_file_location("cli_docs", ROOT / "tools" / "cli_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def every_command():
    for entry in entries():
        for path, command in commands(make_app(entry.name)[entry.name], entry.name):
            yield " ".join(path), command


def test_the_page_is_current():
    tool = _tool()

    assert tool.PAGE.read_text() == tool.page(), "run python tools/cli_docs.py"


def test_every_command_and_flag_is_on_the_page():
    page = (ROOT / "docs" / "cli.md").read_text()
    for name, command in every_command():
        section = page.partition(f"### tickwork {name}")[2].partition("\n### ")[0]
        assert section, name
        for argument in command.assemble_argument_collection():
            assert not argument.show or f"`{argument.name}`" in section, f"{name} {argument.name}"


def test_every_command_with_json_says_which():
    tool = _tool()
    with_json = {
        name for name, command in every_command()
        if any("--json" in argument.names for argument in command.assemble_argument_collection())
    }  # fmt: skip

    assert with_json == set(tool.WIRE)


def test_the_menu_says_what_the_command_says():
    for entry in entries():
        command = make_app(entry.name)[entry.name].default_command
        first = " ".join((command.__doc__ or "").strip().split("\n\n")[0].split())
        assert first.startswith(entry.does.rstrip(".")), entry.name


def test_help_uses_the_words_of_the_glossary():
    found = STRANGERS.findall((ROOT / "docs" / "cli.md").read_text())

    assert found == []
