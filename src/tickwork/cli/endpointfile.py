"""A set of endpoints in a file, as YAML or JSON: from name to what an endpoint has, bare or under `endpoints`."""

from pathlib import Path
from typing import Any

import msgspec

from tickwork.cli.exits import Ended, Exit
from tickwork.ports.wire import EndpointRequest

BYTES_MAX = 16 * 1024 * 1024


def read_endpoints(path: Path) -> dict[str, EndpointRequest]:
    found = _document(path)
    if isinstance(found, dict) and isinstance(found.get("endpoints"), dict):
        unknown = sorted(str(name) for name in found if name != "endpoints")
        if unknown:
            raise Ended(Exit.REFUSED, f"{path}: {unknown[0]!r} stands beside `endpoints`; put it under it")
        found = found["endpoints"]
    if not isinstance(found, dict) or not found:
        raise Ended(Exit.REFUSED, f"{path}: it must be a mapping from an endpoint's name to what it has")
    return {str(name): _one(path, str(name), one) for name, one in found.items()}


def _one(path: Path, name: str, found: Any) -> EndpointRequest:
    try:
        return msgspec.convert(found, EndpointRequest)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise Ended(Exit.REFUSED, f"{path}: {name}{place.rstrip('`')}: {message}") from None


def _document(path: Path) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Ended(Exit.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from None
    if len(data) > BYTES_MAX:
        raise Ended(Exit.REFUSED, f"{path} has more than {BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data) if path.suffix == ".json" else msgspec.yaml.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Ended(Exit.REFUSED, f"{path}: {' '.join(str(error).split())}") from None
