"""`tickwork schedules diff`: every occurrence that differs between two sets of schedules, or two versions of tzdata.

It is computed locally. A server is queried only for its schedules, if no file is given.
"""

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.cli.commands.schedule_file import ScheduleFile
    from tickwork.core.calendar.recurrence import Recurrence
    from tickwork.core.calendar.zones import Zones

DAY_MS = 86_400_000
DAYS_MAX = 3_660


class OccurrenceDiff(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that only one side has."""

    sign: str  # - of the first side, + of the second
    schedule: str
    utc: str
    local: str


def diff(
    *files: Path, days: int = 30, tzdata: Path | None = None, start: str | None = None, to: ClientOptions = TO
) -> int:
    """Show each occurrence that differs between two sets of schedules, or between two versions of tzdata.

    With two files, their schedules are compared. With --tzdata, one set is compared under that data and under ours; the
    set comes from a file or from the server. Exit code 1 if there is a difference.

    Parameters
    ----------
    files
        YAML or JSON files, as for `apply`.
    days
        Number of days to look ahead.
    tzdata
        Folder `zoneinfo` of another version of the package tzdata.
    start
        Start of the comparison (RFC 3339; now).
    """
    from tickwork.cli.output import print_json
    from tickwork.core.calendar.durations import instant_ms, instant_text
    from tickwork.core.calendar.zones import in_zone
    from tickwork.core.explain.schedule_preview import difference
    from tickwork.system.clock import SystemClock
    from tickwork.system.zone_data import load_zones

    if not 1 <= days <= DAYS_MAX:
        raise CommandExit(Exit.USAGE, f"--days is 1 to {DAYS_MAX}")
    from_ms = instant_ms(start, path="start") if start else SystemClock().wall_ms()
    ours = load_zones()
    (before, old_zones), (after, new_zones) = _sides(files, tzdata, ours, to)
    sides = (before, old_zones), (after, new_zones)
    first, second = (expected(side, zones, from_ms, from_ms + days * DAY_MS) for side, zones in sides)
    diffs: list[OccurrenceDiff] = []
    for change in difference(first, second):
        side, zones = sides[0] if change.sign == "-" else sides[1]
        local = in_zone(zones.get(side.schedules[change.key].timezone), change.at_ms)
        diffs.append(OccurrenceDiff(sign=change.sign, schedule=change.key, utc=instant_text(change.at_ms), local=local))
    versions = (old_zones.version, new_zones.version)
    if to.json:
        print_json({"days": days, "tzdata": versions, "differences": diffs})
    else:
        _show(diffs, days, versions)
    return Exit.FAILED if diffs else Exit.OK


def expected(side: "ScheduleFile", zones: "Zones", from_ms: int, to_ms: int) -> Iterator[tuple[str, int]]:
    """What a set expects in a window, by (time, name)."""
    from tickwork.core.base.names import TENANT
    from tickwork.core.calendar.schedule_spec import compile_when
    from tickwork.core.evolve.schedules import anchored
    from tickwork.protocol.schedule_requests import in_words, when_of

    holidays = {name: frozenset(dates) for name, dates in side.holidays.items()}
    streams = []
    for name, request in sorted(side.schedules.items()):
        with in_words(f"schedules.{name}"):
            when = anchored(when_of(request), None, from_ms)  # as if it were put at the beginning of the window
            rhythm = compile_when(when, zones, holidays, f"{TENANT}/{name}", path="when")
        streams.append(_stream(name, rhythm, from_ms, to_ms, request.max_runs or None))
    return ((name, at_ms) for at_ms, name in heapq.merge(*streams))


def _stream(
    name: str, rhythm: "Recurrence", from_ms: int, to_ms: int, runs_max: int | None
) -> Iterator[tuple[int, str]]:
    return ((at_ms, name) for at_ms in islice(rhythm.between(from_ms, to_ms), runs_max))


def _sides(files: tuple[Path, ...], tzdata: Path | None, ours: "Zones", to: ClientOptions) -> Any:
    from tickwork.cli.commands.schedule_file import read_schedules

    if tzdata is None:
        if len(files) != 2:
            raise CommandExit(
                Exit.USAGE, "name two files with schedules, or another version of the zones with --tzdata"
            )
        return tuple((read_schedules(path), ours) for path in files)
    if len(files) > 1:
        raise CommandExit(Exit.USAGE, "with --tzdata name one file, or none for the schedules of the server")
    schedules = read_schedules(files[0]) if files else _live(to)
    return (schedules, read_zones(tzdata)), (schedules, ours)


def _live(to: ClientOptions) -> "ScheduleFile":
    """The server's schedules; those in the archive expect nothing, and neither do those that the Governor leads."""
    from rich.progress import track

    from tickwork.cli.commands.schedule_file import ScheduleFile
    from tickwork.cli.output import console
    from tickwork.protocol.http_models import ScheduleRequest

    screen = console(stderr=True)
    requests: dict[str, ScheduleRequest] = {}
    with to.client() as client:
        every = {schedule.name: schedule for schedule in client.schedules() if schedule.governed is None}
        quiet = to.json or not screen.is_terminal
        for name in track(list(every), "schedules", console=screen, transient=True, disable=quiet):
            request, shown = client.schedule(name).request, every[name]
            if request is not None and request.max_runs:
                left = request.max_runs - shown.fired - shown.buffered
                request = msgspec.structs.replace(request, max_runs=left) if left > 0 else None
            if request is not None:
                requests[name] = request
        lists: Mapping[str, tuple[str, ...]] = client.holidays()
    return ScheduleFile(schedules=requests, holidays=dict(lists))


def read_zones(folder: Path) -> "Zones":
    """Another version of the data: names from its own files, the version from its source."""
    from tickwork.core.calendar.zones import Zones, names_in_use

    source, table = folder / "tzdata.zi", folder / "zone.tab"
    if not source.is_file() or not table.is_file():
        raise CommandExit(
            Exit.NOT_FOUND, f"{folder} has no tzdata.zi and zone.tab; name the folder zoneinfo of a tzdata package"
        )
    every = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and _is_zone(path)
    )
    text = source.read_text(encoding="utf-8")
    names, links = names_in_use(every, text, table.read_text(encoding="utf-8"))
    version = text.partition("\n")[0].removeprefix("# version").strip() or folder.name
    return Zones(version, names, lambda name: folder.joinpath(*name.split("/")).read_bytes(), links)


def _is_zone(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"TZif"


def _show(diffs: list[OccurrenceDiff], days: int, versions: tuple[str, str]) -> None:
    from tickwork.cli.output import console, safe, table

    about = f" (tzdata {versions[0]} and {versions[1]})" if versions[0] != versions[1] else ""
    if not diffs:
        console(stderr=True).print(f"the same for {days} days{safe(about)}")
        return
    rows = [
        (
            f"[{'red' if change.sign == '-' else 'green'}]{change.sign}[/]",
            safe(change.schedule),
            safe(change.local),
            change.utc,
        )
        for change in diffs
    ]
    console().print(table(("", "schedule", "in its zone", "UTC"), rows))
    console(stderr=True).print(f"{len(diffs)} occurrences differ within {days} days{safe(about)}")
