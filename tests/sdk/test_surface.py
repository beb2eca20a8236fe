"""The public names: typed for users, documented, and cheap to import."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import tickwork
from test_docs import CLIENT, DOCS, application, blocks

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
TYPED = HERE.parent / "typed"


def python(*arguments, **more):
    env = {"PYTHONPATH": str(SOURCE), "MYPYPATH": str(SOURCE)}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=100, **more)


ERRORS = ("Conflict", "InvalidDefinition", "Refused", "TickworkError", "Unavailable")  # drawn in core/base/errors.py


@pytest.mark.parametrize("name", [name for name in tickwork.__all__ if name not in ERRORS])
def test_every_public_name_is_there_and_explained(name):
    found = getattr(tickwork, name)
    kind = found if isinstance(found, type) or not hasattr(type(found), "_tw_root") else type(found)

    assert kind.__doc__


def test_a_name_that_is_not_there_is_said_so():
    with pytest.raises(AttributeError, match="has no attribute 'taks'"):
        tickwork.taks  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_only_what_is_asked_for():
    script = "import sys, tickwork; {}; print([m for m in {} if m in sys.modules])"
    bare = python("-c", script.format("0", "['msgspec', 'tickwork.sdk.authoring.tasks', 'httpx2']"))
    tasks = python(
        "-c",
        script.format("tickwork.task", "['httpx2', 'cel_expr_python', 'tickwork.core.definition.document', 'ssl']"),
    )

    assert bare.stdout == "[]\n", bare.stderr
    assert tasks.stdout == "[]\n", tasks.stderr


@pytest.mark.slow
def test_a_users_program_passes_strict_type_checking(tmp_path):
    files = [HERE / "typed_app.py", *TYPED.glob("*.py")]
    checked = python("-m", "mypy", "--strict", "--cache-dir", str(tmp_path), *map(str, files))

    assert checked.returncode == 0, checked.stdout


def test_the_examples_pass_the_type_checker():
    examples = sorted((HERE.parents[1] / "examples").glob("*.py"))
    found = python(
        "-m", "mypy", "--config-file=", "--no-error-summary", *map(str, examples), cwd=HERE.parents[1] / "examples"
    )

    assert not found.stdout, found.stdout


def test_a_task_with_a_context_is_called_without_it():
    @tickwork.task
    def first(ctx: tickwork.Context, path: str, times: int = 1) -> tuple[str, int]:
        return ctx.node, len(path) * times

    @tickwork.task
    def last(path: str, ctx: tickwork.Context) -> tuple[str, int]:
        return ctx.node, len(path)

    assert [one for _, one in (first("abc"), first("abc", 2), first(path="ab"), last("abcd"))] == [3, 6, 2, 4]
    given = tickwork.Context(node="mine")
    assert first(given, "a") == last("a", given) == ("mine", 1)
    assert [one for _, one in first.map(["a", "bb"], times=2)] == [2, 4]


@pytest.mark.slow
def test_pyright_agrees_with_the_code_of_pages_and_examples(tmp_path):
    """As an editor does that is set up as usual. mypy looks at the examples with the public names."""
    for path in DOCS:
        if blocks(path):
            application(path, tmp_path)
            for number, text in enumerate(one for one in blocks(path) if one.startswith(CLIENT)):
                (tmp_path / f"{path.stem}_client{number}.py").write_text(text)
    for path in (HERE.parents[1] / "examples").glob("*.py"):
        shutil.copy(path, tmp_path)
    shutil.copy(TYPED / "public_api.py", tmp_path)
    rules = {"typeCheckingMode": "standard", "reportRedeclaration": False}  # blocks of a page stand for themselves
    (tmp_path / "pyrightconfig.json").write_bytes(msgspec.json.encode(rules))
    command = (sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--level", "error", ".")
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)

    assert checked.returncode == 0, checked.stdout
