"""`tickwork init`: a starter project."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit

FILES = ("app.py", "README.md", "tickwork.toml")
IGNORED = ".tickwork/\n__pycache__/\n"


def init(folder: Path = Path(), /, *, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Create a starter project: an application, its settings and a README. Nothing is overwritten.

    Parameters
    ----------
    folder
        The folder; it is created if it does not exist.
    json
        Print the result as JSON.
    """
    if folder.exists() and not folder.is_dir():
        raise CommandExit(Exit.REFUSED, f"{folder} is a file; name a folder")
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise CommandExit(Exit.REFUSED, f"{folder} has {' and '.join(there)} already; name an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(files("tickwork.cli.starter").joinpath(name).read_text(encoding="utf-8"))
        if not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    except OSError as error:
        raise CommandExit(Exit.SETTINGS, f"{folder} cannot be written: {error.strerror}") from None
    if json:
        from tickwork.cli.output import print_json

        print_json({"files": [str(folder / name) for name in FILES]})
        return Exit.OK
    step = f"cd {folder} && " if folder != Path() else ""
    print(f"made {', '.join(FILES)}\nnext: {step}tickwork dev app.py")
    return Exit.OK
