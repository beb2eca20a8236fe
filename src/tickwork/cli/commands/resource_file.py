"""Read resources from a file: YAML, JSON or TOML, a mapping from names to fields, bare or under the kind's own word.

One file form for all kinds that have a name: what a file says of a resource is the body of its PUT.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tickwork.cli.commands.schedule_file import read_document
from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.core.base.errors import Refused
from tickwork.core.base.strict_json import check

T = TypeVar("T")


def read_resources(path: Path, kind: str, model: type[T]) -> dict[str, T]:
    """From name to request. `kind` is the plural that may stand around them, such as `policies`."""
    document = _plain(path)
    if isinstance(document, dict) and isinstance(document.get(kind), dict):
        beside = sorted(str(name) for name in document if name != kind)
        if beside:
            raise CommandExit(Exit.REFUSED, f"{path}: {beside[0]!r} is next to `{kind}`; move it into that mapping")
        document = document[kind]
    if not isinstance(document, dict) or not document:
        raise CommandExit(Exit.REFUSED, f"{path}: it must be a mapping from names to fields ({kind})")
    return {name: _request(path, name, fields, model) for name, fields in document.items()}


def read_workflows(path: Path) -> list[dict[str, Any]]:
    """Workflow documents: one, a list of them, or a list under `workflows`."""
    document = _plain(path)
    if isinstance(document, dict) and "workflows" in document:
        document = document["workflows"]
    documents = document if isinstance(document, list) else [document]
    for number, entry in enumerate(documents):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            where = f"document {number + 1} of {len(documents)}" if len(documents) > 1 else "the document"
            raise CommandExit(Exit.REFUSED, f"{path}: {where} must be a mapping with a name and nodes")
    return documents


def _plain(path: Path) -> Any:
    document = read_document(path)
    try:
        check(document)  # YAML allows keys that are not text, and values that contain themselves
    except Refused as refused:
        raise CommandExit(Exit.REFUSED, f"{path}: {refused}") from None
    return document


def _request(path: Path, name: str, fields: Any, model: type[T]) -> T:
    try:
        return msgspec.convert(fields, model)
    except msgspec.ValidationError as error:
        message, _, path_in_file = str(error).partition(" - at `$")
        raise CommandExit(Exit.REFUSED, f"{path}: {name}{path_in_file.rstrip('`')}: {message}") from None
