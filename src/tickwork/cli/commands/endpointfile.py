"""A set of endpoints in a file, as YAML or JSON: from name to what an endpoint has, bare or under `endpoints`.

It is read like a file of schedules: dates stay texts, and a name that stands twice is refused.
"""

from pathlib import Path
from typing import Any

import msgspec

from tickwork.cli.commands.schedule_file import read_document
from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.core.base.errors import Refused
from tickwork.core.base.strict_json import check
from tickwork.protocol.http_models import EndpointRequest


def read_endpoints(path: Path) -> dict[str, EndpointRequest]:
    found = read_document(path)
    try:
        check(found)  # YAML has names that are no text, and values that hold themselves
    except Refused as refused:
        raise CommandExit(Exit.REFUSED, f"{path}: {refused}") from None
    if isinstance(found, dict) and isinstance(found.get("endpoints"), dict):
        unknown = sorted(str(name) for name in found if name != "endpoints")
        if unknown:
            raise CommandExit(Exit.REFUSED, f"{path}: {unknown[0]!r} stands beside `endpoints`; put it under it")
        found = found["endpoints"]
    if not isinstance(found, dict) or not found:
        raise CommandExit(Exit.REFUSED, f"{path}: it must be a mapping from an endpoint's name to what it has")
    return {name: _one(path, name, one) for name, one in found.items()}


def _one(path: Path, name: str, found: Any) -> EndpointRequest:
    try:
        return msgspec.convert(found, EndpointRequest)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise CommandExit(Exit.REFUSED, f"{path}: {name}{place.rstrip('`')}: {message}") from None
