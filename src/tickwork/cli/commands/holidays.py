"""Calendars: lists of holidays, and the zones."""

from pathlib import Path

from cyclopts import App

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

DATES_SHOWN = 5

holidays = App(name="holidays", help_format="plaintext")


@holidays.default
def listed(*, to: ClientOptions = TO) -> int:
    """List the lists of dates that schedules leave out."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        lists = {name: tuple(dates) for name, dates in client.holidays().items()}
    if to.json:
        print_json(wire.Holidays(lists=lists))
        return Exit.OK
    if not lists:
        console(stderr=True).print("no lists of holidays; tickwork holidays put creates one")
        return Exit.OK
    rows = [
        (
            safe(name),
            str(len(dates)),
            ", ".join(dates[:DATES_SHOWN]) + (" … (--json has all)" if len(dates) > DATES_SHOWN else ""),
        )
        for name, dates in lists.items()
    ]
    console().print(table(("list", ">dates", ""), rows))
    return Exit.OK


@holidays.command
def put(name: str, /, *dates: str, to: ClientOptions = TO) -> int:
    """Create or replace a list of holidays.

    Parameters
    ----------
    name
        Its name.
    dates
        Dates (2026-12-25), or a file with one date per line, or with a YAML or JSON list.
    """
    from tickwork.cli.output import console, print_json, safe

    if not dates:
        raise CommandExit(Exit.USAGE, "name dates, or a file that has them")
    days = sorted({date for given in dates for date in _dates(given)})
    with to.client() as client:
        client.put_holidays(name, days)
    if to.json:
        print_json({"name": name, "dates": days})
    else:
        console().print(f"{safe(name)}: {len(days)} dates", soft_wrap=True)
    return Exit.OK


@holidays.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Delete a list that no schedule uses.

    Parameters
    ----------
    name
        Its name.
    """
    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        client.delete_holidays(name)
    if to.json:
        print_json({"name": name})
    else:
        console().print(f"{safe(name)}: deleted", soft_wrap=True)
    return Exit.OK


def zones(filter: str = "", /, *, to: ClientOptions = TO) -> int:  # noqa: A002 - the argument's name
    """List the time zones that a schedule can use.

    Parameters
    ----------
    filter
        Only names that contain this text, in upper or lower case.
    """
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        known = client.zones()
    names = tuple(name for name in known.zones if filter.lower() in name.lower())
    if to.json:
        print_json(wire.ZoneNames(zones=names, tzdata=known.tzdata))
        return Exit.OK
    if not names:
        raise CommandExit(Exit.NOT_FOUND, f"no zone of tzdata {known.tzdata} has {filter!r} in its name")
    print("\n".join(names))
    return Exit.OK


def _dates(given: str) -> list[str]:
    """A date itself, or those of a file."""
    if given[:4].isdigit() and len(given) == len("2026-12-25") and given[4] == "-":
        return [given]
    path = Path(given)
    if path.suffix in (".yaml", ".yml", ".json"):
        from tickwork.cli.commands.schedule_file import read_document

        document = read_document(path)
        if not isinstance(document, list) or not all(isinstance(entry, str) for entry in document):
            raise CommandExit(Exit.REFUSED, f"{path}: it must be a list of dates such as 2026-12-25")
        return document
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise CommandExit(
            Exit.NOT_FOUND, f"{given!r} is neither a date such as 2026-12-25 nor a file that can be read"
        ) from None
    return [text for line in lines if (text := line.partition("#")[0].strip())]
