"""Time zones from the package `tzdata`, never from the operating system.

The journal names the release in every row, so a replay knows by which rules a row was decided.
"""

from functools import cache
from importlib import resources

import tzdata

from tickwork.core.calendar.zones import Zones, names_in_use


@cache
def load_zones() -> Zones:
    """All zones of the package; a zone's own file is read on first use."""
    package = resources.files(tzdata)
    folder = package / "zoneinfo"
    every = (package / "zones").read_text(encoding="ascii").split()
    source = (folder / "tzdata.zi").read_text(encoding="utf-8")
    table = (folder / "zone.tab").read_text(encoding="utf-8")
    names, links = names_in_use(every, source, table)
    return Zones(tzdata.IANA_VERSION, names, lambda name: folder.joinpath(*name.split("/")).read_bytes(), links)
