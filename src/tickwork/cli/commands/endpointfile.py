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
    document = read_document(path)
    try:
        check(document)  # YAML has names that are no text, and values that hold themselves
    except Refused as refused:
        raise CommandExit(Exit.REFUSED, f"{path}: {refused}") from None
    if isinstance(document, dict) and isinstance(document.get("endpoints"), dict):
        unknown = sorted(str(name) for name in document if name != "endpoints")
        if unknown:
            raise CommandExit(Exit.REFUSED, f"{path}: {unknown[0]!r} stands beside `endpoints`; put it under it")
        document = document["endpoints"]
    if not isinstance(document, dict) or not document:
        raise CommandExit(Exit.REFUSED, f"{path}: it must be a mapping from an endpoint's name to what it has")
    return {name: _endpoint_request(path, name, fields) for name, fields in document.items()}


def _endpoint_request(path: Path, name: str, fields: Any) -> EndpointRequest:
    try:
        return msgspec.convert(fields, EndpointRequest)
    except msgspec.ValidationError as error:
        message, _, path_in_file = str(error).partition(" - at `$")
        raise CommandExit(Exit.REFUSED, f"{path}: {name}{path_in_file.rstrip('`')}: {message}") from None
