"""`tickwork settings`: the settings of the machine that decides, and their changes."""

from pathlib import Path

from cyclopts import App

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

settings = App(name="settings", help_format="plaintext")


@settings.default
def listed(*, to: ClientOptions = TO) -> int:
    """Show the settings that are in force. Those that are fixed count from the creation of a store on."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.settings())
    if to.json:
        print_json(wire.Settings(settings=listing))
        return Exit.OK
    rows = [
        (safe(entry.name), str(entry.value), "" if entry.value == entry.default else f"default {entry.default}",
         "" if entry.changeable else "fixed", safe(entry.does))
        for entry in listing
    ]  # fmt: skip
    console().print(table(("setting", ">value", "", "", ""), rows))
    return Exit.OK


@settings.command
def put(*values: str, to: ClientOptions = TO) -> int:
    """Change settings, all at once; others stay. Changes are recorded, so that a replay decides in the same way.

    A value that tickwork.toml or TICKWORK_… gives is put again when the server starts.

    Parameters
    ----------
    values
        Settings as name=value: max_runs_per_tick=200.
    """
    if not values:
        raise CommandExit(Exit.USAGE, "name settings as name=value; tickwork settings lists them")
    changes: dict[str, int] = {}
    for text in values:
        name, mark, number = text.partition("=")
        digits = number.removeprefix("-")
        if not mark or not (digits.isascii() and digits.isdigit() and len(digits) < 16):
            raise CommandExit(Exit.USAGE, f"{text!r} is not name=value with a whole number")
        changes[name] = int(number)
    return _put(changes, to)


@settings.command
def apply(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Change the settings in a file, all at once; others stay.

    Parameters
    ----------
    file
        YAML, JSON or TOML: a mapping from names to whole numbers.
    """
    from tickwork.cli.commands.resource_file import read_resources

    return _put(read_resources(file, "settings", int), to)


def _put(changes: dict[str, int], to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        client.put_settings(changes)
    if to.json:
        print_json({"settings": changes})
    else:
        words = ", ".join(f"{name} is {value}" for name, value in changes.items())
        console().print(safe(words), soft_wrap=True)
    return Exit.OK
